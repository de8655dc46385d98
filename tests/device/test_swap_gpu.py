"""Swapped layers on a GPU: the bits of the resident ones, from page-locked memory and from a file."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import torch

from auras_ros.device import swap
from tests.device.swapping import Net, inputs


@pytest.mark.gpu
@pytest.mark.parametrize("in_file", [False, True])
def test_the_bits_are_the_resident_layers(in_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from auras_ros.device.cuda import CudaDevice

    monkeypatch.setattr(swap, "_bandwidth", lambda *_: 1e15)  # tiny layers compute faster than a link copies
    if in_file:
        monkeypatch.setattr("auras_ros.device.swap_store._free_bytes", lambda: 0)
    with closing(CudaDevice()) as device:
        net, x = Net(7).to(device.tensors), inputs().to(device.tensors)
        expected = Net(7).to(device.tensors)(x)
        swap.swap_layers(net.layers, 3, tmp_path, device, device.lane("swap"), partial(net, x))
        assert not list(net.parameters())
        for _ in range(5):
            assert torch.equal(net(x), expected)
