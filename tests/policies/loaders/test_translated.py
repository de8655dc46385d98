"""Translated tensors are copied one at a time, each checked, and errors carry the source's own names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tensors import fill
from auras_ros.policies import checkpoint
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.loaders import translated
from auras_ros.policies.loaders.translated import Translated, renamed, wanted
from tests.policies import tiny

SOURCE = Path("folder")


class Counting(Mapping[str, Tensor]):
    """Tensors that are read when they are asked for, and remembers how often."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Tensor:
        self.asked.append(name)
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def test_each_tensor_is_asked_for_once_in_the_sources_order() -> None:
    module = nn.Linear(2, 3)
    tensors = Counting({"weight": torch.ones(3, 2), "bias": torch.zeros(3, dtype=torch.float64)})
    fill(module, tensors, SOURCE)
    assert tensors.asked == ["weight", "bias"]
    assert torch.equal(module.weight, torch.ones(3, 2))
    assert torch.equal(module.bias, torch.zeros(3))


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"weight": torch.ones(3, 2)}, "a.bin: tensor 'b' is missing"),
        ({"weight": torch.ones(2, 3), "bias": torch.ones(3)}, r"tensor 'w' has shape \[2, 3\], expected \[3, 2\]"),
        ({"weight": torch.ones(3, 2), "bias": torch.ones(3).int()}, "tensor 'b' has type torch.int32"),
        ({"weight": torch.ones(3, 2), "bias": torch.ones(3).double() * 1e300}, "tensor 'b' has values beyond"),
        ({"weight": torch.ones(3, 2), "bias": torch.ones(3) / 0}, "tensor 'b' has values beyond"),
        ({"weight": torch.ones(3, 2), "bias": torch.ones(3), "x": torch.ones(1)}, "folder: tensor 'x' belongs to no"),
    ],
)
def test_what_does_not_fit_is_refused_by_the_sources_name(tensors: dict[str, Tensor], said: str) -> None:
    origin = {"weight": "a.bin: tensor 'w'", "bias": "a.bin: tensor 'b'"}
    with pytest.raises(CheckpointError, match=said):
        fill(nn.Linear(2, 3), tensors, SOURCE, origin)


def test_names_of_a_manifests_networks_cost_no_memory() -> None:
    names = wanted(tiny.manifest(), SOURCE)
    assert list(names) == list(tiny.checkpoint().networks.state_dict())


def test_shapes_are_compared_before_memory_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest may claim networks of any size; the tensors of a small file are small."""
    built: list[str] = []

    def build(*arguments: object) -> Checkpoint:
        built.append(torch.get_default_device().type)
        return checkpoint.build(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(translated, "build", build)
    tensors = dict(tiny.checkpoint().networks.state_dict())
    Translated(tiny.manifest(), tensors).checkpoint("", SOURCE)
    assert built == ["meta", "cpu"]
    built.clear()
    name = next(iter(tensors))
    with pytest.raises(CheckpointError, match=f"folder: tensor '{name}' has shape .*, expected"):
        Translated(tiny.manifest(), {**tensors, name: torch.ones(1)}).checkpoint("", SOURCE)
    with pytest.raises(CheckpointError, match="folder: tensor 'more' belongs to no part"):
        Translated(tiny.manifest(), {**tensors, "more": torch.ones(1)}).checkpoint("", SOURCE)
    assert built == ["meta", "meta"]


def test_renaming_leaves_nothing_over() -> None:
    tensors = {"net.w": torch.ones(1), "net.b": torch.ones(1), "steps": torch.ones(1)}
    named, origin = renamed(["w", "b"], tensors, SOURCE, lambda name: f"net.{name}", lambda name: name == "steps")
    assert list(named) == ["w", "b"]
    assert origin["b"] == "folder: tensor 'net.b'"
    with pytest.raises(CheckpointError, match="folder: tensor 'steps' belongs to no part"):
        renamed(["w", "b"], tensors, SOURCE, lambda name: f"net.{name}")
    with pytest.raises(CheckpointError, match=r"folder: tensor 'net.c' is missing"):
        renamed(["c"], tensors, SOURCE, lambda name: f"net.{name}")
