"""A line that nobody takes stops nobody: full disk, closed pipe, a pipe or a socket that is full because nobody reads
it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros.output import Lines, NonBlockingStream, escaped, non_blocking_output, printable

LINE = "x" * 100
MANY = 3000  # lines, 300 kB: more than a pipe holds
PATIENCE_S = 30.0
TALKS = f"""
import sys
from auras_ros.output import non_blocking_output
with non_blocking_output():
    for number in range({MANY}):
        print(number, {LINE!r}, file=sys.stderr)
        print(number, {LINE!r}, flush=True)
    open(sys.argv[1], "w").write("got there")
"""


C_LIBRARY_TALKS = """
import ctypes, sys
from auras_ros.output import non_blocking_output
libc = ctypes.CDLL(None)
with non_blocking_output():
    for number in range(20):
        libc.dprintf(2, b"%d is said by a C library\\n", number)
    open(sys.argv[1], "w").write("got there")
"""


def talk(folder: Path, stdout: int | None, stderr: int | None) -> tuple[int, bool]:
    """Run a process that says more than anybody takes: (its exit status, whether it came to its end)."""
    done = folder / "done"
    with subprocess.Popen([sys.executable, "-c", TALKS, str(done)], stdout=stdout, stderr=stderr) as process:
        return process.wait(PATIENCE_S), done.exists()


def test_a_pipe_that_nobody_reads_makes_nobody_wait(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        assert talk(tmp_path, write, write) == (0, True)
        assert os.get_blocking(write), "who shares the pipe is left as it was"
        assert os.read(read, 100).startswith(b"0 xxx"), "what there was room for is there"
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_that_nobody_reads_makes_nobody_wait(tmp_path: Path, kind: socket.SocketKind) -> None:
    """As under systemd, whose journal may stand still."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours, theirs:
        assert talk(tmp_path, ours.fileno(), ours.fileno()) == (0, True)
        assert os.get_blocking(ours.fileno()), "who shares the socket is left as it was"
        assert theirs.recv(100).startswith(b"0 xxx"), "what there was room for is there"


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_full_socket_keeps_no_c_library_waiting(tmp_path: Path, kind: socket.SocketKind) -> None:
    """rclpy's logging writes to standard error itself, and a node must not wait for the journal to come up."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    with ours, theirs:
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(b"x" * 4096)
        ours.setblocking(True)
        done = tmp_path / "done"
        command = [sys.executable, "-c", C_LIBRARY_TALKS, str(done)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=ours.fileno()) as process:
            try:
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()
        assert done.exists()
        assert os.get_blocking(ours.fileno()), "who shares the socket may still wait for what it reads"


def test_a_closed_pipe_and_a_full_disk_end_nobody(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        assert talk(tmp_path, write, write) == (0, True)
        (tmp_path / "done").unlink()
        assert talk(tmp_path, full, full) == (0, True)
    finally:
        os.close(write)
        os.close(full)


def test_what_was_lost_is_counted_and_said_when_somebody_reads_again() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    stream = NonBlockingStream(write)
    try:
        for _ in range(MANY):
            print(LINE, file=stream)
        lost = stream.lost
        assert 0 < lost < MANY
        taken = os.read(read, 1 << 20)
        print("here again", file=stream)
        assert stream.lost == 0
        after = os.read(read, 1 << 20).decode()
        assert after.strip().splitlines() == [f"[{lost} lines were lost here: they could not be written]", "here again"]
        assert taken.count(b"\n") == MANY - lost
    finally:
        os.close(read)
        os.close(write)


def test_a_line_goes_out_whole_and_the_begun_one_with_flush() -> None:
    read, write = os.pipe()
    stream = NonBlockingStream(write)
    try:
        os.set_blocking(read, False)
        stream.write("a be")
        with pytest.raises(BlockingIOError):
            os.read(read, 100)
        stream.write("ginning\nand \ud800")
        assert os.read(read, 100) == b"a beginning\n"
        stream.flush()
        assert os.read(read, 100) == rb"and \ud800"
    finally:
        os.close(read)
        os.close(write)


def test_streams_that_are_somebody_elses_are_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with non_blocking_output():
        print("to the test")
        assert (sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "to the test\n"


def test_text_from_outside_is_made_writable() -> None:
    assert printable("a\ud800\0é") == "a\\ud800\\0é"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a plain line, é, 猫, \\n", "a plain line, é, 猫, \\n"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x00\x07\x1b[31m\x7f\x85\x9b", r"\x00\x07\x1b[31m\x7f\x85\x9b"),  # C0, DEL, C1
        ("\u202e\u2066\u200f\u061c\ufeff", r"\u202e\u2066\u200f\u061c\ufeff"),  # direction marks, and invisible
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ud800\U000e0041", r"\ud800\U000e0041"),
    ],
)
def test_what_does_not_print_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert escaped(shown) == shown


def test_lines_of_our_own_stay_apart_and_no_later_one_begins_at_the_margin() -> None:
    assert escaped(Lines("first\nsecond\r\n\nthird")) == "first\n    second\\r\n    \n    third"
    assert escaped(Lines("one")[:2]) == "on"
    assert escaped(f"{Lines('a')}\nb") == r"a\nb", "what was put together anew is one line"
