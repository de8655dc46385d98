"""`auras tune` as a user runs it: a tiny search of the real policy, its files, and what it says of bad settings.

Guards: a plan file that `auras run` does not take; a search that cannot go on; a setting refused after an hour.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from auras_ros import resources
from auras_ros.cli import tune
from auras_ros.cli.tuned_config import template_of, write_config
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.tuner import search, trials
from auras_ros.measure.cores import available
from auras_ros.measure.durations import FrameDuration, measure_durations
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.config import read_parameters_file
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.loaders import open as opening

TINY = [
    *("--generation", "quick"),
    *("--pp-perception", "1", "--pp-generation", "1,2", "--alpha", "0.5"),
    *("--first", "1", "--episodes", "1", "--max-steps", "4", "--batch", "1"),
]


several = pytest.mark.skipif(available() < 2, reason="one core: there is nothing to be unequal with")


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """A checkpoint replays its golden samples when it is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "load", cache(opening.load))
        yield


@pytest.fixture
def timed_on(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The devices on which frames were timed, which is not done."""
    asked: set[str] = set()

    def measure(checkpoint: object, plans: Mapping[str, Plan], **rest: Any) -> dict[str, FrameDuration]:
        asked.add(rest["device"])
        return dict.fromkeys(plans, FrameDuration(0.02, 3))

    monkeypatch.setattr(trials, "measure_durations", measure)
    return asked


@pytest.fixture
def little_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LEAST_EPISODES", 1)
    monkeypatch.setattr(search, "LEAST_SUCCESSES", 0)


@pytest.mark.usefixtures("little_is_enough")
def test_a_tiny_search_writes_a_plan_that_the_agent_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames are really timed, though few of them."""
    monkeypatch.setattr(trials, "measure_durations", partial(measure_durations, rounds=1, frames=2))
    report, work = tmp_path / "tune.json", tmp_path / "work.json"
    arguments = [*TINY, "--out", str(tmp_path), "--json", str(report), "--work", str(work), "--config", "pusht"]
    assert tune.run(arguments) == 0
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if line.startswith("plan: ")]
    chosen = Plan.parse(line.removeprefix("plan: "))
    made = json.loads(report.read_text())
    assert made["name"] == "tune"
    assert [row["plan"] for row in made["rows"] if row["chosen"]] == [str(chosen)]
    # seq, two of the grid; and a skewed one, where two stages were found to be the better of them.
    assert made["summary"]["plans"] in (3, 4)
    assert (tmp_path / "tune.png").stat().st_size > 5000
    agent = yaml.safe_load((tmp_path / "tuned.yaml").read_text())["agent"]["ros__parameters"]
    assert AgentSettings(**agent).plans()[0] == chosen
    assert agent["device"] == "cpu"  # where it was timed
    kept = work.read_text()
    assert tune.run(arguments) == 0
    assert work.read_text() == kept  # nothing was measured again


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--rate", "fast"], "rate: expected a value such as 12"),
        (["--success", "80"], "success: expected a value such as 0.8"),
        (["--sim", "chess"], "sim 'chess' is not known; known: pusht, pusht-drift"),
        (["--pp-generation", "1,x"], "pp_generation: expected numbers"),
        (["--pp-generation", "20"], "20 stages for 8 generation steps"),
        (["--plan", "quick,mode=par"], "mode"),
        (
            ["--generation", "quick,slow"],
            "checkpoint 'pusht' has no plan 'slow'; its plans: quick, ddpm100",
        ),
        (["--generation", "quick,quick"], "--generation: expected names with commas between them, each once"),
        (["--generation", "quick", "--plan", "ddpm100"], "generation: --plan has ddpm100 already"),
        (["--checkpoint", "pusht,"], "--checkpoint: expected names with commas"),
        (["--checkpoint", "pusht,lift"], "lift does not fit pusht: the world's channels are .'agent_x', 'agent_y'."),
        (["--plan", "quick,speed=9"], "speed"),
        (["--first", "9", "--episodes", "4"], "first: must be in \\[1, episodes = 4\\]"),
        (["--trials", "0"], "trials must be at least 1"),
        (["--work", "no/such/folder/work.json"], "--work: no folder"),
        (["--device", "tpu"], "--device: invalid choice: 'tpu'"),
        (["--json", "."], "--json: . is a folder"),
        (["--json", "/proc/tune.json"], "--json: /proc/tune.json: "),
        (["--max-steps", "5000"], "max_steps: must be in \\[1, 1000\\]"),
        (["--seed", "3500000", "--confirm", "1"], "seed: must be in"),
        (["--checkpoint", "pusht-tokens", "--config", "pusht"], "pusht-tokens is not that of the agent in .*: pusht"),
    ],
)
def test_bad_settings_are_refused_at_once(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        tune.run([*arguments, "--out", str(tmp_path)])
    assert refused.value.code == 2

    assert re.search(named, capsys.readouterr().err)


def test_status_3_where_no_plan_is_good_enough(
    tmp_path: Path, timed_on: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.run([*TINY, "--rate", "1000x", "--out", str(tmp_path)]) == tune.NOT_FOUND
    assert "no plan that was played to the end meets" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "agent/ros__parameters is missing"),
        ("agent: 3", "agent: ros__parameters is missing"),
        ("agent: [", "not YAML"),
        ("agent: {ros__parameters: {max_agems: 70.0}}", "no parameter 'max_agems'; did you mean max_age_ms?"),
    ],
)
def test_a_config_that_can_hold_no_plan_is_refused_before_the_search(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search.Search, "run", lambda *_: pytest.fail("searched"))
    config = tmp_path / "mine.yaml"
    config.write_text(text)
    assert tune.run([*TINY, "--out", str(tmp_path), "--config", str(config)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {config}")
    assert said in error


def test_a_config_is_written_that_finds_what_the_first_one_found(tmp_path: Path) -> None:
    """It may stand elsewhere; and the agent's section may begin with a slash."""
    config, out = tmp_path / "robot" / "mine.yaml", tmp_path / "out"
    config.parent.mkdir()
    out.mkdir()
    (config.parent / "policy").symlink_to(resources.checkpoint("pusht"))
    both = {name: {"ros__parameters": {"checkpoint": "./policy"}} for name in ("/agent", "actuator")}
    config.write_text(yaml.safe_dump(both))
    template = template_of(read_parameters_file(config))
    plan = Plan("quick", mode="auras", pp_generation=2)
    write_config(template, "pusht", plan, {"device": "cpu"}, out / "tuned.yaml")
    read = read_parameters_file(out / "tuned.yaml")
    assert read.section("agent")["plan"] == "quick,mode=auras,pp_generation=2"
    for node in ("agent", "actuator"):
        assert Path(read.section(node)["checkpoint"]).samefile(config.parent / "policy")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"device": "tpu"}, "device: no 'tpu'; known: auto, cpu, cuda"),
        pytest.param(
            {"device": "cuda"}, "no CUDA device for timing frames",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is one"),
        ),
    ],
)  # fmt: skip
def test_a_config_whose_agent_cannot_be_timed_here_is_refused_before_the_search(
    settings: dict[str, str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(yaml.safe_dump({"agent": {"ros__parameters": settings}}))
    with pytest.raises(SystemExit):
        tune.run([*TINY, "--out", str(tmp_path), "--config", str(config)])
    assert said in capsys.readouterr().err


def prepared(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> search.Search:
    """The search of these options, which is not run."""
    found = list[search.Search]()

    def stop(self: search.Search, explore: object) -> search.SearchResult:
        found.append(self)
        raise InterruptedError

    monkeypatch.setattr(search.Search, "run", stop)
    with pytest.raises(InterruptedError):
        tune.run(argv)
    return found[0]


@pytest.mark.parametrize(("own", "bound"), [([], 70.0), (["--max-age-ms", "50"], 50.0), (["--max-age-ms", "90"], 70.0)])
def test_the_search_is_for_what_the_configs_agent_can_run(
    own: list[str], bound: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "mine.yaml"
    settings = {"checkpoint": "pusht-tokens", "max_age_ms": 70.0}
    config.write_text(yaml.safe_dump({"agent": {"ros__parameters": settings}}))
    few = ["--plan", "greedy", "--pp-generation", "1", "--alpha", ""]
    found = prepared([*few, "--out", str(tmp_path), "--config", str(config), *own], monkeypatch)
    ((generation, its),) = found.trials.items()
    assert its.settings.requirements.max_age_ms == bound
    assert generation == ("pusht-tokens", "greedy")


@pytest.mark.parametrize(
    ("words", "searched"),
    [
        ([], [("pusht", "quick"), ("pusht", "ddpm100")]),
        (["--plan", "batched=false"], [("pusht", "quick"), ("pusht", "ddpm100")]),
        (["--plan", "ddpm100"], [("pusht", "ddpm100")]),
        (["--generation", "ddim10,quick"], [("pusht", "ddim10"), ("pusht", "quick")]),
        (
            ["--checkpoint", "pusht-tokens,pusht"],
            [("pusht-tokens", "greedy"), ("pusht", "quick"), ("pusht", "ddpm100")],
        ),
    ],
)
def test_without_a_name_all_generation_plans_of_all_checkpoints_are_searched(
    words: list[str], searched: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = prepared([*words, "--out", str(tmp_path)], monkeypatch)
    assert list(found.trials) == searched
    assert [each.settings.base.generation for each in found.trials.values()] == [plan for _, plan in searched]


@pytest.mark.usefixtures("little_is_enough")
def test_the_config_gets_the_checkpoint_of_the_chosen_plan_wherever_it_had_the_agents(
    tmp_path: Path, timed_on: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two policies for one robot; that of the config is the worse one."""

    def choose(self: search.Search) -> object:
        return next(one for one in self.candidates() if one.checkpoint == str(tmp_path / "mine") and one.success)

    monkeypatch.setattr(search.Search, "choose", choose)
    monkeypatch.setattr(
        trials, "play", lambda made, plan, seeds, *rest, **more: ModeResult([EpisodeRecord(s, True, 1) for s in seeds])
    )
    (tmp_path / "mine").symlink_to(resources.checkpoint("pusht-tokens"))
    config = tmp_path / "config.yaml"
    both = {"agent": {"checkpoint": "pusht", "seed": 3}, "actuator": {"checkpoint": "pusht"}}
    config.write_text(yaml.safe_dump({node: {"ros__parameters": values} for node, values in both.items()}))
    words = ["--checkpoint", f"pusht,{tmp_path / 'mine'}", "--generation", "quick,greedy", *TINY[2:]]
    assert tune.run([*words, "--out", str(tmp_path), "--config", str(config)]) == 0
    assert f"checkpoint: {tmp_path / 'mine'}\nplan: greedy" in capsys.readouterr().out
    read = read_parameters_file(tmp_path / "tuned.yaml")
    for node in both:
        assert Path(read.section(node)["checkpoint"]).samefile(tmp_path / "mine")
    assert read.section("agent")["plan"].startswith("greedy")
    assert read.section("agent")["seed"] == 3


def test_without_matplotlib_nothing_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search.Search, "run", lambda *_: pytest.fail("searched"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match="matplotlib"):
        tune.run([*TINY, "--out", str(tmp_path)])


def test_status_3_and_no_config_where_the_chosen_plan_does_not_hold_on_fresh_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timed_on: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was lucky in the search; what came of that is kept."""
    luck = iter(["", *["success 0.0%, wanted 80.0%"] * 9])
    monkeypatch.setattr(search.Search, "_wanting", lambda *_: next(luck))
    report = tmp_path / "tune.json"
    files = ["--out", str(tmp_path), "--json", str(report), "--config", "pusht"]
    assert tune.run([*TINY, *files, "--confirm", "1"]) == tune.NOT_FOUND
    said = capsys.readouterr().out
    assert "NOT confirmed on new seeds (success 0.0%, wanted 80.0%): quick" in said
    assert "\nplan: " not in said
    assert not (tmp_path / "tuned.yaml").exists()
    made = json.loads(report.read_text())
    assert made["unconfirmed"] == "success 0.0%, wanted 80.0%"
    assert made["summary"]["confirmed"] == 0.0


@pytest.mark.usefixtures("little_is_enough")
def test_frames_are_timed_where_it_is_said_and_other_records_are_not_gone_on_from(
    tmp_path: Path, timed_on: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    files = ["--out", str(tmp_path), "--work", str(tmp_path / "work.json"), "--config", "pusht"]
    assert tune.run([*TINY, *files, "--device", "cuda"]) == 0
    assert timed_on == {"cuda"}
    assert yaml.safe_load((tmp_path / "tuned.yaml").read_text())["agent"]["ros__parameters"]["device"] == "cuda"
    with pytest.raises(SystemExit):
        tune.run([*TINY, *files])
    assert "was made with device cuda" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "timed"), [("cpu", "cpu"), ("cuda", "cuda"), ("auto", "cuda" if torch.cuda.is_available() else "cpu")]
)
def test_frames_are_timed_where_the_config_s_agent_runs(
    device: str, timed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object, device: str, **rest: object) -> None:
        raise InterruptedError(device)  # no more than this is asked here

    monkeypatch.setattr(trials, "measure_durations", measure)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: timed == "cuda")
    config = tmp_path / "mine.yaml"
    config.write_text(f"agent: {{ros__parameters: {{device: {device}}}}}")
    with pytest.raises(InterruptedError, match=f"^{timed}$"):
        tune.run([*TINY, "--out", str(tmp_path), "--config", str(config)])


@several
def test_a_plan_that_perceives_beside_generation_has_no_core_that_seq_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a second thread: left to itself that takes a core which lies idle in seq."""
    ran: dict[str, set[int]] = {}

    def noted(right: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            ran[threading.current_thread().name] = os.sched_getaffinity(0)
            return right(*given)

        return run

    def measure(*given: Any, **rest: Any) -> dict[str, FrameDuration]:
        if "seq" not in given[1]:
            return dict.fromkeys(given[1], FrameDuration(0.02, 3))
        with monkeypatch.context() as patch:
            for name in ("perceive", "predict"):
                patch.setattr(DiffusionPolicy, name, noted(getattr(DiffusionPolicy, name)))
            measure_durations(*given, **rest, rounds=1, frames=1)
        raise InterruptedError

    monkeypatch.setattr(trials, "measure_durations", measure)
    with pytest.raises(InterruptedError):
        tune.run([*TINY, "--fetch-offset=-1", "--out", str(tmp_path)])
    assert len(ran) > 2
    assert set.union(*ran.values()) == {min(os.sched_getaffinity(0))}, ran


@several
def test_the_cores_are_in_every_row_and_a_record_of_others_is_not_gone_on_from(
    tmp_path: Path, timed_on: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    work, report = tmp_path / "work.json", tmp_path / "tune.json"
    words = [*TINY, "--out", str(tmp_path), "--work", str(work), "--json", str(report)]
    assert tune.run(words) == 0
    assert "timed on 1 core\n" in capsys.readouterr().out
    assert {row["cores"] for row in json.loads(report.read_text())["rows"]} == {1}
    with pytest.raises(SystemExit):
        tune.run([*words, "--cores", "2"])
    assert "was made with cores 1, not 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        tune.run([*words, "--cores", "0"])
    assert "cores: from 1 to the" in capsys.readouterr().err


def test_no_config_is_written_for_a_plan_that_has_shown_nothing(
    tmp_path: Path, timed_on: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A search of four episodes wrote one for a plan that failed in all of them."""
    few = ["--pp-perception=1", "--pp-generation=1", "--alpha=", "--max-steps=2", "--out", str(tmp_path)]
    few += ["--work", str(tmp_path / "work.json")]  # what was played is not played again
    assert tune.run([*few, "--first=4", "--episodes=4", "--config", "pusht"]) == tune.NOT_FOUND
    assert "no config for that plan: it was played on 4 episodes; at least 16 are needed" in capsys.readouterr().out
    assert tune.run([*few, "--first=16", "--episodes=16", "--config", "pusht"]) == tune.NOT_FOUND
    assert "it succeeded 0 times in 16; at least 4 are needed" in capsys.readouterr().out
    assert not (tmp_path / "tuned.yaml").exists()
    assert tune.run([*few, "--first=4", "--episodes=4"]) == 0  # nobody asked for a config


def test_a_config_that_is_not_there_is_status_2_as_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune.run(["--out", str(tmp_path), "--config", "nosuch"]) == 2
    assert capsys.readouterr().err.startswith("error: config 'nosuch.yaml' not found")
