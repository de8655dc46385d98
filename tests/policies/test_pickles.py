"""A pickle is refused under any name, and proof is given that nothing in it ran.

Guards: weights that run code when they are loaded.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.checkpoint import GOLDEN, WEIGHTS, load
from tests.policies.spoil import sign


class Bomb:
    """Unpickling one makes a folder: the proof that code ran."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def pickled(mark: Path, form: str) -> bytes:
    if form == "torch":
        path = mark.with_name("torch.pt")
        torch.save({"weights": Bomb(mark)}, path)
        return path.read_bytes()
    return pickle.dumps(Bomb(mark), protocol=int(form))


FORMS = ["0", "1", "2", "3", "4", "5", "torch"]


@pytest.mark.parametrize("form", FORMS)
def test_the_bomb_would_go_off(tmp_path: Path, form: str) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "bomb").write_bytes(pickled(mark, form))
    if form == "torch":
        torch.load(tmp_path / "bomb", weights_only=False)
    else:
        pickle.loads((tmp_path / "bomb").read_bytes())
    assert mark.exists()


@pytest.mark.parametrize("form", FORMS)
def test_a_pickle_under_the_weights_name_is_refused_and_runs_nothing(folder: Path, form: str) -> None:
    mark = folder / "ran"
    (folder / WEIGHTS).write_bytes(pickled(mark, form))
    sign(folder)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: (is a pickle|not a readable safetensors)"):
        load(folder)
    assert not mark.exists()


def test_a_pickle_in_place_of_the_golden_sample_is_refused_and_runs_nothing(folder: Path) -> None:
    mark = folder / "ran"
    (folder / GOLDEN).write_bytes(pickled(mark, "4"))
    with pytest.raises(CheckpointError, match=r"golden\.safetensors: is a pickle"):
        load(folder)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["epoch=0100.ckpt", "model.pt", "model.pth", "weights.pkl"])
def test_a_folder_with_a_pickle_alone_is_refused_and_the_pickle_named(tmp_path: Path, name: str) -> None:
    mark = tmp_path / "ran"
    (tmp_path / name).write_bytes(pickled(mark, "4"))
    with pytest.raises(CheckpointError, match=f"policy.json: file not found; {name} is a pickle and is refused"):
        load(tmp_path)
    assert not mark.exists()
