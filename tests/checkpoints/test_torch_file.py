"""The zip file of torch.save: tensors as torch reads them, and files that do not hold together.

Guards: a tensor that reaches beyond what the file holds; a storage that is missing, short, compressed or damaged.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.inert import Name, Stored
from auras_ros.checkpoints.torch_file import TorchFile


def saved(tmp_path: Path, value: Any) -> Path:
    torch.save(value, tmp_path / "t.ckpt")
    return tmp_path / "t.ckpt"


def test_tensors_are_those_that_torch_reads(tmp_path: Path) -> None:
    base = torch.arange(24.0).view(4, 6)
    values = {
        "plain": base,
        "turned": base.T,
        "part": base[1:3, 2:5],
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "parameter": nn.Parameter(torch.randn(3)),
        "spread": torch.tensor([2.0]).expand(1),
        **{str(kind): torch.tensor([0, 1, 3]).to(kind) for kind in (torch.float64, torch.float16, torch.bfloat16)},
        **{str(kind): torch.tensor([0, 1, 3]).to(kind) for kind in (torch.int64, torch.int32, torch.uint8, torch.bool)},
    }
    path = saved(tmp_path, {**values, "other": "text"})
    expected = torch.load(path, weights_only=True)
    with TorchFile(path) as file:
        tensors = file.tensors(file.value)
        assert tensors.keys() == values.keys()
        for name in tensors:
            assert tensors.shape(name) == expected[name].shape
            assert torch.equal(tensors[name], expected[name])
            assert tensors[name].dtype == expected[name].dtype
    with pytest.raises(CheckpointError, match="tensor 'none' is missing"):
        tensors.shape("none")


def rewritten(
    path: Path, change: Callable[[str, bytes], tuple[str, bytes] | None], how: int = zipfile.ZIP_STORED
) -> Path:
    """The file with its entries changed; None leaves one out."""
    with zipfile.ZipFile(path) as old:
        entries = [change(name, old.read(name)) for name in old.namelist()]
    with zipfile.ZipFile(path, "w", how) as new:
        for entry in entries:
            if entry is not None:
                new.writestr(*entry)
    return path


def entry(ending: str, data: bytes | None) -> Callable[[str, bytes], tuple[str, bytes] | None]:
    def change(name: str, old: bytes) -> tuple[str, bytes] | None:
        if not name.endswith(ending):
            return name, old
        return None if data is None else (name, data)

    return change


FILES: dict[str, tuple[Callable[[str, bytes], tuple[str, bytes] | None], int, str]] = {
    "storage missing": (entry("data/0", None), zipfile.ZIP_STORED, "tensor 'w': data/0 is missing"),
    "storage short": (entry("data/0", b"1234"), zipfile.ZIP_STORED, "tensor 'w': 4 bytes are stored, expected 48"),
    "no pickle": (entry("data.pkl", None), zipfile.ZIP_STORED, "expected one data.pkl .*, found 0"),
    "other order": (entry("byteorder", b"big"), zipfile.ZIP_STORED, "byte order b'big' is not supported"),
    "compressed": (entry("none", None), zipfile.ZIP_DEFLATED, "is compressed, which torch.save never does"),
    "not a pickle": (entry("data.pkl", b"hello"), zipfile.ZIP_STORED, "data.pkl: not a readable pickle"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_does_not_hold_together_is_refused(name: str, tmp_path: Path) -> None:
    change, how, said = FILES[name]
    path = rewritten(saved(tmp_path, {"w": torch.arange(12.0)}), change, how)
    with pytest.raises(CheckpointError, match=said), TorchFile(path) as file:
        file.tensors(file.value)["w"]


def test_a_damaged_storage_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(12.0)})
    data = bytearray(path.read_bytes())
    at = data.index(torch.arange(12.0).numpy().tobytes())
    data[at + 5] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match="tensor 'w': cannot be read"), TorchFile(path) as file:
        file.tensors(file.value)["w"]


def test_a_zip_of_another_version_or_with_names_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(12.0)})
    sound = path.read_bytes()
    entry_at = sound.rfind(b"PK\x01\x02")
    for place, value in ((entry_at + 6, b"\x63"), (entry_at + 8, b"\x00\x08")):
        data = bytearray(sound)
        data[place : place + len(value)] = value
        if value == b"\x00\x08":  # names are UTF-8, which this is not
            data[entry_at + 46] = 0xFF
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="is not a zip file as torch"):
            TorchFile(path)


def test_shapes_of_too_few_dimensions_are_refused_by_the_tensors_name(tmp_path: Path) -> None:
    with TorchFile(saved(tmp_path, {"scalar": torch.tensor(1.0), "row": torch.zeros(5)})) as file:
        tensors = file.tensors(file.value)
        assert tensors.side("row", 0) == 5
        for name, dimension in (("scalar", 0), ("row", 1)):
            with pytest.raises(CheckpointError, match=f"tensor '{name}' has shape .*, expected at least"):
                tensors.side(name, dimension)


def test_many_names_of_one_storage_are_refused_before_any_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = torch.zeros(5000)
    with TorchFile(saved(tmp_path, {f"w{i}": big for i in range(3)})) as file:
        monkeypatch.setattr(file, "read", lambda name, recipe: pytest.fail(f"{name} was read"))
        tensors = file.tensors(file.value)
        tensors.check_bytes(["w0", "missing"])
        with pytest.raises(CheckpointError, match=r"tensor 'w1': it makes the tensors larger than the .* bytes"):
            tensors.check_bytes(tensors)


RECIPES: dict[str, tuple[tuple[Any, ...], str]] = {
    "beyond": ((0, (13,), (1,)), "reaches beyond its storage of 12 numbers"),
    "beyond by its offset": ((1, (12,), (1,)), "reaches beyond"),
    "beyond by its steps": ((0, (2, 2), (11, 1)), "reaches beyond"),
    "more than there is": ((0, (10**9,), (0,)), "reaches beyond"),
    "backwards": ((0, (3,), (-1,)), "is not one that is supported"),
    "before": ((-1, (3,), (1,)), "is not one that is supported"),
    "two sizes": ((0, (3, 2), (1,)), "is not one that is supported"),
    "without a text": ((0, (10**5000,), (1,)), "is not one that is supported"),
    "more dimensions than torch has": ((0, (1,) * 99, (1,) * 99), "is not one that is supported"),
    "no numbers": ((0, ("3",), (1,)), "is not one that is supported"),
    "no tuple": ((0, 3, 1), "is not one that is supported"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_tensor_that_is_none_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    place, said = RECIPES[name]
    path = saved(tmp_path, {"w": torch.arange(12.0)})
    with TorchFile(path) as file:
        recipe = file.value["w"]
        recipe.args = (recipe.args[0], *place)
        with pytest.raises(CheckpointError, match=f"tensor 'w' {said}"):
            file.tensors(file.value)["w"]


@pytest.mark.parametrize("identity", [("storage", Name("torch", "ComplexStorage"), "0", "cpu", 12), 7, ("storage",)])
def test_a_storage_of_another_kind_is_refused(identity: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(12.0)})
    with TorchFile(path) as file:
        recipe = file.value["w"]
        recipe.args = (Stored(identity), *recipe.args[1:])
        with pytest.raises(CheckpointError, match="tensor 'w' is not one that is supported"):
            file.tensors(file.value)["w"]


def test_a_storage_outside_the_data_folder_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(12.0)})
    with TorchFile(path) as file:
        recipe = file.value["w"]
        recipe.args = (Stored(("storage", Name("torch", "FloatStorage"), "../data.pkl", "cpu", 12)), *recipe.args[1:])
        with pytest.raises(CheckpointError, match=r"tensor 'w' is not one .*storage '../data.pkl'"):
            file.tensors(file.value)["w"]
