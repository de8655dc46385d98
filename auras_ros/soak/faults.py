"""The faults, one function each: break, wait for what was promised, mend. Arming again is the loop's.

Each returns when it broke the loop and when the loop did what it promises, ns; None where it did not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from auras_ros.ros.msg import Float64MultiArray
from auras_ros.soak.garbage import Garbage
from auras_ros.soak.scene import MS, RECOVERY_S, Scene
from auras_ros.soak.witness import ACTION

HOLD_MS = 150.0
SILENT_MS = 300.0  # the agent's, after the actuator's last word
NAMED_MS = 1000.0
PATIENCE_S = 10.0
GARBAGE_HZ = 20.0
Times = tuple[int, int | None]


@dataclass(frozen=True)
class Fault:
    """`promise`: what the time is measured to, within limit_ms; None: measured alone. `play` breaks and mends.
    It comes in the first round and in each `every`-th after it."""

    play: Callable[[Scene], Times]
    promise: str
    limit_ms: float | None
    every: int = 1


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


def camera_stalled(scene: Scene) -> Times:
    """The robot's side as a whole: neither images nor joint states come."""
    with scene.stopped("pusht_bridge") as at_ns:
        held_ns = scene.left_armed(at_ns, PATIENCE_S)
        scene.pause(scene.rng.uniform(0.0, 1.0))
    scene.goes_on()
    return at_ns, held_ns


def actuator_stopped(scene: Scene) -> Times:
    """Measured to the agent's last chunk."""
    skipped = scene.witness.state["skipped_ticks"]
    with scene.stopped("actuator") as at_ns:
        scene.pause(scene.rng.uniform(0.7, 1.5))
        until_ns = scene.now_ns()
    scene.goes_on()
    scene.until(lambda: scene.witness.state["mono_ns"] > until_ns, PATIENCE_S)
    scene.planned_skips += scene.witness.state["skipped_ticks"] - skipped
    ghosts = [each for each in scene.judge.sent if at_ns + 10 * MS < each.mono_ns < until_ns]
    if ghosts:
        scene.judge.violate("action while stopped", f"{len(ghosts)} commands of an actuator that was stopped")
    chunks = [published for published in scene.witness.published_ns if at_ns < published < until_ns]
    return at_ns, max(chunks, default=at_ns)


def agent_deactivated(scene: Scene) -> Times:
    """The hold command is the last one; the judge hears any that comes after it."""
    at_ns = scene.now_ns()
    scene.answer(lambda: scene.witness.change("deactivate"), PATIENCE_S)
    held_ns = scene.left_armed(at_ns, PATIENCE_S)
    if not scene.says("disarmed", PATIENCE_S):
        scene.judge.violate("not disarmed", "the agent was deactivated")
    scene.pause(scene.rng.uniform(0.2, 1.0))
    scene.answer(lambda: scene.witness.change("activate"), PATIENCE_S)
    return at_ns, held_ns


def stop_pressed(scene: Scene) -> Times:
    at_ns = scene.now_ns()
    scene.witness.press(True)
    held_ns = scene.left_armed(at_ns, PATIENCE_S)
    if not scene.says("stopped", PATIENCE_S):
        scene.judge.violate("not stopped", "the emergency stop was pressed")
    scene.witness.press(False)
    scene.pause(scene.rng.uniform(0.2, 1.0))
    return at_ns, held_ns


def second_publisher(scene: Scene) -> Times:
    """It says nothing: that it is there is the conflict."""
    at_ns = scene.now_ns()
    other = scene.witness.create_publisher(Float64MultiArray, ACTION, 1)
    named = scene.until(lambda: scene.witness.state["conflict"], PATIENCE_S)
    named_ns = int(scene.witness.state["mono_ns"]) if named else None
    scene.pause(scene.rng.uniform(0.0, 1.0))
    scene.witness.destroy_publisher(other)
    if not scene.until(lambda: not scene.witness.state["conflict"], PATIENCE_S):
        scene.judge.violate("conflict stays", "the other publisher is gone")
    return at_ns, named_ns


def garbage(scene: Scene) -> Times:
    """On every input of agent and actuator, while they work; measured to the next command of a chunk."""
    noise = Garbage(scene.witness, scene.rng, ("agent_x", "agent_y"))
    try:
        for _ in range(round(scene.rng.uniform(1.0, 3.0) * GARBAGE_HZ)):
            noise.say()
            scene.pause(1.0 / GARBAGE_HZ)
    finally:
        noise.close()
    end_ns = scene.now_ns()
    driven: list[int] = []

    def heard() -> bool:
        driven[:] = [each.mono_ns for each in scene.judge.sent if each.mono_ns > end_ns and each.state == "armed"][:1]
        return bool(driven)

    scene.drive()
    return end_ns, driven[0] if scene.until(heard, PATIENCE_S) else None


def faults(max_age_ms: float, rate_hz: float) -> dict[str, Fault]:
    """By name. A camera that is silent ends in a hold when the newest chunk's actions are too old."""
    return {
        "agent_killed": Fault(agent_killed, "hold", HOLD_MS, every=4),  # memory shows in long lives alone
        "agent_stopped": Fault(agent_stopped, "hold", HOLD_MS),
        "agent_deactivated": Fault(agent_deactivated, "last hold", None),
        "stop_pressed": Fault(stop_pressed, "hold", HOLD_MS),
        "camera_stalled": Fault(camera_stalled, "hold", max_age_ms + 2 * 1000.0 / rate_hz),
        "actuator_stopped": Fault(actuator_stopped, "last chunk", SILENT_MS),
        "second_publisher": Fault(second_publisher, "named", NAMED_MS),
        "garbage": Fault(garbage, "driven after it", None),
    }
