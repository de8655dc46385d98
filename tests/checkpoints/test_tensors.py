"""Reading a weights file of any content ends in tensors or in CheckpointError, never in something else.

Guards: an exception that nobody catches where a file was cut, flipped or written by somebody else.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import nn

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tensors import PICKLE_SUFFIXES, fill, read_tensors, sha256

WHOLE = save({"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4, dtype=torch.float16)})


def attempt(path: Path, content: bytes) -> bool:
    """Whether the content was taken; any error but CheckpointError fails the test."""
    path.write_bytes(content)
    try:
        read_tensors(path)
    except CheckpointError:
        return False
    return True


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(WHOLE)
    tensors = read_tensors(tmp_path / "w.safetensors")
    assert torch.equal(tensors["a"], torch.arange(6.0).reshape(2, 3))
    assert tensors["b"].dtype == torch.float16


@pytest.mark.parametrize("length", range(0, len(WHOLE), 7))
def test_a_cut_file_is_refused(tmp_path: Path, length: int) -> None:
    assert not attempt(tmp_path / "w.safetensors", WHOLE[:length])


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_taken_or_refused(tmp_path: Path, at: int, value: int) -> None:
    attempt(tmp_path / "w.safetensors", WHOLE[:at] + bytes([value]) + WHOLE[at + 1 :])


@given(st.binary(max_size=64))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    attempt(tmp_path / "w.safetensors", content)


@pytest.mark.parametrize("suffix", [*PICKLE_SUFFIXES, ".CKPT"])
def test_a_pickles_name_is_refused_before_the_file_is_looked_at(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(CheckpointError, match="can run code when loaded"):
        read_tensors(tmp_path / f"not_there{suffix}")


def test_fill_names_the_first_tensor_that_does_not_fit() -> None:
    module, path = nn.Linear(3, 2), Path("w.safetensors")
    good = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}
    fill(module, good, path)
    assert torch.equal(module.weight, torch.ones(2, 3))
    with pytest.raises(CheckpointError, match="'bias' is missing"):
        fill(module, {"weight": good["weight"]}, path)
    with pytest.raises(CheckpointError, match=r"'bias' has shape \[3\], expected \[2\]"):
        fill(module, good | {"bias": torch.ones(3)}, path)


def test_a_refused_fill_leaves_the_module_as_it_was() -> None:
    module = nn.Linear(3, 2)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(CheckpointError):
        fill(module, {"weight": torch.ones(2, 3), "bias": torch.ones(5)}, Path("w"))
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_sha256_is_the_files(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256(tmp_path / "abc") == expected
