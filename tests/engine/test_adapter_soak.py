"""The soak with adapters: requests of several in one batch, hostile ones among them, while at random another one is
merged and, from another thread, adapters come, go and lose their folders.

Guards: an answer that has one wrong token of another adapter, of the one before under its name, or of the base model; a
prefix or an image of another one's after a preemption; a request that an adapter's end takes with it, or whose error is
not counted; a slot, a block, a thread or an object left behind for each adapter or request.
"""

from __future__ import annotations

import gc
import random
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.peft import adapter_digest
from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.adapters import EngineAdapters
from auras_ros.engine.engine import Engine
from auras_ros.engine.reply import LOGGER, Reply
from auras_ros.engine.request import VlmRequest
from auras_ros.lora.registry import KnownAdapter
from auras_ros.lora.slots import Resident
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import PATIENCE_S, engine_of
from tests.engine.test_adapter_parity import Merging
from tests.engine.test_engine_soak import REQUESTS, THREADS, TOKENS, Asked, Log, alone, ask, asks, check, soaked, submit
from tests.lora.adapters import LANGUAGE, VISION, change_config, save_adapter, with_adapter

pytest.importorskip("transformers")
pytest.importorskip("PIL")

SLOTS, RANK, ROUNDS = 2, 6, 16
BLOCKS = 26  # for requests, beside the slots'
CONTENTS: dict[str, dict[str, Any]] = {
    "attention": {"pattern": r".*language_model.*self_attn\.[qkvo]_proj", "rank": 5, "seed": 1},
    "sees": {"pattern": f"{LANGUAGE}|{VISION}", "rank": 2, "alpha": 6.0, "seed": 2},
    "first": {"rank": 3, "seed": 3},
    "second": {"rank": 6, "seed": 4},
}
ASKED_FOR = ("", "attention", "attention", "sees", "turns")  # turns: is the first and the second in turns


@dataclass(frozen=True)
class Case:
    """A model's folder, adapters' folders, and the answers of models that have an adapter's product in their weights:
    by adapter, "" is none, then by prompt and seed."""

    path: Path
    folders: Mapping[str, Path]
    expected: Mapping[str, Mapping[tuple[int, int | None], list[int]]]


@pytest.fixture(scope="module")
def case(written: Callable[[str], Written], tmp_path_factory: pytest.TempPathFactory) -> Case:
    base, folder = written("llava"), tmp_path_factory.mktemp("adapters")
    folders, expected = dict[str, Path](), {"": alone(base.path)}
    for name, how in CONTENTS.items():
        folders[name] = save_adapter(folder / name, base.model, **how)
        merged = shutil.copytree(base.path, folder / f"{name} merged")
        with_adapter(base.model, folders[name]).save_pretrained(merged)
        expected[name] = alone(merged)
    return Case(base.path, folders, expected)


def test_the_adapters_change_every_answer(case: Case) -> None:
    """Or a mix-up would not show."""
    for key in case.expected[""]:
        assert len({str(own[key]) for own in case.expected.values()}) == len(case.expected)


SETUPS: dict[str, Callable[[], dict[str, Any]]] = {
    "per-forward": lambda: {"chunked": True, "prefill_tokens": 24, "max_merged_loras": 2},
    "valora": lambda: {
        "lora_policy": "valora", "lora_theta_ms": 10_000, "scheduler": "multi-stream", "own_threads": True,
        "prefill_tokens": 24,
    },
    "another-at-every-forward": lambda: {"scheduler": Merging()},
}  # fmt: skip


@pytest.mark.parametrize("name", SETUPS)
def test_no_answer_mixes_adapters(case: Case, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOGGER, "disabled", True)  # pytest keeps what is logged, with the frames of what was raised
    chance = random.Random(name)  # a change costs nothing or a lot: policies change what is merged at random
    monkeypatch.setattr(EngineAdapters, "switch_ns", property(lambda _: chance.choice((0, 10**10))))
    before, log = set(threading.enumerate()), Log()
    engine = make(case, SETUPS[name]())
    asked_for, merged = recorded(engine, monkeypatch)
    contents = {"": ""} | {adapter_digest(path): name for name, path in case.folders.items()}
    seed = THREADS * list(SETUPS).index(name)
    clients = [partial(ask, engine, log, each, ASKED_FOR) for each in range(seed, seed + THREADS)]
    given = soaked(engine, log, before, [*clients, partial(come_and_go, engine, log, case, tmp_path, contents)])
    briefs = sum(each.adapter.startswith("brief") for each, _ in given)
    assert len(given) - briefs + log.refused["invalid"] + log.refused["removed"] == REQUESTS
    for each, answer in given:
        if answer.finish == "error":
            assert each.adapter.startswith("brief"), answer.detail
            assert answer.detail.startswith(f"adapter: '{each.adapter}': ")
            assert not answer.ids
        else:
            check(each, answer, case.expected[contents[asked_for[each.reply]]][each.prompt, each.seed])
    assert engine.stats.ended["error"] >= ROUNDS  # two in every second round
    assert len({contents[each] for each in merged}) > 2
    assert engine.adapters is not None
    assert engine.adapters.pool.stats.evictions
    del given, each, answer
    log.asked.clear()
    asked_for.clear()
    nothing_left(engine)


def make(case: Case, others: dict[str, Any]) -> Engine:
    """With few blocks, and all adapters but brief ones."""
    sizes = {"block": 4, "waiting": 6, "max_loras": SLOTS, "max_lora_rank": RANK}
    slot = engine_of(case.path, **sizes).adapters.pool._slots.blocks  # type: ignore[union-attr]
    engine = engine_of(case.path, BLOCKS + SLOTS * slot, **sizes, **others)
    for name in ("attention", "sees"):
        engine.add_adapter(name, case.folders[name])
    engine.add_adapter("turns", case.folders["second"])
    return engine


def recorded(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[Reply, str], set[str]]:
    """Digests: of the adapter that each request has, whatever its name means later, and of those that were merged."""
    adapters = engine.adapters
    assert adapters is not None
    put, merge = engine._intake.put, adapters.merge
    asked_for, merged = dict[Reply, str](), set[str]()

    def put_and_note(active: ActiveRequest) -> None:
        asked_for[active.reply] = "" if active.adapter is None else active.adapter.digest
        put(active)

    def merge_and_note(resident: Resident | None) -> Resident | None:
        made = merge(resident)
        merged.add("" if made is None else made.digest)
        return made

    monkeypatch.setattr(engine._intake, "put", put_and_note)
    monkeypatch.setattr(adapters, "merge", merge_and_note)
    return asked_for, merged


def come_and_go(engine: Engine, log: Log, case: Case, folder: Path, contents: dict[str, str]) -> None:
    """While the clients ask: another adapter under the same name, and one that is removed while requests wait for it,
    whose folder goes then, or has gone before they came."""
    prompts = asks(engine)
    for number in range(ROUNDS):
        engine.remove_adapter("turns")
        engine.add_adapter("turns", case.folders["second" if number % 2 else "first"])
        name = f"brief{number}"
        brief = shutil.copytree(case.folders["first"], folder / name)
        change_config(brief, base_model_name_or_path=name)  # so that it is none of those in memory
        contents[adapter_digest(brief)] = "first"
        engine.add_adapter(name, brief)
        if number % 2:
            shutil.rmtree(brief)
        own = [ask_once(engine, log, prompts, place, name) for place in (0, number % len(prompts))]
        shutil.rmtree(brief, ignore_errors=True)
        engine.remove_adapter(name)
        for each in own:
            each.result(PATIENCE_S)


def ask_once(engine: Engine, log: Log, prompts: list[VlmPrompt], place: int, adapter: str) -> Reply:
    pieces: list[str] = []
    request = VlmRequest(prompts[place], max_tokens=TOKENS, ignore_eos=True, adapter=adapter)
    reply = submit(engine, log, request, lambda piece: pieces.append(piece.text))
    with log.lock:
        log.asked.append(Asked(place, None, reply, pieces, adapter=adapter))
    return reply


def nothing_left(engine: Engine) -> None:
    """Of requests, and of adapters that are neither known nor in memory."""
    adapters, lora = engine.adapters, engine._state.lora
    assert adapters is not None
    pool, weights = adapters.pool, adapters._runtime.weights
    loaded = list(pool._loaded.values())
    assert (pool.loading, len(pool._free) + len(loaded)) == (0, SLOTS)
    assert sum(each.users for each in loaded) == (lora.merged is not None)
    slots = {each.resident.slot for each in loaded}
    assert all(factors.keys() <= slots for factors in pool._slots.table.values())
    kept = {each.known for each in loaded}, {each.resident for each in loaded}.union(lora.summed, weights._summed)
    gc.collect()
    everything = gc.get_objects()
    assert not [each for each in everything if isinstance(each, ActiveRequest)]
    briefs = [each for each in everything if isinstance(each, KnownAdapter) and each.name.startswith("brief")]
    residents = [each for each in everything if isinstance(each, Resident) and each.adapter.startswith("brief")]
    assert kept[0].issuperset(briefs)
    assert kept[1].issuperset(residents)
