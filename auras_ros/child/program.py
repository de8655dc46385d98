"""Runs one thing for the process that started it: `python -I -u program.py WIRE PARENT THREAD PACKAGES MODULE`.

It runs in an environment of its own, where this package is not installed. Of our environment it finds the packages
alone that it is told of (PACKAGES: name -> file), so that no other version of anything comes along. MODULE makes the
thing (`ChildService`); nothing here knows what it is. What it prints goes to the standard error, which is not the wire.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

PR_SET_PDEATHSIG = 1
MOST_TEXT = 2000  # characters of an error


class ChildService(Protocol):
    """What MODULE's `make(order, array)` returns. declared: what it says of itself."""

    declared: dict[str, Any]

    def answer(
        self, order: Mapping[str, Any], array: NDArray[Any] | None
    ) -> tuple[dict[str, Any], NDArray[Any] | None]:
        """What is sent back: a message, with an array or none. Whatever it raises, the parent raises."""
        ...

    def close(self) -> None: ...


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
    if argv[3] == "main":  # the kernel ends this process with the thread that has started it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it has died already
        return
    sys.meta_path.insert(0, ToldPackages(json.loads(argv[4])))
    gone = contextlib.suppress(EOFError, OSError)  # the parent is, or it needs this no more
    with socket.socket(fileno=int(argv[1])) as link, gone:
        serve(link, argv[5])


def _end_with(parent: int) -> None:
    """Also where the main thread computes and does not look at the wire."""
    with contextlib.suppress(OSError):
        select.select([os.pidfd_open(parent)], [], [])
    os._exit(1)


def serve(link: socket.socket, module: str) -> None:
    """Makes what is asked for, and answers until the other end is closed. Raises EOFError or OSError then."""
    from auras_ros.child.wire import encoded, receive

    order, array = receive(link)
    try:
        served: ChildService = importlib.import_module(module).make(order, array)
        declared = encoded(served.declared)
    except Exception as error:  # noqa: BLE001  (raised again by the parent)
        link.sendall(encoded(told(error)))
        return
    try:
        link.sendall(declared)
        while True:
            order, array = receive(link)
            try:
                answer = encoded(*served.answer(order, array))
            except Exception as error:  # noqa: BLE001  (raised again by the parent)
                answer = encoded(told(error))
            link.sendall(answer)
    finally:
        served.close()


def told(error: Exception) -> dict[str, Any]:
    """The error as a message, by the kind that `child.process` raises again; a long text is cut."""
    plain = isinstance(error, ModuleNotFoundError | ValueError) or type(error) is RuntimeError
    text = str(error) if plain else f"{type(error).__name__}: {error}"
    text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ..."
    if isinstance(error, ModuleNotFoundError):
        return {"error": "module", "name": error.name, "text": text}
    return {"error": "value" if isinstance(error, ValueError) else "other", "text": text}


if __name__ == "__main__":
    main(sys.argv)
