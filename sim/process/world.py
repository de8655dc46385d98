"""A world in a process of its own, in its own Python environment, played as any other: this is the end that plays.

A world = a process: started when the world is made, ended by `close`, when nobody has the world any more, or when this
process dies. What goes over the wire is `wire`'s, what runs at its other end `program`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.process.wire import Message, encoded, receive
from auras_ros.sim.world import (
    ActionChannel,
    ActionError,
    ActionRefusal,
    StepResult,
    World,
    WorldCamera,
    WorldLostError,
)

PROGRAM = Path(__file__).with_name("program.py")
LOOK_S = 1.0
START_LOOKS, ANSWER_LOOKS = 180, 30  # seconds, of which one counts for a process that was stopped together with this
ENDING_S = 5.0
PRINTED_BYTES = 1 << 20  # kept of what the process prints
SAID_LINES, SAID_BYTES = 8, 4096
# One thread, as in lockstep: many worlds run beside each other. A world's class may know better.
SETTINGS = {"OMP_NUM_THREADS": "1"}


class ProcessWorld(World):
    """kind: the class, at the top of a module; its options are what JSON has. python: of the world's environment.

    Every method raises what the world's method raises there (ActionError, ValueError, ModuleNotFoundError; another
    error as a RuntimeError that names it), and WorldLostError if the process has ended or says nothing for thirty
    seconds, or for three minutes while it is made or draws its first picture; from then on every call raises it.
    """

    def __init__(self, kind: type[World], options: Mapping[str, Any], python: Path) -> None:
        self.name = kind.name  # type: ignore[misc]  # an instance's, as all that `_declare` sets
        self._lost, self._has_drawn = "", False
        self._printed = _memory_file(f"{kind.name} printed")
        self._link, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start(python, kind, theirs, self._printed)
        except BaseException:
            self._link.close()
            os.close(self._printed)
            raise
        self._end = weakref.finalize(self, _end, self._process, self._link, self._printed)
        self._link.settimeout(LOOK_S)
        made = {"module": kind.__module__, "world": kind.__qualname__, "options": dict(options)}
        try:
            self._declare(self._ask("make", made, looks=START_LOOKS)[0])
        except BaseException:
            self.close()
            raise

    def _declare(self, told: Message) -> None:
        values = {name: tuple(each) if isinstance(each, list) else each for name, each in told.items()}
        values["channels"] = tuple(ActionChannel(**each) for each in told["channels"])
        cameras = [{**each, "intrinsics": each["intrinsics"] and tuple(each["intrinsics"])} for each in told["cameras"]]
        vars(self).update(values, cameras=tuple(WorldCamera(**each) for each in cameras))

    @staticmethod
    def check() -> None:
        """`Sim.check` looks for the environment; what is in it, the process says."""

    def reset(self, seed: int) -> None:
        self._ask("reset", {"seed": int(seed)})

    def step(self, action: NDArray[np.float64]) -> StepResult:
        told, _ = self._ask("step", array=np.asarray(action, dtype=np.float64))
        return StepResult(**told)

    def state(self) -> Mapping[str, float]:
        state: Mapping[str, float] = self._ask("state")[0]["state"]
        return state

    def image(self, camera: str, height: int, width: int) -> NDArray[np.uint8]:
        looks = 0 if self._has_drawn else START_LOOKS  # its first picture starts the renderer
        _, image = self._ask("image", {"camera": camera, "height": int(height), "width": int(width)}, looks=looks)
        self._has_drawn = True
        if image is None:
            raise ValueError(f"{self.name}: camera {camera}: no image")
        return image

    @property
    def instruction(self) -> str:
        return str(self._ask("instruction")[0]["instruction"])

    def disturb(self, option: str, value: Any) -> None:
        self._ask("disturb", {"option": option, "value": value})

    def close(self) -> None:
        """Ends the process: when its world is closed, at once if that takes more than a few seconds."""
        self._lost = self._lost or f"{self.name}: the world is closed"
        self._end()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def _ask(
        self, method: str, given: Message | None = None, array: NDArray[np.float64] | None = None, looks: int = 0
    ) -> tuple[Message, NDArray[Any] | None]:
        """The answer. looks: seconds that it may take, ANSWER_LOOKS by default."""
        if self._lost:
            raise WorldLostError(self._lost)
        looks = looks or ANSWER_LOOKS
        try:
            order = encoded({"do": method, **(given or {})}, array)
        except TypeError as error:
            raise ValueError(f"{self.name}: {method}: {error}") from None
        try:
            self._link.sendall(order)
            told, image = receive(self._link, looks)
        except TimeoutError:
            raise self._loses(method, f"has said nothing for {looks * LOOK_S:g} s") from None
        except (EOFError, OSError):
            raise self._loses(method, self._ended()) from None
        except ValueError as error:
            raise self._loses(method, f"sent what is no message: {error}") from None
        except BaseException:  # interrupted: the answer would be taken for that of the next call
            self._loses(method, "was interrupted")
            raise
        if "error" in told:
            raise _raised(told)
        if os.fstat(self._printed).st_size > PRINTED_BYTES:
            os.ftruncate(self._printed, 0)
        return told, image

    def _loses(self, method: str, how: str) -> WorldLostError:
        """From now on it is lost; the process ends. Nothing new if it was closed meanwhile, by another thread."""
        if self._lost:
            return WorldLostError(self._lost)
        self._process.kill()
        said = "".join(f"\n  {line}" for line in self._said())
        self._lost = f"{self.name}: the world's process {how} ({method}){said}"
        self._end()
        return WorldLostError(self._lost)

    def _ended(self) -> str:
        try:
            status = self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            return "has closed its wire"
        names = {each.value: each.name for each in signal.Signals}
        return (
            f"ended with status {status}" if status >= 0 else f"was ended by {names.get(-status, f'signal {-status}')}"
        )

    def _said(self) -> list[str]:
        """The last lines of what the process printed."""
        size = os.fstat(self._printed).st_size
        text = os.pread(self._printed, SAID_BYTES, max(0, size - SAID_BYTES))
        return text.decode(errors="replace").splitlines()[-SAID_LINES:]


def _memory_file(name: str) -> int:
    """No disk that may be full, no pipe that somebody must read; whoever writes appends, so that it may be cut."""
    file = os.memfd_create(name)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def _start(python: Path, kind: type[World], wire: socket.socket, printed: int) -> subprocess.Popen[bytes]:
    """The process, which says nothing yet. Raises OSError."""
    packages = {}
    for name in ("auras_ros", kind.__module__.partition(".")[0]):
        spec = sys.modules[name].__spec__
        if name == "__main__" or "<locals>" in kind.__qualname__ or spec is None or spec.origin is None:
            place = f"{kind.__module__}.{kind.__qualname__}"
            raise ValueError(f"{kind.name}: no other process can import {place}: put it at the top of a module")
        packages[name] = spec.origin
    # The kernel ends it with the thread that has started it: only the main thread lives as long as this process.
    parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0
    return subprocess.Popen(
        [str(python), "-I", "-u", str(PROGRAM), str(wire.fileno()), str(parent), json.dumps(packages)],
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=printed,
        pass_fds=[wire.fileno()],
        env={**SETTINGS, **os.environ},
    )


def _end(process: subprocess.Popen[bytes], link: socket.socket, printed: int) -> None:
    with contextlib.suppress(OSError):  # it has gone already
        link.shutdown(socket.SHUT_RDWR)  # also for a thread that waits for an answer
    link.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    os.close(printed)


def _raised(told: Message) -> Exception:
    """The error of the other end."""
    kind, text = told["error"], told["text"]
    if kind == "action":
        return ActionError(ActionRefusal(told["refusal"]), text)
    if kind == "module":
        return ModuleNotFoundError(text, name=told["name"])
    return ValueError(text) if kind == "value" else RuntimeError(text)
