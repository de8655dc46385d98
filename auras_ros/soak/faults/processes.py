"""Faults of processes: killed, stopped, slowed."""

from __future__ import annotations

import time

from auras_ros.soak.faults.kinds import HOLD_MS, NAMED_MS, PATIENCE_S, Times
from auras_ros.soak.scene import MS, RECOVERY_S, Scene

TICK_NS = 10 * MS  # a command that was on its way when its process was broken
AWAKE_S = 1.0  # for a new actuator to say what it must not
SLOW_S, SLOW_TRIES = 3.0, 3
SAID_S = 3.0  # a count that has changed is said once a second
SLOW_STOPS, SLOW_STOP_S = 4, 0.15  # in each frame: together longer than the grid, each too short to miss an image
SLOW_LEAST_RUN_S = 0.01  # all its threads need their turn, or frames hang


def agent_killed(scene: Scene) -> Times:
    """The next agent must not drive before somebody armed again, though it sends chunks."""
    session, at_ns = scene.witness.beat.get("session"), scene.kill("agent")
    scene.judge.forbid(at_ns + round(HOLD_MS * MS))
    held_ns = scene.left_armed(at_ns, PATIENCE_S)

    def speaks() -> bool:
        beat, newest = scene.witness.beat, scene.witness.published_ns
        return beat.get("session") != session and beat.get("lifecycle") == "active" and newest[-1] > at_ns + 500 * MS

    if not scene.until(speaks, RECOVERY_S):
        scene.judge.violate("not recovered", f"no chunk of a new agent within {RECOVERY_S:g} s")
    scene.pause(0.5)
    return at_ns, held_ns


def agent_stopped(scene: Scene) -> Times:
    with scene.stopped("agent") as at_ns:
        held_ns = scene.left_armed(at_ns, PATIENCE_S)
        scene.pause(scene.rng.uniform(0.0, 2.0))
    scene.goes_on()
    return at_ns, held_ns


def overrun(scene: Scene) -> Times:
    """The agent is stopped several times in each frame, for seconds. Measured from the end of that to the first chunk
    of an observation that was made after it: with a queue, what has piled up would come first.

    Where no frame began in a time that was so broken up, there was none to overrun: it is tried again."""
    frames = scene.witness.said.status("agent: frames").values
    missed, frame_s = int(frames.get("missed_ticks", 0)), float(frames.get("p50_ms", 50.0)) / 1000

    def counted() -> bool:
        return scene.witness.said.count("agent: frames", "missed_ticks") > missed

    for _ in range(SLOW_TRIES):
        times = _slowed(scene, frame_s)
        if scene.until(counted, SAID_S):
            break
    else:
        scene.judge.violate("overrun: not counted", f"still {missed} missed ticks")
    scene.goes_on()
    return times


def _slowed(scene: Scene, frame_s: float) -> Times:
    begin_ns = scene.now_ns()
    while scene.now_ns() - begin_ns < SLOW_S * 1e9:
        with scene.stopped("agent"):
            scene.pause(SLOW_STOP_S)
        time.sleep(max(SLOW_LEAST_RUN_S, frame_s / SLOW_STOPS))  # a turn of the scene may take longer
    end_ns = scene.now_ns()

    def fresh_ns() -> int | None:
        made = (each.published_ns for each in scene.witness.chunks if each.origin_ns > end_ns)
        return next(made, None)

    scene.until(fresh_ns, PATIENCE_S)
    late = [each for each in scene.witness.chunks if each.latched_ns < end_ns < each.published_ns]
    if len(late) > 1:
        scene.judge.violate("overrun: queue", f"{len(late)} chunks of observations that were latched before the end")
    return end_ns, fresh_ns()


def camera_stalled(scene: Scene) -> Times:
    """The robot's side as a whole: neither images nor joint states come."""
    with scene.stopped("pusht_bridge") as at_ns:
        held_ns = scene.left_armed(at_ns, PATIENCE_S)
        scene.pause(scene.rng.uniform(0.0, 1.0))
    scene.goes_on()
    return at_ns, held_ns


def actuator_stopped(scene: Scene) -> Times:
    """For longer than its commands' lease: somebody else may drive by then, so that it must be silent until it is
    armed. Measured to the agent's last chunk."""
    skipped = scene.witness.skipped
    with scene.stopped("actuator") as at_ns:
        scene.pause(scene.rng.uniform(0.7, 1.5))
        until_ns = scene.now_ns()
    scene.until(lambda: scene.witness.state["mono_ns"] > until_ns, PATIENCE_S)
    scene.pause(AWAKE_S)
    scene.planned_skips += scene.witness.skipped - skipped
    scene.judge.silenced()
    ghosts = [each for each in scene.judge.sent if each.mono_ns > at_ns + TICK_NS]
    if ghosts:
        scene.judge.violate("action after a stall", f"{len(ghosts)} commands, and nobody has armed")
    return at_ns, _last_chunk_ns(scene, at_ns, until_ns)


def actuator_killed(scene: Scene) -> Times:
    """Measured to the agent's last chunk. The agent says so; the next actuator is silent until somebody arms it."""
    at_ns = scene.kill("actuator")
    if not scene.until(lambda: scene.witness.beat.get("state") == "actuator lost", NAMED_MS / 1000):
        scene.judge.violate("actuator_killed: not said", f"the agent says '{scene.witness.beat.get('state')}'")
    if not scene.until(lambda: scene.witness.state["mono_ns"] > at_ns + TICK_NS, RECOVERY_S):
        scene.judge.violate("not recovered", f"no word of a new actuator within {RECOVERY_S:g} s")
    back_ns = scene.witness.state["mono_ns"]
    scene.pause(AWAKE_S)
    ghosts = [each for each in scene.judge.sent if each.mono_ns > at_ns + TICK_NS]
    if ghosts:
        scene.judge.violate("action of a dead actuator", f"{len(ghosts)} commands, and nobody has armed")
    return at_ns, _last_chunk_ns(scene, at_ns, back_ns)


def _last_chunk_ns(scene: Scene, since_ns: int, until_ns: int) -> int:
    """When the agent published the last chunk between two times; the first of them where it published none."""
    return max((each for each in scene.witness.published_ns if since_ns < each < until_ns), default=since_ns)
