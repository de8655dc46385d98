"""`auras bench peers`: its options, how rounds become figures, LeRobot's environment, the table and the picture.

Guards: a ratio across rounds; contenders that always run in one order; a part that is left out without a word; a
folder of somebody else's that pip writes into; an environment that was made half and is taken for whole.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from auras_ros import own_environment
from auras_ros.bench.peers import command, environment
from auras_ros.bench.peers.contest import RateSource, rows, summary
from auras_ros.bench.peers.environment import commands, setup
from auras_ros.bench.peers.lerobot_shapes import SHAPES, robot_of
from auras_ros.cli import main as cli
from auras_ros.device.precision import full_float32
from auras_ros.measure import rounds
from auras_ros.measure.compare import Job
from auras_ros.measure.minutes import CUT, OVER, Ends, OverError
from auras_ros.measure.rounds import Rounds
from auras_ros.measure.window import Length
from auras_ros.own_environment import DONE, SetupError
from auras_ros.report.result import Report

OPTIONS = argparse.Namespace(seed=0, rounds=6, length=Length(1, 0.0, 600.0))
NEVER = Ends(math.inf, math.inf)


def rounds_of(sources: Sequence[RateSource], ends: Ends = NEVER) -> Rounds[str]:
    running = {each.name: each.rate for each in sources if each.rate is not None}
    made = Rounds[str]("part", lambda name, length: running[name](length), OPTIONS, ends, lambda text: None)
    made.contest(list(running))
    return made


def contenders(ran: list[str]) -> list[RateSource]:
    """The second is three times as quick as the first, whatever the round; every round is another machine."""
    speed = [1.0, 2.0, 8.0, 1.0, 0.5, 4.0]

    def rate(name: str, factor: float) -> Callable[[Length], float]:
        def window(length: Length) -> float:
            ran.append(name)
            return factor * speed[ran.count(name) - 1]

        return window

    why = RateSource("third", None, {"max_difference": 0.0}, why="no compiler")
    return [RateSource("first", rate("first", 1)), why, RateSource("second", rate("second", 3), {"plan": "quick"})]


def test_ratios_are_of_one_round() -> None:
    ran: list[str] = []
    made = contenders(ran)
    rates = rounds_of(made).rates
    first, third, second = rows(made, rates, {}, {"part": "part"})
    assert (second["ratio_p10"], second["ratio"], second["ratio_p90"]) == (3.0, 3.0, 3.0)
    assert first["chunks_per_s"] == 1.5
    assert first["n"] == 6
    assert second["p10"] == pytest.approx(3 * 0.75)
    assert second["plan"] == "quick"
    assert third["chunks_per_s"] is None
    assert third["why"] == "no compiler"
    assert summary("part", rates, [("second", "first"), ("third", "first")]) == {
        "part_second_over_first": 3.0,
        "part_second_over_first_p10": 3.0,
        "part_second_over_first_p90": 3.0,
    }
    pairs = [tuple(ran[at : at + 2]) for at in range(0, 12, 2)]
    assert {frozenset(pair) for pair in pairs} == {frozenset({"first", "second"})}
    assert len(set(pairs)) == 2  # both orders


def test_rounds_end_with_the_minutes() -> None:
    assert rounds_of(contenders([]), Ends(0.0, math.inf)).rates == {"first": [1.0], "second": [3.0]}


def test_a_window_without_a_rate_is_named_and_the_others_go_on() -> None:
    slow, quick = RateSource("slow", lambda length: 0.0), RateSource("quick", lambda length: 2.0)
    made = rounds_of([slow, quick])
    rates = made.rates
    assert made.failed == {"slow": "no two chunks in 600 s"}
    assert rates == {"quick": [2.0] * 6}
    first, second = rows([slow, quick], rates, made.failed, {"part": "part"})
    assert first["why"] == "no two chunks in 600 s"
    assert (second["chunks_per_s"], second["ratio"]) == (2.0, None)


def test_a_window_of_the_first_round_ends_with_the_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It might take ten minutes, or LeRobot's answer half an hour, of a bench of twenty. What was measured is kept."""
    now, limits = [0.0], list[float]()

    def rate(length: Length) -> float:
        limits.append(length.limit_s)
        now[0] += 40.0
        return 2.0

    def cut(length: Length) -> float:
        now[0] += 40.0
        raise OverError

    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: now[0]))
    order = random.Random(0).sample(["ours", "theirs", "late"], 3)
    rates = dict(zip(order, (rate, cut, rate), strict=True))
    given = [RateSource(name, rates[name]) for name in ("ours", "theirs", "late")]
    made = rounds_of(given, Ends(30.0, 60.0))
    assert made.rates == {order[0]: [2.0]}
    assert limits == [60.0]
    assert made.failed == {order[1]: CUT, order[2]: OVER}
    report = Report("peers")
    made.tell(report)
    assert sorted(report.more["left_out"]) == sorted([f"part, {order[1]}: {CUT}", f"part, {order[2]}: {OVER}"])


def test_full_float32_ends_as_it_began() -> None:
    before = torch.backends.cudnn.allow_tf32
    with full_float32():
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32 == before


# -- the command --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--rounds=0"], "--rounds must be at least 1, got 0"),
        (["--pp-generation=0"], "--pp-generation must be at least 1, got 0"),
        (["--pp-generation=65"], "--pp-generation: a plan has 1 to 64 stages, got 65"),
        (["--only=lerobot"], "lerobot: it needs --setup DIR, which makes an environment for it, or --lerobot-python"),
        (["--lerobot-python=/no/python"], "--lerobot-python: /no/python is not a program"),
        (["--lerobot-python=a", "--setup=b"], "not allowed with argument"),
        (["--only=openpi"], "invalid choice: 'openpi'"),
        (["--sampler=ddpm7"], "invalid choice: 'ddpm7'"),
        ([f"--lerobot-python={__file__}"], "test_peers.py is not a program"),
    ],
)
def test_what_cannot_be_run(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "peers", "--device=cpu", *argv])
    assert said in capsys.readouterr().err


def test_without_transformers_its_part_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    for argv in (["--only=transformers"], []):
        with pytest.raises(SystemExit, match="2"):
            command.run([*argv, "--device=cpu"], print)
        assert (
            "transformers: the package is not installed: pip install 'auras_ros[transformers]'"
            in capsys.readouterr().err
        )


def test_the_other_part_runs_and_the_table_says_which_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    monkeypatch.setattr(command.generate, "measure", lambda *args: ran.append("transformers"))
    report = command.run(["--device=cpu"], print)
    assert ran == ["transformers"]
    assert command.table(report).startswith("lerobot was not run: it needs --setup DIR")
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(command.lerobot, "measure", lambda python, *args: ran.append(str(python)))
    report = command.run([f"--lerobot-python={sys.executable}", "--device=cpu"], print)
    assert ran == ["transformers", sys.executable]
    assert "transformers was not run: the package is not installed" in command.table(report)


def python(tmp_path: Path, script: str) -> str:
    """An executable that says it is a Python."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return f"--lerobot-python={path}"


def test_an_environment_without_lerobot_is_a_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = python(tmp_path, """read l; echo '{"error": "ModuleNotFoundError: no lerobot"}'; read l""")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "peers", "--only=lerobot", "--device=cpu", here])
    said = capsys.readouterr().err
    assert "lerobot: hello: ModuleNotFoundError: no lerobot" in said
    assert "--setup DIR makes an environment" in said


def test_one_that_dies_on_the_way_went_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = python(tmp_path, """read l; echo '{"versions": {}}'; read l; echo Killed >&2; exit 3""")
    assert cli.main(["bench", "peers", "--only=lerobot", "--device=cpu", here]) == 1
    assert "failed: lerobot: lerobot: make: the process ended with status 3; Killed" in capsys.readouterr().err


def test_a_part_that_dies_on_the_way_leaves_the_other_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LeRobot's process was killed for memory: transformers was never begun, and nothing was written."""

    def measure(job: Job) -> None:
        job.report.rows.append({"part": "transformers", "cores": 1})

    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(command.generate, "measure", measure)
    here = python(tmp_path, """read l; echo '{"versions": {}}'; read l; exit 3""")
    report = command.run(["--device=cpu", here], lambda text: None)
    assert report.rows == [{"part": "transformers", "cores": 1}]
    assert report.more == {"failed": ["lerobot: lerobot: make: the process ended with status 3"]}


def test_a_gpu_without_memory_leaves_what_the_first_part_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(python: Path, job: Job) -> None:
        job.report.rows.append({"part": "lerobot", "cores": 1})

    def second(*given: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(command.lerobot, "measure", first)
    monkeypatch.setattr(command.generate, "measure", second)
    report = command.run([f"--lerobot-python={sys.executable}", "--device=cpu"], lambda text: None)
    assert report.rows == [{"part": "lerobot", "cores": 1}]
    assert report.more == {"failed": ["transformers: CUDA out of memory"]}


# -- LeRobot's environment ----------------------------------------------------------------------------


def test_it_has_our_torch_and_lerobot_without_its_own() -> None:
    venv, most, last = commands(Path("there"))
    assert venv == [sys.executable, "-m", "venv", "there"]
    assert most[:4] == ["there/bin/python", "-m", "pip", "install"]
    assert f"torch=={torch.__version__.partition('+')[0]}" in most
    assert last[4:] == ["--no-deps", "lerobot==0.4.4"]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that are not run, but the one that makes the folder."""
    made: list[list[str]] = []

    def run(step: list[str]) -> None:
        made.append(step)
        if "venv" in step:
            Path(step[-1]).mkdir(exist_ok=True)
            (Path(step[-1]) / "pyvenv.cfg").touch()

    monkeypatch.setattr(own_environment, "run", run)
    return made


def test_it_is_made_once(tmp_path: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lerobot"
    for _ in range(2):
        assert setup(folder, lambda text: None) == folder / "bin" / "python"
        assert ran == commands(folder)
    monkeypatch.setattr(environment, "LEROBOT", "lerobot==0.4.5")
    setup(folder, lambda text: None)
    assert len(ran) == 6


def test_half_of_one_is_gone_on_with(tmp_path: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """pip without a network: the next time all commands are run again."""
    whole = own_environment.run

    def run(step: list[str]) -> None:
        whole(step)
        if "--no-deps" in step and len(ran) == 3:
            raise SetupError("no network")

    monkeypatch.setattr(own_environment, "run", run)
    with pytest.raises(SetupError):
        setup(tmp_path / "lerobot", lambda text: None)
    assert not (tmp_path / "lerobot" / DONE).exists()
    setup(tmp_path / "lerobot", lambda text: None)
    assert len(ran) == 6


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--limit=0", "--limit must be above 0"),
        ("--limit=nan", "--limit: expected a number"),
        ("--seconds=-1", "--sec"),
    ],
)
def test_times_that_cannot_be_are_refused_by_name(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "peers", "--only=transformers", "--device=cpu", given])
    assert said in capsys.readouterr().err.partition("error: ")[2]


@pytest.mark.parametrize("theirs", ["thesis.tex", "pyvenv.cfg"])
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, ran: list[list[str]], theirs: str) -> None:
    (tmp_path / theirs).touch()
    with pytest.raises(SetupError, match="has other contents"):
        setup(tmp_path, lambda text: None)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", "peers", "--only=lerobot", "--device=cpu", f"--setup={tmp_path}"])
    assert ran == []


def test_a_command_that_fails_says_its_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "print('looking'); print('no such version'); raise SystemExit(3)"
    monkeypatch.setattr(environment, "commands", lambda folder: [[sys.executable, "-c", code]])
    with pytest.raises(SetupError, match=r"ended with status 3\n  looking\n  no such version"):
        setup(tmp_path / "new", lambda text: None)


def test_setup_gives_the_part_its_python(tmp_path: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(command.lerobot, "measure", lambda python, *args: given.append(python))
    command.run([f"--setup={tmp_path / 'env'}", "--only=lerobot", "--device=cpu"], print)
    assert given == [tmp_path / "env" / "bin" / "python"]


# -- what is said of it -------------------------------------------------------------------------------


def test_a_robot_for_any_configuration() -> None:
    vectors = {"observation.state": {"shape": [3]}}
    made = robot_of({"input_features": vectors, "output_features": {"action": {"shape": [2]}}})
    assert [channel["name"] for channel in made["action"]["channels"]] == ["joint0", "joint1"]
    assert made["state"] == ["joint0", "joint1", "joint2"]


def test_the_published_shape_is_lerobots_own() -> None:
    published = SHAPES["published"]["config"]
    assert published["down_dims"] == [512, 1024, 2048]
    assert (published["horizon"], published["n_action_steps"], published["n_obs_steps"]) == (16, 8, 2)


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rates = rounds_of(contenders([])).rates
    common = {"part": "part", "shape": "tiny", "sampler": "ddim10", "device": "cpu", "cores": 1, "threads": 1}
    report = Report("peers", rows(contenders([]), rates, {}, common))
    command.draw(report, tmp_path / "peers.png")
    assert (tmp_path / "peers.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="nothing was measured"):
        command.draw(Report("peers"), tmp_path / "none.png")
