"""A device is chosen by its name, and what is missing is named."""

from __future__ import annotations

import pytest
import torch

from auras_ros.device import DeviceError, Spans, make_device
from auras_ros.device.cpu import CpuDevice


@pytest.mark.parametrize("name", ["cpu", "auto"])
def test_the_cpu_is_there_without_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    spans = Spans(1)
    device = make_device(name, spans)
    assert isinstance(device, CpuDevice)
    assert device.tensors == torch.device("cpu")
    lane = device.lane("lane")
    lane.launch(device.capture("stage", lambda: None, lane))
    assert len(spans.rows()) == 1
    device.close()


@pytest.mark.gpu
def test_auto_takes_the_gpu() -> None:
    device = make_device()
    assert device.tensors.type == "cuda"
    device.close()


def test_cpu_means_cpu_even_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert isinstance(make_device("cpu"), CpuDevice)


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with pytest.raises(DeviceError, match=r"device 'cuda': this torch \(.+\) is built without CUDA"):
        make_device("cuda")


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match=r"device 'cuda': torch .+ finds no usable GPU or driver"):
        make_device("cuda")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DeviceError, match="device 'tpu': must be one of auto, cpu, cuda"):
        make_device("tpu")
