"""A world in a process of its own, in its own Python environment, played as any other: this is the end that plays.

A world = a process (`child.process`); what runs there is `served`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.child.process import ChildProcess, ChildStart
from auras_ros.child.wire import Message
from auras_ros.sim.world import (
    ActionChannel,
    ActionError,
    ActionRefusal,
    StepResult,
    World,
    WorldCamera,
    WorldLostError,
)

SERVED = "auras_ros.sim.process.served"


class ProcessWorld(World):
    """kind: the class, at the top of a module; its options are what JSON has. python: of the world's environment.

    Every method raises what the world's method raises there (ActionError, ValueError, ModuleNotFoundError; another
    error as a RuntimeError that names it), and WorldLostError if the process has ended or says nothing for thirty
    seconds, or for three minutes while it is made or draws its first picture; from then on every call raises it.
    """

    def __init__(self, kind: type[World], options: Mapping[str, Any], python: Path) -> None:
        self._has_drawn = False
        made = {"module": kind.__module__, "world": kind.__qualname__, "options": dict(options)}
        start = ChildStart(SERVED, made, packages=[_package(kind)])
        self.process = ChildProcess(kind.name, "world", python, start, WorldLostError)
        self._declare(self.process.declared)

    def _declare(self, told: Message) -> None:
        values = {name: tuple(each) if isinstance(each, list) else each for name, each in told.items()}
        values["channels"] = tuple(ActionChannel(**each) for each in told["channels"])
        cameras = [{**each, "intrinsics": each["intrinsics"] and tuple(each["intrinsics"])} for each in told["cameras"]]
        vars(self).update(values, cameras=tuple(WorldCamera(**each) for each in cameras))

    @staticmethod
    def check() -> None:
        """`Sim.check` looks for the environment; what is in it, the process says."""

    def reset(self, seed: int) -> None:
        self.process.ask("reset", {"seed": int(seed)})

    def step(self, action: NDArray[np.float64]) -> StepResult:
        told, _ = self.process.ask("step", array=np.asarray(action, dtype=np.float64))
        if "refusal" in told:
            raise ActionError(ActionRefusal(told["refusal"]), told["detail"])
        return StepResult(**told)

    def state(self) -> Mapping[str, float]:
        state: Mapping[str, float] = self.process.ask("state")[0]["state"]
        return state

    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        order = {"camera": camera, "height": int(height), "width": int(width)}
        _, image = self.process.ask("image", order, slow=not self._has_drawn)  # its first picture starts the renderer
        self._has_drawn = True
        if image is None:
            raise ValueError(f"{self.name}: camera {camera}: no image")
        return image

    @property
    def instruction(self) -> str:
        return str(self.process.ask("instruction")[0]["instruction"])

    def disturb(self, option: str, value: Any) -> None:
        self.process.ask("disturb", {"option": option, "value": value})

    def close(self) -> None:
        """Ends the process: when its world is closed, at once if that takes more than a few seconds."""
        self.process.close()


def _package(kind: type[World]) -> str:
    """The package that the class is in. Raises ValueError if no other process can import it."""
    name = kind.__module__.partition(".")[0]
    spec = sys.modules[name].__spec__
    if name == "__main__" or "<locals>" in kind.__qualname__ or spec is None or spec.origin is None:
        place = f"{kind.__module__}.{kind.__qualname__}"
        raise ValueError(f"{kind.name}: no other process can import {place}: put it at the top of a module")
    return name
