"""Weights in shards: index and files must say the same, and one file is open at a time.

Guards: a tensor of another file; one that stands in two; one that nobody lists; a shard that is a pickle or cut off; a
model that is in memory twice.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.checkpoints import shards as module
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.shards import Shards
from auras_ros.policies.loaders.open import load
from tests.policies.loaders import openvla_folder as published

FILES = {"one.safetensors": ("a", "c"), "two.safetensors": ("b", "d")}


def tensors() -> dict[str, Tensor]:
    return {name: torch.full((2, 3), float(i)) for i, name in enumerate("abcd")}


def index(folder: Path, **changes: str | None) -> None:
    listed: dict[str, Any] = {name: file for file, names in FILES.items() for name in names} | changes
    listed = {name: file for name, file in listed.items() if file is not None}
    text = json.dumps({"metadata": {"total_size": 96}, "weight_map": listed})
    (folder / "model.safetensors.index.json").write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file, names in FILES.items():
        save_file({name: tensors()[name] for name in names}, tmp_path / file)
    index(tmp_path)
    return tmp_path


def test_tensors_are_found_and_come_file_by_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, opened = Shards(folder), []
    real = module._opened
    monkeypatch.setattr(module, "_opened", lambda path: opened.append(path.name) or real(path))
    assert list(read) == ["a", "c", "b", "d"]
    for name in read:
        assert torch.equal(read[name], tensors()[name])
    assert opened == ["one.safetensors", "two.safetensors"]
    assert len(read) == 4
    assert "a" in read
    assert "e" not in read
    assert read.origin("b") == f"{folder / 'two.safetensors'}: tensor 'b'"


def test_one_file_without_an_index_is_read_too(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in Shards(tmp_path).items()} == {
        name: tensor.tolist() for name, tensor in tensors().items()
    }


def rewrite(folder: Path, file: str, change: Callable[[dict[str, Tensor]], Any]) -> None:
    held = load_file(folder / file)
    change(held)
    save_file(held, folder / file)


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a missing shard": (
        lambda f: (f / "two.safetensors").unlink(),
        "two.safetensors: file not found, but model.safetensors.index.json lists tensor 'b' in it",
    ),
    "a missing tensor": (
        lambda f: rewrite(f, "two.safetensors", lambda held: held.pop("d")),
        "two.safetensors: tensor 'd' is missing, but .*index.json lists it there",
    ),
    "in another shard": (lambda f: index(f, a="two.safetensors"), "one.safetensors: tensor 'a' should be in two.safet"),
    "in two shards": (
        lambda f: rewrite(f, "two.safetensors", lambda held: held.update(a=torch.zeros(2, 3))),
        "two.safetensors: tensor 'a' is also in one.safetensors",
    ),
    "listed nowhere": (
        lambda f: index(f, c=None),
        "one.safetensors: tensor 'c' is not in model.safetensors.index.json",
    ),
    "another folder": (lambda f: index(f, a="../one.safetensors"), "'a': '../one.safetensors' is not a file of this"),
    "a shard that no digest covers": (
        lambda f: index(f, a="one.dat"),
        "index.json: weight_map: 'a': 'one.dat' does not end in .safetensors",
    ),
    "no name": (lambda f: index(f, a=""), "'a': '' is not a file of this folder"),
    "no index": (
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": []}'),
        "index.json: weight_map: expected an object",
    ),
    "no JSON": (lambda f: (f / "model.safetensors.index.json").write_text("["), "index.json: not JSON"),
    "both": (lambda f: save_file(tensors(), f / "model.safetensors"), "has both model.safetensors and .*index.json"),
    "cut off": (
        lambda f: (f / "two.safetensors").write_bytes((f / "two.safetensors").read_bytes()[:-5]),
        "two.safetensors: not a readable safetensors file",
    ),
    "a pickle by another name": (
        lambda f: (f / "two.safetensors").write_bytes(pickle.dumps(tensors())),
        "two.safetensors: is a pickle despite its name",
    ),
    "a pickle by its name": (
        lambda f: ((f / "two.safetensors").rename(f / "two.bin"), index(f, b="two.bin", d="two.bin")),
        "two.bin: pickled weights can run code",
    ),
    "nothing": (
        lambda f: [each.unlink() for each in f.iterdir()],
        "neither model.safetensors nor model.safetensors.index.json$",
    ),
    "a pickle alone": (
        lambda f: ([each.unlink() for each in f.iterdir()], (f / "pytorch_model.bin").write_bytes(b"")),
        "neither .*; pytorch_model.bin is a pickle and is refused",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_folder_that_contradicts_itself_is_refused(folder: Path, fault: str) -> None:
    spoil, said = FAULTS[fault]
    spoil(folder)
    with pytest.raises(CheckpointError, match=said):
        Shards(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused_when_it_is_read(folder: Path, value: float) -> None:
    rewrite(folder, "two.safetensors", lambda held: held["d"].fill_(value))
    read = Shards(folder)
    assert read["b"].isfinite().all()
    with pytest.raises(CheckpointError, match=r"two.safetensors: tensor 'd' holds NaN or infinity"):
        read["d"]


# -- an OpenVLA folder's ----------------------------------------------------------------------------------

SMALL = "model-00003-of-00003.safetensors"
FC1 = "projector.fc1.weight"
LS = "vision_backbone.featurizer.blocks.0.ls1.scale_factor"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    pytest.importorskip("transformers")
    made = tmp_path_factory.mktemp("openvla") / "tiny"
    with published.tiny_encoders():
        published.write(made)
        yield made


@pytest.fixture
def openvla(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def respell(folder: Path, file: str, change: Callable[[dict[str, Tensor]], Any]) -> None:
    """Change tensors of a shard, and let the index say so."""
    rewrite(folder, file, change)
    where = folder / "model.safetensors.index.json"
    listed = json.loads(where.read_text())
    others = {name: each for name, each in listed["weight_map"].items() if each != file}
    listed["weight_map"] = others | dict.fromkeys(load_file(folder / file), file)
    where.write_text(json.dumps(listed))


TENSORS: dict[str, tuple[Callable[[dict[str, Tensor]], Any], str]] = {
    "missing": (lambda held: held.pop(FC1), f"tensor '{FC1}' is missing"),
    "missing layer scale": (lambda held: held.pop(LS), f"tensor '{LS}' is missing"),
    "unknown": (
        lambda held: held.update({"projector.fc4.weight": torch.zeros(2)}),
        "'projector.fc4.weight' belongs to no",
    ),
    "shape": (
        lambda held: held.update({FC1: torch.zeros(3, 4)}),
        rf"{SMALL}: tensor '{FC1}' has shape \[3, 4\], expected",
    ),
    "NaN": (lambda held: held[FC1].fill_(float("nan")), rf"{SMALL}: tensor '{FC1}' holds NaN or infinity"),
    "type": (
        lambda held: held.update({FC1: held[FC1].long()}),
        rf"'{FC1}' has type torch.int64, expected torch.float32",
    ),
    "twice": (
        lambda held: held.update({LS.replace("scale_factor", "gamma"): held[LS].clone()}),
        "repeats '.*ls1.*' under another name",
    ),
}


@pytest.mark.parametrize("fault", TENSORS)
def test_a_wrong_tensor_of_a_shard_is_refused_by_file_and_name(openvla: Path, fault: str) -> None:
    change, said = TENSORS[fault]
    respell(openvla, SMALL, change)
    with pytest.raises(CheckpointError, match=said):
        load(openvla)


def test_a_layer_more_than_the_configuration_says_is_refused(openvla: Path) -> None:
    config = json.loads((openvla / "config.json").read_text())
    config["text_config"]["num_hidden_layers"] = 1
    (openvla / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"language_model.model.layers.1.* belongs to no part of this policy"):
        load(openvla)


def test_half_precision_becomes_the_modules_own(openvla: Path) -> None:
    respell(openvla, SMALL, lambda held: held.update({name: t.bfloat16() for name, t in held.items()}))
    weight = load(openvla).networks.state_dict()["prefix.model.projector.fc1.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, load_file(openvla / SMALL)[FC1].float())


def test_each_tensor_is_read_once_and_let_go_of(openvla: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held beside the module is one tensor."""
    import weakref

    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most, read = 0, []
    real = Shards.__getitem__

    def counted(self: Shards, name: str) -> Tensor:
        nonlocal most
        tensor = real(self, name)
        alive.add(tensor)
        most = max(most, len(alive))
        read.append(name)
        return tensor

    monkeypatch.setattr(Shards, "__getitem__", counted)
    load(openvla)
    assert len(read) == len(set(read)) > 50
    assert most <= 2  # the one before is let go of when the next one is there
