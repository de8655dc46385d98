"""Makes a device by its name."""

from __future__ import annotations

from auras_ros.device.lane import Device, DeviceError
from auras_ros.device.spans import Spans

NAMES = ("auto", "cpu", "cuda")


def make_device(name: str = "auto", spans: Spans | None = None) -> Device:
    """`cpu`, `cuda`, or `auto`: the GPU if there is one. Raises DeviceError naming what is missing."""
    if name not in NAMES:
        raise DeviceError(f"device {name!r}: must be one of {', '.join(NAMES)}")
    if name == "auto":
        import torch

        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        from auras_ros.device.cuda import CudaDevice

        return CudaDevice(spans)
    from auras_ros.device.cpu import CpuDevice

    return CpuDevice(spans)


def kind_of(device: str) -> str:
    """`cpu` or `cuda`: the kind of a device by its name. Raises DeviceError."""
    made = make_device(device)
    made.close()
    return made.tensors.type
