"""Each controller gets what it takes, and is stopped by us where it would not stop by itself (docs/controllers.md)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.live.loop import own_node
from auras_ros.nodes.actuator.settings import load_contract, load_digest
from auras_ros.ros import Node, qos_profile_sensor_data
from auras_ros.ros.msg import Float64MultiArray, JointState, String, Twist, TwistStamped
from tests.nodes.controllers import (
    ForwardController,
    MobileBase,
    OnTime,
    TrajectoryController,
    channel,
    contract_folder,
    positions,
    stamp,
)
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.stand_ins import FakeAgent, Loop
from tests.nodes.wire import LATCHED, MS, Child, Children, Watch

ARMS = [channel(f"{side}_joint_{n}") for side in ("left", "right") for n in range(1, 8)]  # two arms of 7 joints
NAMES = [each["name"] for each in ARMS]
DT_MS = 50.0
HORIZON = 24
JTC = "/arms_controller/joint_trajectory"
FORWARD = "/forward_position_controller/commands"
CMD_VEL = "/diff_drive_controller/cmd_vel"


def wave(horizon: int = HORIZON, start: float = 0.1) -> NDArray[np.float64]:
    """[horizon, 14]: every joint goes another way, 0.5 to 1.2 rad/s."""
    rates = np.linspace(0.5, 1.2, len(ARMS)) * np.where(np.arange(len(ARMS)) % 2, -1, 1)
    return start + np.arange(1, horizon + 1)[:, None] * rates * DT_MS / 1e3


@pytest.fixture
def arms(tmp_path: Path) -> str:
    return contract_folder(tmp_path / "arms", ARMS, DT_MS)


@pytest.fixture
def joints(watch: Watch) -> Iterator[None]:
    """Joint states of the arms, in another order than the channels, with a joint that nobody commands."""
    names = [*reversed(NAMES), "wheel"]
    topic = watch.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    loop = Loop(0.05, lambda: topic.publish(JointState(name=names, position=[0.1] * len(names))))
    yield
    loop.close()


@pytest.fixture
def driver(watch: Watch, arms: str) -> Iterator[FakeAgent]:
    made = FakeAgent(watch.node, load_contract(arms), load_digest(arms))
    made.live()
    yield made
    made.still()


Start = Callable[..., Child]


@pytest.fixture
def start(children: Children, arms: str, watch: Watch) -> Start:
    """The actuator of the arms, up; its watchdog is patient."""

    def begin(**parameters: Any) -> Child:
        given = {"checkpoint": arms, "agent_timeout_ms": 1000.0, "action_topic": FORWARD, **parameters}
        child = children.node("actuator", given)
        watch.until(lambda: watch.states, "the actuator")
        return child

    return begin


# -- JointTrajectoryController ----------------------------------------------------------------------------


@pytest.fixture
def controller(watch: Watch) -> TrajectoryController:
    return OnTime(watch.node, [*NAMES[7:], *NAMES[:7]], JTC)  # its own order of joints


def drive(driver: FakeAgent, watch: Watch, controller: TrajectoryController) -> None:
    """Arm, and one chunk that is active."""
    watch.arm()
    driver.chunk(wave())
    watch.until(lambda: controller.horizons, "the chunk's trajectory")


@pytest.mark.usefixtures("joints")
def test_each_chunk_is_one_trajectory_that_the_controller_takes(
    start: Start, driver: FakeAgent, watch: Watch, controller: TrajectoryController
) -> None:
    """All of the horizon that is left, all joints by name, within the limits from where the robot is."""
    start(joint_trajectory=True, trajectory_topic=JTC, max_chunk_age_ms=5000.0)
    watch.arm()
    made_ns: list[int] = []
    for count in range(1, 6):
        made_ns.append(time.time_ns())
        driver.chunk(wave(start=0.1 + 0.02 * count))
        watch.until(lambda n=count: len(controller.horizons) >= n, f"trajectory {count}")
    now_ns = watch.states[-1]["mono_ns"]
    watch.state_where(lambda state: state["mono_ns"] > now_ns + 200 * MS, "twenty ticks more")
    assert controller.refused == []
    assert len(controller.horizons) == 5  # and not one a tick
    at = np.full(len(NAMES), 0.1)
    for message, begin_ns in zip(controller.horizons, made_ns, strict=True):
        times_s = np.array([stamp(point.time_from_start) / 1e9 for point in message.points])
        passed = (stamp(message.header.stamp) - begin_ns) / (DT_MS * MS)
        assert HORIZON - passed - 2 <= len(times_s) <= HORIZON
        np.testing.assert_allclose(np.diff(times_s), DT_MS / 1e3)
        assert 0 < times_s[0] <= DT_MS / 1e3
        rows = positions(message, NAMES)
        assert (np.abs(rows) <= 3.0).all()
        assert all(len(point.velocities) == 0 for point in message.points)
        steps = np.diff(rows, axis=0)
        assert (np.abs(steps) <= 4.0 * DT_MS / 1e3 + 1e-9).all()
    first = positions(controller.horizons[0], NAMES)
    assert (np.abs(first[0] - at) <= 4.0 * DT_MS / 1e3 + 1e-9).all()
    np.testing.assert_allclose(first[-1], wave(start=0.12)[-1])


@pytest.mark.usefixtures("joints")
@pytest.mark.parametrize("how", ["stop", "disarm", "agent killed", "bad chunk"])
def test_a_trajectory_under_way_is_ended_by_a_point_to_stay_at(
    start: Start, driver: FakeAgent, watch: Watch, controller: TrajectoryController, how: str
) -> None:
    """Guards against a controller that goes on for a whole horizon after the actuator has said hold."""
    forward = ForwardController(watch.node, NAMES, FORWARD)
    start(joint_trajectory=True, trajectory_topic=JTC, max_chunk_age_ms=5000.0, agent_timeout_ms=500.0)
    drive(driver, watch, controller)
    if how == "bad chunk":
        driver.chunk(np.full((HORIZON, len(NAMES)), np.nan))
    elif how == "agent killed":
        driver.still()
    else:
        assert watch.call(f"actuator/{how}")[0]
    watch.until(lambda: len(controller.accepted[-1].points) == 1, "the point to stay at")
    watch.until(lambda: watch.states[-1]["state"] != "armed", "the actuator says so")
    now_ns = watch.states[-1]["mono_ns"]
    watch.state_where(lambda state: state["mono_ns"] > now_ns + 200 * MS, "nothing more for a while")
    assert controller.refused == []
    held = positions(controller.accepted[-1], NAMES)[0]
    np.testing.assert_array_equal(held, [forward.written[-1][name] for name in NAMES])
    ends = [message for message in controller.accepted if len(message.points) == 1]
    assert len({positions(message, NAMES).tobytes() for message in ends[1:]}) == len(ends) - 1  # none said twice


@pytest.mark.usefixtures("joints")
def test_no_point_outlives_the_age_of_its_observation(
    start: Start, driver: FakeAgent, watch: Watch, controller: TrajectoryController
) -> None:
    """Guards against a controller that executes what the actuator itself would refuse as too old."""
    start(joint_trajectory=True, trajectory_topic=JTC, max_chunk_age_ms=600.0)
    watch.arm()
    watch.until(lambda: driver.chunk(wave(40)) and controller.horizons, "a trajectory")
    message = controller.horizons[0]
    assert len(message.points) <= 600 / DT_MS
    assert stamp(message.points[-1].time_from_start) <= 600 * MS


def test_the_doubles_refuse_what_the_controller_refuses(watch: Watch) -> None:
    from auras_ros.ros.msg import DurationMsg, Header, JointTrajectory, JointTrajectoryPoint, TimeMsg

    double = TrajectoryController(watch.node, ["a", "b"], "nowhere")

    def point(ms: int, **fields: Any) -> JointTrajectoryPoint:
        given = {"positions": [0.0, 0.0], **fields}
        return JointTrajectoryPoint(time_from_start=DurationMsg(sec=0, nanosec=ms * MS), **given)

    def objection(names: list[str], points: list[JointTrajectoryPoint], start_s: int = 0) -> str:
        header = Header(stamp=TimeMsg(sec=start_s, nanosec=0))
        message = JointTrajectory(header=header, joint_names=names, points=points)
        return double.objection(message, 100 * 1_000_000_000)

    good = [point(10), point(20)]
    assert objection(["b", "a"], good) == ""
    assert objection(["a", "b"], [point(0), point(20)]) == ""
    assert objection(["a", "b"], good, start_s=100) == ""
    assert "past" in objection(["a", "b"], good, start_s=99)
    assert "joints" in objection(["a"], good)
    assert "joints" in objection(["a", "c"], good)
    assert "no points" in objection(["a", "b"], [])
    assert "times" in objection(["a", "b"], [point(10), point(10)])
    assert "positions" in objection(["a", "b"], [point(10, positions=[0.0])])
    assert "end" in objection(["a", "b"], [point(10, velocities=[0.1, 0.0])])
    assert "effort" in objection(["a", "b"], [point(10, effort=[0.0, 0.0])])


# -- forward command controllers --------------------------------------------------------------------------


@pytest.mark.usefixtures("joints")
def test_a_forward_controller_gets_every_joint_in_the_contracts_order(
    start: Start, driver: FakeAgent, watch: Watch
) -> None:
    forward = ForwardController(watch.node, NAMES, FORWARD)
    start(max_chunk_age_ms=5000.0)
    watch.arm()
    driver.chunk(wave())
    last = dict(zip(NAMES, wave()[-1], strict=True))
    watch.until(lambda: forward.written and forward.written[-1] == pytest.approx(last), "the end of the chunk")
    assert forward.ignored == 0
    values = np.array([[command[name] for name in NAMES] for command in forward.written])
    assert (np.abs(values) <= 3.0).all()


# -- a mobile base ----------------------------------------------------------------------------------------


@pytest.fixture
def base_folder(tmp_path: Path) -> str:
    channels = [channel("linear.x", "velocity", max_rate=2.0), channel("angular.z", "velocity", unit="rad/s")]
    return contract_folder(tmp_path / "base", channels, DT_MS)


@pytest.fixture
def base(children: Children, watch: Watch, base_folder: str) -> Iterator[tuple[MobileBase, Child, FakeAgent]]:
    """A base that drives 0.4 m/s and turns -0.2 rad/s."""
    double = MobileBase(watch.node, CMD_VEL)
    given = {"checkpoint": base_folder, "command": "twist", "action_topic": CMD_VEL, "agent_timeout_ms": 1000.0}
    child = children.node("actuator", {**given, "measured_start": False})
    agent = FakeAgent(watch.node, load_contract(base_folder), load_digest(base_folder))
    agent.live()
    agent.drive(np.tile([0.4, -0.2], (HORIZON, 1)))
    watch.arm()
    watch.until(lambda: double.speed == (0.4, -0.2), "the base drives")
    yield double, child, agent
    agent.still()


def test_a_base_speeds_up_no_faster_than_its_rate_and_ends_with_zero(
    base: tuple[MobileBase, Child, FakeAgent], watch: Watch
) -> None:
    double, _, _ = base
    assert watch.call("actuator/disarm")[0]
    watch.until(lambda: double.twists[-1].twist.linear.x == 0.0, "the final zero")
    twists = [(each.twist.linear.x, each.twist.angular.z) for each in double.twists]
    assert twists[-1] == (0.0, 0.0)
    speeding = np.diff([x for x, _ in twists[:-1]])
    assert speeding.max() <= 2.0 / 100.0 + 1e-9
    stamps = [stamp(each.header.stamp) for each in double.twists]
    assert stamps == sorted(stamps)
    assert {each.header.frame_id for each in double.twists} == {"base_link"}
    assert {(each.twist.linear.y, each.twist.linear.z, each.twist.angular.x) for each in double.twists} == {(0, 0, 0)}


def test_a_base_brakes_by_its_own_time_out_when_the_actuator_is_killed(
    base: tuple[MobileBase, Child, FakeAgent], watch: Watch
) -> None:
    """Guards against twists without a stamp of their own: the base could not tell how old they are."""
    double, child, _ = base
    child.send(signal.SIGKILL)
    child.wait()
    watch.until(lambda: double.speed == (0.0, 0.0), "the base brakes")
    assert double.twists[-1].twist.linear.x > 0.0  # nobody told it to


class UnstampedBase:
    """A base of the time before Jazzy: it drives by the newest geometry_msgs/Twist."""

    def __init__(self, node: Node, topic: str) -> None:
        self.twists: list[Twist] = []
        node.create_subscription(Twist, topic, self.twists.append, 100)


def test_a_base_that_takes_unstamped_twists_gets_them(children: Children, watch: Watch, base_folder: str) -> None:
    """Nothing was received, and nothing anywhere said that the only subscriber had another type."""
    double = UnstampedBase(watch.node, CMD_VEL)
    given = {"checkpoint": base_folder, "action_topic": CMD_VEL, "agent_timeout_ms": 1000.0, "measured_start": False}
    children.node("actuator", {**given, "command": "twist_unstamped"})
    agent = FakeAgent(watch.node, load_contract(base_folder), load_digest(base_folder))
    agent.live()
    agent.drive(np.tile([0.4, -0.2], (HORIZON, 1)))
    diagnosed = Diagnosed(watch)
    watch.arm()
    watch.until(
        lambda: double.twists and (double.twists[-1].linear.x, double.twists[-1].angular.z) == (0.4, -0.2), "it drives"
    )
    diagnosed.until("actuator: command topic", "OK", "only this node publishes commands")
    assert watch.call("actuator/disarm")[0]
    watch.until(lambda: double.twists[-1].linear.x == 0.0, "the final zero")
    agent.still()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize(
    ("command", "kind", "other", "remedy"),
    [
        ("twist", Twist, None, "; set command: twist_unstamped; nobody else subscribes to it"),
        ("twist_unstamped", TwistStamped, None, "; set command: twist; nobody else subscribes to it"),
        ("array", TwistStamped, Float64MultiArray, "; set command: twist"),
    ],
)
def test_a_controller_of_another_type_is_named_with_the_command_that_it_takes(
    children: Children,
    watch: Watch,
    stack: ExitStack,
    base_folder: str,
    command: str,
    kind: Any,
    other: Any,
    remedy: str,
) -> None:
    """In the diagnostics, in the log once, and in the answer to arming."""
    watch.node.create_subscription(kind, CMD_VEL, lambda _: None, 1)
    if other is not None:  # Fast DDS has one type for a topic in each participant
        another = stack.enter_context(own_node("another"))
        another.create_subscription(other, CMD_VEL, lambda _: None, 1)
    given = {"checkpoint": base_folder, "action_topic": CMD_VEL, "agent_timeout_ms": 1000.0, "measured_start": False}
    child = children.node("actuator", {**given, "command": command})
    agent = FakeAgent(watch.node, load_contract(base_folder), load_digest(base_folder))
    agent.live()
    name = f"geometry_msgs/msg/{kind.__name__}"
    status = Diagnosed(watch).until(
        "actuator: command topic", "WARN", f"/watch subscribes to {CMD_VEL} as {name}, and "
    )
    assert status.message.endswith(f"is published: it receives nothing{remedy}")
    armed = False
    while not armed:
        armed, text = watch.call("actuator/arm")
    assert status.message in text
    assert child.output.count("/watch subscribes to") == 1  # once before, if its name was not discovered yet
    agent.still()


@pytest.mark.usefixtures("joints")
def test_a_trajectory_controller_of_another_type_is_named(start: Start, watch: Watch) -> None:
    watch.node.create_subscription(Float64MultiArray, JTC, lambda _: None, 1)
    diagnosed = Diagnosed(watch)
    start(joint_trajectory=True, trajectory_topic=JTC)
    status = diagnosed.until(
        "actuator: command topic", "WARN", f"/watch subscribes to {JTC} as std_msgs/msg/Float64Mul"
    )
    assert "trajectory_msgs/msg/JointTrajectory is published" in status.message
    assert "set command" not in status.message


# -- a robot whose joints have a prefix -------------------------------------------------------------------


def test_joints_with_a_prefix_are_measured_limited_and_commanded_by_their_own_names(
    children: Children, watch: Watch, tmp_path: Path
) -> None:
    folder = contract_folder(tmp_path / "arm", [channel("joint_1"), channel("joint_2")], DT_MS)
    controller = OnTime(watch.node, ["left_joint_2", "left_joint_1"], JTC)
    states = watch.node.create_publisher(JointState, "/robot/joint_states", qos_profile_sensor_data)
    names = ["joint_1", "joint_2", "left_joint_1", "left_joint_2"]
    loop = Loop(0.05, lambda: states.publish(JointState(name=names, position=[2.0, 2.0, 0.1, 0.2])))
    description = watch.node.create_publisher(String, "robot_description", LATCHED)
    joints = "".join(
        f'<joint name="left_joint_{n}" type="revolute"><parent link="a"/><child link="b{n}"/>'
        '<limit lower="-1" upper="1" velocity="1" effort="1"/></joint>'
        for n in (1, 2)
    )
    links = "".join(f'<link name="{name}"/>' for name in ("a", "b1", "b2"))
    description.publish(String(data=f'<robot name="r">{links}{joints}</robot>'))
    settings = {"joint_prefix": "left_", "joint_states_topic": "/robot/joint_states", "joint_trajectory": True}
    more = {"trajectory_topic": JTC, "require_robot_description": True, "agent_timeout_ms": 1000.0}
    children.node("actuator", {"checkpoint": folder, **settings, **more})
    agent = FakeAgent(watch.node, load_contract(folder), load_digest(folder))
    agent.live()
    watch.state_where(lambda state: "robot_description" in state["limits"], "the limits of the description")
    watch.arm()
    assert agent.chunk(0.1 + 0.01 * np.arange(1, HORIZON + 1)[:, None] * np.ones(2)) == 1
    watch.until(lambda: controller.horizons, "a trajectory that the controller takes")
    assert list(controller.horizons[0].joint_names) == ["left_joint_1", "left_joint_2"]
    first = watch.actions[0].values
    assert first.tolist() == [0.1, 0.2], "where the joints with the prefix are"
    agent.still()
    loop.close()


def test_the_reason_why_arming_is_refused_names_topic_and_prefix(
    children: Children, watch: Watch, tmp_path: Path
) -> None:
    """It was: no joint_states within 500 ms; and: no position of joint_1."""
    folder = contract_folder(tmp_path / "arm", [channel("joint_1"), channel("joint_2")], DT_MS)
    children.node("actuator", {"checkpoint": folder, "agent_timeout_ms": 1000.0})
    elsewhere = watch.node.create_publisher(JointState, "/robot/joint_states", qos_profile_sensor_data)
    watch.until(
        lambda: watch.call("actuator/arm")[1].endswith(
            "nobody publishes /joint_states; joint states are on /robot/joint_states: set joint_states_topic: "
            "/robot/joint_states"
        ),
        "the topic",
    )
    watch.node.destroy_publisher(elsewhere)
    here = watch.node.create_publisher(JointState, "joint_states", qos_profile_sensor_data)
    names = ["ur5/joint_1", "ur5/joint_2"]
    loop = Loop(0.05, lambda: here.publish(JointState(name=names, position=[0.0, 0.0])))
    watch.until(lambda: "set joint_prefix: ur5/" in watch.call("actuator/arm")[1], "the prefix")
    loop.close()


# -- contracts that do not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("channels", "parameters", "named"),
    [
        ([channel("elbow")], {"command": "twist"}, "'elbow' is none of linear.x"),
        ([channel("elbow")], {"command": "twist_unstamped"}, "'elbow' is none of linear.x"),
        ([channel("linear.x")], {"command": "twist"}, "'linear.x' is of kind absolute, not velocity"),
        (
            [channel("linear.x", "velocity"), channel("angular.z", "velocity", frame="odom")],
            {"command": "twist"},
            "'angular.z' is in frame 'odom'",
        ),
        (
            [channel("elbow"), channel("linear.x", "velocity")],
            {"joint_trajectory": True},
            "'linear.x' is of kind velocity, not a set point",
        ),
        (
            [channel("elbow")],
            {"command": "trajectory"},
            "command: must be one of array, twist, twist_unstamped, got 'trajectory'",
        ),
        ([channel("elbow")], {"seam": "glue"}, "seam: must be one of blend, switch, ensemble, got 'glue'"),
    ],
    ids=["no twist", "no unstamped twist", "no velocity", "two frames", "no set point", "command", "seam"],
)
def test_a_contract_that_does_not_fit_the_controller_is_refused_at_start(
    children: Children, tmp_path: Path, channels: list[Any], parameters: dict[str, Any], named: str
) -> None:
    child = children.node("actuator", {"checkpoint": contract_folder(tmp_path / "misfit", channels), **parameters})
    assert child.wait() == 2
    assert named in child.output
