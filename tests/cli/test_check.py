"""`auras check`: status 2 and a line for each thing that is wrong; without a file, what may be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from auras_ros.cli import check, sim


def test_a_good_file_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(["pusht", "forward_command.yaml"]) == 0
    out, err = capsys.readouterr()
    assert [line.endswith("all valid") for line in out.splitlines()] == [True, True]
    assert err == ""


def test_a_bad_file_is_status_2_and_others_are_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("actuator: {ros__parameters: {require_emergency_stopp: true, rate_hz: 1}}\n")
    assert check.run([str(tmp_path / "bad.yaml"), "no_such", "pusht"]) == 2
    out, err = capsys.readouterr()
    assert out.endswith("all valid\n")
    assert [line.partition("bad.yaml:1: ")[2] for line in err.splitlines()[:2]] == [
        "actuator: no parameter 'require_emergency_stopp'; did you mean require_emergency_stop?",
        "actuator: rate_hz: must be in [10.0, 200.0], got 1.0",
    ]
    assert err.splitlines()[2].startswith("error: config 'no_such.yaml' not found")


def test_without_a_file_every_parameter_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run([]) == 0
    every = capsys.readouterr().out
    assert "  require_emergency_stop  (bool; false)\n      refuse arming without a live button" in every
    assert "  rate_hz  (float, 10 to 200; 100.0)\n" in every
    assert check.run(["--parameters", "pusht"]) == 0
    assert capsys.readouterr().out.startswith("pusht:\n  seed  (int, 0 to 2147483647; 0)\n")


def test_a_simulator_is_not_started_with_a_misspelt_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("pusht: {ros__parameters: {drift: 0.5}}\n")
    assert sim.run(["pusht", "--config", str(tmp_path / "bad.yaml")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/bad.yaml:1: pusht: no parameter 'drift'; did you mean drift_px?\n"
    )
