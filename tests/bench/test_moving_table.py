"""`auras bench moving-table` on a stand-in for Lift, whose cube is lifted after three steps on a slow table.

Guards: a speed that is called kept above one that is not; late observations that are none; an expert of increments in a
world of positions, or the other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.bench import moving_table
from auras_ros.environments import PLACE
from auras_ros.report.result import hardware
from auras_ros.sim.robosuite.layout import channels_of, flattened
from auras_ros.sim.world import StepResult, checked_action
from auras_ros.sim.worlds import find
from auras_ros.train.lift_expert import LiftExpert

LIMIT_M_S = 0.1


class SlowLift:
    """Success after three steps; on a table that is faster than LIMIT_M_S with odd seeds alone."""

    def __init__(self, text: str) -> None:
        options = find(text).options
        self.speed, self.channels = options.table_m_s, channels_of(1, absolute=options.absolute, turns=options.turns)

    def reset(self, seed: int) -> None:
        self.steps, self.solvable = 0, self.speed <= LIMIT_M_S or seed % 2 == 1

    def state(self) -> Mapping[str, float]:
        pose = flattened("cube_pos", [0.0, 0.0, 0.82]) | flattened("cube_quat", [0.0, 0.0, 0.0, 1.0])
        return flattened("robot0_eef_pos", [0.001 * self.steps, 0.0, 1.0]) | pose

    def step(self, action: np.ndarray) -> StepResult:
        checked_action(action, self.channels)
        self.steps += 1
        return StepResult(0.0, self.solvable and self.steps == 3)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        moving_table, "find", lambda text: SimpleNamespace(make=lambda: SlowLift(text), check=lambda: None)
    )
    monkeypatch.setattr(moving_table, "EXPERT_STEPS", 5)


def test_the_kept_speed_is_the_highest_at_which_it_succeeds() -> None:
    report = moving_table.run(["--speeds", "0,0.2,0.1", "--episodes", "4"], lambda text: None)
    shares = {row["table_m_s"]: (row["success"], row["failed_seeds"]) for row in report.rows}
    assert shares == {0.0: (1.0, []), 0.1: (1.0, []), 0.2: (0.5, [0, 2])}
    assert report.summary == {"increments_kept_m_s_delay_0": 0.1}
    assert report.rows[0]["median_steps"] == 3
    told = moving_table.table(report)
    assert "0.2" in told
    assert told.endswith("increments_kept_m_s_delay_0: 0.1")


def test_each_expert_plays_in_a_world_of_its_own_actions_and_its_rows_name_it_and_the_processor() -> None:
    report = moving_table.run(
        ["--expert", "positions,increments", "--speeds", "0.1,0.2", "--episodes", "2"], lambda text: None
    )
    assert "failed" not in report.more
    rows = [(row["expert"], row["table_m_s"], row["cpu"]) for row in report.rows]
    cpu = hardware()["cpu"]
    assert rows == [(expert, speed, cpu) for expert in ("positions", "increments") for speed in (0.1, 0.2)]
    assert report.summary == {"positions_kept_m_s_delay_0": 0.1, "increments_kept_m_s_delay_0": 0.1}


def test_a_lower_speed_may_be_worse() -> None:
    at_once = [(0.1, 1.0, 0), (0.3, 0.95, 0), (0.4, 0.5, 0), (0.2, 0.94, 0)]
    measured = [*at_once, (0.1, 0.95, 2), (0.3, 0.2, 2), (0.1, 0.5, 4)]
    rows: list[dict[str, Any]] = [
        {"expert": "positions", "table_m_s": speed, "success": share, "delay_steps": delay}
        for speed, share, delay in measured
    ]
    assert moving_table._summary(rows) == {"positions_kept_m_s_delay_0": 0.3, "positions_kept_m_s_delay_2": 0.1}


@pytest.mark.parametrize(("delay", "hands"), [(0, [0, 1, 2]), (2, [0, 0, 0])])
def test_late_observations_are_those_of_so_many_steps_ago(
    delay: int, hands: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def decide(expert: LiftExpert, state: Mapping[str, float]) -> np.ndarray:
        seen.append(state["robot0_eef_pos_x"])
        return np.zeros(7)

    monkeypatch.setattr(LiftExpert, "decide", decide)
    moving_table.run(["--speeds", "0", "--delays", str(delay), "--episodes", "1"], lambda text: None)
    assert seen == [0.001 * each for each in hands]


@pytest.mark.parametrize(
    "given", [["--delays", "-1"], ["--episodes", "0"], ["--speeds", "fast"], ["--expert", "poses"]]
)
def test_what_cannot_be_is_refused(given: list[str]) -> None:
    with pytest.raises(SystemExit):
        moving_table.run(given, lambda text: None)


def test_an_environment_that_is_missing_is_refused_once_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(moving_table, "find", find)
    monkeypatch.setenv(PLACE, str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        moving_table.run(["--speeds", "0,0.1"], lambda text: None)
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("its environment 'robosuite' is not in") == 1
