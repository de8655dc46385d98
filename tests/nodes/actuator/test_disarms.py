"""What takes the robot from its driver: an agent that is not active, a clock that goes back, other limits, a robot that
is not where it should be, a person."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from auras_ros.action import Contract
from auras_ros.nodes.actuator.settings import load_contract, load_digest
from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import ClockMsg, String, TimeMsg
from tests.nodes.controllers import channel, contract_folder
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Loop, Robot, ramp
from tests.nodes.wire import LATCHED, NAMES, Child, Watch

JOINT = '<joint name="{}" type="prismatic"><limit lower="{}" upper="{}" velocity="{}" effort="1"/></joint>'


def description(upper: float = 400.0, velocity: float = 1000.0, *names: str) -> String:
    """A robot with these joints (both of the table's by default)."""
    joints = [JOINT.format(name, 50.0, upper, velocity) for name in names or ("agent_x", "agent_y")]
    return String(data=f'<robot name="table">{"".join(joints)}</robot>')


def drives(fake: FakeAgent, watch: Watch) -> None:
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()


def disarmed(watch: Watch, reason: str) -> None:
    """It said why, its last action held, and nothing came after it until it was armed again."""
    said = watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
    assert reason in said["reason"]
    watch.until(lambda: watch.actions[-1].label.state == "disarmed", "the last action")
    last = watch.actions[-1]
    assert last.label.source == "hold"
    watch.state_where(lambda state: state["tick"] > last.label.tick + 20, "twenty ticks without a word")
    assert watch.actions[-1] is last


# -- the agent's life cycle -------------------------------------------------------------------------------


def test_an_agent_that_is_no_longer_active_disarms_and_another_one_does_not(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    actuator()
    drives(fake, watch)
    for lifecycle in ("deactivating", "inactive", "errorprocessing", "finalized"):
        fake.lifecycle = lifecycle
        disarmed(watch, f"agent is {lifecycle}")
        refused = f"agent 'agent' is {lifecycle}: activate it first"
        assert watch.call("actuator/arm") == (False, refused)
        fake.lifecycle = "active"
        watch.arm()  # and not by itself
        watch.armed()
    other = FakeAgent(watch.node, fake.contract, fake.digest, "other")
    other.lifecycle = "inactive"
    other.live()
    watch.state_where(lambda state: state["agent"] == "other", "it was heard")
    now = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > now + 20, "twenty ticks")
    other.still()
    watch.drives_on()


def test_a_word_that_the_next_one_takes_back_is_heard(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """The agent was inactive for a moment, while the actuator did not run: two beats wait, and the first one counts."""
    child = actuator()
    drives(fake, watch)
    child.send(signal.SIGSTOP)
    fake.lifecycle = "inactive"
    for _ in range(3):  # best effort
        fake.beat()
    fake.lifecycle = "active"
    fake.beat()
    child.send(signal.SIGCONT)
    disarmed(watch, "agent is inactive")


def test_while_it_waits_to_be_armed_chunks_are_named_once(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Guards against a warning each second for each chunk that nobody asked to be executed."""
    child = actuator()
    told = "chunks are received, but not executed before arming"
    for times in (1, 2):
        if times == 1:
            fake.live()
            fake.drive(ramp())
        watch.until(lambda: child.output.count(told) == times, "that chunks come")  # noqa: B023
        now = fake.request
        watch.until(lambda: fake.request > now + 15, "fifteen chunks more")  # noqa: B023
        watch.arm()
        watch.armed()
        assert child.output.count(told) == times
        assert watch.call("actuator/disarm")[0]
    assert " refused: " not in child.output


# -- simulated time ---------------------------------------------------------------------------------------


class Ticking:
    """/clock, a tenth of a second a message; `now_s` may be set."""

    def __init__(self, watch: Watch) -> None:
        self.now_s = 100.0
        best = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._topic = watch.node.create_publisher(ClockMsg, "/clock", best)
        self.loop = Loop(0.05, self._step)

    def _step(self) -> None:
        self.now_s += 0.05
        seconds = int(self.now_s)
        self._topic.publish(ClockMsg(clock=TimeMsg(sec=seconds, nanosec=int((self.now_s - seconds) * 1e9))))


@pytest.fixture
def ticking(watch: Watch) -> Iterator[Callable[[], Ticking]]:
    made: list[Ticking] = []

    def begin() -> Ticking:
        made.append(Ticking(watch))
        return made[-1]

    yield begin
    for each in made:
        each.loop.close()


def test_a_simulation_that_is_reset_disarms(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot, ticking: Callable[[], Ticking]
) -> None:
    """The world is another one now: what was observed in the old one must not drive it."""
    actuator(use_sim_time=True)
    fake.live()
    fake.drive(ramp())
    refused = "use_sim_time is set and no /clock has come"
    watch.until(lambda: watch.call("actuator/arm") == (False, refused), "the refusal")
    clock = ticking()
    watch.arm()
    watch.armed()
    clock.now_s += 3600.0  # forward is no reset: chunks are aged by the monotonic clock
    watch.armed()
    clock.now_s = 5.0
    disarmed(watch, "/clock went back")
    watch.arm()
    watch.armed()


# -- limits of the robot ----------------------------------------------------------------------------------


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """The table in metres, a unit that a description's limits can be compared with."""
    table = [channel(name, unit="m", lower=0.0, upper=512.0, max_rate=4000.0) for name in NAMES]
    return load_contract(contract_folder(tmp_path / "table", table, 100.0))


@pytest.fixture
def in_metres(
    actuator: Callable[..., Child], contract: Contract, fake: FakeAgent, tmp_path: Path
) -> Callable[..., Child]:
    """The actuator of that table, for an agent that says it runs the same."""
    fake.digest = load_digest(str(tmp_path / "table"))
    return lambda **parameters: actuator(checkpoint=str(tmp_path / "table"), **parameters)


def test_limits_that_come_before_arming_are_active(
    in_metres: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """350 px is within the contract's limits and beyond the robot's: the chunk is refused, and nothing moves there."""
    in_metres(require_robot_description=True)
    fake.live()
    missing = "no robot_description with joint limits has come, and require_robot_description is set"
    watch.until(lambda: watch.call("actuator/arm") == (False, missing), "the refusal")
    topic = watch.node.create_publisher(String, "robot_description", LATCHED)
    topic.publish(description(320.0, 1000.0, "agent_x"))
    unknown = "robot_description has no limits for agent_y"
    watch.until(lambda: watch.call("actuator/arm") == (False, unknown), "the refusal of half a robot")
    topic.publish(description(320.0))
    watch.arm()
    fake.drive(np.full((16, 2), 350.0))
    watch.until(lambda: watch.count("over_limit") >= 1, "refused by the robot's limits")
    fake.still()
    fake.live()
    beyond = fake.request
    fake.drive(np.full((16, 2), 310.0))
    watch.until(lambda: watch.actions and watch.actions[-1].values[0] == 310.0, "arrived")
    driven = {heard.label.request for heard in watch.actions} - {None}
    assert min(driven) > beyond
    values = np.stack([heard.values for heard in watch.actions])
    assert values.max() <= 320.0
    assert (np.abs(np.diff(values, axis=0)) <= 1000.0 / 100.0 * 3 + 1e-9).all()  # two missed ticks allowed


def test_limits_that_change_while_armed_disarm_and_then_hold(
    in_metres: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    diagnosed = Diagnosed(watch)
    in_metres()
    drives(fake, watch)
    topic = watch.node.create_publisher(String, "robot_description", LATCHED)
    topic.publish(description())
    disarmed(watch, "robot_description changed the limits")
    diagnosed.until("actuator: limits", "OK", "")
    assert diagnosed.values("actuator: limits")["limits"] == "the contract's, tightened by robot_description"
    watch.arm()
    watch.armed()
    topic.publish(description())  # the same again, as when a model is published again
    now = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > now + 30, "thirty ticks")
    watch.drives_on()


ONE_STREAM_FAILS = """
from auras_ros.nodes.actuator import command_loop
real, calls = command_loop.host_id, []
def host_id():
    calls.append(1)
    if len(calls) == 2:
        raise OSError(24, 'Too many open files')
    return real()
command_loop.host_id = host_id
"""


def test_limits_that_could_not_be_taken_are_not_said_to_be(
    in_metres: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    child = in_metres(code=ONE_STREAM_FAILS, require_robot_description=True)
    fake.live()
    topic = watch.node.create_publisher(String, "robot_description", LATCHED)
    topic.publish(description(320.0))
    watch.until(lambda: "Too many open files" in child.output, "the refusal")
    missing = "no robot_description with joint limits has come, and require_robot_description is set"
    assert watch.call("actuator/arm") == (False, missing)
    assert "tightened" not in watch.states[-1]["limits"]
    topic.publish(description(320.0))
    watch.state_where(lambda state: "tightened" in state["limits"], "taken the second time")
    watch.arm()


@pytest.mark.parametrize("driven", [True, False], ids=["from armed", "from disarmed"])
def test_limits_that_change_while_stopped_leave_the_stop_latched(
    in_metres: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot, driven: bool
) -> None:
    in_metres()
    fake.live()
    fake.drive(ramp())
    watch.arm()
    if not driven:
        assert watch.call("actuator/disarm") == (True, "disarmed")
    assert watch.call("actuator/stop") == (True, "stopped")
    topic = watch.node.create_publisher(String, "robot_description", LATCHED)
    topic.publish(description())
    watch.state_where(lambda state: "tightened" in state["limits"], "the description was heard")
    now = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > now + 20, "twenty ticks")
    assert watch.states[-1]["state"] == "stopped"
    assert watch.call("actuator/disarm") == (True, "disarmed")
    watch.arm()


FAR = "".join(JOINT.format(name, 1000.0, 2000.0, 10.0) for name in ("agent_x", "agent_y"))
USELESS = {
    "empty": "",
    "text": "no XML",
    "cut off": "<robot",
    "entities": '<!DOCTYPE robot [<!ENTITY a "b">]><robot>&a;</robot>',
    "20 MB": "<robot/>" + " " * 20_000_000,
    "one that can reach nothing of the contract": f'<robot name="far">{FAR}</robot>',
}


def test_a_description_that_cannot_be_used_changes_nothing(
    in_metres: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    in_metres()
    drives(fake, watch)
    topic = watch.node.create_publisher(String, "robot_description", LATCHED)
    for count, (what, text) in enumerate(USELESS.items(), start=1):
        topic.publish(String(data=text))
        said = watch.state_where(lambda state, n=count: state["unreadable"] == n, f"refused: {what}")
        assert said["limits"] == "the contract's", what
        watch.drives_on()


# -- where the robot is -----------------------------------------------------------------------------------


def test_a_robot_of_which_nothing_is_heard_is_held_and_one_that_is_put_elsewhere_is_driven_no_further(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """Chunks come all the while. The held one goes on when it is back; of the other no last command either: the last
    place is far from where the robot is."""
    actuator()
    drives(fake, watch)
    robot.joints = False
    said = watch.state_where(lambda state: "joint_states: no new position of agent_x" in state["reason"], "the reason")
    watch.until(lambda: watch.actions[-1].label.tick > said["tick"] + 50, "fifty ticks")
    assert {heard.label.state for heard in watch.actions if heard.label.tick > said["tick"]} == {"holding"}
    robot.joints = True
    watch.armed()

    robot.place = (100.0, 500.0)
    said = watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
    assert "agent_y is at 500" in said["reason"]
    watch.state_where(lambda state: state["tick"] > said["tick"] + 20, "twenty ticks without a word")
    assert watch.actions[-1].label.tick <= said["tick"]
    assert watch.actions[-1].label.state != "disarmed", "not even a last command"
    watch.arm()
    watch.armed()


def test_who_is_not_to_be_watched_is_not(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    actuator(place_tolerance=0.0)
    drives(fake, watch)
    robot.place = (500.0, 10.0)
    now = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > now + 50, "fifty ticks")
    watch.drives_on()


# -- a person's no ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["stop", "disarm"], ["disarm"]], ids="-".join)
def test_after_a_persons_no_nobody_is_armed_by_a_parameter(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot, words: list[str]
) -> None:
    """Guards against a robot that drives because an agent has come, minutes after somebody stopped it."""
    actuator(arm_on_start=True)
    assert watch.call(f"actuator/{words[0]}")[0]
    fake.live()
    fake.drive(ramp())
    watch.state_where(lambda state: state["agent"] == "fake", "the agent is heard")
    for word in words:
        assert watch.call(f"actuator/{word}")[0]
        now = watch.states[-1]["tick"]
        watch.state_where(lambda state, tick=now: state["tick"] > tick + 50, "half a second")
        assert watch.states[-1]["state"] == ("stopped" if word == "stop" else "disarmed")
    assert watch.sentinel() == []
