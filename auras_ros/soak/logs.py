"""What the nodes say, through a pipe into a file; and a pipe that nobody reads, where that is asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

AT_ONCE = 65536


class LogPipe:
    """A context: `writer` is for the nodes' output, and a thread copies it to the file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._read, write = os.pipe()
        self.writer = os.fdopen(write, "wb", buffering=0)
        self._flowing = threading.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._copy, name="log", daemon=True)

    def _copy(self) -> None:
        while data := os.read(self._read, AT_ONCE):
            self._file.write(data)
            self._file.flush()
            self._flowing.wait()

    @contextmanager
    def unread(self) -> Iterator[None]:
        """For a block nobody reads, and the pipe is full."""
        self._flowing.clear()
        filler = os.open(f"/proc/self/fd/{self.writer.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
        try:
            for _ in range(2):  # what the thread has in its hands leaves room once more
                try:
                    while os.write(filler, b"-" * 4095 + b"\n"):
                        pass
                except BlockingIOError:
                    pass
            yield
        finally:
            os.close(filler)
            self._flowing.set()

    def __enter__(self) -> LogPipe:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flowing.set()
        self.writer.close()
        self._thread.join()
        os.close(self._read)
        self._file.close()
