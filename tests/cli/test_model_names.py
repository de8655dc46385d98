"""A shipped vision-language model has one name in every place that takes a model.

Guards: a command that takes folders alone, or looks for a name in places of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import auras_ros
from auras_ros import resources
from auras_ros.bench.cohost import command as cohost
from auras_ros.bench.lora import heads, streams, swap
from auras_ros.bench.nova import corun
from auras_ros.cli import list as list_command
from auras_ros.cli import main as auras
from auras_ros.cli import serve as serve_command
from auras_ros.cli import soak
from auras_ros.nodes.vlm.loading import load_engine
from auras_ros.nodes.vlm.settings import VlmSettings

NAME = "pusht-vlm"
MISSPELT = "pusht-vml"


def quiet(_: str) -> None:
    pass


def node(name: str) -> None:
    load_engine(VlmSettings(checkpoint=name), frozenset({0}), quiet)


TAKERS: dict[str, Callable[[str], Any]] = {
    "load_vlm": auras_ros.load_vlm,
    "node vlm": node,
    "serve": lambda name: serve_command.run([name]),
    "soak": lambda name: soak.run(["--target", "vlm", "--model", name]),
    "bench cohost": lambda name: cohost.run(["--vlm", name], quiet),
    "bench nova-corun": lambda name: corun.run([name], quiet),
    "bench lora-streams": lambda name: streams.run([name], quiet),
    "bench lora-swap": lambda name: swap.run([name], quiet),
    "bench lora-heads": lambda name: heads.run([name], quiet),
}


class AskedError(Exception):
    """The one resolver was asked."""


@pytest.mark.parametrize("taker", TAKERS)
def test_each_asks_the_one_resolver(taker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(name: str) -> Path:
        asked.append(name)
        raise AskedError

    monkeypatch.setattr(resources, "checkpoint", ask)
    with pytest.raises(AskedError):
        TAKERS[taker](NAME)
    assert asked == [NAME]


@pytest.mark.parametrize("taker", TAKERS)
def test_a_name_that_is_misspelt_is_answered_with_the_nearest(
    taker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said = f"checkpoint '{MISSPELT}': no such folder in {tmp_path}, and none ships; did you mean {NAME}? ("
    raised = ""
    try:
        TAKERS[taker](MISSPELT)
    except (FileNotFoundError, SystemExit) as error:
        raised = str(error)
    assert said in raised + capsys.readouterr().err


def test_it_is_listed_and_so_are_its_adapters(capsys: pytest.CaptureFixture[str]) -> None:
    assert auras.main(["list", "models", "adapters"]) == 0
    out = capsys.readouterr().out
    models, adapters = out.split("adapters:\n")
    names = [line.split()[0] for line in models.splitlines()[1:]]
    assert names == [
        each for each in resources.checkpoint_names() if (resources.checkpoint(each) / "config.json").is_file()
    ]
    assert NAME in names
    for name in (line.split()[0] for line in adapters.splitlines()):
        assert (resources.adapter(name) / "adapter_config.json").is_file()
    assert "  pusht-monitor/goal    LoRA of rank 4 for pusht-vlm\n" in out
    assert set(list_command.SECTIONS) >= {"models", "adapters"}


def test_an_options_file_names_a_shipped_model_or_a_folder_beside_it(tmp_path: Path) -> None:
    from auras_ros.serve.options import read_options

    path = tmp_path / "serve.yaml"
    path.write_text("model: pusht-vlm\nlora_modules: {goal: pusht-monitor/goal, mine: adapters/mine}\n")
    (tmp_path / "adapters" / "mine").mkdir(parents=True)
    folders = {"goal": "pusht-monitor/goal", "mine": str(tmp_path / "adapters" / "mine")}
    assert read_options(path) == {"model": NAME, "lora_modules": folders}
    (tmp_path / NAME).mkdir()
    assert read_options(path)["model"] == str(tmp_path / NAME)
