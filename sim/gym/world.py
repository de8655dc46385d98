"""Any Gymnasium environment that draws itself, as a world: `gym:Pendulum-v1`, `gym:./mine.yaml`.

What its numbers mean is in a file (`description`), which is compared with the environment when it is made.
Gymnasium is imported then, and not before.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.parameters import parameter
from auras_ros.sim.gym.description import RENDER, GymDescription, read, shipped
from auras_ros.sim.pictures import resized
from auras_ros.sim.world import ActionChannel, StepResult, World, checked_action

CLOSE = 1e-6  # bounds of its spaces are float32


@dataclass(frozen=True)
class GymOptions:
    """Raises ParameterError."""

    task: str = parameter(
        "Pendulum-v1", "a description: the id of one that ships, or a file (*.yaml)", names_files=True
    )

    def __post_init__(self) -> None:
        read(self.task)


class GymWorld(World):
    """task: see `GymOptions`. Raises ModuleNotFoundError if a package is missing, and ValueError, naming what, if the
    environment is not as described."""

    name = "gym"

    def __init__(self, task: str) -> None:
        self._is = read(task)
        vars(self).update(self.declares(GymOptions(task)))
        self.check()
        self._env = _make(self._is)
        self._take = _actions(self._is, self._env.action_space)
        self._parts: dict[str, Any] = {}
        self.reset(0)
        self.state()

    @classmethod
    def tasks(cls) -> tuple[str, ...]:
        return tuple(read(name).id for name in shipped())

    @classmethod
    def declares(cls, options: GymOptions) -> Mapping[str, Any]:
        described = read(options.task)
        return {
            "control_dt_ms": described.control_dt_ms,
            "cameras": tuple(camera for camera, _ in described.cameras),
            "channels": described.channels,
            "sub_goals": tuple(described.sub_goals),
        }

    @classmethod
    def check(cls) -> None:
        """Raises ModuleNotFoundError without Gymnasium."""
        importlib.import_module("gymnasium")

    def reset(self, seed: int) -> None:
        observation, info = self._env.reset(seed=seed)
        self._parts = {"observation": observation, "info": info}

    def step(self, action: NDArray[np.float64]) -> StepResult:
        """An action of whole numbers is the nearest one. Raises ActionError, and ValueError if the environment returns
        something else than described."""
        values = checked_action(action, self.channels)
        names = ("observation", "reward", "terminated", "truncated", "info")
        self._parts = dict(zip(names, self._env.step(self._take(values)), strict=True))
        described, parts = self._is, self._parts
        try:
            success, reward = described.success.holds(parts), described.reward.of(parts)
            goals = {name: share.of(parts) for name, share in described.sub_goals.items()}
        except ValueError as error:
            raise ValueError(f"gym: {described.id}: {error}") from error
        over = "terminated" if parts["terminated"] else "time limit" if parts["truncated"] else ""
        return StepResult(reward, success, goals, "" if success else over)

    def state(self) -> Mapping[str, float]:
        try:
            return {name: source.number(self._parts) for name, source in self._is.state.items()}
        except ValueError as error:
            raise ValueError(f"gym: {self._is.id}: state: {error}") from error

    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        """In another size than the environment draws it by the mean of its pixels."""
        found = {each.name: (each, source) for each, source in self._is.cameras}
        if camera not in found:
            raise ValueError(f"gym: {self._is.id}: no camera {camera!r}; its cameras: {', '.join(found)}")
        described, source = found[camera]
        picture = np.asarray(self._render() if source.path == (RENDER,) else source.find(self._parts))
        if picture.shape != (described.height, described.width, 3) or picture.dtype != np.uint8:
            expected = f"uint8 [{described.height}, {described.width}, 3]"
            got = f"{picture.dtype} {list(picture.shape)}"
            raise ValueError(f"gym: {self._is.id}: cameras: {camera}: {source.text} is {got}, not {expected}")
        return resized(picture, height, width)

    def _render(self) -> Any:
        from gymnasium.error import DependencyNotInstalled

        try:
            return self._env.render()
        except DependencyNotInstalled as error:
            raise _not_installed(self._is, error) from error

    @property
    def instruction(self) -> str:
        return self._is.instruction

    def close(self) -> None:
        self._env.close()


def _make(described: GymDescription) -> Any:
    """The environment. Raises ModuleNotFoundError, and ValueError by the file's key."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    import gymnasium

    if described.module:
        importlib.import_module(described.module)
    values = dict(described.make)
    if described.renders:
        values.setdefault("render_mode", "rgb_array")
    try:
        return gymnasium.make(described.id, disable_env_checker=True, **values)
    except gymnasium.error.DependencyNotInstalled as error:
        raise _not_installed(described, error) from error
    except (gymnasium.error.Error, TypeError) as error:
        raise ValueError(f"gym: {described.id}: cannot be made: {error}") from error


def _not_installed(described: GymDescription, error: Exception) -> ModuleNotFoundError:
    """Gymnasium's error of a package that an environment lacks, as Python's; its text says what to install."""
    package = getattr(error.__cause__, "name", None) or "gymnasium"
    return ModuleNotFoundError(f"gym: {described.id}: {error}", name=package)


def _actions(described: GymDescription, space: Any) -> Any:
    """How the channels' values become the environment's action. Raises ValueError for a space with no such channels."""
    from gymnasium import spaces

    channels = described.channels
    if isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start + space.n - 1)
        _check(described, channels, np.array([first]), np.array([last]), space)
        return lambda values: int(np.clip(np.floor(values[0] + 0.5), first, last))
    if isinstance(space, spaces.Box):
        _check(described, channels, space.low.ravel(), space.high.ravel(), space)
        return lambda values: values.astype(space.dtype).reshape(space.shape)
    raise ValueError(f"gym: {described.id}: actions: {space} cannot be channels, only Box and Discrete can")


def _check(
    described: GymDescription, channels: tuple[ActionChannel, ...], low: NDArray[Any], high: NDArray[Any], space: Any
) -> None:
    if len(channels) != len(low):
        raise ValueError(f"gym: {described.id}: actions: {len(channels)} are described, but {space} has {len(low)}")
    for channel, least, most in zip(channels, low.tolist(), high.tolist(), strict=True):
        if channel.low < least - CLOSE or channel.high > most + CLOSE:
            raise ValueError(
                f"gym: {described.id}: actions: {channel.name}: [{channel.low:g}, {channel.high:g}] is beyond the "
                f"environment's [{least:g}, {most:g}]"
            )
