"""The log's pipe: copied to a file, and closed where that is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from auras_ros.live.soak.log_pipe import LogPipe


def test_a_closed_pipe_cannot_be_written_and_what_comes_after_is_copied(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with LogPipe(path) as log:
        log.writer.write(b"before\n")
        for _ in range(2):
            with log.closed(), pytest.raises(BrokenPipeError):
                log.writer.write(b"lost\n")
        log.writer.write(b"after\n")
    text = path.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "lost" not in text


def test_a_pipe_that_nobody_reads_is_full(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with LogPipe(path) as log:
        with log.unread():
            pass
        log.writer.write(b"after\n")
    assert path.read_text().endswith("after\n")
