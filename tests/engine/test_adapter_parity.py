"""An engine's tokens with adapters against transformers' models that have the adapter's product in their weights.
float32: the tokens are equal.

Guards: a row that gets another row's adapter, or none; a prefix or an image of another adapter's; rows of queries and
keys in another order than their weights'; a scale, a rank or an alpha of a pattern; a merged adapter that stays in the
rows of others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.engine import Engine
from auras_ros.engine.request import VlmRequest
from auras_ros.engine.scheduler import Dispatch, EngineState, InterleavedScheduler
from tests.checkpoints.vlm.folders import Written
from tests.checkpoints.vlm.test_vlm_parity import TOKENS, reference
from tests.engine.making import answers, chat, ended, engine_of
from tests.lora.adapters import LANGUAGE, VISION, save_adapter, with_adapter

pytest.importorskip("transformers")
pytest.importorskip("PIL")

KINDS = ("smolvlm", "llava", "qwen2_5_vl")
ASKED: list[tuple[str, list[tuple[int, int]], int]] = [
    ("is the tee left?", [(40, 60)], 0),
    ("the block must turn left: how many red things are in the way? " * 2, [], 0),
    ("is the tee left?", [(40, 60)], 0),
]
ENDS = r".*(?:modality_projection\.proj|multi_modal_projector\.linear_[12]|merger\.mlp\.[02])|lm_head"
ADAPTERS: dict[str, dict[str, Any]] = {
    "attention": {"pattern": r".*layers\.\d+\.self_attn\.[qkvo]_proj", "rank": 4, "seed": 1},
    "everything": {"pattern": f"{LANGUAGE}|{VISION}", "rank": 3, "alpha": 6.0, "seed": 2},
    "patterns": {
        "pattern": LANGUAGE, "rank": 2, "seed": 3, "use_rslora": True, "rank_pattern": {"q_proj": 5, "down_proj": 1},
        "alpha_pattern": {"v_proj": 3.0},
    },
    "queries": {"pattern": r".*layers\.0\.self_attn\.q_proj", "rank": 8, "alpha": 64.0, "seed": 4},
    "ends": {"pattern": ENDS, "rank": 4, "alpha": 16.0, "seed": 5},
}  # fmt: skip
NAMES = ("", *ADAPTERS)
RANK = 8


class Case:
    """A folder and its adapters, and what transformers answers with each."""

    def __init__(self, written: Written, kind: str, folder: Path) -> None:
        self.written, self.kind, self.path = written, kind, written.path
        self.folders = {name: save_adapter(folder / name, written.model, **how) for name, how in ADAPTERS.items()}
        checkpoint = open_vlm(written.path)
        self.prompts = [chat(checkpoint, text, sizes, seed) for text, sizes, seed in ASKED]

    @cached_property
    def wanted(self) -> dict[str, list[list[int]]]:
        models = {"": self.written.model}
        models |= {name: with_adapter(self.written.model, path) for name, path in self.folders.items()}
        return {
            name: [reference(Written(self.path, model), prompt, self.kind)[0] for prompt in self.prompts]
            for name, model in models.items()
        }

    def engine(self, **others: Any) -> Engine:
        engine = engine_of(self.path, **{"max_loras": len(ADAPTERS), "max_lora_rank": RANK, "kv_mib": 16} | others)
        assert engine.adapters is not None
        for name, path in self.folders.items():
            engine.adapters.registry.add(name, path)
        return engine


@pytest.fixture(scope="module", params=KINDS)
def case(
    request: pytest.FixtureRequest, written: Callable[[str], Written], tmp_path_factory: pytest.TempPathFactory
) -> Case:
    return Case(written(request.param), request.param, tmp_path_factory.mktemp("adapters"))


def all_of(case: Case, engine: Engine) -> dict[str, list[list[int]]]:
    """Every prompt with every adapter and with none, all at once."""
    asked = [(name, prompt) for prompt in case.prompts for name in NAMES]
    requests = [VlmRequest(prompt, ignore_eos=True, max_tokens=TOKENS, adapter=name) for name, prompt in asked]
    given = answers(engine, requests)
    assert {answer.finish for answer in given} == {"length"}, [answer.detail for answer in given]
    found: dict[str, list[list[int]]] = {name: [] for name in NAMES}
    for (name, _), answer in zip(asked, given, strict=True):
        found[name].append(answer.ids)
    return found


def test_the_adapters_change_the_answers(case: Case) -> None:
    """Or nothing here would show anything."""
    assert len({str(each) for each in case.wanted.values()}) == len(NAMES)


SETUPS: dict[str, dict[str, Any]] = {
    "per-forward": {"running": 6},
    "per-forward-side-by-side": {"scheduler": "multi-stream", "own_threads": True},
    "valora": {"running": 6, "lora_policy": "valora", "lora_theta_ms": 1},
    "valora-without-a-copy": {"running": 6, "lora_policy": "valora", "lora_theta_ms": 1, "lora_exact": False},
    "one-slot-without-a-copy": {"max_loras": 1, "lora_policy": "merge-only", "lora_theta_ms": 5, "lora_exact": False},
    "valora-patient": {"running": 4, "lora_policy": "valora", "lora_theta_ms": 10_000},
    "dlora": {"running": 6, "lora_policy": "dlora", "lora_theta_ms": 5},
    "merge-only": {"running": 6, "lora_policy": "merge-only", "lora_theta_ms": 5},
    "unmerge-only": {"running": 6, "lora_policy": "unmerge-only"},
    "valora-side-by-side": {
        "scheduler": "multi-stream",
        "own_threads": True,
        "lora_policy": "valora",
        "lora_theta_ms": 1,
    },
    "valora-on-parts": {"scheduler": "static:4", "splits": (2, 4), "lora_policy": "valora", "lora_theta_ms": 1},
    "per-forward-on-parts": {"scheduler": "static:4", "splits": (2, 4)},
    "one-at-a-time": {"running": 1, "waiting": 17},
    "a-batch": {"running": 18},
    "chunks": {"chunked": True, "prefill_tokens": 23},
    "threads": {"own_threads": True},
    "two-slots": {"max_loras": 2, "running": 6},
}


@pytest.mark.parametrize("name", SETUPS)
def test_tokens_are_those_of_the_model_with_the_adapter_in_its_weights(case: Case, name: str) -> None:
    """Also the second time, when every prefix and image is known."""
    engine = case.engine(**SETUPS[name])
    for _ in range(2):
        assert all_of(case, engine) == case.wanted
        ended(engine)
    engine.close()


class Merging:
    """Every forward of the decoder has another adapter in the weights, or none."""

    def __init__(self) -> None:
        self._inner, self._turn = InterleavedScheduler(64, chunked=False), 0
        self.engine: Engine | None = None
        self.merged = set[str]()

    def next(self, state: EngineState) -> Dispatch | None:
        from dataclasses import replace

        dispatch = self._inner.next(state)
        if dispatch is None or dispatch.stage == "vision":
            return dispatch
        self._turn += 1
        there = [None, *dict.fromkeys(each.resident for each in state.queues.everyone() if each.resident)]
        merged = there[self._turn % len(there)]
        self.merged.add("" if merged is None else merged.adapter)
        return replace(dispatch, merged=merged)


def test_tokens_stay_when_every_forward_has_another_adapter_merged(case: Case) -> None:
    scheduler = Merging()
    engine = case.engine(scheduler=scheduler, running=18)
    assert all_of(case, engine) == case.wanted
    assert scheduler.merged == set(NAMES)
    ended(engine)
    engine.close()
