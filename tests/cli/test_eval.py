"""`auras eval`: from a checkpoint's folder to table, JSON and picture; refusals before anything long begins.

Guards: an hour's run lost to a folder that is not there; an interrupt that loses what was done; parts joined wrongly.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.cli import main as cli
from auras_ros.evaluate import campaign
from auras_ros.measure import durations
from auras_ros.measure.cores import available
from auras_ros.measure.durations import FrameDuration
from auras_ros.policies.loaders import open as loaders
from auras_ros.sim.world import Sim
from tests.policies import tiny

SMALL = ["--modes", "seq,auras", "--plan", "quick,pp_generation=2", "--max-steps", "4", "--batch", "2"]
GIVEN = ["--durations", "seq=0.2,auras=0.1"]
several = pytest.mark.skipif(available() < 2, reason="one core: there is nothing to be unequal with")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("checkpoint")
    tiny.write(made)
    return made


def run(folder: Path, *more: Any) -> int:
    return cli.main(["eval", "--checkpoint", str(folder), *SMALL, *map(str, more)])


def test_table_json_and_picture(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report, out = tmp_path / "eval.json", tmp_path / "out"
    assert run(folder, *GIVEN, "--sim", "pusht-drift", "--episodes", 3, "--json", report, "--out", out) == 0
    read = json.loads(report.read_text())
    assert [(row["clock"], row["mode"]) for row in read["rows"]] == [
        ("paused", "seq"),
        ("paused", "auras"),
        ("charged", "seq"),
        ("charged", "auras"),
    ]
    assert {row["episodes"] for row in read["rows"]} == {3}
    assert read["settings"]["drift_px"] == 0.5
    assert read["settings"]["checkpoint"].startswith("tiny@")
    assert read["settings"]["durations_s"] == {"seq": 0.2, "auras": 0.1}
    assert read["seconds"] > 0
    assert (out / "eval.png").read_bytes().startswith(b"\x89PNG")
    text = capsys.readouterr().out
    assert "pusht-drift, quick,pp_generation=2, 3 seeds\n" in text
    assert "PARTIAL" not in text
    assert f"written: {report}" in text


def test_durations_are_measured_where_none_are_given(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []

    def measure(checkpoint: Any, plans: Mapping[str, Any], **options: Any) -> dict[str, FrameDuration]:
        asked.append({label: str(plan) for label, plan in plans.items()})
        assert (options["observation_ms"], options["device"], options["cores"]) == (100, "cpu", 1)
        return {"seq": FrameDuration(0.21, 9, 0.2, 0.3), "auras": FrameDuration(0.11, 9, 0.1, 0.2)}

    monkeypatch.setattr(durations, "measure_durations", measure)
    assert run(folder, "--episodes", 1, "--json", tmp_path / "a.json") == 0
    assert asked == [{"seq": "quick", "auras": "quick,mode=auras,pp_generation=2"}]
    read = json.loads((tmp_path / "a.json").read_text())
    assert read["durations"]["seq"] == {"seconds": 0.21, "n": 9, "p10_s": 0.2, "p90_s": 0.3}
    assert {row["cores"] for row in read["rows"]} == {1}
    assert run(folder, "--episodes", 1, "--clock", "paused") == 0
    assert len(asked) == 1  # the paused clock needs none


def test_parts_with_the_first_ones_durations_join_to_the_whole(folder: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.json" for name in ("first", "second", "both", "whole")}
    batch = ("--batch", 1)
    assert run(folder, *GIVEN, *batch, "--episodes", 2, "--json", files["first"]) == 0
    later = ("--seed", 2, "--episodes", 1, "--durations", files["first"])
    assert run(folder, *batch, *later, "--json", files["second"]) == 0
    assert (
        cli.main(["eval", "--merge", *map(str, (files["first"], files["second"])), "--json", str(files["both"])]) == 0
    )
    assert run(folder, *GIVEN, *batch, "--episodes", 3, "--json", files["whole"]) == 0
    both, whole = (json.loads(files[name].read_text()) for name in ("both", "whole"))
    for key in ("rows", "summary", "settings", "durations", "seeds", "episodes"):
        assert both[key] == whole[key]
    assert "seconds" not in both  # nothing was played


def test_parts_that_do_not_belong_together_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert run(folder, "--clock", "paused", "--episodes", 1, "--json", one) == 0
    assert run(folder, "--clock", "paused", "--seed", 1, "--episodes", 1, "--frame-steps", 2, "--json", other) == 0
    assert cli.main(["eval", "--merge", str(one), str(other)]) == 1
    assert capsys.readouterr().err == "error: parts differ in frame_steps: 4 and 2\n"


def interrupt(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    play, calls = campaign.play, []

    def stopping(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return play(*arguments, **options)

    monkeypatch.setattr(campaign, "play", stopping)


def test_an_interrupt_keeps_what_was_done_and_says_that_it_is_partial(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch, 4)
    report = tmp_path / "a.json"
    assert run(folder, "--clock", "paused", "--episodes", 6, "--json", report, "--out", tmp_path) == 130
    read = json.loads(report.read_text())
    assert read["partial"] is True
    assert read["seeds"] == "0 1"
    assert {row["episodes"] for row in read["rows"]} == {2}
    assert "2 seeds, PARTIAL" in capsys.readouterr().out


def test_an_interrupt_before_the_first_group_is_done_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(monkeypatch, 2)
    report = tmp_path / "a.json"
    assert run(folder, "--clock", "paused", "--episodes", 6, "--json", report) == 130
    assert not report.exists()
    assert "no results" in capsys.readouterr().out


def test_with_a_work_file_every_run_that_was_over_is_kept_and_it_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was, before the first group of seeds was done in every mode on every clock."""
    work, report, whole = (tmp_path / f"{name}.json" for name in ("work", "report", "whole"))
    given = (*GIVEN, "--episodes", 4, "--work", work)
    with monkeypatch.context() as cut:
        interrupt(cut, 4)  # the first group's last run
        assert run(folder, *given) == 130
    assert f"no results; {work} has all completed runs" in capsys.readouterr().out
    kept = json.loads(work.read_text())["played"]
    assert [(each["clock"], each["name"], each["seeds"]) for each in kept] == [
        ("paused", "seq", [0, 1]), ("paused", "auras", [0, 1]), ("charged", "seq", [0, 1]),
    ]  # fmt: skip
    played: list[list[int]] = []
    right = campaign.play

    def counted(checkpoint: Any, plan: Any, seeds: list[int], *rest: Any, **more: Any) -> Any:
        played.append(list(seeds))
        return right(checkpoint, plan, seeds, *rest, **more)

    monkeypatch.setattr(campaign, "play", counted)
    assert run(folder, *given, "--json", report) == 0
    assert played == [[0, 1], *[[2, 3]] * 4]
    assert run(folder, *GIVEN, "--episodes", 4, "--json", whole) == 0
    one, other = (json.loads(path.read_text()) for path in (report, whole))
    for name in ("rows", "summary", "settings", "seeds", "episodes"):
        assert one[name] == other[name]


def test_work_of_other_settings_is_refused_by_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work.json"
    assert run(folder, *GIVEN, "--episodes", 1, "--work", work) == 0
    for words, said in (
        (("--frame-steps", 2, *GIVEN), f"{work}: was made with frame_steps 4, not 2; use another --work file"),
        (("--durations", "seq=0.3,auras=0.1"), f"{work}: was charged 0.2 s for seq, not 0.3; use another"),
    ):
        with pytest.raises(SystemExit):
            run(folder, "--episodes", 1, "--work", work, *words)
        assert said in capsys.readouterr().err
    work.write_text("{}")
    with pytest.raises(SystemExit):
        run(folder, "--episodes", 1, "--work", work)
    assert "not a work file of `auras eval`" in capsys.readouterr().err


@several
def test_cores_are_compared_where_something_is_timed_on_them(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was played on the paused clock alone, when all cores were the default, is worth as much with one."""
    work, one, other = (tmp_path / f"{name}.json" for name in ("work", "one", "other"))
    paused = ("--clock", "paused", "--episodes", 1)
    assert run(folder, *paused, "--cores", 2, "--work", work, "--json", one) == 0
    assert run(folder, *paused, "--seed", 1, "--json", other) == 0
    assert cli.main(["eval", "--merge", str(one), str(other)]) == 0
    both = (*GIVEN, "--episodes", 1, "--work", work)
    assert run(folder, *both) == 0
    assert run(folder, *paused, "--cores", 2, "--work", work) == 0
    assert json.loads(work.read_text())["key"]["cores"] == 1  # what was charged was timed on
    with pytest.raises(SystemExit):
        run(folder, *both, "--cores", 2)
    assert f"{work}: was made with cores 1, not 2" in capsys.readouterr().err


@several
def test_durations_of_other_cores_are_refused_and_how_to_go_on_is_said(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = tmp_path / "a.json"
    assert run(folder, *GIVEN, "--episodes", 1, "--cores", 2, "--json", measured) == 0
    with pytest.raises(SystemExit):
        run(folder, "--durations", measured, "--episodes", 1)
    assert "measured with cores 2, not 1; measure again, or give --cores 2" in capsys.readouterr().err
    assert run(folder, "--durations", measured, "--episodes", 1, "--cores", 2) == 0


def test_sigterm_is_an_interrupt(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the process with nothing written."""
    play, calls, before = campaign.play, list[int](), signal.getsignal(signal.SIGTERM)

    def stopped(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGTERM)
        return play(*arguments, **options)

    monkeypatch.setattr(campaign, "play", stopped)
    report = tmp_path / "a.json"
    assert run(folder, "--clock", "paused", "--episodes", 6, "--json", report) == 130
    assert json.loads(report.read_text())["seeds"] == "0 1"
    assert signal.getsignal(signal.SIGTERM) == before


def test_one_action_a_chunk_is_executed_when_it_comes(tmp_path: Path) -> None:
    """The published policies' case: no later action of an older chunk is ever executed, in any mode."""
    report = tmp_path / "a.json"
    words = ["--checkpoint", "pusht-tokens", "--actions", "1", "--clock", "paused", "--frame-steps", "1"]
    plan = "greedy,pp_generation=2,fetch_offset=-1,emit=own"
    few = ["--plan", plan, "--modes", "seq,par,auras", "--episodes", "2", "--max-steps", "6", "--json", str(report)]
    assert cli.main(["eval", *words, *few]) == 0
    read = json.loads(report.read_text())
    rows = {row["mode"]: row for row in read["rows"]}
    assert rows.keys() == {"seq", "par", "auras"}  # nothing to align: par is there once
    assert read["settings"]["actions"] == 1
    assert rows["seq"]["hold_share"] == 0.0  # each of the six steps has an action of its own
    assert rows["auras"]["refused"] == 0


@pytest.mark.parametrize(("sim", "policy"), [("pusht-drift", "pusht"), ("lift-moving", "lift")])
def test_without_a_checkpoint_the_worlds_included_one_is_played(
    sim: str, policy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Sim, "check", lambda self: None)
    asked = list[str]()

    def load(folder: Path, dtype: str) -> None:
        asked.append(folder.name)
        raise CheckpointError("not read")

    monkeypatch.setattr(loaders, "load", load)
    assert cli.main(["eval", "--sim", sim, "--modes", "seq,dec,par,auras", "--clock", "charged"]) == 1
    assert asked == [policy]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        cli.main(["eval", "--sim", "can"])
    assert "sim: no policy for can is included: give --checkpoint FOLDER, or one of pusht" in capsys.readouterr().err


def test_a_chunk_that_cannot_be_shortened_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for checkpoint, actions, said in (
        (folder, 1, "actions: 'tiny' does not generate its chunk action by action"),
        ("pusht-tokens", 9, "actions: 'pusht-tokens' has 8 in a chunk, not 9"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["eval", "--checkpoint", str(checkpoint), "--actions", str(actions), "--clock", "paused"])
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cores", "0"], "cores: from 1 to the"),
        (["--actions", "-1"], "actions: must be at least 0, got -1"),
        (["--modes", "seq,fast"], "modes: no 'fast'; known: seq, dec, par, auras"),
        (["--clock", "wall"], "clocks: no 'wall'"),
        (["--sim", "kitchen"], "sim 'kitchen' is not known"),
        (["--plan", "quick,stages=3"], "plan: 'stages=3'"),
        (["--plan", "quick,pp_generation=3,pp_generation=5"], "plan: pp_generation: given twice"),
        (["--episodes", "0"], "--episodes must be at least 1"),
        (["--seed", "-1"], "--seed must not be negative"),
        (["--durations", "seq=0.3"], "durations: dec/perceive is missing"),
        (["--durations", "fast=0.3"], "durations: no 'fast'"),
        (["--durations", "/no/such.json"], "durations: no file /no/such.json"),
        (["--json", "no_such_folder/a.json"], "--json: no folder no_such_folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_work_is_refused_before_anything_is_loaded(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["eval", "--checkpoint", "no/such/folder", *words])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_durations_file_that_is_no_report_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "d.json").write_text('{"rows": []}')
    with pytest.raises(SystemExit) as ended:
        cli.main(["eval", "--durations", str(tmp_path / "d.json")])
    assert ended.value.code == 2
    assert "d.json: not a report of `auras eval`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--checkpoint", "no_such_policy", *GIVEN, "--modes", "seq,auras"],
            "error: checkpoint 'no_such_policy': no such folder in ",
        ),
        (["--merge", "no_such.json"], "no_such.json"),
    ],
)
def test_what_is_not_there_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["eval", *words]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "ddpm9"], "has no plan 'ddpm9'; its plans: quick, fine"),
        (["--plan", "quick,pp_generation=40"], "pp_generation: 40 stages for"),
        (["--plan", "quick,pp_perception=30"], "pp_perception: 30 stages, but this policy's perception has"),
        (
            ["--modes", "seq,par", "--concurrency", "100", "--durations", "seq=0.2,par=0.1"],
            "plan: concurrency: must be",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_this_policy_cannot_do_is_refused_before_anything_is_played(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(folder, *GIVEN, *words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_policy_that_does_not_fit_the_world_is_refused_before_anything_is_timed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Sim, "check", lambda self: None)  # its simulator is not needed to know its channels
    with pytest.raises(SystemExit) as ended:
        run(folder, "--sim", "lift", "--clock", "charged")
    assert ended.value.code == 2
    assert f"checkpoint: {folder} does not fit lift: the world's channels are ('x', 'y'," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--plan", "quick,pp_generation=1"], "measured with plan quick,pp_generation=2, not quick,pp_generation=1"),
        (["--concurrency", "3"], "measured with concurrency 2, not 3"),
        (["--device", "cuda"], "measured with device cpu, not cuda"),
    ],
    ids=["plan", "concurrency", "device"],
)
def test_durations_of_another_plan_are_refused(
    folder: Path, tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They would charge one schedule with the time of another."""
    measured = tmp_path / "a.json"
    assert run(folder, *GIVEN, "--episodes", 1, "--json", measured) == 0
    assert run(folder, "--durations", measured, "--episodes", 1) == 0
    with pytest.raises(SystemExit) as ended:
        run(folder, "--durations", measured, *words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_durations_of_another_checkpoint_are_refused(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = tmp_path / "a.json"
    assert run(folder, *GIVEN, "--episodes", 1, "--json", measured) == 0
    report = json.loads(measured.read_text())
    report["settings"]["checkpoint"] = "other@0123456789ab"
    measured.write_text(json.dumps(report))
    with pytest.raises(SystemExit):
        run(folder, "--durations", measured)
    assert "measured with checkpoint other@0123456789ab, not tiny@" in capsys.readouterr().err


def test_there_are_several_groups_unless_asked_otherwise(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt loses a group: one for everything would lose everything."""
    sizes: list[int] = []
    play = campaign.play

    def noting(checkpoint: Any, plan: Any, seeds: list[int], *rest: Any, **more: Any) -> Any:
        sizes.append(len(seeds))
        return play(checkpoint, plan, seeds, *rest, **more)

    monkeypatch.setattr(campaign, "play", noting)
    small = [*SMALL[:4], "--max-steps", "1", "--clock", "paused", "--modes", "seq"]
    assert cli.main(["eval", "--checkpoint", str(folder), *small, "--episodes", "7"]) == 0
    assert sizes == [2, 2, 2, 1]
