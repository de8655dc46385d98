"""The busy model beside the policy, in a process or a thread of its own; paused where it is not measured."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from auras_ros.bench.cohost import busy_vlm
from auras_ros.device.reservation import FrameReservation

READY_S, END_S = 300.0, 20.0


class VlmLoad(Protocol):
    """Busy already when it is made, and paused."""

    @property
    def frames(self) -> FrameReservation | None:
        """Between which it works; None: always."""
        ...

    def resume(self) -> None: ...

    def pause(self) -> None: ...

    def tokens(self) -> int:
        """How many it has made so far."""
        ...

    def close(self) -> None: ...


class ProcessLoad:
    """Raises RuntimeError if the process ends before it is busy, or is not so in time."""

    frames = None

    def __init__(self, folder: Path, cores: Sequence[int], threads: int, seed: int) -> None:
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115  (`close` closes it)
        self._file.write(bytes(8))
        self._file.flush()
        self._counter = np.memmap(self._file.name, np.int64, "r", shape=(1,))
        arguments = [str(folder), ",".join(map(str, cores)), str(threads), str(seed), self._file.name]
        command = [sys.executable, busy_vlm.__file__, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        timer = threading.Timer(READY_S, self._process.kill)
        timer.start()
        try:
            assert self._process.stdout is not None
            if self._process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"the model's process ended with {self._process.wait()}; its error is above")
            self.pause()
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def tokens(self) -> int:
        return int(self._counter[0])

    def close(self) -> None:
        with self._process as process:
            process.terminate()
            process.send_signal(signal.SIGCONT)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._file.close()


class ThreadLoad:
    """Raises RuntimeError, as every method, if the thread has failed. reserved: it works only between frames."""

    def __init__(self, folder: Path, cores: Sequence[int], threads: int, seed: int, reserved: bool = False) -> None:
        self.frames = FrameReservation() if reserved else None
        self._changed = threading.Condition()
        self._wanted, self._paused, self._closing = False, False, False
        self._tokens, self._failure = 0, ""
        self._thread = threading.Thread(target=self._run, args=(folder, cores, threads, seed), name="vlm", daemon=True)
        own = torch.get_num_threads()
        self._thread.start()
        self.pause()
        torch.set_num_threads(own)  # the default of threads to come, which occupying has changed (`device.cores`)

    def resume(self) -> None:
        self._set(wanted=True)

    def pause(self) -> None:
        self._set(wanted=False)

    def tokens(self) -> int:
        return self._tokens

    def close(self) -> None:
        with self._changed:
            self._wanted, self._closing = False, True
            self._changed.notify_all()
        self._thread.join(END_S)

    def _set(self, wanted: bool) -> None:
        with self._changed:
            self._wanted = wanted
            self._changed.notify_all()
            in_time = self._changed.wait_for(lambda: self._failure or self._paused is not wanted, READY_S)
        if self._failure or not in_time:
            raise RuntimeError(f"the model's thread: {self._failure or 'not ready in time'}")

    def _run(self, folder: Path, cores: Sequence[int], threads: int, seed: int) -> None:
        try:
            for tokens in busy_vlm.answering(folder, cores, threads, seed, self.frames):
                self._tokens = tokens
                if not self._wanted and not self._rest():
                    return
        except Exception as error:  # noqa: BLE001  (raised in the thread that measures)
            with self._changed:
                self._failure = f"{type(error).__name__}: {error}"
                self._changed.notify_all()

    def _rest(self) -> bool:
        """Waits until it is wanted. Returns False if it is to end."""
        with self._changed:
            self._paused = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._wanted or self._closing)
            self._paused = False
            self._changed.notify_all()
            return not self._closing
