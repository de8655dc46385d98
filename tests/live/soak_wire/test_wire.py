"""The soak of the wire: which attacks it plays, what it says of them, and one short run against real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from auras_ros.live.soak.judge import CommandLimits, Judge
from auras_ros.live.soak_wire.attacks import CASES
from auras_ros.live.soak_wire.run import WirePress, WireResult, WireSettings
from auras_ros.live.soak_wire.summary import wire_report, wire_table
from tests.nodes.wire import own_domain


@pytest.fixture
def result() -> WireResult:
    judge = Judge(CommandLimits.of([(0.0, 512.0, None)], 100.0, 1600.0))
    presses = [WirePress("heartbeat", 300.0, 1.0), WirePress("heartbeat", None, 2.0)]
    return WireResult(judge, WireSettings(presses=2, only=("heartbeat",)), presses, seconds=10.0)


def test_a_lost_press_is_counted_and_shown(result: WireResult) -> None:
    summary = wire_report(result, interrupted=False).summary
    assert summary["presses"] == summary["presses_wanted"] == 2
    assert summary["presses_lost"] == 1
    assert summary["heartbeat_n"] == 1
    assert summary["heartbeat_ms_max"] == 300.0
    line = next(line for line in wire_table(result).splitlines() if line.startswith("heartbeat"))
    assert line.split()[1:6] == ["2", "300.0", "300.0", "300.0", "1"]


def test_without_a_key_the_attack_that_succeeds_is_left_out() -> None:
    names = {case.name for case in CASES}
    assert {case.name for case in WireSettings().cases} == names
    assert {case.name for case in WireSettings(signed=False).cases} == names - {"false in its name"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "noise"], "--only: no attack 'noise'; known: no_attack, heartbeat"),
        (["--presses", "0"], "--presses: must be at least 1, got 0"),
        (["--load", "8"], "--load: must be 1 to 64, and with --minutes; got 8"),
        (["--minutes", "-1"], "--minutes: must be in [0, 10000], got -1"),
        (["--requests", "5"], "--requests: only with --target vlm"),
    ],
)
def test_options_that_do_not_fit_are_named(options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "auras_ros.cli.main", "soak", "--target", "wire", *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_a_forged_packet_and_a_killed_button_stop_the_robot(tmp_path: Path) -> None:
    """Guards against S1 and a cut link: both left the robot driving, because silence counted as released."""
    report = tmp_path / "wire.json"
    words = ["--target", "wire", "--only", "heartbeat,link_cut", "--presses", "1"]
    outputs = ["--log", str(tmp_path / "soak.log"), "--json", str(report)]
    with own_domain():
        command = [sys.executable, "-m", "auras_ros.cli.main", "soak", *words, *outputs]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    summary = json.loads(report.read_text())["summary"]
    assert summary["presses"] == 2, ran.stdout + ran.stderr
    assert summary["presses_lost"] == 0, ran.stdout
    kinds = set(json.loads(report.read_text())["violations_by_kind"])
    assert kinds <= {"press late"}, ran.stdout  # a busy machine may be late
