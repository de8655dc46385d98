"""An engine whose vision encoder's layers are swapped: the same embeddings to the bit, the same answers.

Guards: embeddings that depend on how often an image was seen before; a model whose layers are not found; a copy thread
that outlives the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.device import DeviceError, swap
from auras_ros.engine.engine import Engine
from auras_ros.engine.request import VlmRequest
from tests.checkpoints.vlm.folders import Written, write
from tests.engine.making import answers, chat, engine_of

pytest.importorskip("transformers")
pytest.importorskip("PIL")

SIZES = [(40, 60), (25, 70), (64, 64)]
DEEPER: dict[str, dict[str, Any]] = {
    "smolvlm": {"vision_config": {"num_hidden_layers": 5}},
    "llava": {"vision_config": {"num_hidden_layers": 6}},  # five are computed
    "qwen2_5_vl": {"vision_config": {"depth": 5}},
}
KINDS = (*DEEPER, "cogagent")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, written: Callable[[str], Written]) -> Callable[[str], Path]:
    made: dict[str, Path] = {"cogagent": written("cogagent").path}

    def make(kind: str) -> Path:
        if kind not in made:
            made[kind] = write(kind, tmp_path_factory.mktemp(kind), **DEEPER[kind]).path
        return made[kind]

    return make


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[swap.SwapPlan]:
    """Those that were made, as if a disk were quicker than tiny layers."""
    made: list[swap.SwapPlan] = []
    make = swap.make_plan
    monkeypatch.setattr(swap, "_bandwidth", lambda *_: 1e15)
    monkeypatch.setattr(swap, "make_plan", lambda *sizes: made.append(make(*sizes)) or made[-1])  # type: ignore
    return made


def embeddings(engine: Engine) -> list[torch.Tensor]:
    checkpoint = engine.checkpoint
    found = []
    for each in chat(checkpoint, "tee", SIZES).images * 2:
        (seen,) = checkpoint.model.see(each.pixels, [each.grid])
        found += [seen.tokens, *(part for pair in seen.keys for part in pair)]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_are_the_resident_encoders_to_the_bit(
    kind: str, folder: Callable[[str], Path], plans: list[swap.SwapPlan], tmp_path: Path
) -> None:
    whole, swapped = engine_of(folder(kind)), engine_of(folder(kind), swap_layers=2, swap_folder=str(tmp_path))
    assert [(len(plan.swapped), plan.physical) for plan in plans] == [(plans[0].layers, 2)]
    assert plans[0].layers > 2
    for one, other in zip(embeddings(swapped), embeddings(whole), strict=True):
        assert torch.equal(one, other)
    whole.close()
    swapped.close()


@pytest.mark.parametrize("cores", [{}, {"swap_core": 0}, {"swap_core": 0, "own_threads": True}])
def test_answers_are_the_same_and_nothing_is_left(
    cores: dict[str, Any], folder: Callable[[str], Path], plans: list[swap.SwapPlan], tmp_path: Path
) -> None:
    tokens, before = [], set(threading.enumerate())
    for options in ({}, {"swap_layers": 3, "swap_folder": str(tmp_path), **cores}):
        engine = engine_of(folder("qwen2_5_vl"), image_cache_mib=0, **options)
        asked = [
            VlmRequest(chat(engine.checkpoint, text, sizes), max_tokens=6, ignore_eos=True)
            for text, sizes in (("is the tee left?", SIZES[:1]), ("how many", SIZES[1:]), ("the goal", []))
        ]
        tokens.append([answer.tokens for answer in answers(engine, asked)])
        engine.close()
    assert tokens[0] == tokens[1]
    assert len(plans) == 1
    assert list(tmp_path.iterdir()) == []
    if "own_threads" not in cores:  # with them the device is the test's own
        assert "lane swap" not in [each.name for each in set(threading.enumerate()) - before]


@pytest.mark.usefixtures("plans")
def test_a_layer_that_cannot_be_read_is_one_requests_error(
    folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(folder("qwen2_5_vl"), image_cache_mib=0, swap_layers=2, swap_folder=str(tmp_path))
    request = VlmRequest(chat(engine.checkpoint, "how many", SIZES[:1]), max_tokens=3, ignore_eos=True)
    (before,) = answers(engine, [request])

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("os.preadv", fail)
        (failed,) = answers(engine, [request])
    (after,) = answers(engine, [request])
    assert (before.finish, failed.finish, after.finish) == ("length", "error", "length")
    assert "could not be read" in failed.detail
    assert after.tokens == before.tokens
    engine.close()


def test_what_cannot_be_swapped_is_refused_by_the_options_name(folder: Callable[[str], Path], tmp_path: Path) -> None:
    path = folder("smolvlm")
    with pytest.raises(DeviceError, match="swap_folder: must be given: on a CPU"):
        engine_of(path, swap_layers=2)
    with pytest.raises(DeviceError, match="swap_layers: 5 physical layers for 5: from 2 to 4"):
        engine_of(path, swap_layers=5, swap_folder=str(tmp_path))
    with pytest.raises(DeviceError, match=r"lane 'swap': cores \[4095\] are not available"):
        engine_of(path, swap_layers=2, swap_folder=str(tmp_path), swap_core=4095)
    with pytest.raises(ValueError, match="engine: swap_layers: -1 is not a whole number from 0"):
        engine_of(path, swap_layers=-1)
