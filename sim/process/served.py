"""A world at the other end of the wire, in its own environment (`child.program`). Nothing here knows a simulator."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from auras_ros.sim.world import ActionError, World

Answer = tuple[dict[str, Any], NDArray[Any] | None]


class ServedWorld:
    """Its methods by name, and what they return in plain numbers and text."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.declared = {  # of its class, unless its options change it
            "name": world.name,
            "frame": world.frame,
            "control_dt_ms": world.control_dt_ms,
            "cameras": [vars(each) for each in world.cameras],
            "channels": [vars(each) for each in world.channels],
            "sub_goals": list(world.sub_goals),
            "live": list(world.live),
        }

    def answer(self, order: Mapping[str, Any], array: NDArray[Any] | None) -> Answer:
        world, method = self._world, order["do"]
        if method == "step":
            return self._step(array), None
        if method == "image":
            return {}, world.image(order["camera"], order["height"], order["width"])
        if method == "state":
            return {"state": _plain(world.state())}, None
        if method == "instruction":
            return {"instruction": world.instruction}, None
        if method == "reset":
            world.reset(order["seed"])
        elif method == "disturb":
            world.disturb(order["option"], order["value"])
        else:
            raise ValueError(f"no {method!r} of a world")
        return {}, None

    def _step(self, action: NDArray[Any] | None) -> dict[str, Any]:
        """The result, or why the action is refused."""
        if action is None:
            raise ValueError("a step without an action")
        try:
            made = self._world.step(action)
        except ActionError as error:
            return {"refusal": error.refusal.value, "detail": error.detail}
        result = {"reward": float(made.reward), "success": bool(made.success), "ended": made.ended}
        return {**result, "sub_goals": _plain(made.sub_goals), "statistics": _plain(made.statistics)}

    def close(self) -> None:
        self._world.close()


def make(order: Mapping[str, Any], array: NDArray[Any] | None) -> ServedWorld:
    """order: the world's class by `module` and `world`, and its `options`."""
    found: Any = importlib.import_module(order["module"])
    for name in order["world"].split("."):
        found = getattr(found, name)
    options = {name: tuple(each) if isinstance(each, list) else each for name, each in order["options"].items()}
    return ServedWorld(found(**options))


def _plain(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items()}
