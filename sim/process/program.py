"""Runs one world for the process that started it: `python -I -u program.py WIRE PARENT PACKAGES`.

It runs in the world's own Python environment, where this package is not installed. Of our environment it finds the
packages alone that it is told of (PACKAGES: name -> file), so that no other version of anything comes along. Nothing
here knows a simulator; whatever the world prints goes to the standard error, which is not the wire.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from auras_ros.sim.world import World

PR_SET_PDEATHSIG = 1


class ToldPackages:
    """Finds these packages and modules, each in its file, and nothing beside them."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self._files.get(name)
        if file is None:
            return None
        folder = [os.path.dirname(file)] if os.path.basename(file) == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, file, submodule_search_locations=folder)


def main(argv: list[str]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they come to all processes of a terminal or a unit
        signal.signal(number, signal.SIG_IGN)
    parent = int(argv[2])
    if parent:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before prctl was called
            return
    sys.meta_path.insert(0, ToldPackages(json.loads(argv[3])))
    gone = contextlib.suppress(EOFError, OSError)  # the parent is, or it needs the world no more
    with socket.socket(fileno=int(argv[1])) as link, gone:
        serve(link)


def serve(link: socket.socket) -> None:
    """Makes the world and answers until the other end is closed. Raises EOFError or OSError then."""
    from auras_ros.sim.process.wire import encoded, receive

    order, _ = receive(link)
    try:
        world = _made(order)
        declared = _declared(world)
    except Exception as error:  # noqa: BLE001  (raised again by the parent)
        link.sendall(encoded(told(error)))
        return
    try:
        link.sendall(encoded(declared))
        while True:
            order, array = receive(link)
            try:
                answer = encoded(*_answer(world, order, array))
            except Exception as error:  # noqa: BLE001  (raised again by the parent)
                answer = encoded(told(error))
            link.sendall(answer)
    finally:
        world.close()


def _made(order: Mapping[str, Any]) -> World:
    found: Any = importlib.import_module(order["module"])
    for name in order["world"].split("."):
        found = getattr(found, name)
    options = {name: tuple(each) if isinstance(each, list) else each for name, each in order["options"].items()}
    made: World = found(**options)
    return made


def _declared(world: World) -> dict[str, Any]:
    """What a world says of itself: that of its class, unless its options change it."""
    return {
        "name": world.name,
        "frame": world.frame,
        "control_dt_ms": world.control_dt_ms,
        "cameras": [vars(each) for each in world.cameras],
        "channels": [vars(each) for each in world.channels],
        "sub_goals": list(world.sub_goals),
        "live": list(world.live),
    }


def _answer(
    world: World, order: Mapping[str, Any], array: NDArray[Any] | None
) -> tuple[dict[str, Any], NDArray[Any] | None]:
    """What a method of the world returns, in plain numbers and text."""
    method = order["do"]
    if method == "step":
        if array is None:
            raise ValueError("a step without an action")
        made = world.step(array)
        result = {"reward": float(made.reward), "success": bool(made.success), "ended": made.ended}
        return {**result, "sub_goals": _plain(made.sub_goals), "statistics": _plain(made.statistics)}, None
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


def _plain(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items()}


def told(error: Exception) -> dict[str, Any]:
    """The error as a message, by the kind that `process.world` raises again."""
    from auras_ros.sim.world import ActionError

    if isinstance(error, ActionError):
        return {"error": "action", "refusal": error.refusal.value, "text": error.detail}
    if isinstance(error, ModuleNotFoundError):
        return {"error": "module", "name": error.name, "text": str(error)}
    if isinstance(error, ValueError):
        return {"error": "value", "text": str(error)}
    return {"error": "other", "text": str(error) if type(error) is RuntimeError else f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(sys.argv)
