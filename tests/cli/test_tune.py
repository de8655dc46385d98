"""`auras tune` as a user runs it: a tiny search of the real policy, its files, and what it says of bad settings.

Guards: a plan file that `auras run` does not take; a search that cannot go on; a setting refused after an hour.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from auras_ros.cli import tune
from auras_ros.nodes.agent_settings import Settings
from auras_ros.pipeline.plan import Plan

TINY = [
    *("--pp-perception", "1", "--pp-generation", "1,2", "--alpha", "0.5"),
    *("--first", "1", "--episodes", "1", "--max-steps", "4", "--batch", "1"),
]


def test_a_tiny_search_writes_a_plan_that_the_agent_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, work = tmp_path / "tune.json", tmp_path / "work.json"
    arguments = [*TINY, "--out", str(tmp_path), "--json", str(report), "--work", str(work), "--config", "pusht"]
    assert tune.run(arguments) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("plan: ")]
    chosen = Plan.parse(line.removeprefix("plan: "))
    assert chosen.mode == "auras"
    made = json.loads(report.read_text())
    assert made["name"] == "tune"
    assert [row["plan"] for row in made["rows"] if row["chosen"]] == [str(chosen)]
    assert made["summary"]["plans"] == 3  # two of the grid, and one skewed: two stages of eight steps
    assert (tmp_path / "tune.png").stat().st_size > 5000
    agent = yaml.safe_load((tmp_path / "tuned.yaml").read_text())["agent"]["ros__parameters"]
    assert Settings(**agent).plans()[0] == chosen
    kept = work.read_text()
    assert tune.run(arguments) == 0
    assert work.read_text() == kept  # nothing was measured again


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rate", "fast"], "rate: expected such as 12"),
        (["--success", "80"], "success: expected such as 0.8"),
        (["--sim", "chess"], "sim: no 'chess'; there is pusht, pusht-drift"),
        (["--pp-generation", "1,x"], "pp_generation: expected numbers"),
        (["--pp-generation", "20"], "20 stages for 8 generation steps"),
        (["--plan", "quick,mode=par"], "mode"),
        (["--plan", "quick,speed=9"], "speed"),
        (["--first", "9", "--episodes", "4"], "first: must be in \\[1, episodes = 4\\]"),
        (["--trials", "0"], "trials at least 1"),
        (["--work", "no/such/folder/work.json"], "--work: no folder"),
    ],
)
def test_bad_settings_are_refused_at_once(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        tune.run([*arguments, "--out", str(tmp_path)])
    assert refused.value.code == 2

    assert re.search(named, capsys.readouterr().err)


def test_status_3_where_no_plan_is_good_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.run([*TINY, "--rate", "1000x", "--out", str(tmp_path)]) == tune.NOT_FOUND
    assert "no plan was played to the end that meets" in capsys.readouterr().out
