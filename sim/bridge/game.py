"""The rules of a world that is played over a wire: when it waits, moves, is done, and starts again.

The world runs on its own clock: it never waits for a late action, it goes on with the last one. Time is
handed in, so the same rules run on a virtual clock. This module knows no ROS, and no policy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.bridge.settings import BridgeSettings
from auras_ros.sim.world import ActionError, ActionRefusal, StepResult, WorldLostError, checked_action

MAX_LABEL_CHARS = 4096


class GamePhase(str, Enum):
    """`waiting`: shown, standing still until the first action. `running`: a step a tick. `done`: at rest."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True)
class GameStatus:
    """Where the world stands. `timeouts` and `refused` count since the start, the rest is this episode's. `lost`: why
    the world of the episode before was lost; empty if it was not."""

    episode: int
    seed: int
    step: int
    reward: float
    sub_goals: Mapping[str, float]
    statistics: Mapping[str, float]
    success: bool
    done: bool
    waiting: bool
    action: tuple[float, ...] | None
    refused: dict[str, int]
    timeouts: int
    lost: str = ""


class Game:
    """One world. Not thread-safe: whoever shares it holds a lock.

    All times are ns on one monotonic clock. `tick` is one control step at a grid time; what `world`
    shows and `status` says afterwards is the observation of that time.
    """

    def __init__(self, settings: BridgeSettings) -> None:
        self.settings = settings
        self.next_seed = settings.seed
        self.world = settings.make()
        self.dt_ns, self._show_ns = self.world.control_dt_ms * 1_000_000, round(settings.show_s * 1e9)
        self._refused: Counter[str] = Counter()
        self._disturbed: dict[str, Any] = {}
        self._episode, self._timeouts = -1, 0
        self.reset()

    def reset(self) -> None:
        """Start the next episode, of `next_seed`; the world stands still until its first action."""
        self.world.reset(self.next_seed)
        self._seed, self.next_seed = self.next_seed, self.next_seed + 1
        self._episode, self._lost = self._episode + 1, ""
        self._phase = GamePhase.WAITING
        self._steps, self._outcome = 0, StepResult(0.0, False, dict.fromkeys(self.world.sub_goals, 0.0))
        self._action: NDArray[np.float64] | None = None
        self._acted = False  # the action was taken for a step already
        self._action_ns = self._done_ns = 0
        self._shown_ns: int | None = None

    def disturb(self, option: str, value: Any) -> None:
        """As `World.disturb`; it holds in a new world too."""
        self.world.disturb(option, value)
        self._disturbed[option] = value

    def start_again(self, error: WorldLostError) -> None:
        """The world is lost, and its episode with it: the next one begins in a new world. Raises what making one
        raises."""
        self.world.close()
        self.world = self.settings.make()
        for option, value in self._disturbed.items():
            self.world.disturb(option, value)
        self.reset()
        self._lost = str(error)

    def offer(self, values: Sequence[float], now_ns: int, names: str = "", label: str = "") -> ActionRefusal | None:
        """An action, a value for each channel. The newest valid one is active; a refused one changes nothing.

        names: comma-joined channels, if the sender says. label: the sender's JSON object about this action;
        it is looked at only while waiting: an action that was made for the episode before must not start one.
        """
        try:
            action = self._checked(values, names, label)
        except ActionError as error:
            self.refuse(error.refusal)
            return error.refusal
        self._action, self._action_ns, self._acted = action, now_ns, False
        if self._phase is GamePhase.WAITING:
            self._phase = GamePhase.RUNNING
        return None

    def refuse(self, refusal: ActionRefusal) -> None:
        """Count an action that is not taken."""
        self._refused[refusal.value] += 1

    def _checked(self, values: Sequence[float], names: str, label: str) -> NDArray[np.float64]:
        """Raises ActionError."""
        expected = ",".join(each.name for each in self.world.channels)
        if names not in ("", expected):
            raise ActionError(ActionRefusal.CHANNELS, f"expected {expected}")
        action = checked_action(values, self.world.channels)
        if self._phase is GamePhase.WAITING and not self._meant_for_this(label):
            raise ActionError(ActionRefusal.STALE, "made for the episode before")
        return action

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
        return mono_ns - age_ns > self._shown_ns - self.dt_ns // 2

    def tick(self, grid_ns: int) -> None:
        """One control step that ends at `grid_ns`. A paused world takes one for each action, and stands still until the
        next."""
        if self._phase is GamePhase.RUNNING:
            if not (self._acted and self.settings.paused):
                self._step(grid_ns)
        elif self._phase is GamePhase.DONE and self.settings.auto_reset and grid_ns - self._done_ns >= self._show_ns:
            self.reset()
        if self._shown_ns is None:
            self._shown_ns = grid_ns

    def _step(self, grid_ns: int) -> None:
        if self._action is None:
            raise RuntimeError("running without an action")
        if grid_ns - self._action_ns > self.settings.action_timeout_ms * 1_000_000:
            self._timeouts += 1
        self._steps, self._outcome, self._acted = self._steps + 1, self.world.step(self._action), True
        if self._outcome.success or self._outcome.ended or self._steps >= self.settings.max_steps:
            self._phase, self._done_ns = GamePhase.DONE, grid_ns

    @property
    def status(self) -> GameStatus:
        return GameStatus(
            episode=self._episode,
            seed=self._seed,
            step=self._steps,
            reward=self._outcome.reward,
            sub_goals=self._outcome.sub_goals,
            statistics=self._outcome.statistics,
            success=self._outcome.success,
            done=self._phase is GamePhase.DONE,
            waiting=self._phase is GamePhase.WAITING,
            action=None if self._action is None else tuple(self._action.tolist()),
            refused=dict(self._refused),
            timeouts=self._timeouts,
            lost=self._lost,
        )
