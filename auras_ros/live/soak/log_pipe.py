"""What the nodes say, through a pipe into a file; and a pipe that is full or closed, where that is asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

AT_ONCE = 65536


class LogPipe:
    """A context: `writer` is for the nodes' output, and a thread copies it to the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._read, write = os.pipe()
        self.writer = os.fdopen(write, "wb", buffering=0)
        self._flowing = threading.Event()
        self._flowing.set()
        self._reading = threading.Lock()  # held while the thread is within a read
        self._thread = threading.Thread(target=self._copy, name="log", daemon=True)

    def _copy(self) -> None:
        while True:
            self._flowing.wait()
            with self._reading:
                if not self._flowing.is_set():
                    continue
                data = os.read(self._read, AT_ONCE)
            if not data:
                return
            self._file.write(data)
            self._file.flush()

    @contextmanager
    def unread(self) -> Iterator[None]:
        """For a block nobody reads, and the pipe is full."""
        self._flowing.clear()
        filler = os.open(f"/proc/self/fd/{self.writer.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            for _ in range(2):  # what the thread has in its hands leaves room once more
                with suppress(BlockingIOError):
                    while os.write(filler, b"-" * 4095 + b"\n"):
                        pass
            yield
        finally:
            os.close(filler)
            self._flowing.set()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """For a block the pipe has no reading end: writing to it is an error."""
        self._flowing.clear()
        self.writer.write(b"[the pipe is closed here]\n")  # which ends a read that waits
        with self._reading:
            os.close(self._read)
            try:
                yield
            finally:
                self._read = os.open(f"/proc/self/fd/{self.writer.fileno()}", os.O_RDONLY)
                self._flowing.set()

    def __enter__(self) -> LogPipe:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._flowing.set()
        self.writer.close()
        self._thread.join()
        os.close(self._read)
        self._file.close()
