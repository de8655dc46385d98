"""The tiny policy, known to the registry for one test."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from auras_ros.measure import executors
from auras_ros.measure.executors import Bench
from auras_ros.policies import architectures
from auras_ros.policies.architectures import make_policy
from tests.bench.registered import NAME, RECIPE


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A window begins with a garbage collection, and an executor with its warm-up: neither looks at what is there
    before a test, nor takes longer than it must."""
    torch.set_num_threads(1)
    monkeypatch.setattr(executors, "WARM_UP_RUNS", 1)
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a policy that takes milliseconds."""
    monkeypatch.setitem(architectures.RECIPES, NAME, RECIPE)
    return NAME


@pytest.fixture
def bench(tiny: str) -> Iterator[Bench]:
    """Its executors on the CPU, four denoising steps, par with at most three workers."""
    made = Bench(make_policy(tiny, seed=0, steps=4), "cpu", 0, most=3)
    yield made
    made.close()
