"""A message that a callback cannot take ends no node: it is counted, said with its place, shown in diagnostics, and the
good ones after it are used. A new fault that nobody thought of is planted in the callback."""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.exit_status import BROKEN
from auras_ros.ros.msg import Bool
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Robot
from tests.nodes.wire import LATCHED, Child, Children, Watch

PLANTED = """
import auras_ros.nodes.{module} as module
taken, count = module.{owner}.{callback}, [0]
def hostile(self, *message, **options):
    count[0] += 1
    if count[0] % 2:
        raise KeyError("a new fault \\ud800", [[[...]]])
    return taken(self, *message, **options)
module.{owner}.{callback} = hostile
"""


def test_the_actuator_arms_and_drives_beside_messages_that_a_callback_cannot_take(
    actuator: Callable[..., Child], watch: Watch, robot: Robot, fake: FakeAgent
) -> None:
    said = Diagnosed(watch)
    child = actuator(code=PLANTED.format(module="actuator.inputs", owner="ActuatorInputs", callback="_on_joint_states"))
    fake.live()
    watch.arm()
    fake.drive([[200.0 + step, 200.0] for step in range(16)])
    watch.armed()
    said.until("actuator: callbacks", "WARN", "a new fault")
    assert int(said.values("actuator: callbacks")["failed"]) > 0
    assert "a callback failed and was skipped" in child.output
    assert "in hostile" in child.output, "the traceback says where"
    assert child.process.poll() is None


def test_what_fails_in_the_thread_of_the_emergency_stop_is_the_actuators_to_show(
    actuator: Callable[..., Child], watch: Watch
) -> None:
    """Its node is another one (`actuator_stop`), which publishes no diagnostics."""
    said = Diagnosed(watch)
    actuator(code=PLANTED.format(module="actuator.emergency_stop", owner="EmergencyStop", callback="_on_message"))
    watch.node.create_publisher(Bool, "emergency_stop", LATCHED).publish(Bool(data=False))
    said.until("actuator: callbacks", "WARN", "a new fault")


def test_the_actuator_ends_with_the_thread_of_the_emergency_stop(actuator: Callable[..., Child], watch: Watch) -> None:
    """Whatever ended it: nobody would hear the next word. MemoryError is the one that no guard leaves."""
    code = """
import auras_ros.nodes.actuator.emergency_stop as module
def out_of_memory(self, *message, **options):
    raise MemoryError
module.EmergencyStop._on_message = out_of_memory
"""
    child = actuator(code=code)
    watch.node.create_publisher(Bool, "emergency_stop", LATCHED).publish(Bool(data=False))
    assert child.wait() == BROKEN


def test_the_agent_publishes_chunks_beside_messages_that_a_callback_cannot_take(
    children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    robot.play_actuator()
    watch.hear_agent()
    said = Diagnosed(watch)
    code = PLANTED.format(module="agent.inputs", owner="ObservationInputs", callback="_on_joint_states")
    child = children.node("agent", {"checkpoint": checkpoint, "state_age_limit_ms": 5000.0}, code=code)
    said.until("agent: callbacks", "WARN", "a new fault")
    watch.until(lambda: watch.chunks, "chunks")
    assert child.process.poll() is None
