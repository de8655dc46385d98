"""Adapters that come and go while an engine serves, and task heads beside answers of tokens.

Guards: an answer of another adapter; an adapter that is lost while a request uses it; a folder that is refused and
takes others with it; a request that waits for ever for a slot; a head that reads the wrong row or delays the others.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.device.reservation import FrameReservation
from auras_ros.device.swap import SwapPlan
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.request import InvalidRequestError, VlmRequest
from auras_ros.lora.registry import AdapterError
from auras_ros.models.linear import block_form
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import answers, chat, ended, engine_of, finish
from tests.lora.adapters import LANGUAGE, VISION, change_tensors, save_adapter

pytest.importorskip("transformers")
pytest.importorskip("PIL")

KIND, WIDTH, TOKENS = "qwen2_5_vl", 48, 6


@pytest.fixture(scope="module")
def model(written: Callable[[str], Written]) -> Written:
    return written(KIND)


@pytest.fixture(scope="module")
def prompts(model: Written) -> list[VlmPrompt]:
    checkpoint = open_vlm(model.path)
    asked = [("is the tee left?", [(40, 60)]), ("how many red things", []), ("the goal", [(40, 60), (25, 70)])]
    return [chat(checkpoint, text, sizes) for text, sizes in asked]


def make(model: Written, **others: Any) -> Engine:
    return engine_of(model.path, **{"max_loras": 2, "max_lora_rank": 4, "kv_mib": 8} | others)


def asked(prompt: VlmPrompt, adapter: str = "", **others: Any) -> VlmRequest:
    return VlmRequest(prompt, ignore_eos=True, max_tokens=TOKENS, adapter=adapter, **others)


class Ended:
    """Writes down whose answer has ended."""

    def __init__(self, order: list[str], name: str) -> None:
        self._order, self._name = order, name

    def __call__(self, delta: Any) -> None:
        if delta.finish is not None:
            self._order.append(self._name)


def adapters(model: Written, folder: Path, count: int, **how: Any) -> dict[str, Path]:
    names = [f"a{number}" for number in range(count)]
    return {name: save_adapter(folder / name, model.model, seed=seed, **how) for seed, name in enumerate(names)}


@pytest.mark.parametrize("slots", [1, 2])
def test_many_adapters_take_turns_in_few_slots(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path, slots: int
) -> None:
    """Each answer is the one that an engine with this adapter alone gives; a merged one makes room too."""
    folders = adapters(model, tmp_path, 7, rank=3, pattern=f"{LANGUAGE}|{VISION}")
    wanted = {}
    for name, path in folders.items():
        engine = make(model, running=1, lora_policy="unmerge-only")
        engine.add_adapter(name, path)
        wanted[name] = [each.ids for each in answers(engine, [asked(prompt, name) for prompt in prompts])]
        engine.close()
    assert len({str(each) for each in wanted.values()}) > 4
    engine = make(model, running=3, lora_theta_ms=1, waiting=100, max_loras=slots)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    order = [(name, place) for _ in range(2) for place in range(len(prompts)) for name in folders]
    given = answers(engine, [asked(prompts[place], name) for name, place in order])
    assert [answer.ids for answer in given] == [wanted[name][place] for name, place in order]
    assert engine.adapters is not None
    assert engine.adapters.pool.stats.loads >= 7
    ended(engine)
    engine.close()


def test_adapters_give_their_blocks_to_requests_that_need_them(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    folders = adapters(model, tmp_path, 2, rank=4)
    engine = make(model, blocks=200, running=2, block=4, prefix_cache=False)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    first = answers(engine, [asked(prompts[0], name) for name in folders])
    reserved = engine._tables.reserved
    assert reserved
    half = engine.length // 2 + 20  # two of these are more than what the adapters leave
    long = VlmRequest(prompts[1], ignore_eos=True, max_tokens=half)
    both = answers(engine, [long, long])
    assert [each.finish for each in both] == ["length", "length"]
    assert engine._tables.reserved < reserved
    again = answers(engine, [asked(prompts[0], name) for name in folders])
    assert [each.ids for each in again] == [each.ids for each in first]
    ended(engine)
    engine.close()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("policy", ["valora", "dlora", "merge-only"])
def test_requests_that_a_policy_passes_over_keep_no_block_for_ever(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path, policy: str, chunked: bool
) -> None:
    """Another adapter's turn at every forward, and room for one prompt: whoever is chosen gets no block while the
    others keep theirs."""
    folders = adapters(model, tmp_path, 3, rank=2)
    settings = {"lora_policy": policy, "lora_theta_ms": 1, "chunked": chunked, "prefill_tokens": 24, "running": 3}
    settings |= {"max_loras": 3, "max_lora_rank": 2, "block": 4, "prefix_cache": False}
    slot = make(model, **settings).adapters.pool._slots.blocks  # type: ignore[union-attr]
    longest = max(len(prompt.ids) for prompt in prompts) + TOKENS
    engine = make(model, blocks=3 * slot + longest // 4 + 2, **settings)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    names = ("a0", "a1", "a2", "a1")
    requests = [asked(prompt, name) for prompt in prompts for name in names]
    requests += [VlmRequest(prompts[1], ignore_eos=True, max_tokens=60, adapter=name) for name in names]
    given = answers(engine, requests)
    assert {answer.finish for answer in given} == {"length"}
    ended(engine)
    engine.close()


def test_the_longest_request_fits_beside_its_own_adapter(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    """And whatever is merged or unused gives way."""
    folders = adapters(model, tmp_path, 2, rank=4)
    engine = make(model, blocks=150, running=2, block=4, prefix_cache=False, max_loras=2)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    answers(engine, [asked(prompts[1], "a0"), asked(prompts[1], "a0")])  # merged
    most = engine.length - len(prompts[1].ids)
    with pytest.raises(InvalidRequestError, match="max_tokens"):
        engine.submit(VlmRequest(prompts[1], ignore_eos=True, max_tokens=most + 1, adapter="a1"))
    (answer,) = answers(engine, [VlmRequest(prompts[1], ignore_eos=True, max_tokens=most, adapter="a1")])
    assert (answer.finish, len(answer.tokens)) == ("length", most)
    ended(engine)
    engine.close()


@pytest.mark.parametrize("resident", [(), (1,)])
def test_a_swapped_encoders_layers_have_their_own_adapters(
    model: Written,
    prompts: list[VlmPrompt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resident: tuple[int, ...],
) -> None:
    """K modules compute all of them, and some stay resident where the link is slow."""

    def plan(layers: int, physical: int, size: int, bandwidth: float, forward_s: float) -> SwapPlan:
        return SwapPlan(layers, physical, resident, size, bandwidth, forward_s)

    monkeypatch.setattr("auras_ros.device.swap.make_plan", plan)
    folders = {"sees": save_adapter(tmp_path / "sees", model.model, pattern=f"{LANGUAGE}|{VISION}")}
    folders |= adapters(model, tmp_path, 1)
    found = []
    for swapping in ({}, {"swap_layers": 2, "swap_folder": str(tmp_path)}):
        engine = make(model, running=1, **swapping)
        for name, path in folders.items():
            engine.add_adapter(name, path)
        order = ["sees", "", "a0", "sees"]
        found.append([answers(engine, [asked(prompts[0], name)])[0].ids for name in order])
        ended(engine)
        engine.close()
    assert found[0] == found[1]
    assert found[0][0] == found[0][3] != found[0][1]


def test_weights_that_take_no_sum_serve_unmerged(
    model: Written,
    prompts: list[VlmPrompt],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On a processor whose blocks are in an order that is not known, and in 8 bits: whatever the policy wants."""
    (path,) = adapters(model, tmp_path, 1).values()
    found = []
    for known in (True, False):
        if not known:
            monkeypatch.setattr("auras_ros.models.linear.BLOCK_WIDTHS", ())
            block_form.cache_clear()
        engine = make(model, lora_policy="merge-only")
        engine.add_adapter("a0", path)
        found.append([each.ids for each in answers(engine, [asked(prompt, "a0") for prompt in prompts])])
        assert (engine._state.lora.merged is not None) == known
        engine.close()
    block_form.cache_clear()
    assert found[0] == found[1]
    assert "no adapter is ever merged: oneDNN keeps a weight of" in caplog.text
    engine = make(model, int8=True, lora_policy="merge-only")
    engine.add_adapter("a0", path)
    (answer,) = answers(engine, [asked(prompts[0], "a0")])
    assert answer.finish == "length"


def test_slots_fit_where_requests_are_short(model: Written, prompts: list[VlmPrompt], tmp_path: Path) -> None:
    """Blocks are as many as requests and adapters can use, within kv_mib."""
    engine = make(model, max_loras=8, length=64, running=1, kv_mib=64)
    assert engine.length == 64
    (path,) = adapters(model, tmp_path, 1).values()
    engine.add_adapter("a0", path)
    (answer,) = answers(engine, [asked(prompts[1], "a0")])
    assert answer.finish == "length"
    with pytest.raises(ValueError, match="max_loras: 8 of rank 512 take"):
        make(model, max_loras=8, max_lora_rank=512, kv_mib=1)


def test_all_are_set_at_once_or_none(model: Written, prompts: list[VlmPrompt], tmp_path: Path) -> None:
    engine, folders = make(model), adapters(model, tmp_path, 3)
    registry = engine._taking_adapters().registry
    two = {name: folders[name] for name in ("a0", "a1")}
    engine.set_adapters(two)
    kept, (before,) = registry.find("a1"), answers(engine, [asked(prompts[0], "a0")])
    with pytest.raises(AdapterError, match=f"^bad: {tmp_path}/bad/adapter_config.json: file not found"):
        engine.set_adapters({"a2": folders["a2"], "bad": tmp_path / "bad"})
    assert engine.adapter_names() == ["a0", "a1"]
    save_adapter(folders["a0"], model.model, seed=7)  # trained further
    engine.set_adapters(two)
    assert registry.find("a1") is kept
    (after,), other = answers(engine, [asked(prompts[0], "a0")]), make(model)
    other.add_adapter("a0", folders["a0"])
    (wanted,) = answers(other, [asked(prompts[0], "a0")])
    assert after.text == wanted.text != before.text
    engine.set_adapters({})
    assert engine.adapter_names() == []
    make(model, max_loras=0).set_adapters({})
    with pytest.raises(AdapterError, match=r"takes none \(max_loras\)"):
        make(model, max_loras=0).set_adapters(two)


def test_they_are_refused_between_a_policys_frames(model: Written) -> None:
    options = EngineOptions(max_loras=2, kv_mib=8)
    with pytest.raises(ValueError, match="max_loras: 0 where a policy's frames are a reservation, got 2"):
        make_engine(open_vlm(model.path), options, reservation=FrameReservation())


def test_one_that_is_not_there_is_refused_by_name(model: Written, prompts: list[VlmPrompt], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"adapter: this engine takes none \(max_loras\)"):
        make(model, max_loras=0).submit(asked(prompts[0], "a0"))
    engine = make(model)
    with pytest.raises(InvalidRequestError, match="adapter: there is no 'a0'; there are: none"):
        engine.submit(asked(prompts[0], "a0"))
    (path,) = adapters(model, tmp_path, 1).values()
    engine.add_adapter("a0", path)
    with pytest.raises(AdapterError, match="adapter: 'a0' is there already"):
        engine.add_adapter("a0", path)
    with pytest.raises(AdapterError, match="adapter: there is no 'b'; there are: a0"):
        engine.remove_adapter("b")
    assert engine.adapter_names() == ["a0"]


def test_a_refused_folder_leaves_those_that_serve(model: Written, prompts: list[VlmPrompt], tmp_path: Path) -> None:
    folders = adapters(model, tmp_path, 3)
    engine = make(model)
    engine.add_adapter("a0", folders["a0"])
    reply = engine.submit(asked(prompts[0], "a0"))
    change_tensors(folders["a1"], lambda tensors: tensors[next(iter(tensors))].fill_(torch.nan))
    with pytest.raises(CheckpointError, match="holds NaN or infinity"):
        engine.add_adapter("a1", folders["a1"])
    with pytest.raises(ValueError, match=r"rank 8, expected 4 at most \(max_lora_rank\)"):
        engine.add_adapter("a2", save_adapter(tmp_path / "large", model.model, rank=8))
    finish(engine)
    assert reply.result(0).finish == "length"
    assert engine.adapter_names() == ["a0"]


def test_of_two_priorities_the_first_starts_first_whatever_is_merged(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    engine = make(model, running=1)
    for name, path in adapters(model, tmp_path, 2).items():
        engine.add_adapter(name, path)
        answers(engine, [asked(prompts[0], name)])
    order = list[str]()
    for name, priority in (("a1", 1), ("a1", 1), ("a0", 0)):
        engine.submit(asked(prompts[0], name, priority=priority), Ended(order, name))
    finish(engine)
    assert order == ["a0", "a1", "a1"]


def test_a_folder_that_changes_under_its_name_ends_its_requests_alone(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    folders = adapters(model, tmp_path, 2)
    engine = make(model)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    shutil.rmtree(folders["a1"])
    given = answers(engine, [asked(prompts[0], name) for name in ("a0", "a1", "")])
    assert [each.finish for each in given] == ["length", "error", "length"]
    assert "adapter: 'a1': " in given[1].detail
    assert "adapter_config.json: file not found" in given[1].detail
    ended(engine)


def test_one_that_is_removed_answers_those_who_have_it(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    (path,) = adapters(model, tmp_path, 1).values()
    engine = make(model)
    engine.add_adapter("a0", path)
    (wanted,) = answers(engine, [asked(prompts[0], "a0")])
    reply = engine.submit(asked(prompts[0], "a0"))
    engine.remove_adapter("a0")
    with pytest.raises(InvalidRequestError, match="there is no 'a0'"):
        engine.submit(asked(prompts[0], "a0"))
    finish(engine)
    assert reply.result(0).ids == wanted.ids


def test_prefixes_and_images_are_each_adapters_own(model: Written, prompts: list[VlmPrompt], tmp_path: Path) -> None:
    folders = adapters(model, tmp_path, 1, pattern=LANGUAGE) | {
        "sees": save_adapter(tmp_path / "sees", model.model, pattern=VISION, seed=5)
    }
    engine = make(model, running=1)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    first = answers(engine, [asked(prompts[0], name) for name in ("", "a0", "sees")])
    assert [each.usage.cached_tokens for each in first] == [0, 0, 0]
    assert engine.stats.images == 2  # the base model's, which a0 leaves as it is, and that of `sees`
    again = answers(engine, [asked(prompts[0], name) for name in ("", "a0", "sees")])
    assert all(each.usage.cached_tokens for each in again)
    assert engine.stats.images == 2


def head(folder: Path, **config: Any) -> Path:
    """Beside an adapter's files."""
    outputs = len(config["labels"])
    random = torch.Generator().manual_seed(len(folder.name))
    weight = torch.randn(outputs, WIDTH, generator=random)
    (folder / "task_head.json").write_text(json.dumps(config))
    save_file({"weight": weight, "bias": torch.zeros(outputs)}, folder / "task_head.safetensors")
    return folder


def test_heads_of_several_tasks_and_tokens_are_in_one_batch(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    folders = adapters(model, tmp_path, 2, rank=2)
    head(folders["a0"], kind="classification", labels=["left", "right", "none"])
    head(folders["a1"], kind="action", labels=["x", "y"])
    engine = make(model)
    for name, path in folders.items():
        engine.add_adapter(name, path)
    requests = [
        asked(prompts[0], "a0"),
        asked(prompts[1], "a1"),
        asked(prompts[0]),
        asked(prompts[0], "a0", head=False),
    ]
    together = answers(engine, requests)
    alone = [answers(engine, [each])[0] for each in requests]
    for one, other in zip(together, alone, strict=True):
        assert (one.finish, one.ids) == (other.finish, other.ids)
        if one.result is not None and other.result is not None:
            assert one.result.label == other.result.label
            assert one.result.values == pytest.approx(other.result.values, rel=1e-4)
    assert together[0].result is not None
    assert together[0].text == together[0].result.label
    assert together[0].finish == "stop"
    assert not together[0].tokens
    assert together[1].result is not None
    assert len(together[1].result.values) == 2
    assert together[2].result is together[3].result is None
    assert len(together[3].tokens) == TOKENS
    ended(engine)


def test_a_head_reads_the_state_that_the_tokens_come_from(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    """A head whose outputs are the first scores of the language head says the likeliest of these tokens."""
    (path,) = adapters(model, tmp_path, 1).values()
    checkpoint = open_vlm(model.path)
    language = checkpoint.model.language
    table = language.embed_tokens.weight if language.lm_head is None else language.lm_head.weight
    save_file({"weight": table.detach().clone(), "bias": torch.zeros(len(table))}, path / "task_head.safetensors")
    labels = [f"token {number}" for number in range(len(table))]
    (path / "task_head.json").write_text(json.dumps({"kind": "classification", "labels": labels}))
    engine = make(model)
    engine.add_adapter("a0", path)
    with_head, tokens = answers(engine, [asked(prompts[0], "a0"), asked(prompts[0], "a0", head=False)])
    assert with_head.text == f"token {tokens.ids[0]}"


def test_what_no_head_can_do_is_refused(model: Written, prompts: list[VlmPrompt], tmp_path: Path) -> None:
    (path,) = adapters(model, tmp_path, 1).values()
    engine = make(model)
    engine.add_adapter("a0", path)
    with pytest.raises(InvalidRequestError, match="head: adapter 'a0' has no task head"):
        engine.submit(asked(prompts[0], "a0", head=True))
    with pytest.raises(InvalidRequestError, match="head: adapter '' has no task head"):
        engine.submit(asked(prompts[0], head=True))
    with pytest.raises(InvalidRequestError, match="head: not true or false"):
        asked(prompts[0], "a0", head="yes")


def test_a_head_without_finite_numbers_ends_its_request_alone(
    model: Written, prompts: list[VlmPrompt], tmp_path: Path
) -> None:
    (path,) = adapters(model, tmp_path, 1).values()
    head(path, kind="classification", labels=["left", "right"])
    engine = make(model)
    engine.add_adapter("a0", path)
    large = torch.full((2, WIDTH), 3e38)
    save_file({"weight": large, "bias": torch.zeros(2)}, path / "task_head.safetensors")
    engine.remove_adapter("a0")
    engine.add_adapter("a0", path)
    given = answers(engine, [asked(prompts[0], "a0"), asked(prompts[0])])
    assert [each.finish for each in given] == ["error", "length"]
    assert given[0].detail == "the task head's outputs are not finite"
    ended(engine)
