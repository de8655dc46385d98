"""Faults of processes: killed, stopped, slowed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
from numpy.typing import NDArray

from auras_ros.live.soak.harness import MS, RECOVERY_S, TOLD_S, SoakHarness, Times
from auras_ros.live.soak.judge import HOLD_MS, NAMED_MS
from auras_ros.live.soak.topics import IMAGES, JOINTS, STATES
from auras_ros.nodes.actuator.other_publishers import DISCOVERY_NS
from auras_ros.ros.image import to_time_msg
from auras_ros.ros.msg import Header, Image, JointState

TICK_NS = 10 * MS  # a command that was on its way when its process was broken
ARMS_BY_ITSELF_S = DISCOVERY_NS / 1e9 + 1.5  # in which one that arms by itself has: the graph is known before
INSTEAD_S = 0.05
AWAKE_S = 1.0  # for a new actuator to say what it must not
SILENT_NS = 300 * MS  # after a kill: what comes later is of the next life
FAR_PX = 60.0  # more than the actuator's tolerance, a tenth of the table
SLOW_S, SLOW_TRIES = 3.0, 3
SAID_S = 3.0  # a count that has changed is said once a second
SLOW_STOPS, SLOW_STOP_S = 4, 0.15  # in each frame: together longer than the grid, each too short to miss an image
SLOW_LEAST_RUN_S = 0.01  # all its threads need their turn, or frames hang


def agent_killed(harness: SoakHarness) -> Times:
    """The next agent must not drive before somebody armed again, though it sends chunks."""
    session, at_ns = harness.witness.heartbeat.get("session"), harness.kill("agent")
    harness.judge.forbid(at_ns + round(HOLD_MS * MS))
    held_ns = harness.left_armed(at_ns)

    def speaks() -> bool:
        beat, newest_ns = harness.witness.heartbeat, harness.witness.chunks[-1].published_ns
        return beat.get("session") != session and beat.get("lifecycle") == "active" and newest_ns > at_ns + 500 * MS

    harness.expect(speaks, "not recovered", f"no chunk of a new agent within {RECOVERY_S:g} s", RECOVERY_S)
    harness.pause(0.5)
    return at_ns, held_ns


def agent_stopped(harness: SoakHarness) -> Times:
    return _stopped(harness, "agent", 2.0)


def camera_stalled(harness: SoakHarness) -> Times:
    """The robot's side as a whole: neither images nor joint states come."""
    return _stopped(harness, "sim_bridge", 1.0)


def _stopped(harness: SoakHarness, name: str, longest_s: float) -> Times:
    """A process, until it is held and for a while after it."""
    with harness.stopped(name) as at_ns:
        held_ns = harness.left_armed(at_ns)
        harness.pause(harness.rng.uniform(0.0, longest_s))
    harness.goes_on()
    return at_ns, held_ns


def overrun(harness: SoakHarness) -> Times:
    """The agent is stopped several times in each frame, for seconds. Measured from the end of that to the first chunk
    of an observation that was made after it: with a queue, what has piled up would come first.

    Where no frame began in a time that was so broken up, there was none to overrun: it is tried again."""
    frames = harness.witness.logs.status("agent: frames").values
    missed, frame_s = int(frames.get("missed_ticks", 0)), float(frames.get("p50_ms", 50.0)) / 1000

    def counted() -> bool:
        return harness.witness.logs.count("agent: frames", "missed_ticks") > missed

    for _ in range(SLOW_TRIES):
        times = _slowed(harness, frame_s)
        if harness.until(counted, SAID_S):
            break
    else:
        harness.judge.violate("overrun: not counted", f"still {missed} missed ticks")
    harness.goes_on()
    return times


def _slowed(harness: SoakHarness, frame_s: float) -> Times:
    begin_ns = harness.now_ns()
    while harness.now_ns() - begin_ns < SLOW_S * 1e9:
        with harness.stopped("agent"):
            harness.pause(SLOW_STOP_S)
        time.sleep(max(SLOW_LEAST_RUN_S, frame_s / SLOW_STOPS))  # a turn of the harness may take longer
    end_ns = harness.now_ns()
    harness.until(lambda: harness.fresh_chunk_ns(end_ns))
    late = [each for each in harness.witness.chunks if each.latched_ns < end_ns < each.published_ns]
    if len(late) > 1:
        harness.judge.violate("overrun: queue", f"{len(late)} chunks of observations that were latched before the end")
    return end_ns, harness.fresh_chunk_ns(end_ns)


def simulator_killed(harness: SoakHarness) -> Times:
    """It comes back with its robot elsewhere, and that one is left alone; where it happens to be near where it was or
    was sent last, or between the two, it goes on. Measured to the first command that holds."""
    places: list[tuple[int, NDArray[np.float64]]] = []

    def told(message: JointState) -> None:
        places.append((harness.now_ns(), np.asarray(message.position)))

    with harness.subscription(STATES, told):
        harness.until(lambda: places)
        harness.pause(harness.rng.uniform(0.0, TOLD_S))  # killed at no chosen time after a word of it
        with harness.given("pusht", seed=harness.rng.randrange(1000)):
            at_ns = harness.kill("sim_bridge")
            held_ns = harness.left_armed(at_ns)
            silent = "not recovered", f"no word of a new simulator within {RECOVERY_S:g} s"
            if not harness.expect(lambda: places and places[-1][0] > at_ns + SILENT_NS, *silent, RECOVERY_S):
                return at_ns, held_ns
        back_ns, place = next(each for each in places if each[0] > at_ns + SILENT_NS)
        near = [harness.judge.sent[-1].values, *[each for told_ns, each in places if told_ns < back_ns][-1:]]
        if np.maximum(np.min(near, axis=0) - place, place - np.max(near, axis=0)).max() > FAR_PX:
            _left_alone(harness, back_ns, place)
            if np.abs(places[-1][1] - place).max() > FAR_PX:
                harness.judge.violate("simulator_killed: dragged", f"from {place.tolist()} to {places[-1][1].tolist()}")
    return at_ns, held_ns


def _left_alone(harness: SoakHarness, since_ns: int, place: NDArray[np.float64]) -> None:
    if not harness.says("disarmed"):
        harness.judge.violate("simulator_killed: driven on", f"it is at {place.tolist()}")
        return
    harness.judge.silenced()
    harness.pause(AWAKE_S)
    if driven := harness.driven_ns(since_ns):
        harness.judge.violate("simulator_killed: driven on", f"{len(driven)} commands, and nobody has armed")


@contextmanager
def simulated_peers(harness: SoakHarness, drivers: Sequence[Sequence[str]], *, new_images: bool) -> Iterator[int]:
    """The simulator stands still for a block, and others tell in its stead: a camera shows its last image, with new
    stamps or the old one, and a driver for each group of joints tells of a robot that stays. Gives the time before."""
    images: list[Image] = []
    with harness.subscription(IMAGES, images.append):
        harness.until(lambda: images)
    place = dict(zip(JOINTS, harness.judge.sent[-1].values.tolist(), strict=False))

    def tell() -> None:
        header = Header(stamp=to_time_msg(time.time_ns()))
        if new_images:
            images[-1].header = header
        camera.publish(images[-1])
        for robot, names in zip(robots, drivers, strict=True):
            robot.publish(JointState(header=header, name=list(names), position=[place[name] for name in names]))

    with ExitStack() as stack:
        camera = stack.enter_context(harness.publisher(IMAGES, listeners=0))
        robots = [stack.enter_context(harness.publisher(STATES, listeners=0)) for _ in drivers]
        stack.enter_context(harness.timer(INSTEAD_S, tell))
        yield stack.enter_context(harness.stopped("sim_bridge"))


def camera_repeats(harness: SoakHarness) -> Times:
    """One frame over and over, with the stamp that it had, while the robot goes on telling where it is."""
    with simulated_peers(harness, [JOINTS], new_images=False) as at_ns:
        held_ns = harness.left_armed(at_ns)
    harness.goes_on()
    return at_ns, held_ns


def actuator_stopped(harness: SoakHarness) -> Times:
    """For longer than its commands' lease: somebody else may drive by then, so that it must be silent until it is
    armed. Measured to the agent's last chunk."""
    skipped = harness.witness.skipped
    with harness.stopped("actuator") as at_ns:
        harness.pause(harness.rng.uniform(0.7, 1.5))
        until_ns = harness.now_ns()
    harness.until(lambda: harness.witness.state["mono_ns"] > until_ns)
    harness.pause(AWAKE_S)
    harness.planned_skips += harness.witness.skipped - skipped
    harness.judge.silenced()
    _no_command(harness, at_ns, "action after a stall")
    return at_ns, _last_chunk_ns(harness, at_ns, until_ns)


def actuator_respawned(harness: SoakHarness) -> Times:
    """Somebody has stopped it, it is killed, and its config says `arm_on_start`: the next one must not follow that."""
    with harness.given("actuator", arm_on_start=True):
        at_ns = harness.now_ns()
        harness.call("actuator/stop")
        if harness.first_of("stopped", at_ns) is None:
            harness.judge.violate("not stopped", "the service was asked")
        return actuator_killed(harness, ARMS_BY_ITSELF_S)


def actuator_killed(harness: SoakHarness, awake_s: float | None = None) -> Times:
    """Measured to the agent's last chunk. The agent says so; the next actuator is silent until somebody arms it.
    awake_s: how long it is listened to."""
    at_ns = harness.kill("actuator")
    if not harness.until(lambda: harness.witness.heartbeat.get("state") == "actuator lost", NAMED_MS / 1000):
        harness.judge.violate("actuator_killed: not said", f"the agent says '{harness.witness.heartbeat.get('state')}'")
    silent = "not recovered", f"no word of a new actuator within {RECOVERY_S:g} s"
    harness.expect(lambda: harness.witness.state["mono_ns"] > at_ns + TICK_NS, *silent, RECOVERY_S)
    harness.pause(awake_s or AWAKE_S)
    _no_command(harness, at_ns, "action of a dead actuator")
    # The agent may hear the next actuator before the witness does, so chunks count until its process was started.
    return at_ns, _last_chunk_ns(harness, at_ns, harness.started_again_ns("actuator", at_ns))


def _no_command(harness: SoakHarness, at_ns: int, kind: str) -> None:
    ghosts = [each for each in harness.judge.sent if each.mono_ns > at_ns + TICK_NS]
    if ghosts:
        harness.judge.violate(kind, f"{len(ghosts)} commands, and nobody has armed")


def _last_chunk_ns(harness: SoakHarness, since_ns: int, until_ns: int) -> int:
    """When the agent published the last chunk between two times; the first of them where it published none."""
    published_ns = (each.published_ns for each in harness.witness.chunks)
    return max((each for each in published_ns if since_ns < each < until_ns), default=since_ns)
