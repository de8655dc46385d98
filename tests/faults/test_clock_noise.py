"""Simulated time gone wrong, with agent and actuator live on it: they disarm or hold as promised, and go on.

Ages are counted on the monotonic clock throughout. What goes back is another world: the actuator disarms, and the
agent forgets what it has seen. What leaps, stands still or is no time at all takes the robot from nobody.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from auras_ros.live.soak.faults.loaded import STALLED
from auras_ros.ros import BACKEND, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import to_time_msg
from auras_ros.ros.msg import ClockMsg, TimeMsg
from tests.nodes.agent_child import Running
from tests.nodes.stand_ins import Loop, Robot
from tests.nodes.wire import Child, Children, Watch, own_domain

STEP_NS = 50_000_000
HOUR_NS = 3600 * 10**9
AGE_LIMIT_MS = 1000.0
TRIES = 3
BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
NO_TIMES = [TimeMsg(sec=-5), TimeMsg(sec=100, nanosec=10**9), TimeMsg(sec=2**31 - 1, nanosec=2**32 - 1)]
SHORT = [b"\0\1\0\0" + data for data in (b"", b"\xff" * 3, b"\7" * 7)]  # rclpy's writer sends no more than 8
NO_MESSAGES = [b"\0\1\0\0" + data for data in (b"\xff" * 3, b"\7" * 64, b"\xff" * 100_000)]


class World(Robot):
    """A robot in simulated time: /clock and the stamps of what it shows advance by a step each 50 ms.

    `still`: they do not. `jump_ns`: by so much more at the next step. `clock` false: nobody publishes /clock, and the
    stamps go on.
    """

    def __init__(self, node: Any) -> None:
        self.now_ns, self.jump_ns, self.still, self.clock = 1000 * 10**9, 0, False, True
        self.time_topic = node.create_publisher(ClockMsg, "/clock", BEST_EFFORT)
        super().__init__(node)

    def image(self, **changes: Any) -> Any:
        message = super().image(**changes)
        message.header.stamp = to_time_msg(self.now_ns)
        return message

    def joint_states(self, *args: Any) -> Any:
        message = super().joint_states(*args)
        message.header.stamp = to_time_msg(self.now_ns)
        return message

    def _step(self) -> None:
        jump_ns, self.jump_ns = self.jump_ns, 0
        if not self.still:
            self.now_ns += STEP_NS + jump_ns
        super()._step()
        if self.clock:  # last, as a simulator does that publishes its sensors while it steps
            self.time_topic.publish(ClockMsg(clock=to_time_msg(self.now_ns)))


@dataclass
class Live:
    """The loop, and the two processes whose words are read."""

    watch: Watch
    world: World
    agent: Running
    actuator: Child

    def awake(self) -> None:
        """Somebody arms an actuator again that did not get its turn for long."""
        state = self.watch.states[-1]
        if state["state"] == "disarmed" and STALLED in state["reason"]:
            self.watch.arm()

    def arms(self) -> None:
        """Somebody arms again, and it drives by what the agent sees now."""
        self.watch.arm()
        self.drives()

    def drives(self) -> None:
        """A chunk of an image that comes from now on is executed."""
        now_ns, chunks = self.world.now_ns, self.watch.chunks
        self.watch.until(
            lambda: chunks and now_ns < chunks[-1]["origin_stamp_ns"] <= self.world.now_ns, "a chunk of now"
        )
        request, count = chunks[-1]["request"], len(self.watch.actions)

        def executed() -> bool:
            self.awake()
            return any((heard.label.request or -1) >= request for heard in self.watch.actions[count:])

        self.watch.until(executed, "it is executed")

    def states(self, since: int) -> set[str]:
        """Of the commands that came after so many."""
        return {heard.label.state for heard in self.watch.actions[since:]}

    def stays_armed(self, play: Callable[[], None]) -> None:
        """It does not even hold while play() lasts. A busy machine can keep from it what it hears: again, then."""
        for _ in range(TRIES):
            began = len(self.watch.actions)
            play()
            if self.states(began) == {"armed"}:
                return
            assert self.states(began) == {"armed", "holding"}
            self.drives()
        pytest.fail(f"it held {TRIES} times; last state {self.watch.states[-1]}")


@pytest.fixture(scope="module")
def shared(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with own_domain():
        watch, children = Watch(), Children(tmp_path_factory.mktemp("clock"))
        world = World(watch.node)
        try:
            watch.hear_agent()
            given = {"checkpoint": checkpoint, "use_sim_time": True}
            actuator = children.node("actuator", {**given, "agent_timeout_ms": 1000.0})
            agent = {
                **given,
                "sync_tolerance_ms": 100.0,
                "camera_age_limit_ms": AGE_LIMIT_MS,
                "state_age_limit_ms": AGE_LIMIT_MS,
            }
            running = Running(children.node("agent", agent), watch, world)
            watch.until(lambda: watch.states and watch.beats, "both processes")  # seconds each, on a busy machine more
            running.reaches("active")
            yield Live(watch, world, running, actuator)
        finally:
            children.reap()
            world.close()
            watch.close()


@pytest.fixture
def live(shared: Live) -> Live:
    """Armed and driven."""
    shared.arms()
    return shared


@pytest.fixture
def noise_on_clock(live: Live) -> Iterator[Callable[[Sequence[Any]], Loop]]:
    """Starts to publish these messages and payloads on /clock, in turn, until its loop is closed."""
    topic = live.watch.node.create_publisher(ClockMsg, "/clock", BEST_EFFORT)
    started: list[Loop] = []

    def start(payloads: Sequence[Any]) -> Loop:
        noise = itertools.cycle(payloads)
        started.append(Loop(0.01, lambda: topic.publish(next(noise))))
        return started[-1]

    yield start
    for loop in started:
        loop.close()
    live.watch.node.destroy_publisher(topic)


if BACKEND == "dds":

    def test_what_is_no_time_is_ignored_and_said_and_the_robot_is_driven_on(
        live: Live, noise_on_clock: Callable[[Sequence[Any]], Loop]
    ) -> None:
        def said(child: Child) -> bool:
            return "ignored a time on /clock" in child.output and "bytes on /clock: " in child.output

        def play() -> None:
            live.watch.until(lambda: said(live.actuator) and said(live.agent.child), "both nodes say so")
            live.drives()

        noise_on_clock([*NO_MESSAGES, *(ClockMsg(clock=each) for each in NO_TIMES)])
        live.stays_armed(play)

else:  # rclpy reads /clock itself

    def test_rclpy_takes_half_a_message_for_a_time_and_that_disarms(
        live: Live, noise_on_clock: Callable[[Sequence[Any]], Loop]
    ) -> None:
        """Nothing is driven by such a time: somebody has to arm again, and nothing else is hurt."""
        loop = noise_on_clock(SHORT)
        live.watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
        loop.close()
        now = live.watch.states[-1]["tick"]
        live.watch.state_where(lambda state: state["tick"] > now + 100, "a hundred ticks with the good clock alone")
        live.arms()
        for child in (live.actuator, live.agent.child):
            assert "This error state is being overwritten" not in child.output


def test_a_world_that_is_reset_disarms_and_the_agent_begins_anew(live: Live) -> None:
    """Guards against an agent that waits for stamps to come by which it has already seen."""
    watch, world = live.watch, live.world
    before_ns, epoch = world.now_ns, watch.chunks[-1]["epoch"]
    world.jump_ns = -HOUR_NS // 4
    watch.state_where(lambda state: state["state"] == "disarmed" and "/clock went back" in state["reason"], "disarmed")
    late = world.image()
    late.header.stamp = to_time_msg(before_ns)  # of the old world, still on its way when the new one began
    world.image_topic.publish(late)
    newer_ns = world.now_ns + 10 * STEP_NS
    watch.until(
        lambda: newer_ns < watch.chunks[-1]["origin_stamp_ns"] <= world.now_ns < before_ns, "chunks of the new world"
    )
    assert watch.chunks[-1]["epoch"] > epoch  # what was on its way is over
    count, now = len(watch.actions), watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > now + 30, "thirty ticks")
    assert len(watch.actions) == count  # nobody drives before somebody armed
    live.arms()


def test_a_world_that_leaps_an_hour_is_driven_on(live: Live) -> None:
    live.world.jump_ns = HOUR_NS
    began = len(live.watch.actions)
    live.drives()
    assert live.states(began) <= {"armed", "holding"}


def test_a_world_that_stands_still_is_held_and_goes_on_by_itself(live: Live) -> None:
    live.world.still = True

    def held() -> bool:
        live.awake()
        return live.watch.actions[-1].label.state == "holding"

    try:
        live.agent.says("top stale")
        live.watch.until(held, "hold")
        stopped_ns = live.world.now_ns
        assert max(chunk["origin_stamp_ns"] for chunk in live.watch.chunks[-20:]) <= stopped_ns
    finally:
        live.world.still = False
    live.drives()


def test_a_clock_that_dies_takes_the_robot_from_nobody(live: Live) -> None:
    """The stamps of the images go on without it: how old they are is known by when they came."""
    live.world.clock = False

    def play() -> None:
        dead_ns = live.world.now_ns
        live.watch.until(
            lambda: live.world.now_ns > dead_ns + 2 * AGE_LIMIT_MS * 10**6, "longer than an image may be old"
        )
        live.drives()

    try:
        live.stays_armed(play)
    finally:
        live.world.clock = True
    live.drives()


def test_two_clocks_an_hour_apart_disarm_and_one_of_them_alone_is_lived_with(live: Live) -> None:
    watch, world = live.watch, live.world
    topic = watch.node.create_publisher(ClockMsg, "/clock", BEST_EFFORT)
    loop = Loop(0.05, lambda: topic.publish(ClockMsg(clock=to_time_msg(world.now_ns + HOUR_NS))))
    try:
        watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
    finally:
        loop.close()
        watch.node.destroy_publisher(topic)
    now = watch.states[-1]["tick"]
    watch.state_where(lambda state: state["tick"] > now + 50, "fifty ticks with one clock alone")
    live.arms()
