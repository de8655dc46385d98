"""What a world is: the one interface that evaluation, tuner, referee and bridge know.

A world moves only in `step`, by one control period, and draws a picture only when it is asked for one. It knows no ROS,
no policy and no schedule. docs/worlds.md shows how to write one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from auras_ros.environments import Environment


@dataclass(frozen=True)
class WorldCamera:
    """A camera. name: as in the topics camera/<name>/...; width and height in px. intrinsics: focal lengths and centre
    (fx, fy, cx, cy) in px, without distortion; None: not calibrated."""

    name: str
    width: int
    height: int
    intrinsics: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class ActionChannel:
    """One number of an action, with its unit and inclusive bounds."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class StepResult:
    """What one control step led to. reward: 0 to 1. sub_goals: how far each part of the task is reached, 0 to 1. ended:
    why the world ends the episode without success, such as `time limit`; empty: it goes on. statistics: other numbers
    of the episode so far, in units of their own; reports keep those of its last step."""

    reward: float
    success: bool
    sub_goals: Mapping[str, float] = field(default_factory=dict)
    ended: str = ""
    statistics: Mapping[str, float] = field(default_factory=dict)


class ActionRefusal(str, Enum):
    """Why an action is not taken; the first reason wins."""

    CHANNELS = "channels"
    SIZE = "size"
    NOT_FINITE = "not_finite"
    OUT_OF_RANGE = "out_of_range"
    STALE = "stale"
    UNREADABLE = "unreadable"


class ActionError(ValueError):
    """An action that no world takes; the message names the reason and the channel."""

    def __init__(self, refusal: ActionRefusal, detail: str) -> None:
        super().__init__(f"action refused: {refusal.value}: {detail}")
        self.refusal, self.detail = refusal, detail


class WorldLostError(RuntimeError):
    """The process that a world ran in has ended or does not answer, and with it the episode. The message has the world,
    how it ended, and the last lines of what it printed."""


class World(ABC):
    """A task in a simulator. It is made with its options by name, see `Sim`.

    name: of its bridge's node, of the node's topics and section in a config. frame: frame id of its joint states.
    sub_goals: the names in every `StepResult.sub_goals`. live: the options that `disturb` changes while it runs. What
    follows from options is in the class that `of` makes for them. A family of worlds has an option `task`.
    """

    name: ClassVar[str]
    frame: ClassVar[str] = "world"
    control_dt_ms: ClassVar[int]
    cameras: tuple[WorldCamera, ...]
    channels: tuple[ActionChannel, ...]
    sub_goals: ClassVar[tuple[str, ...]] = ()
    live: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __init__(self, **options: Any) -> None: ...

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        """The values of a family's option `task`; none of a single world."""
        return ()

    @classmethod
    def declares(cls, options: Any) -> Mapping[str, Any]:
        """Attributes (control_dt_ms, cameras, channels, sub_goals) that follow from these options, known without the
        simulator. A world that is made sets them too: another process knows the class alone. Raises ValueError."""
        return {}

    @classmethod
    def of(cls, options: Any) -> type[World]:
        """The class with what it `declares`, by which configs and reports are read without the simulator."""
        names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
        declared = cls.declares(options)
        return type(cls.__name__, (cls,), {**names, **declared}) if declared else cls

    @classmethod
    @abstractmethod
    def check(cls) -> None:
        """Raises ModuleNotFoundError if its simulator is not installed, so that long measurements fail early."""

    @abstractmethod
    def reset(self, seed: int) -> None:
        """Begin an episode; the same seed always gives the same one."""

    @abstractmethod
    def step(self, action: NDArray[np.float64]) -> StepResult:
        """Hold `action` [channels] for one control period. Raises ActionError, and moves nothing then."""

    @abstractmethod
    def state(self) -> Mapping[str, float]:
        """What its joint sensors tell now, by name; the position of a channel under the channel's name."""

    @abstractmethod
    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        """What a camera sees now, RGB [height, width, 3], px. Raises ValueError for a size that it cannot have."""

    @abstractmethod
    def close(self) -> None:
        """Free what it holds; it is not used again."""

    @property
    def instruction(self) -> str:
        """The task in words, as of now; empty if policies are not told."""
        return ""

    def disturb(self, option: str, value: Any) -> None:
        """Change an option of `live`. Raises ValueError for another one, or a value that cannot be used."""
        raise ValueError(f"{self.name}: {option} cannot be changed while it runs")


@dataclass(frozen=True)
class Sim:
    """What a value of `--sim` stands for: a world's class, and the options that it is made with.

    options: a frozen dataclass of `parameters.parameter` fields, which say what can be changed and disturbed: one for
    each argument of the class. They are the parameters of its bridge too. environment: of the process that the world
    runs in; None: it runs in this process, with the packages that are here. name: by which it was asked for, which may
    be a variant's; the world's own unless `sim.worlds.find` has set it.
    """

    summary: str
    world: type[World]
    options: Any
    environment: Environment | None = None
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.world.name)

    def check(self) -> None:
        """Raises ModuleNotFoundError if its simulator is not installed, MissingEnvironmentError if its environment is
        not made."""
        if self.environment is None:
            self.world.check()
        else:
            self.environment.python(self.name)

    def given(self, **values: Any) -> Sim:
        """The same with other values of its options. Raises ParameterError."""
        options = replace(self.options, **values)
        return replace(self, world=self.world.of(options), options=options)

    def make(self) -> World:
        """Raises what `check` raises, and WorldLostError if its process ends before the world is made."""
        if self.environment is None:
            return self.world(**vars(self.options))
        from auras_ros.sim.process.world import ProcessWorld  # not in the process itself

        return ProcessWorld(self.world, vars(self.options), self.environment.python(self.name))


def checked_action(action: ArrayLike, channels: Sequence[ActionChannel]) -> NDArray[np.float64]:
    """The action as an array [channels]. Raises ActionError for another size, NaN or infinity, or a value beyond its
    channel's bounds."""
    values = np.asarray(action, dtype=np.float64)
    if values.shape != (len(channels),):
        expected = ", ".join(each.name for each in channels)
        raise ActionError(ActionRefusal.SIZE, f"expected {len(channels)} numbers ({expected}), got {values.shape}")
    for channel, value in zip(channels, values.tolist(), strict=True):
        if not np.isfinite(value):
            raise ActionError(ActionRefusal.NOT_FINITE, f"{channel.name}: {value}")
    for channel, value in zip(channels, values.tolist(), strict=True):
        if not channel.low <= value <= channel.high:
            bounds = f"must be in [{channel.low:g}, {channel.high:g}] {channel.unit}, got {value:g}"
            raise ActionError(ActionRefusal.OUT_OF_RANGE, f"{channel.name}: {bounds}")
    return values
