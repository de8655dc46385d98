"""The line of figures of `auras run`: what it says of what it hears, and that nothing heard can end the run."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.cli import status_line as module
from auras_ros.cli.status_line import LoopStatistics, status_lines
from auras_ros.ros.msg import Float64MultiArray, MultiArrayDimension, MultiArrayLayout, String
from tests.nodes.wire import LATCHED, RELIABLE, Watch, own_domain

PATIENCE_S = 30.0


def text(**fields: Any) -> Any:
    return SimpleNamespace(data=json.dumps(fields))


def action(age_ns: int | None) -> Any:
    label = {"state": "armed", "source": "chunk", "index": 0, "age_ns": age_ns, "request": 1, "tick": 1, "mono_ns": 1}
    dims = [
        MultiArrayDimension(label="x", size=1, stride=1),
        MultiArrayDimension(label=json.dumps(label), size=1, stride=1),
    ]
    return Float64MultiArray(layout=MultiArrayLayout(dim=dims, data_offset=0), data=[0.0])


def test_the_line_says_what_was_heard_since_the_last_one() -> None:
    statistics = LoopStatistics()
    assert statistics.line(10.0) == "no message of the actuator yet"
    for accepted in (7, 12, 2):  # the last is an actuator that was started again
        statistics.actuator(text(state="armed", reason="", counters={"accepted": accepted}))
    for age_ms in (300, 500, 400):
        statistics.action(action(age_ms * 1_000_000))
    statistics.action(action(None))
    for episode, success in ((1, True), (1, True), (2, False)):
        statistics.world(text(episode=episode, done=True, success=success))
    statistics.world(text(episode=3, done=False, success=False))
    line = "armed  1 of 2 episodes succeeded  0.7 chunks/s  actions from observations 400 ms old"
    assert statistics.line(10.0) == line
    statistics.actuator(text(state="stopped", reason="pressed", counters={"accepted": 2}))
    assert statistics.line(10.0) == "stopped (pressed)  1 of 2 episodes succeeded"


HOSTILE = ["", "[" * 60_000, "[]", "{}", '{"episode": {}, "done": 1, "success": 2}', "9" * 5000,
           '{"state": "a", "counters": {"accepted": Infinity}}', '{"episode": Infinity, "done": true, "success": true}',
           '{"state": "a", "counters": {"accepted": 1%s}}' % ("0" * 4000)]  # fmt: skip


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: data[:60])
def test_a_message_of_another_form_says_nothing(data: str) -> None:
    statistics = LoopStatistics()
    statistics.world(SimpleNamespace(data=data))
    statistics.actuator(SimpleNamespace(data=data))
    statistics.action(Float64MultiArray(data=[1.0]))
    assert statistics.line(1.0) == "no message of the actuator yet"


@pytest.mark.parametrize("age_ns", ["x", [], 10**4000, -1, True], ids=lambda age_ns: f"{age_ns!s:.20}")
def test_an_age_that_is_none_says_nothing(age_ns: Any) -> None:
    statistics = LoopStatistics()
    statistics.action(action(age_ns))
    assert statistics.line(1.0) == "no message of the actuator yet"


def test_what_is_on_the_wire_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    monkeypatch.setattr(module, "EVERY_S", {True: 0.2, False: 0.2})
    with own_domain():
        watch = Watch("left")
        lines = status_lines("pusht", "/left")
        try:
            state = watch.node.create_publisher(String, "actuator/state", LATCHED)
            actions = watch.node.create_publisher(Float64MultiArray, "action", RELIABLE)
            said, end_s = "", time.monotonic() + PATIENCE_S
            while "armed" not in said or "250 ms old" not in said:
                assert time.monotonic() < end_s, said
                state.publish(String(data=json.dumps({"state": "armed", "counters": {"accepted": 1}})))
                actions.publish(action(250_000_000))
                next(lines)
                said += capsys.readouterr().out
                time.sleep(0.02)
        finally:
            lines.close()
            watch.close()


def test_a_message_that_breaks_a_callback_leaves_the_run_and_the_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards against one message that ends the supervisor, and with it every node: whatever it is, and whatever is
    still wrong with what reads it."""
    monkeypatch.setattr(module, "SETTLE_S", 0.0)
    heard: list[str] = []

    def actuator(self: LoopStatistics, message: Any) -> None:
        heard.append(message.data)
        if len(heard) == 1:
            raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr(LoopStatistics, "actuator", actuator)
    with own_domain():
        watch = Watch("left")
        lines = status_lines("pusht", "/left")
        try:
            state = watch.node.create_publisher(String, "actuator/state", LATCHED)
            end_s = time.monotonic() + PATIENCE_S
            while len(heard) < 3:
                assert time.monotonic() < end_s, heard
                state.publish(String(data=str(len(heard))))
                next(lines)
                time.sleep(0.02)
        finally:
            lines.close()
            watch.close()
    said = capfd.readouterr().err
    assert "a callback failed and was skipped" in said
    assert "no figures" not in said


@pytest.mark.parametrize("error", [RuntimeError("no participant"), MemoryError("no participant"), KeyError("no")])
def test_where_nobody_can_listen_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    monkeypatch.setattr(module, "SETTLE_S", 0.0)

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("auras_ros.live.loop.own_node", broken)
    lines = status_lines("pusht")
    next(lines)
    next(lines)
    lines.close()
    assert capsys.readouterr().err == f"no figures from now on: {error}\n"
