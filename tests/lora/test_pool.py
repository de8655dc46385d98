"""Which adapters are in memory: loading, pinning, the longest unused one goes first, blocks that requests own.

Guards: a slot that is written over while a request uses it; an adapter in two slots; blocks that are given back twice
or never; a failure that is remembered for ever; a folder that changed under its name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.peft import PeftAdapter
from auras_ros.lora.pool import FAILED_S, AdapterPool
from auras_ros.lora.registry import AdapterError, KnownAdapter
from tests.lora.decoders import Decoder, adapter


class Later(Executor):
    """Runs when it is told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001  (whoever reads the result gets it)
                future.set_exception(error)

        self.waiting.append(run)
        return future

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Pool:
    def __init__(self, slots: int = 2) -> None:
        self.decoder, self.executor = Decoder(slots=slots), Later()
        self.owned, self.used_by_requests, self.woken = set[int](), set[int](), 0
        self.broken = dict[str, str]()
        self.pool = AdapterPool(self.decoder.slots, self.read, self.reserve, self.give_back, self.executor, self.wake)

    def read(self, known: KnownAdapter) -> PeftAdapter:
        if known.name in self.broken:
            raise ValueError(self.broken[known.name])
        return adapter(self.decoder, 2, int(known.digest.split()[1]))

    def reserve(self, blocks: range) -> bool:
        if self.used_by_requests & set(blocks):
            return False
        assert not self.owned & set(blocks)
        self.owned |= set(blocks)
        return True

    def give_back(self, blocks: range) -> None:
        assert self.owned >= set(blocks)
        self.owned -= set(blocks)

    def wake(self) -> None:
        self.woken += 1

    def load(self, number: int) -> Any:
        assert self.pool.acquire(known(number)) is None
        self.executor.run()
        assert self.pool.poll()
        return self.pool.acquire(known(number))


@cache
def known(number: int, digest: int | None = None) -> KnownAdapter:
    return KnownAdapter(f"a{number}", Path("/nowhere"), f"digest {number if digest is None else digest}", False, False)


def test_an_adapter_is_read_once_and_pinned_by_everyone() -> None:
    pool = Pool()
    assert pool.pool.acquire(known(1)) is None
    assert pool.pool.acquire(known(1)) is None
    assert len(pool.executor.waiting) == 1
    pool.executor.run()
    assert pool.woken == 1
    assert pool.pool.poll()
    assert not pool.pool.poll()
    first, second = pool.pool.acquire(known(1)), pool.pool.acquire(known(1))
    assert first is second is not None
    assert (pool.pool.stats.loads, pool.pool.stats.hits) == (1, 1)  # one of them had it read
    assert pool.decoder.slots.table[0, "qkv"].keys() == {first.slot}


def test_the_longest_unused_one_goes_and_one_in_use_never() -> None:
    pool = Pool()
    first, second = pool.load(1), pool.load(2)
    assert pool.pool.acquire(known(3)) is None
    assert not pool.executor.waiting
    pool.pool.release(second)
    pool.pool.release(first)
    assert pool.pool.acquire(known(2)) is second
    pool.pool.release(second)
    third = pool.load(3)
    assert third.slot == first.slot
    assert pool.pool.stats.evictions == 1
    assert "digest 1" not in pool.pool._loaded
    assert pool.decoder.slots.table[0, "qkv"].keys() == {second.slot, third.slot}


def test_a_slot_whose_blocks_a_request_owns_is_not_taken() -> None:
    pool = Pool()
    pool.used_by_requests = set(pool.decoder.slots.range(0))
    assert pool.load(1).slot == 1
    assert pool.pool.acquire(known(2)) is None
    assert not pool.executor.waiting
    pool.used_by_requests = set()
    assert pool.load(2).slot == 0


def test_blocks_come_back_when_requests_need_them() -> None:
    pool = Pool()
    first = pool.load(1)
    assert not pool.pool.shrink()
    pool.pool.release(first)
    assert pool.pool.shrink()
    assert not pool.owned
    assert not pool.pool.shrink()
    assert pool.load(1) is not None


def test_a_failure_is_told_once_and_tried_again() -> None:
    pool = Pool()
    pool.broken["a1"] = "its file is gone"
    assert pool.pool.acquire(known(1)) is None
    pool.executor.run()
    assert pool.pool.poll()
    assert not pool.owned
    with pytest.raises(AdapterError, match="adapter: 'a1': its file is gone"):
        pool.pool.acquire(known(1))
    pool.broken.clear()
    assert pool.load(1) is not None


def test_a_failure_that_nobody_waited_for_is_not_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever it was read for is gone; the folder has been mended meanwhile."""
    pool = Pool()
    pool.broken["a1"] = "its file is gone"
    assert pool.pool.acquire(known(1)) is None
    pool.executor.run()
    assert pool.pool.poll()
    pool.broken.clear()
    later_s = time.monotonic() + FAILED_S
    monkeypatch.setattr(time, "monotonic", lambda: later_s)
    assert pool.load(1) is not None


def test_what_is_in_memory_serves_whatever_failed_before() -> None:
    """The same files under another name: read from there."""
    pool, again = Pool(), KnownAdapter("again", Path("/elsewhere"), known(1).digest, False, False)
    pool.broken["a1"] = "its file is gone"
    assert pool.pool.acquire(known(1)) is None
    pool.executor.run()
    pool.pool.poll()
    pool.broken.clear()
    assert pool.pool.acquire(again) is None
    pool.executor.run()
    pool.pool.poll()
    assert pool.pool.acquire(again) is pool.pool.acquire(known(1)) is not None


def test_a_folder_that_changed_is_refused() -> None:
    pool = Pool()
    pool.pool.acquire(known(1))
    pool.read = lambda each: adapter(pool.decoder, 2, 9)  # type: ignore[method-assign]
    pool.pool._read = pool.read
    pool.executor.run()
    pool.pool.poll()
    with pytest.raises(AdapterError, match="/nowhere has changed since it was added"):
        pool.pool.acquire(known(1))


@pytest.mark.parametrize(("dtype", "fits"), [(torch.float16, False), (torch.bfloat16, True)])
def test_a_number_beyond_the_weights_type_is_refused(dtype: torch.dtype, fits: bool) -> None:
    decoder = Decoder(dtype)
    made = adapter(decoder, 2, 1)
    next(iter(made.factors.values())).b[0, 0] = 1e6
    with nullcontext() if fits else pytest.raises(ValueError, match="a number is beyond the range of"):
        decoder.slots.check(made)


def test_slots_that_leave_no_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="max_loras: 9 of rank 6 take"):
        Decoder(slots=9, vocabulary=60, hidden=8000)
