"""Decodes with adapters, captured as on a GPU: a replay runs no Python, so all that changes from one batch to the next
has to be in tensors that keep their addresses.

Guards: groups, ranks or addresses of the batch that was captured; a captured decode with the merged weights of another
adapter, or without adapters; a value that is read back; a slot's next adapter whose factors are not found; a stage for
each batch that ever came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from auras_ros.engine import build
from auras_ros.engine.valora import UNMERGE_ONLY
from auras_ros.engine.workers import DecodeWorker, bucket
from auras_ros.lora import runtime
from auras_ros.models.paged_attention import GatheredAttention
from tests.checkpoints.vlm.folders import Written
from tests.engine import replaying
from tests.engine.making import ended
from tests.engine.replaying import ReplayingDevice, TorchKernels
from tests.engine.test_adapter_parity import Case, Merging, all_of

pytest.importorskip("transformers")
pytest.importorskip("PIL")

SETUPS: dict[str, dict[str, Any]] = {
    "unmerged": {"running": 6, "lora_policy": UNMERGE_ONLY},
    "per-forward": {"running": 6, "max_merged_loras": 2},
    "two-slots": {"running": 4, "max_loras": 2},
    "mixture": {"running": 5},  # with `Merging`
}


@pytest.fixture(scope="module")
def case(written: Callable[[str], Written], tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(written("llava"), "llava", tmp_path_factory.mktemp("adapters"))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> ReplayingDevice:
    """With a GPU's kernels and its attention, in torch's operations."""
    monkeypatch.setattr(replaying, "TAPES", [])
    for module in (runtime, build):
        monkeypatch.setattr(module, "has_kernels", lambda device: True)
    monkeypatch.setattr(runtime, "_triton", lambda ways, device: TorchKernels)
    monkeypatch.setattr(build, "RowAttention", lambda cache, rows, width: GatheredAttention(cache))
    return ReplayingDevice()


@pytest.mark.parametrize("name", SETUPS)
def test_tokens_are_those_of_the_model_with_the_adapter_in_its_weights(
    case: Case, name: str, device: ReplayingDevice
) -> None:
    scheduler: dict[str, Any] = {"scheduler": Merging()} if name == "mixture" else {}
    engine = case.engine(**SETUPS[name], **scheduler, device=device)
    for _ in range(2):
        assert all_of(case, engine) == case.wanted
        ended(engine)
    assert sum(tape.launches for tape in device.tapes) > 2 * len(device.tapes)
    worker = engine._forwards.workers["decode"]
    assert isinstance(worker, DecodeWorker)
    _, sizes, widths, adapted, weights = map(set, zip(*worker._stages, strict=True))
    assert sizes == {bucket(rows) for rows in range(1, SETUPS[name]["running"] + 1)}
    assert adapted == {True, False}
    assert len(weights) > 1 or not scheduler  # a policy merges when that pays, by the clock
    assert len(device.tapes) <= len(sizes) * len(widths) * 2 * len(weights)
    engine.close()


def test_groups_that_the_capture_remembers_are_seen(
    case: Case, device: ReplayingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test above shows nothing."""
    monkeypatch.setattr(TorchKernels, "forgetful", True)
    engine = case.engine(**SETUPS["unmerged"], device=device)
    assert all_of(case, engine) != case.wanted
    engine.close()
