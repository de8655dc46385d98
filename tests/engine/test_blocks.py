"""Blocks against a model that is a list of owners, over random sequences of what an engine does with them.

Guards: a block with two owners that do not share it; one that is lost, or taken while somebody owns it; a hash that
finds a block which was written over or forgotten; the wrong block taken first; two images that are taken for one.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.pictures import PreparedImage
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.blocks import BlockPool, block_hash
from auras_ros.engine.images import ImageCache
from auras_ros.engine.request import VlmRequest
from auras_ros.engine.tables import BlockTables
from auras_ros.models.paged_kv import SPARE, PagedKVCache
from auras_ros.models.vlm import ImageEmbeddings

pytest.importorskip("hypothesis")
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

SIZE, LATE = 7, 2
NAMES = [bytes([name]) for name in range(5)]


class Pool(RuleBasedStateMachine):
    """Owners hold lists of blocks. `content`: what name a block's content has, None after it was taken anew."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(SIZE + 1, late=LATE)
        self.owners: list[list[int]] = []
        self.names: dict[int, bytes] = {}
        self.unused: list[int] = []  # named, without owner, the longest unused first

    def counts(self) -> Counter[int]:
        return Counter(block for table in self.owners for block in table)

    @rule(count=st.integers(0, 4))
    def take(self, count: int) -> None:
        owned = self.counts()
        free = [block for block in range(1, SIZE + 1) if not owned[block]]
        taken = self.pool.take(count)
        if count > len(free):
            assert taken is None
            return
        assert taken is not None
        assert len(set(taken)) == count
        assert set(taken) <= set(free)
        unnamed = [block for block in free if block not in self.names and block <= SIZE - LATE]
        assert set(taken) >= set(unnamed) or set(taken) <= set(unnamed)
        evicted = self.unused[: max(count - len(unnamed), 0)]
        assert set(taken) >= set(evicted)
        assert len(set(taken) & set(self.unused)) == len(evicted)  # the longest unused first
        for block in evicted:
            self.unused.remove(block)
            del self.names[block]
        self.owners.append(taken)

    @rule(names=st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    def share(self, names: list[bytes]) -> None:
        by_name = {name: block for block, name in self.names.items()}
        wanted: list[int] = []
        for name in names:
            if name not in by_name:
                break
            wanted.append(by_name[name])
        assert self.pool.known(names) == len(wanted)
        assert self.pool.owned(names) == len(set(wanted) & set(self.counts()))
        free = self.pool.free
        owned = self.pool.owned(names)
        assert self.pool.share(names) == wanted
        assert free - self.pool.free == len(wanted) - owned
        self.unused = [block for block in self.unused if block not in wanted]
        self.owners.append(wanted)

    @precondition(lambda self: any(self.owners))
    @rule(data=st.data(), name=st.sampled_from(NAMES))
    def keep(self, data: st.DataObject, name: bytes) -> None:
        block = data.draw(st.sampled_from([block for table in self.owners for block in table]))
        self.pool.keep(block, name)
        if name not in self.names.values() and block not in self.names:
            self.names[block] = name

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), forget=st.booleans())
    def end(self, data: st.DataObject, forget: bool) -> None:
        table = self.owners.pop(data.draw(st.integers(0, len(self.owners) - 1)))
        free = [block for block in table if not self.counts()[block]]
        if forget:
            for block in table:
                self.names.pop(block, None)
            assert sorted(self.pool.forget(table)) == sorted(free)
        else:
            self.pool.give_back(table)
        self.unused += [block for block in reversed(table) if block in free and block in self.names]

    @invariant()
    def nothing_is_lost(self) -> None:
        owned = self.counts()
        assert self.pool.free == SIZE - len(owned)
        assert self.pool._owners == [owned[block] for block in range(SIZE + 1)]
        assert SPARE not in owned
        assert list(self.pool._unused) == self.unused
        assert max(self.pool._empty, default=0) <= SIZE - LATE < min(self.pool._late, default=SIZE)
        assert sorted([*self.pool._empty, *self.pool._late, *self.pool._unused, *owned]) == list(range(1, SIZE + 1))
        assert self.pool._hashes == self.names
        assert self.pool._by_hash == {name: block for block, name in self.names.items()}


Pool.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestPool = Pool.TestCase


def test_without_keeping_nothing_is_found() -> None:
    pool = BlockPool(4, keep=False)
    taken = pool.take(3)
    assert taken is not None
    pool.keep(taken[0], b"x")
    pool.give_back(taken)
    assert pool.share([b"x"]) == []
    assert (pool.known([b"x"]), pool.free) == (0, 3)


def test_an_adapters_slot_stays_free_while_earlier_prompts_can_go() -> None:
    pool = BlockPool(6, late=2)
    first = pool.take(3)
    assert first is not None
    for block, name in zip(first, NAMES, strict=False):
        pool.keep(block, name)
    pool.give_back(first)
    second = pool.take(2)
    assert second is not None
    assert set(second) < set(first)
    assert pool.take_these(range(4, 6))
    assert pool.take(2) is None
    pool.give_back(range(4, 6))
    rest = pool.take(3)
    assert rest is not None
    assert {*second, *rest} == set(range(1, 6))


def picture(tokens: int, digest: str) -> PreparedImage:
    return PreparedImage(torch.zeros(1), (1, 1), tokens, "", digest)


def active(ids: list[int], at: list[int], images: list[PreparedImage]) -> ActiveRequest:
    prompt = VlmPrompt(torch.tensor(ids), tuple(images), torch.tensor(at, dtype=torch.int64))
    return ActiveRequest(VlmRequest(prompt), cast("Any", SimpleNamespace()), 1, 99, None)


A, B = picture(4, "a"), picture(4, "b")
IDS = [1, 7, 7, 7, 7, 2, 7, 7, 7, 7, 3, 4, 5]
AT = [1, 2, 3, 4, 6, 7, 8, 9]


def test_the_same_tokens_of_other_images_have_other_hashes() -> None:
    """All blocks from the image on, whichever of several it is; and none before it."""
    made = {
        name: active(IDS, AT, images).hashes(2)
        for name, images in {"aa": [A, A], "ab": [A, B], "ba": [B, A], "bb": [B, B]}.items()
    }
    assert all(len(hashes) == 6 for hashes in made.values())
    assert made["aa"][:3] == made["ab"][:3]
    assert made["aa"][3:] != made["ab"][3:]
    assert not set(made["aa"]) & set(made["ba"])
    assert not set(made["ab"][3:]) & set(made["bb"][3:])
    words = active(IDS, [], []).hashes(2)
    assert not set(words) & set(made["aa"])


def test_an_image_that_is_cut_by_a_block_is_known_by_its_place() -> None:
    """The same number of tokens of an image, but other ones."""
    long = picture(8, "a")
    one = active([7] * 8 + [1], list(range(8)), [long]).hashes(4)
    assert one[0] != one[1]
    assert block_hash(b"", [7] * 4, [("a", 0)]) != block_hash(b"", [7] * 4, [("a", 4)])
    assert block_hash(b"", [7] * 4, [("a", 0)]) != block_hash(b"", [7] * 4, [])
    two = active([7] * 8 + [1], list(range(8)), [A, A]).hashes(4)
    assert one[0] == two[0]  # its tokens are those of the same image
    assert one[1] != two[1]


def test_hashes_depend_on_everything_before_and_stay_as_the_answer_grows() -> None:
    request = active(IDS, AT, [A, B])
    before = list(request.hashes(4))
    request.ids += [9, 9, 9, 9, 9]
    assert request.hashes(4)[: len(before)] == before
    assert len(request.hashes(4)) == (len(request.ids) - 1) // 4
    other = active([2, *IDS[1:]], AT, [A, B]).hashes(4)
    assert not set(other) & set(before)


def tables(blocks: int = 8, block: int = 2) -> BlockTables:
    return BlockTables(PagedKVCache(1, blocks + 1, block, 1, 2), True)


def test_a_block_is_found_by_others_only_when_it_is_full_and_written() -> None:
    made, first, second = tables(), active([1, 2, 3, 4, 5], [], []), active([1, 2, 3, 4, 5], [], [])
    made.share(first)
    assert made.grow(first, 5)
    assert made.remaining(second) == 5
    first.stored = 0
    made.stored(first, 3)
    assert made.remaining(second) == 3
    made.share(second)
    assert second.table == first.table[:1]
    assert (second.stored, second.cached) == (2, 2)
    first.ids.append(6)
    made.stored(first, 2)
    third = active([1, 2, 3, 4, 5], [], [])
    assert made.remaining(third) == 1
    made.give_back(first)
    made.give_back(second)
    assert made.free == made.size


def test_what_is_lacking_is_enough() -> None:
    made, request = tables(), active(list(range(1, 10)), [], [])
    made.share(request)
    for count in (1, 3, 5):
        lacking = made.lacking(request, count)
        before = made.free
        assert made.grow(request, count)
        assert before - made.free == lacking
        request.stored += count
    assert not made.grow(request, 100)
    made.give_back(request)
    assert made.free == made.size


def test_forgotten_blocks_are_cleared_unless_somebody_owns_them() -> None:
    cache = PagedKVCache(1, 6, 2, 1, 2)
    made, first, second = BlockTables(cache, True), active([1, 2, 3], [], []), active([1, 2, 3], [], [])
    assert made.grow(first, 3)
    made.stored(first, 2)
    made.share(second)
    cache.store[:] = torch.nan
    shared, own = first.table
    made.give_back(first, forget=True)
    assert bool(cache.store[:, shared].isnan().all())
    assert bool((cache.store[:, [own, SPARE]] == 0).all())
    assert made.remaining(active([1, 2, 3], [], [])) == 3
    made.give_back(second, forget=True)
    assert bool((cache.store[:, shared] == 0).all())
    assert made.free == made.size


def embeddings(size: int) -> ImageEmbeddings:
    return ImageEmbeddings(torch.zeros(size, 1), ((torch.zeros(1, size, 1), torch.zeros(1, size, 1)),))


def test_images_are_kept_up_to_a_bound_the_longest_unused_goes_first() -> None:
    cache = ImageCache(12 * 3 * 4)
    kept = {name: embeddings(4) for name in "abc"}
    for name, each in kept.items():
        cache.put(name, each)
    assert cache.get("a") is kept["a"]
    cache.put("d", embeddings(4))
    assert cache.get("b") is None
    assert cache.get("a") is kept["a"]
    cache.put("a", embeddings(4))
    assert cache.get("a") is kept["a"]
    cache.put("huge", embeddings(13))
    assert cache.get("huge") is None
    assert cache.bytes == 12 * 3 * 4
    cache.put("e", embeddings(12))
    assert [cache.get(name) is not None for name in "acde"] == [False, False, False, True]
