"""The emergency stop as a topic: every True latches, whatever comes after it and however busy the actuator is;
releasing it clears nothing, each publisher releases for itself, and one that is required must be there."""

from __future__ import annotations

import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from auras_ros.live.soak.own_layer import OwnLayer, available
from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import Bool, Float64MultiArray, JointState, MultiArrayDimension, String
from auras_ros.ros.srv import Trigger
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.middleware import IDENTIFIES_PUBLISHERS, presser, release
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import LATCHED, MS, RELIABLE, Child, Children, Watch

PRESSES = 10
SOON_MS = 150.0  # from a press to the first command that is stopped, at best: a busy machine may keep it from that
TRIES = 8

BUTTON = """
import signal
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy, DurabilityPolicy, init
from auras_ros.ros.msg import Bool
init(args=[])
qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
button = Node("button").create_publisher(Bool, "emergency_stop", qos)
button.publish(Bool(data=False))
signal.pause()
"""


def pressed(watch: Watch, who: str) -> None:
    """Arming is refused, and it is said who presses."""
    armed, reason = watch.call("actuator/arm")
    assert not armed
    assert reason.startswith(f"the emergency stop is pressed by {who}: release it first")


@pytest.fixture
def driven(actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot) -> FakeAgent:
    actuator()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    return fake


def test_pressed_latches_a_hold_and_only_disarming_clears_it(driven: FakeAgent, watch: Watch) -> None:
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    watch.until(lambda: watch.actions[-1].label.state == "stopped", "a stopped action")
    first = [heard.label.state for heard in watch.actions].index("stopped")
    pressed(watch, presser("/watch"))
    release(watch, button)
    assert watch.call("actuator/arm") == (False, "stopped: emergency stop pressed; disarm first")
    held = watch.actions[first:]
    assert {heard.label.state for heard in held} == {"stopped"}
    assert all(np.array_equal(heard.values, watch.actions[first - 1].values) for heard in held)
    assert watch.call("actuator/disarm") == (True, "disarmed")
    watch.arm()
    watch.armed()


def test_disarming_while_it_is_pressed_does_not_make_it_armable(driven: FakeAgent, watch: Watch) -> None:
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    watch.until(lambda: watch.actions[-1].label.state == "stopped", "a stopped action")
    assert watch.call("actuator/disarm") == (True, "disarmed")
    pressed(watch, presser("/watch"))


def test_one_that_was_pressed_before_the_actuator_came_is_heard(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Guards against a button that is down while the robot is switched on."""
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    actuator(arm_on_start=True)
    fake.live()
    fake.drive(ramp())
    said = watch.state_where(lambda state: state["emergency_stop"] is True, "it is heard")
    assert said["state"] == "stopped"
    watch.state_where(lambda state: state["tick"] > said["tick"] + 50, "ticks")
    assert watch.sentinel() == []


def test_one_that_is_required_and_says_changes_only_must_be_there_and_stops_when_it_dies(
    actuator: Callable[..., Child], children: Children, fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """One that repeats its state: test_required_button."""
    diagnosed = Diagnosed(watch)
    actuator(require_emergency_stop=True, emergency_stop_max_silence_ms=0.0)
    fake.live()
    fake.drive(ramp())
    nobody = "nobody publishes /emergency_stop as std_msgs/Bool, reliable and transient local"
    missing = f"no emergency stop: {nobody}, and require_emergency_stop is set"
    watch.until(lambda: watch.call("actuator/arm") == (False, missing), "the refusal")
    diagnosed.until("actuator: emergency stop", "WARN", "nobody publishes")
    button = children(sys.executable, "-c", BUTTON)
    watch.arm()
    watch.armed()
    diagnosed.until("actuator: emergency stop", "OK", "not pressed")
    button.send(signal.SIGTERM)
    button.wait()
    state = watch.state_where(lambda said: said["state"] == "stopped", "stopped")
    assert state["reason"].endswith("on /emergency_stop is gone")
    diagnosed.until("actuator: emergency stop", "WARN", "nobody publishes")
    watch.call("actuator/disarm")
    watch.until(lambda: watch.call("actuator/arm") == (False, missing), "the refusal without it")
    assert watch.call("actuator/release_stop") == (False, f"not released: {nobody}")


VOLATILE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)


def test_a_button_whose_qos_is_too_weak_is_named_and_nobody_arms_beside_it(
    actuator: Callable[..., Child], watch: Watch
) -> None:
    """Nothing passes from a best effort button, and one that can be heard beside it makes up for nothing."""
    diagnosed = Diagnosed(watch)
    best_effort = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
    watch.node.create_publisher(Bool, "emergency_stop", best_effort)
    watch.node.create_publisher(Bool, "emergency_stop", LATCHED).publish(Bool(data=False))
    actuator(require_emergency_stop=True)
    diagnosed.until("actuator: qos", "WARN", "emergency_stop: incompatible RELIABILITY")
    diagnosed.until("actuator: emergency stop", "WARN", "cannot receive /watch")
    how = "publish it as std_msgs/Bool, reliable"
    assert watch.call("actuator/arm") == (False, f"the emergency stop of /watch cannot be received: {how}")


# What `ros2 topic pub --once /emergency_stop std_msgs/msg/Bool '{data: true}'` does: its publisher is volatile, waits
# for a subscription, publishes once, and is gone.
PUBLISH_ONCE = """
import time
from auras_ros.ros import Node, QoSProfile, ReliabilityPolicy, init, spin_once, try_shutdown
from auras_ros.ros.msg import Bool
init(args=[])
node = Node("operator")
button = node.create_publisher(Bool, "emergency_stop", QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE))
while not button.get_subscription_count():
    spin_once(node, timeout_sec=0.02)
button.publish(Bool(data=True))
end_s = time.monotonic() + 0.1
while time.monotonic() < end_s:
    spin_once(node, timeout_sec=0.02)
node.destroy_node()
try_shutdown()
"""


def test_a_press_from_a_shell_latches_and_is_released_by_a_person(
    driven: FakeAgent, watch: Watch, children: Children
) -> None:
    """Guards against a publisher that waits for ever because no reader accepts the QoS of the operator's tool."""
    assert children(sys.executable, "-c", PUBLISH_ONCE).wait() == 0
    watch.state_where(lambda state: state["state"] == "stopped", "stopped")
    assert watch.call("actuator/disarm") == (True, "disarmed")
    watch.until(lambda: not watch.call("actuator/arm")[0], "arming is refused")
    watch.until(lambda: watch.call("actuator/release_stop")[0], "released")
    watch.arm()
    watch.armed()


def test_a_volatile_button_that_says_changes_only_stops_but_does_not_satisfy_the_requirement(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """An actuator that starts later never hears the last word of a volatile button."""
    diagnosed = Diagnosed(watch)
    button = watch.node.create_publisher(Bool, "emergency_stop", VOLATILE)
    actuator(require_emergency_stop=True, emergency_stop_max_silence_ms=0.0)
    watch.until(lambda: button.get_subscription_count() > 0, "somebody who hears the button")
    fake.live()
    button.publish(Bool(data=False))
    watch.state_where(lambda state: state["emergency_stop"] is False, "the button is heard")
    diagnosed.until("actuator: emergency stop", "WARN", "as std_msgs/Bool, reliable and transient local")
    armed, reason = watch.call("actuator/arm")
    assert not armed
    assert reason.startswith("no emergency stop: nobody publishes /emergency_stop as")
    button.publish(Bool(data=True))
    watch.state_where(lambda state: state["state"] == "stopped", "stopped")


# -- presses that are short, beside whatever else the actuator is asked to do ------------------------------


def latched(watch: Watch, button: object, seconds: float, around: Callable[[Callable[[], None]], None]) -> None:
    """A press of so many seconds, made in `around`, stops the actuator. It is disarmed after it."""

    def press() -> None:
        button.publish(Bool(data=True))  # type: ignore[attr-defined]
        if seconds:
            threading.Event().wait(seconds)
        button.publish(Bool(data=False))  # type: ignore[attr-defined]

    around(press)
    watch.state_where(lambda state: state["state"] == "stopped", "the press is latched")
    watch.until(lambda: watch.call("actuator/disarm")[0], "disarmed")
    watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
    if not IDENTIFIES_PUBLISHERS:
        assert watch.call("actuator/release_stop")[0]


@pytest.fixture
def idle(actuator: Callable[..., Child], watch: Watch) -> tuple[Child, Watch, object]:
    """An actuator that hears a button."""
    child, button = actuator(), watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=False))
    watch.state_where(lambda state: state["emergency_stop"] is False, "the button is heard")
    return child, watch, button


@pytest.mark.parametrize("seconds", [0.0, 0.02])
def test_a_press_is_never_undone_by_the_release_that_follows_it(
    idle: tuple[Child, Watch, object], seconds: float
) -> None:
    _, watch, button = idle
    for _ in range(2 * PRESSES):
        latched(watch, button, seconds, lambda press: press())


def test_a_press_within_a_stop_of_the_process_is_latched_when_it_goes_on(idle: tuple[Child, Watch, object]) -> None:
    child, watch, button = idle

    def stopped(press: Callable[[], None]) -> None:
        child.send(signal.SIGSTOP)
        press()
        threading.Event().wait(0.1)
        child.send(signal.SIGCONT)

    for _ in range(PRESSES):
        latched(watch, button, 0.1, stopped)


@pytest.fixture
def own_layer(watch: Watch) -> Iterator[OwnLayer]:
    """A process on our own layer, which writes what no ROS node would, to nodes on any ROS."""
    if not available():
        pytest.skip("cyclonedds has no wheel here")
    with OwnLayer() as process:
        yield process


@pytest.mark.parametrize(
    ("service", "state", "before"), [("stop", "stopped", "disarm"), ("disarm", "disarmed", "stop")]
)
def test_a_call_within_a_stop_of_the_process_is_not_pushed_out(
    idle: tuple[Child, Watch, object], own_layer: OwnLayer, service: str, state: str, before: str
) -> None:
    """The requests of all clients wait in one queue."""
    child, watch, _ = idle
    # The client keeps as many answers: with Fast DDS it also hears those to the others.
    client = watch.node.create_client(Trigger, f"actuator/{service}", qos_profile=QoSProfile(depth=1000))
    watch.until(client.service_is_ready, "the service")
    first = client.call_async(Trigger.Request())
    watch.until(first.done, "an answer: then the actuator knows this client")
    assert watch.call(f"actuator/{before}")[0]
    unreadable = b"\0\1\0\0\1\0\0\0"
    own_layer.open(f"rq/actuator/{service}Request", "std_srvs/srv/Trigger_Request")
    child.send(signal.SIGSTOP)
    called = client.call_async(Trigger.Request())
    own_layer.write(unreadable, 20)
    child.send(signal.SIGCONT)
    watch.until(called.done, "an answer")
    assert called.result().success
    watch.state_where(lambda said: said["state"] == state, state)


# Whoever parses XML in this process keeps its interpreter for 0.25 s, less than the actuator's lease, and says so.
PARSES_LONG = """
import ctypes
from auras_ros.action import urdf
created = urdf.expat.ParserCreate
def create(*words):
    print("parsed in this process", flush=True)
    ctypes.PyDLL(None).usleep(250_000)
    return created(*words)
urdf.expat.ParserCreate = create
"""


def test_a_press_beside_a_robot_description_of_3_9_mb_is_latched_and_soon(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Each is another one, so that each is read: by another process, whatever it costs."""
    child = actuator(code=PARSES_LONG)
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=False))
    topic = watch.node.create_publisher(String, "robot_description", LATCHED)
    fake.live()
    fake.drive(ramp())
    filler = "<!--" + "x" * 390 + "-->"
    delays_ms: list[float] = []

    def beside(press: Callable[[], None]) -> None:
        topic.publish(String(data=f'<robot name="{uuid.uuid4()}">{filler * 9800}</robot>'))
        threading.Event().wait(0.03)  # it has come
        at_ns = time.monotonic_ns()
        press()
        delays_ms.append((watch.first("stopped", at_ns).label.mono_ns - at_ns) / MS)

    while len(delays_ms) < 2 or (min(delays_ms) > SOON_MS and len(delays_ms) < TRIES):
        watch.arm()
        watch.armed()
        latched(watch, button, 0.02, beside)
    assert "parsed in this process" not in child.output
    assert min(delays_ms) <= SOON_MS, delays_ms


def test_a_press_beside_messages_as_large_as_nobody_needs_is_latched(idle: tuple[Child, Watch, object]) -> None:
    """300,000 joint names, and a chunk of 200,000 dimensions: they are refused by their size and not read."""
    _, watch, button = idle
    joints = watch.node.create_publisher(JointState, "joint_states", RELIABLE)
    chunk = watch.node.create_publisher(Float64MultiArray, "agent/chunk", RELIABLE)
    names, dims = JointState(name=["joint"] * 300_000), Float64MultiArray()
    dims.layout.dim = [MultiArrayDimension()] * 200_000
    for _ in range(2):
        latched(watch, button, 0.02, lambda press: (joints.publish(names), chunk.publish(dims), press())[0])
    watch.state_where(lambda state: state["unreadable"] >= 2, "they are counted")


def test_a_press_beside_an_announcement_of_40_000_entities_is_latched(
    idle: tuple[Child, Watch, object], own_layer: OwnLayer
) -> None:
    """Our layer refuses it by its size."""
    _, watch, button = idle

    def beside(press: Callable[[], None]) -> None:
        with own_layer.announcing([40_000]):
            press()

    for _ in range(PRESSES):
        latched(watch, button, 0.02, beside)


def test_a_press_beside_a_client_that_never_reads_its_answers_is_latched(
    idle: tuple[Child, Watch, object], own_layer: OwnLayer
) -> None:
    """It asks for disarming a hundred times a second, and has no reader for the answers. On our layer its disarming
    undoes each press; Fast DDS does not take its requests, so a person disarms. What is asked here is that each press
    was latched, in the log's words."""
    child, watch, button = idle
    stopped = "-> stopped: emergency stop pressed"
    with own_layer.asking("actuator/disarm", "std_srvs/srv/Trigger_Request", 100.0):
        for number in range(1, PRESSES + 1):
            for pressed in (True, False):
                button.publish(Bool(data=pressed))  # type: ignore[attr-defined]
                threading.Event().wait(0.05)
            watch.until(lambda n=number: child.output.count(stopped) >= n, f"press {number}")
            assert watch.call("actuator/disarm")[0]


# -- whose word it is -------------------------------------------------------------------------------------


def test_one_button_does_not_release_another(driven: FakeAgent, watch: Watch) -> None:
    pushed, other = (watch.node.create_publisher(Bool, "emergency_stop", LATCHED) for _ in range(2))
    pushed.publish(Bool(data=True))
    watch.state_where(lambda state: state["state"] == "stopped", "stopped")
    other.publish(Bool(data=False))
    tick = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > tick + 20, "time in which its word was heard")
    assert watch.call("actuator/disarm") == (True, "disarmed")
    pressed(watch, presser("/watch"))
    if IDENTIFIES_PUBLISHERS:  # otherwise a person who releases is not told that the button is still pressed
        assert watch.call("actuator/release_stop") == (False, "still pressed by /watch: release it there")
    release(watch, pushed)
    watch.arm()
    watch.armed()


def test_a_button_that_vanishes_while_pressed_is_released_by_a_person_alone(driven: FakeAgent, watch: Watch) -> None:
    button = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    button.publish(Bool(data=True))
    watch.state_where(lambda state: state["state"] == "stopped", "stopped")
    watch.node.destroy_publisher(button)
    assert watch.call("actuator/disarm") == (True, "disarmed")
    gone = presser("a publisher that is gone")
    watch.until(lambda: gone in watch.call("actuator/arm")[1], "it is said that nobody is there")
    pressed(watch, gone)
    another = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    another.publish(Bool(data=False))
    assert watch.call("actuator/arm")[0] is False
    assert watch.call("actuator/release_stop") == (True, "released; disarm, then arm")
    watch.arm()
    watch.armed()


def test_more_words_than_can_be_kept_are_taken_for_a_press(driven: FakeAgent, watch: Watch) -> None:
    """A True among them may have been pushed out of the queue, so there was one."""
    topic = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
    watch.until(lambda: topic.get_subscription_count() > 0, "the actuator's ear")
    many = lambda: [topic.publish(Bool(data=False)) for _ in range(600)]  # noqa: E731
    watch.until(lambda: many() and watch.states[-1]["state"] == "stopped", "stopped")
    assert "more than 500 messages" in watch.states[-1]["reason"]  # in a second, or that waited to be read
