"""Nothing is compared which computes something else."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from auras_ros.measure import same
from auras_ros.measure.executors import Bench
from auras_ros.measure.same import batched_difference, check_equal, equal_fields, equal_words
from auras_ros.pipeline.slab import Slab


def test_the_modes_compute_the_same(bench: Bench) -> None:
    """Rule 7 of docs/pipeline.md: bit for bit in one stage, unbatched; close in a batch."""
    check_equal(bench, "ddpm4")
    assert batched_difference(bench, "ddpm4", 4) < 1e-5


def test_a_mode_that_computes_something_else_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Slab.admit
    monkeypatch.setattr(Slab, "admit", lambda self, noise: right(self, noise * (1 + 1e-6)))
    with pytest.raises(RuntimeError, match="request 0: auras in one stage differs from seq by up to"):
        check_equal(bench, "ddpm4")
    assert batched_difference(bench, "ddpm4", 4) > 0


@pytest.mark.parametrize(
    ("device", "off", "passes"), [("cuda", 1e-4, True), ("cuda", 1e-2, False), ("cpu", 1e-4, False)]
)
def test_on_a_gpu_rounding_ends_no_bench(
    device: str, off: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks have come to the host by then: whether they are on a GPU says nothing."""
    made = {"seq": torch.zeros(1, 4, 2), "auras": torch.full((1, 4, 2), off)}
    monkeypatch.setattr(same, "random_feed", lambda policy, seed, count: lambda at: None)
    monkeypatch.setattr(same, "_chunks", lambda bench, plan, seen: dict.fromkeys(range(3), made[plan.mode]))
    there = SimpleNamespace(device=torch.device(device), policy=None)
    if not passes:
        with pytest.raises(RuntimeError, match="request 0: auras in one stage differs from seq by up to"):
            check_equal(there, "ddpm4")  # type: ignore[arg-type]
        return
    found = equal_fields(check_equal(there, "ddpm4"))  # type: ignore[arg-type]
    assert found == {"bit_equal": 0, "one_stage_difference": pytest.approx(off / 2)}
    assert equal_words(found) == "within 5e-05 of the action range (allowed: 0.001)"
    assert equal_words(equal_fields(0.0)) == "bit for bit"
