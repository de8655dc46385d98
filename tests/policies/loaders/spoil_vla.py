"""Ways to spoil a copy of a pi0, pi0.5 or SmolVLA folder, one file at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

Spoil = Callable[[Path], object]


def tensors(edit: Callable[[dict[str, Tensor]], object], file: str = "model.safetensors") -> Spoil:
    def spoil(folder: Path) -> None:
        found = load_file(folder / file)
        edit(found)
        save_file({name: t.contiguous() for name, t in found.items()}, folder / file)

    return spoil


def text(edit: Callable[[dict[str, Any]], object], file: str = "config.json") -> Spoil:
    def spoil(folder: Path) -> None:
        raw = json.loads((folder / file).read_text())
        edit(raw)
        (folder / file).write_text(json.dumps(raw))

    return spoil


def config(**changes: Any) -> Spoil:
    return text(lambda raw: raw.update(changes))


def robot(**changes: Any) -> Spoil:
    return text(lambda raw: raw.update(changes), "robot.json")


def without(name: str, file: str = "model.safetensors") -> Spoil:
    return tensors(lambda found: found.pop(name), file)


def filled(name: str, value: float, file: str = "model.safetensors") -> Spoil:
    return tensors(lambda found: found[name].view(-1)[:1].fill_(value), file)


def joined_digits(folder: Path) -> None:
    """A tokenizer for which the last digit and what follows it are one token."""
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["model"]["vocab"]["5;"] = 3
    raw["model"]["merges"].append(["5", ";"])
    (folder / "tokenizer.json").write_text(json.dumps(raw))


def step(folder: Path) -> None:
    text(lambda raw: raw["steps"].append({"registry_name": "delta_actions", "config": {}}), "policy_preprocessor.json")(
        folder
    )


def tokenizing(**changes: Any) -> Spoil:
    def edit(raw: dict[str, Any]) -> None:
        next(each for each in raw["steps"] if each["registry_name"] == "tokenizer_processor")["config"].update(changes)

    return text(edit, "policy_preprocessor.json")
