"""robomimic's checkpoints, converted without a robot.json, play the task that they were trained for.

Guards: a channel, a camera or a number of the state that the converted policy names and the world does not have.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auras_ros.environments import ROBOSUITE

if not ROBOSUITE.made:
    pytest.skip("needs robosuite's environment: make test-worlds", allow_module_level=True)
pytest.importorskip("torch", reason="is played from our own environment")

FILES = Path(__file__).parents[1] / "policies/loaders/data/robomimic"
STEPS = 6


@pytest.mark.parametrize(("name", "more"), [("diffusion_images", ["--frame-steps", "1"]), ("bc_low_dim", [])])
def test_a_converted_file_plays_its_own_task(
    name: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from auras_ros.cli.main import main

    out, report = tmp_path / name, tmp_path / "report.json"
    assert main(["convert", str(FILES / f"{name}.pth"), "--out", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()[-1].removeprefix("its own task: auras ").split(" --modes ")[0].split()
    played = ["--modes", "seq", "--clock", "paused", "--episodes", "1", "--max-steps", str(STEPS)]
    assert main([*told, *played, *more, "--json", str(report)]) == 0
    (row,) = json.loads(report.read_text())["rows"]
    assert row["hold_share"] == 0.0
    assert row["episodes"] == 1
