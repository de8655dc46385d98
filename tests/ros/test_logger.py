"""Log lines look as ROS prints them and are throttled per call site."""

from __future__ import annotations

import re
from typing import Any

import pytest

from auras_ros.output import Lines
from auras_ros.ros.dds import logger as logging
from auras_ros.ros.dds.logger import LoggingSeverity, RcutilsLogger


def test_the_format_is_that_of_ros(capfd: Any) -> None:
    RcutilsLogger("robot.agent").warning("it is late")
    assert re.fullmatch(r"\[WARN\] \[\d+\.\d{9}\] \[robot\.agent\]: it is late\n", capfd.readouterr().err)


def test_a_text_from_elsewhere_cannot_look_like_another_line(capfd: Any) -> None:
    sent = list[logging.LogRecord]()
    sink = sent.append
    logging.add_sink("agent", sink)
    RcutilsLogger("agent").error("loading x\n[FATAL] [1.0] [actuator]: stopped \x1b[31m\u202e\r\x9b")
    RcutilsLogger("agent").error(ValueError("a\nb"))  # type: ignore[arg-type]
    logging.remove_sink("agent", sink)
    first, second = capfd.readouterr().err.splitlines()
    assert first.endswith(r"[agent]: loading x\n[FATAL] [1.0] [actuator]: stopped \x1b[31m\u202e\r\x9b")
    assert second.endswith(r"[agent]: a\nb")
    assert [first.partition("]: ")[2], second.partition("]: ")[2]] == [record.text for record in sent], "and on /rosout"


def test_a_traceback_keeps_its_lines(capfd: Any) -> None:
    RcutilsLogger("agent").error(Lines("a callback failed:\n  File x\nValueError: \x1b[2J\n[FATAL] forged"))
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].endswith("[agent]: a callback failed:")
    assert lines[1:] == ["      File x", r"    ValueError: \x1b[2J", "    [FATAL] forged"]


def test_throttle_counts_per_call_site(capfd: Any) -> None:
    log = RcutilsLogger("t")
    printed = [log.info("same place", throttle_duration_sec=1e6) for _ in range(5)]
    assert printed == [True, False, False, False, False]
    assert log.info("another place", throttle_duration_sec=1e6)
    assert [log.error("now", throttle_duration_sec=0.0) for _ in range(2)] == [True, True]
    assert [log.info("once", once=True) for _ in range(3)] == [True, False, False]
    assert [log.info("later", skip_first=True) for _ in range(3)] == [False, True, True]


def test_levels_are_inherited(capfd: Any) -> None:
    parent, child = RcutilsLogger("lvl"), RcutilsLogger("lvl.child")
    assert not child.debug("hidden")
    parent.set_level(LoggingSeverity.DEBUG)
    assert child.debug("shown")
    child.set_level(LoggingSeverity.ERROR)
    assert not child.warning("hidden")
    assert child.error("shown")
    assert "hidden" not in capfd.readouterr().err


def test_level_names() -> None:
    assert logging.parse_level("warning") == logging.parse_level("WARN") == LoggingSeverity.WARN
    with pytest.raises(ValueError, match="loud"):
        logging.parse_level("loud")


class Unwritable:
    """A standard error whose disk is full, or that is closed."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        raise self._error

    flush = write


@pytest.mark.parametrize("stderr", [Unwritable(OSError(28, "full")), Unwritable(ValueError("closed file")), None])
def test_a_line_that_cannot_be_written_is_counted_and_ends_nobody(
    monkeypatch: pytest.MonkeyPatch, stderr: object
) -> None:
    before, sent = logging.unwritten, list[logging.LogRecord]()
    sink = sent.append
    monkeypatch.setattr(logging.sys, "stderr", stderr)  # type: ignore[attr-defined]
    logging.add_sink("unwritable", sink)
    assert RcutilsLogger("unwritable").error("said all the same")
    logging.remove_sink("unwritable", sink)
    assert logging.unwritten == before + 1
    assert [record.text for record in sent] == ["said all the same"], "rosout has it"
