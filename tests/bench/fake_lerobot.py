"""A peer that answers as LeRobot's worker does, in this process: the policy is one that LeRobot has kept, a fixture."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from auras_ros.bench.peers.process import PeerRefusedError
from auras_ros.policies.loaders.open import load
from auras_ros.policies.policy import generate
from tests.policies.loaders.reference import DATA

FIXTURE = DATA / "lerobot_diffusion"


@cache
def kept() -> Any:
    return load(FIXTURE).policy("ddpm20")


class FakeLeRobot:
    """In place of `PeerProcess`. spoil: what becomes of its chunks; compiles: whether torch.compile runs there.
    asked: every request, in order."""

    def __init__(self, spoil: Callable[[Tensor], Tensor] = lambda chunks: chunks, compiles: bool = True) -> None:
        self.asked: list[str] = []
        self.seconds = {False: 0.5, True: 0.25}  # that a request takes, compiled or not
        self._spoil, self._compiles = spoil, compiles

    def __call__(self, name: str, python: Path, limit_s: float, end_s: float) -> FakeLeRobot:
        return self

    def __enter__(self) -> FakeLeRobot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.asked.append("close")

    def ask(self, do: str, *needs: str, **more: Any) -> dict[str, Any]:
        self.asked.append(do + (" compiled" if more.get("compiled") else ""))
        answer: dict[str, Any] = getattr(self, do)(**more)
        assert all(key in answer for key in needs)
        return answer

    def hello(self) -> dict[str, Any]:
        return {"versions": {"torch": "2.10.0", "lerobot": "0.4.4"}}

    def make(self, folder: str, shape: dict[str, Any], seed: int, device: str) -> dict[str, Any]:
        for file in FIXTURE.iterdir():
            if file.name not in ("robot.json", "reference.safetensors"):
                shutil.copy2(file, folder)
        return {"million": 1.0, "steps": 20}

    def observe(self, inputs: str) -> dict[str, Any]:
        return {}

    def compile(self) -> dict[str, Any]:
        if not self._compiles:
            raise PeerRefusedError("lerobot: compile: InvalidCxxCompiler: no g++")
        return {"seconds": 61.0, "mode": "reduce-overhead"}

    def outputs(self, inputs: str, outputs: str, compiled: bool) -> dict[str, Any]:
        given, policy = load_file(inputs), kept()
        with torch.no_grad():
            made = generate(policy, given["noise"], policy.perceive(given["images"], given["state"]))
        save_file({"actions": self._spoil(made.float()).contiguous()}, outputs)
        return {}

    def time(self, chunks: int, seconds: float, compiled: bool) -> dict[str, Any]:
        return {"seconds": [self.seconds[compiled]] * chunks}
