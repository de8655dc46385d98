"""Another package's world, played by another package's policy: the two pages of docs/ that show how to write them.

Guards: an evaluation that works for Push-T alone.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from auras_ros.cli import main as cli
from auras_ros.evaluate.episode_runner import LockstepError, Task
from auras_ros.evaluate.lockstep import play
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.settings import EvaluationSettings
from auras_ros.pipeline.plan import Plan
from auras_ros.policies import checkpoint
from auras_ros.sim.pusht.world import PushTWorld
from tests.another_package import POLICY, WORLD, code_of, install


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The trained policy; both packages are installed."""
    for page in (POLICY, WORLD):
        install(page, tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    exec(code_of(POLICY)[1], {})
    return tmp_path / "checkpoints" / "reach"


def test_it_is_evaluated_in_every_mode_and_mostly_solved(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--sim", "reach:point_step_m=0.01", "--modes", "seq,auras", "--plan", "all,pp_generation=2"]
    asked += ["--durations", "seq=0.12,auras=0.06", "--episodes", "8", "--max-steps", "60", "--frame-steps", "2"]
    report = folder / "eval.json"
    assert cli.main(["eval", "--checkpoint", str(folder), *asked, "--json", str(report)]) == 0
    read = json.loads(report.read_text())
    assert {(row["clock"], row["mode"]) for row in read["rows"]} == {
        (clock, mode) for clock in ("paused", "charged") for mode in ("seq", "auras")
    }
    assert all(row["successes"] >= 5 for row in read["rows"])
    assert read["settings"]["point_step_m"] == 0.01
    episodes = read["episodes"]["paused/seq"]
    assert [near > 0.75 for near in map(float, episodes["best_near"].split())] == [
        bit == "1" for bit in episodes["success"]
    ]
    assert cli.main(["eval", "--merge", str(report)]) == 0
    assert "reach:point_step_m=0.01" in capsys.readouterr().out


def test_a_policy_of_another_world_is_refused_by_its_channels(folder: Path) -> None:
    with pytest.raises(
        LockstepError, match=r"the world's channels are \('agent_x', 'agent_y'\), the policy's \('x', 'y'\)"
    ):
        play(checkpoint.load(folder), Plan("all"), [3], Task("pusht"), Paused(2))


def test_a_report_that_names_its_drift_beside_the_simulator_is_read() -> None:
    """As earlier versions wrote it."""
    raw = EvaluationSettings("c", "quick", "pusht-drift").to_dict()
    assert EvaluationSettings.from_dict(raw).sim == "pusht-drift"
    del raw["things"]
    read = EvaluationSettings.from_dict({**raw, "sim": "pusht", "drift_px": 1.0})
    assert read.sim == "pusht:drift_px=1.0,success_coverage=0.9"
    world = read.task.world()
    assert isinstance(world, PushTWorld)
    assert (world.drift_px, world.success_coverage) == (1.0, 0.9)
