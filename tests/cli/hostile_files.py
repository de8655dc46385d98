"""Files of an attacker, or of an accident, in place of a file that a command or a parameter names; and the commands
that are given them, in this process."""

from __future__ import annotations

import contextlib
import io
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auras_ros.cli import main as cli

MOST_LINE = 6000  # characters of a refusal: an integer may have as many digits as Python prints
ENOUGH_S = 60.0


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def endless_link(path: Path) -> None:
    path.symlink_to(path.name)


NO_FILES: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "a-folder": lambda path: path.mkdir(),
    "a-pipe": os.mkfifo,
    "a-device": lambda path: path.symlink_to("/dev/zero"),
    "a-terminal-like-device": lambda path: path.symlink_to("/dev/full"),
    "a-link-to-itself": endless_link,
    "a-terabyte": sparse,
}
NO_JSON: dict[str, bytes] = {
    "empty": b"",
    "blank": b" " * 100_000,
    "null": b"null",
    "a-number": b"3",
    "5000-digits": b"9" * 5000,
    "a-text": b'"rows"',
    "a-list": b"[]",
    "an-empty-object": b"{}",
    "truncated": b'{"settings": {"plan": "qui',
    "deep-lists": b"[" * 200_000,
    "deep-objects": b'{"a":' * 200_000,
    "nan": b"NaN",
    "infinity": b'{"settings": Infinity}',
    "binary": bytes(range(256)) * 16,
    "latin-1": '{"settings": "\xe9"}'.encode("latin-1"),
    "utf-16": '{"settings": {}}'.encode("utf-16"),
    "byte-order-mark": b'\xef\xbb\xbf{"settings": {}}',
    "a-pickle": b"\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
    "yaml": b"settings: &a [*a, *a]\n",
    "a-list-of-a-million": b"[" + b"0," * 1_000_000 + b"0]",
}


@dataclass(frozen=True)
class CommandEnd:
    """status: of the exit. said: on the standard error."""

    status: int
    said: str
    seconds: float


def command(*words: object) -> CommandEnd:
    """`auras WORDS`. Whatever is raised that is no exit fails the test: a traceback for the user."""
    said, began_s = io.StringIO(), time.monotonic()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as end:
            status = int(end.code or 0)
    return CommandEnd(status, said.getvalue(), time.monotonic() - began_s)


def check_refused(end: CommandEnd, *names: str) -> None:
    """One line says what is wrong, names all of these, and cannot forge another one."""
    assert end.status in (1, 2), end
    assert end.seconds < ENOUGH_S
    line = end.said.rstrip("\n").splitlines()[-1]  # above it is at most the usage
    assert line.startswith("error: ") or ": error: " in line, end.said
    for name in names:
        assert name in line, end.said
    assert line.isprintable()
    assert len(line) < MOST_LINE
    assert "Traceback" not in end.said
