"""The rules of a Push-T table that is played over a wire: when it waits, moves, is done, and starts again.

The world runs on its own clock: it never waits for a late action, it goes on with the last one. Time is
handed in, so the same rules run on a virtual clock. This module knows no ROS, and no policy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from auras_ros.parameters import ParameterError, parameter
from auras_ros.sim.pusht import CONTROL_DT_MS, COVERAGE, SUCCESS_COVERAGE, PushTWorld
from auras_ros.sim.pusht_things import read_things
from auras_ros.sim.world import ActionError, ActionRefusal, StepResult, checked_action

NAMES = tuple(channel.name for channel in PushTWorld.channels)
DT_NS = CONTROL_DT_MS * 1_000_000
SHOW_NS = 1_000_000_000  # a finished table stands this long before the next one
MAX_LABEL_CHARS = 4096


@dataclass(frozen=True)
class TableSettings:
    """What a table can be told; every field is a node parameter of the bridge. Raises ParameterError."""

    seed: int = parameter(0, "seed of the first episode; each next one counts up by one", 0, 2**31 - 1)
    drift_px: float = parameter(0.0, "drift of the tee each control step, px; 0: the published task", 0.0, 19.0)
    success_coverage: float = parameter(SUCCESS_COVERAGE, "covered share of the goal: success", 0.05, 0.999)
    max_steps: int = parameter(300, "control steps after which an episode is done", 1, 1_000_000)
    auto_reset: bool = parameter(True, "start the next episode by itself, one second after one is done")
    action_timeout_ms: int = parameter(500, "an older action still goes on, but is counted", 1, 60_000)
    viewer_px: int = parameter(0, "side of the images on camera/viewer, px; 0 publishes none", 0, 2048)
    compression: str = parameter("jpeg", "of the compressed camera: jpeg (quality 95) or png")
    publish_clock: bool = parameter(False, "be the source of /clock; stamps are then simulated time")
    shift_ms: float = parameter(0.0, "delay of control steps and images; may be set while it runs", 0.0, 99.0)
    things: str = parameter(
        "",
        "coloured discs on the table, which the picture alone shows, px of the table; may be set while it runs: a JSON "
        'list such as [{"x": 256, "y": 256, "radius": 16, "rgb": [220, 40, 40]}]',
    )

    def __post_init__(self) -> None:
        if 0 < self.viewer_px < 16:
            raise ParameterError(f"pusht: viewer_px: must be 0 or in [16, 2048], got {self.viewer_px}")
        if self.compression not in ("jpeg", "png"):
            raise ParameterError(f"pusht: compression: must be jpeg or png, got {self.compression!r}")
        read_things(self.things)


class GamePhase(str, Enum):
    """`waiting`: shown, standing still until the first action. `running`: a step a tick. `done`: at rest."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True)
class GameStatus:
    """Where the table stands. `timeouts` and `refused` count since the start, the rest is this episode's."""

    episode: int
    seed: int
    step: int
    reward: float
    coverage: float
    success: bool
    done: bool
    waiting: bool
    action: tuple[float, float] | None
    refused: dict[str, int]
    timeouts: int


class PushTGame:
    """One table. Not thread-safe: whoever shares it holds a lock.

    All times are ns on one monotonic clock. `tick` is one control step at a grid time; what `world`
    shows and `status` says afterwards is the observation of that time.
    """

    def __init__(self, settings: TableSettings) -> None:
        self.settings = settings
        self.next_seed = settings.seed
        self.world = PushTWorld(settings.drift_px, settings.success_coverage, settings.things)
        self._refused: Counter[str] = Counter()
        self._episode, self._timeouts = -1, 0
        self.reset()

    def reset(self) -> None:
        """Start the next episode, of `next_seed`; the world stands still until its first action."""
        self._seed, self.next_seed = self.next_seed, self.next_seed + 1
        self.world.reset(self._seed)
        self._episode += 1
        self._phase = GamePhase.WAITING
        self._steps, self._outcome = 0, StepResult(0.0, False)
        self._action: NDArray[np.float64] | None = None
        self._action_ns = self._done_ns = 0
        self._shown_ns: int | None = None

    def offer(self, values: Sequence[float], now_ns: int, names: str = "", label: str = "") -> ActionRefusal | None:
        """An action [agent_x, agent_y] px. The newest valid one is active; a refused one changes nothing.

        names: comma-joined channels, if the sender says. label: the sender's JSON object about this action;
        it is looked at only while waiting: an action that was made for the episode before must not start one.
        """
        target = np.asarray(values, dtype=np.float64).reshape(-1)
        refusal = _judge(target, names)
        if refusal is None and self._phase is GamePhase.WAITING and not self._meant_for_this(label):
            refusal = ActionRefusal.STALE
        if refusal is not None:
            self._refused[refusal.value] += 1
            return refusal
        self._action, self._action_ns = target, now_ns
        if self._phase is GamePhase.WAITING:
            self._phase = GamePhase.RUNNING
        return None

    def _meant_for_this(self, label: str) -> bool:
        """Whether a labelled action was made from an observation of this episode; True without a label."""
        try:
            given = json.loads(label) if len(label) <= MAX_LABEL_CHARS else None
        except (ValueError, RecursionError):
            return True
        if not isinstance(given, dict) or "source" not in given:
            return True
        age_ns, mono_ns = given.get("age_ns"), given.get("mono_ns")
        if self._shown_ns is None or given["source"] in ("hold", "stop"):
            return False
        if type(age_ns) is not int or type(mono_ns) is not int:
            return True
        # Half a step of slack: stamps come back through another clock.
        return mono_ns - age_ns > self._shown_ns - DT_NS // 2

    def tick(self, grid_ns: int) -> None:
        """One control step that ends at `grid_ns`."""
        if self._phase is GamePhase.RUNNING:
            self._step(grid_ns)
        elif self._phase is GamePhase.DONE and self.settings.auto_reset and grid_ns - self._done_ns >= SHOW_NS:
            self.reset()
        if self._shown_ns is None:
            self._shown_ns = grid_ns

    def _step(self, grid_ns: int) -> None:
        if self._action is None:
            raise RuntimeError("running without an action")
        if grid_ns - self._action_ns > self.settings.action_timeout_ms * 1_000_000:
            self._timeouts += 1
        self._steps, self._outcome = self._steps + 1, self.world.step(self._action)
        if self._outcome.success or self._steps >= self.settings.max_steps:
            self._phase, self._done_ns = GamePhase.DONE, grid_ns

    @property
    def status(self) -> GameStatus:
        action = None if self._action is None else (float(self._action[0]), float(self._action[1]))
        return GameStatus(
            episode=self._episode,
            seed=self._seed,
            step=self._steps,
            reward=self._outcome.reward,
            coverage=self._outcome.sub_goals.get(COVERAGE, 0.0),
            success=self._outcome.success,
            done=self._phase is GamePhase.DONE,
            waiting=self._phase is GamePhase.WAITING,
            action=action,
            refused=dict(self._refused),
            timeouts=self._timeouts,
        )


def _judge(target: NDArray[np.float64], names: str) -> ActionRefusal | None:
    if names and names != ",".join(NAMES):
        return ActionRefusal.CHANNELS
    try:
        checked_action(target, PushTWorld.channels)
    except ActionError as error:
        return error.refusal
    return None
