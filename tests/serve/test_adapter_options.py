"""The options of adapters: how they are written, what they are by default, and what ends the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auras_ros.cli import main as cli
from auras_ros.serve.options import make_options, read_modules, read_options
from tests.checkpoints.vlm.folders import Written, write
from tests.lora.adapters import save_adapter


@pytest.mark.parametrize(
    "given",
    ["a=x,b=y", ["a=x", "b=y"], ["a=x, b=y"], {"a": "x", "b": "y"}, (" a = x ", "b=y")],
    ids=str,
)
def test_every_way_of_writing_them_is_the_same(given: Any) -> None:
    assert read_modules(given) == (("a", "x"), ("b", "y"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("a", "expected NAME=FOLDER, got 'a' and ''"),
        ("a=x,", "expected NAME=FOLDER, got '' and ''"),
        ("=x", "expected NAME=FOLDER, got '' and 'x'"),
        ("a=x,a=y", "'a' is there twice"),
        ({"a": 1}, "expected NAME=FOLDER, got 'a' and 1"),
        ({1: "x"}, "expected NAME=FOLDER, got 1 and 'x'"),
        ([1], "expected NAME=FOLDER, got 1"),
        (7, "expected NAME=FOLDER, got 7"),
        ([{"name": "a", "path": "x"}], "expected NAME=FOLDER, got {"),
    ],
    ids=str,
)
def test_what_names_no_adapter_is_refused(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=r"^serve: lora_modules: ") as refused:
        make_options({"lora_modules": given})
    assert words in str(refused.value)


def test_as_many_are_in_memory_as_are_named_and_eight_at_most() -> None:
    many = {f"a{number}": "x" for number in range(20)}
    for given, slots in (
        ({}, 0),
        ({"lora_modules": "a=x,b=y"}, 2),
        ({"lora_modules": many}, 8),
        ({"lora_folder": "x"}, 8),
        ({"lora_modules": "a=x", "lora_folder": "x"}, 8),
        ({"lora_modules": "a=x", "max_loras": 5}, 5),
    ):
        assert make_options(given)[1].max_loras == slots, given
    with pytest.raises(ValueError, match="engine: max_loras: 0 leaves no memory"):
        make_options({"lora_modules": "a=x", "max_loras": 0})


def test_folders_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for text in ("lora_modules: {a: x, b: /y}\n", "lora_modules: [a=x, b=/y]\n", "lora_modules: a=x,b=/y\n"):
        path.write_text(f"model: m\nlora_folder: in\n{text}")
        options, _ = make_options(read_options(path))
        assert options.lora_modules == (("a", str(tmp_path / "x")), ("b", "/y"))
        assert options.lora_folder == str(tmp_path / "in")
    path.write_text("model: m\nlora_modules: {a: x, a: y}\n")
    with pytest.raises(ValueError, match=r"config\.yaml:2: .*'a' stands in line 2 already"):
        read_options(path)
    path.write_text("model: m\nlora_modules: {a: 3}\n")
    with pytest.raises(ValueError, match=r"config\.yaml:2: serve: lora_modules: expected NAME=FOLDER"):
        read_options(path)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Written:
    import torch

    with torch.no_grad():
        return write("smolvlm", tmp_path_factory.mktemp("models") / "tiny")


def test_an_adapter_that_is_refused_ends_the_start(
    tiny: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that names it, also where the others are good."""
    good, large = save_adapter(tmp_path / "good", tiny.model), save_adapter(tmp_path / "large", tiny.model, rank=8)
    start = ["serve", str(tiny.path), "--port", "0", "--kv-mib", "8", "--max-lora-rank", "4"]
    for modules, words in (
        (f"good={good},absent={tmp_path}/absent", "error: lora_modules: absent: "),
        (f"good={good},large={large}", "error: lora_modules: large: "),
        (f"tiny={good}", "error: lora_modules: tiny: adapter: 'tiny' is the name of the model itself"),
    ):
        assert cli.main([*start, "--lora-modules", modules]) == 2
        error = capsys.readouterr().err
        assert (error.startswith(words), error.count("\n")) == (True, 1), error
    assert cli.main([*start, "--lora-folder", str(tmp_path / "absent")]) == 2
    assert capsys.readouterr().err == f"error: serve: lora_folder: {tmp_path}/absent: no such folder\n"


def test_slots_that_memory_does_not_hold_end_the_start(
    tiny: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save_adapter(tmp_path / "good", tiny.model)
    words = ["--kv-mib", "1", "--max-loras", "200", "--max-lora-rank", "64", "--lora-modules", f"good={path}"]
    assert cli.main(["serve", str(tiny.path), "--port", "0", *words]) == 2
    assert "engine: max_loras: 200 of rank 64 take" in capsys.readouterr().err
