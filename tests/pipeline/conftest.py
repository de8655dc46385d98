"""Every stage of these tests runs once when it is captured, as a GPU's does: one that cannot run yet, or that leaves
something behind which counts, is a failure here too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from auras_ros.device import Lane, Stage
from auras_ros.device.cpu import CpuDevice


@pytest.fixture(autouse=True)
def captured_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    capture = CpuDevice.capture

    def run_first(self: CpuDevice, name: str, body: Callable[[], None], lane: Lane) -> Stage:
        with torch.no_grad():
            body()
        return capture(self, name, body, lane)

    monkeypatch.setattr(CpuDevice, "capture", run_first)
