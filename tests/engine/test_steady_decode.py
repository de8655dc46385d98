"""Decode is the same captured stage at every step: fixed shapes and addresses, nothing read back, nothing that grows.

Guards: a buffer that is made anew, which a CUDA graph would not see; a stage for each length or batch that ever came; a
value that is read back inside the body; tensors or bytes that stay for each token or request; a road of its own on
another device.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.clock import VirtualClock
from auras_ros.device.make import make_device
from auras_ros.engine.engine import Engine
from auras_ros.engine.request import VlmRequest
from auras_ros.engine.workers import SINGLE, DecodeWorker, bucket, wide
from auras_ros.models.fused_llama import FusedLlama
from auras_ros.models.llama import Llama
from auras_ros.models.paged_attention import GatheredAttention, RowAttention
from auras_ros.models.paged_kv import PagedKVCache
from auras_ros.models.presets import LLAMAS
from tests.checkpoints.vlm.folders import Written
from tests.device.null_device import NullDevice
from tests.engine.making import answers, chat, ended, engine_of, finish
from tests.policies.test_capturable import OneDevice

pytest.importorskip("transformers")
pytest.importorskip("PIL")

DECODE_NS = 5_000_000


def asked(engine: Engine, count: int, text: str = "is the tee left?", images: int = 1) -> VlmRequest:
    return VlmRequest(chat(engine.checkpoint, text, [(40, 60)] * images), max_tokens=count, ignore_eos=True)


def decoder(engine: Engine) -> DecodeWorker:
    worker = engine._forwards.workers["decode"]
    assert isinstance(worker, DecodeWorker)
    return worker


def addresses(engine: Engine) -> list[int]:
    worker = decoder(engine)
    attention = worker._attention
    assert isinstance(attention, RowAttention)
    kept = (worker._inputs, worker._tables, worker._scores, engine._cache.store, attention._rows)
    return [each.data_ptr() for each in kept]


def steps(engine: Engine, count: int) -> None:
    for _ in range(count):
        assert engine.step()


def test_addresses_stay_and_stages_are_few(written: Callable[[str], Written]) -> None:
    """Batches of every size and tables of every width, with few blocks too."""
    device = make_device("cpu")
    engine = engine_of(written("llava").path, 60, block=4, running=10, waiting=30, device=device)
    before, warm = addresses(engine), len(decoder(engine)._stages)
    assert warm == len({bucket(rows) for rows in range(1, 11)}) == SINGLE + 1
    for _ in range(2):
        for place in range(10):
            engine.submit(asked(engine, 3 + 9 * place, images=place % 3))
            engine.step()
            assert addresses(engine) == before
        finish(engine)
        ended(engine)
    assert engine.stats.preemptions
    widths = {wide(count) for count in range(1, 61)}
    assert len(decoder(engine)._stages) <= (SINGLE + 1) * len(widths)
    assert len(widths) <= 4 * (60).bit_length()
    assert all(stage.captured for stage in decoder(engine)._stages.values())
    assert not device.uncaptured
    known = len(decoder(engine)._stages)
    for _ in range(10):
        engine.submit(asked(engine, 20))
    finish(engine)
    assert len(decoder(engine)._stages) - known <= len(widths)
    engine.close()


def test_three_hundred_steps_leave_nothing(written: Callable[[str], Written]) -> None:
    engine = engine_of(written("llava").path, block=16)
    replies = [engine.submit(asked(engine, 400), lambda piece: None) for _ in range(3)]
    steps(engine, 60)
    tracemalloc.start()
    try:
        before = held()
        begun, _ = tracemalloc.get_traced_memory()
        steps(engine, 300)
        now, _ = tracemalloc.get_traced_memory()
        assert held() == before
    finally:
        tracemalloc.stop()
    assert (now - begun) / (300 * len(replies)) < 1500  # bytes of a token: itself, its text, an entry of a list
    for reply in replies:
        reply.cancel()
    finish(engine)
    ended(engine, replies)


def held() -> tuple[int, int]:
    """Tensors that are alive, and their bytes; without those of captured stages, which come with a table's width."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, Tensor)]
    return len(found), sum(each.numel() * each.element_size() for each in found)


def test_requests_leave_nothing(written: Callable[[str], Written]) -> None:
    engine = engine_of(written("qwen2_5_vl").path, block=4, image_cache_mib=1)

    def some() -> None:
        answers(engine, [asked(engine, 5, text, images) for text in ("left?", "right?") for images in (0, 1, 2)])

    some()
    some()
    before = held()
    for _ in range(3):
        some()
    assert held() == before
    ended(engine)


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl"])
def test_another_device_walks_the_same_road(written: Callable[[str], Written], kind: str) -> None:
    """In virtual time: each step launches one captured stage, and takes what that takes."""
    path, clock = written(kind).path, VirtualClock()
    names = [f"decode {rows} x {wide(count)}" for rows in range(1, 9) for count in range(1, 300)]
    device = NullDevice(clock, dict.fromkeys(names, DECODE_NS))
    engine = engine_of(path, device=device, clock=clock, block=4)
    plain = engine_of(path, block=4)
    begun_ns = clock.now_ns()
    assert begun_ns == 8 * DECODE_NS  # the stages of all batches ran once
    requests = [asked(engine, 9), asked(engine, 9, "how many?", 2)]
    given = answers(engine, requests)
    assert [answer.ids for answer in given] == [answer.ids for answer in answers(plain, requests)]
    assert [answer.usage.timings.decode_ns for answer in given] == [8 * DECODE_NS] * 2
    assert not device.uncaptured
    device.close()


def test_cross_attention_is_said_not_to_be_captured(written: Callable[[str], Written]) -> None:
    device = make_device("cpu")
    engine = engine_of(written("cogagent").path, device=device, running=1)
    answers(engine, [asked(engine, 3)])
    assert {reason for reasons in device.uncaptured.values() for reason in reasons} == {
        "attention to images has other shapes for each request"
    }


class MetaDevice(NullDevice):
    """Its tensors have no values: what reads one back fails."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(), dict.fromkeys((f"decode {rows} x 6" for rows in (3, 8)), 0))
        self.tensors = torch.device("meta")


@pytest.mark.parametrize("changes", [{}, {"mrope": (1, 1, 2)}], ids=["rope", "m-rope"])
def test_the_body_reads_nothing_back(changes: dict[str, Any]) -> None:
    config = replace(LLAMAS["llama-tiny"], **changes)
    with torch.device("meta"):
        fused = FusedLlama(Llama(config))
        fused.tabulate(64)
    cache = PagedKVCache(config.layers, 40, 4, config.kv_heads, config.size_of_head, device="meta")
    device = MetaDevice()
    worker = DecodeWorker(fused, GatheredAttention(cache), device, {None: device.lane("decode")}, 8, 6)
    for rows in (3, 8):
        with OneDevice("meta") as watch:
            worker.run(rows, 6)
        assert watch.calls > 20 * config.layers


@pytest.mark.parametrize("rows", range(1, 70))
def test_buckets_and_widths_hold_what_they_are_for(rows: int) -> None:
    assert rows <= bucket(rows) < rows + SINGLE
    assert rows <= wide(rows) <= rows * 5 / 4
    assert bucket(bucket(rows)) == bucket(rows)
    assert wide(wide(rows)) == wide(rows)
