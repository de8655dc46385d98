"""Reads a text file that a person or a parameter names, and nothing else that can have a name: a pipe is waited for
without end, a device like /dev/zero gives bytes without end, and a large file fills the memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MEBIBYTE = 1 << 20


class TextFileError(ValueError):
    """What is not read. The text says why; whoever reads the file names it."""


def read_text_file(path: Path, most_bytes: int) -> str:
    """The text of a regular file in UTF-8. Raises TextFileError, UnicodeDecodeError (a ValueError too) and OSError."""

    def open_at_once(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)  # a pipe that nobody writes to is waited for otherwise

    with open(path, "rb", opener=open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise TextFileError("not a regular file")
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TextFileError(f"more than {most_bytes} bytes, the most that is read")
    return data.decode("utf-8")
