"""Which requests the policies choose and what they merge, by hand-made queues.

Guards: mixture without anybody who starves; a merged adapter that few ask for, or who cannot use it yet; a request that
waits for ever, or for longer than its policy says; one that goes before an earlier one of its adapter; a change of what
is merged while the decoder computes.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.scheduler import Dispatch, EngineState, InterleavedScheduler, LoraState, next_image
from auras_ros.engine.valora import (
    POLICIES,
    DLora,
    LoraBatch,
    LoraPolicy,
    LoraScheduler,
    MergeOnly,
    UnmergeOnly,
    Valora,
    make_policy,
)
from auras_ros.lora.slots import Resident

A, B, C = (Resident(name, name, slot, {}, {}) for slot, name in enumerate("abc"))
NOW_MS, THETA_MS = 1000.0, 100.0


def request(number: int, adapter: Resident | None, waited_ms: float = 0.0) -> ActiveRequest:
    """One that decodes."""
    ran_ns = round((NOW_MS - waited_ms) * 1e6)
    fields: dict[str, Any] = {"order": (0, number), "number": number, "busy": False, "ran_ns": ran_ns, "table": []}
    fields |= {"left": 10, "unseen": lambda: [0]}
    fields["request"] = SimpleNamespace(adapter=None if adapter is None else adapter.adapter)
    return cast(ActiveRequest, SimpleNamespace(resident=adapter, **fields))


def state_of(
    *requests: ActiveRequest, merged: Resident | None = None, forward_ms: float = 0, switch_ms: float = 0
) -> EngineState:
    state = EngineState(lambda _: 1, lambda *_: True, now_ns=round(NOW_MS * 1e6), lora=LoraState(merged))
    state.lora.forward_ns, state.lora.switch_ns = round(forward_ms * 1e6), round(switch_ms * 1e6)
    state.queues["decode"] += requests
    return state


def chosen(policy: LoraPolicy, state: EngineState) -> tuple[list[int], Resident | None]:
    batch = policy.choose(state.queues["decode"], state)
    return sorted(each.number for each in batch.requests), batch.merged


def queue(adapters: str, **waited_ms: float) -> list[ActiveRequest]:
    known = {"a": A, "b": B, "c": C, "-": None}
    return [request(number, known[each], waited_ms.get(f"r{number}", 0.0)) for number, each in enumerate(adapters)]


def valora(batch: int, thetas: dict[str, float] | None = None) -> Valora:
    return Valora(batch, THETA_MS, thetas or {})


def test_one_that_most_ask_for_is_merged_and_runs_alone() -> None:
    assert chosen(valora(4), state_of(*queue("abaca-a"))) == ([0, 2, 4, 6], A)


def test_who_starves_runs_beside_the_merged_one() -> None:
    """Mixture: at most half of the batch."""
    waiting = queue("abacaa", r1=THETA_MS + 1, r3=THETA_MS + 2)
    assert chosen(valora(4), state_of(*waiting)) == ([0, 1, 2, 3], A)
    waiting = queue("abbcaaa", r1=101, r2=101, r3=101)
    assert chosen(valora(4), state_of(*waiting)) == ([0, 1, 2, 3], None)  # more than half: unmerged


def test_who_waits_behind_a_batch_waits_for_a_place_and_starves_of_nothing() -> None:
    late = {f"r{number}": 101.0 for number in range(3, 9)}
    assert chosen(valora(4), state_of(*queue("aaabbcc--", **late))) == ([0, 1, 2, 3], A)
    assert chosen(valora(2), state_of(*queue("aaabbb", **late))) == ([0, 1], A)
    assert chosen(DLora(2, THETA_MS), state_of(*queue("aaabb", **late))) == ([0, 1], A)
    assert chosen(MergeOnly(2, THETA_MS), state_of(*queue("abaa", r1=101, r2=900), merged=A)) == ([1], B)
    assert chosen(MergeOnly(2, THETA_MS), state_of(*queue("aaab", r2=900, r3=901), merged=A)) == ([0, 1], A)


def test_an_adapter_may_have_a_theta_of_its_own() -> None:
    policy, waiting = valora(4, {"b": 20.0, "c": 400.0}), queue("abacaa", r1=30, r3=300)
    assert chosen(policy, state_of(*waiting)) == ([0, 1, 2, 4], A)  # what has waited for longer may wait for longer
    assert chosen(policy, state_of(*queue("abacaa", r3=401))) == ([0, 2, 3, 4], A)
    assert chosen(policy, state_of(*queue("abacaa", r1=15), forward_ms=6)) == ([0, 1, 2, 4], A)
    assert chosen(policy, state_of(*queue("bcbaaaa", r0=21, r1=399, r2=21))) == ([0, 2, 3, 4], A)
    assert chosen(policy, state_of(*queue("bcbaaaa", r0=21, r1=401, r2=21))) == ([0, 1, 2, 3], None)


def test_without_a_majority_nothing_is_merged() -> None:
    assert chosen(valora(4), state_of(*queue("abc-ab"))) == ([0, 1, 2, 3], None)
    assert chosen(valora(8), state_of(*queue("aabb"))) == ([0, 1, 2, 3], None)  # half is not more
    assert chosen(valora(8), state_of(*queue("aab"))) == ([0, 1], A)  # of those that wait


def test_what_is_merged_stays_while_half_has_it() -> None:
    starved = {"r0": THETA_MS + 1, "r1": THETA_MS + 1}
    assert chosen(valora(8), state_of(*queue("bbaa", **starved), merged=A)) == ([0, 1, 2, 3], A)
    assert chosen(valora(8), state_of(*queue("bbaa", **starved), merged=C)) == ([0, 1, 2, 3], None)
    assert chosen(valora(8), state_of(*queue("bbba", r3=101), merged=A)) == ([0, 1, 2, 3], B)


def test_nothing_is_merged_for_requests_that_end_before_it_has_paid() -> None:
    state = state_of(*queue("aab"), switch_ms=8)
    state.lora.decodes_ns = {(2, True): 5e6, (2, False): 4e6}
    assert chosen(valora(8), state) == ([0, 1], A)  # ten tokens, a millisecond each
    state.lora.switch_ns = 11_000_000
    assert chosen(valora(8), state) == ([0, 1, 2], None)
    state.lora.merged = A
    assert chosen(valora(8), state) == ([0, 1], A)
    state.lora.merged, state.lora.summed = None, (A,)  # its weights are there
    assert chosen(valora(8), state) == ([0, 1], A)
    state.lora.merged, state.lora.summed = None, (None,)
    state.lora.decodes_ns = {(2, True): 5e6}  # what it would spare is not known
    assert chosen(valora(8), state) == ([0, 1], A)


def test_decodes_are_told_apart_by_their_rows_and_their_products() -> None:
    lora, (first, second) = LoraState(A), queue("ab")
    assert lora.products_ns(1) is None
    lora.ran(Dispatch("decode", (first,), (1,), merged=A), 4_000_000)
    lora.ran(Dispatch("decode", (second,), (1,), merged=A), 9_000_000)
    lora.ran(Dispatch("decode", (second,), (1,)), 10_000_000)
    assert lora.products_ns(1) == pytest.approx(5_100_000)
    assert lora.products_ns(2) is None
    assert lora.forward_ns == 10_000_000


def test_a_credit_counts_the_next_forward_and_a_change() -> None:
    waiting = queue("aaab", r3=THETA_MS - 30)
    policy = valora(4)
    assert chosen(policy, state_of(*waiting))[0] == [0, 1, 2]
    assert chosen(policy, state_of(*waiting, forward_ms=31))[0] == [0, 1, 2, 3]
    assert chosen(policy, state_of(*waiting, switch_ms=31))[0] == [0, 1, 2, 3]
    assert chosen(policy, state_of(*waiting, switch_ms=31, merged=A))[0] == [0, 1, 2]  # nothing changes


def test_the_baselines() -> None:
    waiting = queue("abaac")
    assert chosen(UnmergeOnly(3), state_of(*waiting)) == ([0, 1, 2], None)
    assert chosen(MergeOnly(8, THETA_MS), state_of(*waiting, merged=A)) == ([0, 2, 3], A)
    assert chosen(MergeOnly(8, THETA_MS), state_of(*queue("abaac", r4=101), merged=A)) == ([4], C)
    assert chosen(MergeOnly(8, THETA_MS), state_of(*queue("b-b", r1=5), merged=A)) == ([1], None)
    assert chosen(DLora(8, THETA_MS), state_of(*queue("aaab"))) == ([0, 1, 2], A)
    assert chosen(DLora(8, THETA_MS), state_of(*queue("aabb"))) == ([0, 1, 2, 3], None)
    assert chosen(DLora(8, THETA_MS), state_of(*queue("aabb"), merged=A)) == ([0, 1], A)
    assert chosen(DLora(8, THETA_MS), state_of(*queue("aaab", r3=101), merged=A)) == ([0, 1, 2, 3], None)


@pytest.mark.parametrize("name", POLICIES)
def test_of_one_adapters_requests_those_that_came_first_run_first(name: str) -> None:
    """Random queues of more than a batch, of requests that have not run yet."""
    for seed in range(300):
        chance = random.Random(seed)
        waits_ms = sorted((chance.uniform(0, 2 * THETA_MS) for _ in range(12)), reverse=True)
        adapters = chance.choices([A, B, C, None], (chance.randrange(1, 9), 2, 1, 1), k=12)
        waiting = [request(number, *pair) for number, pair in enumerate(zip(adapters, waits_ms, strict=True))]
        state = state_of(*waiting, merged=chance.choice([A, B, None]), forward_ms=chance.choice([0, 20]))
        batch = make_policy(name, chance.randrange(1, 9), THETA_MS).choose(waiting, state)
        for adapter in (A, B, C, None):
            taken = sorted(each.number for each in batch.requests if each.resident is adapter)
            assert taken == [each.number for each in waiting if each.resident is adapter][: len(taken)]


FORWARD_MS, FORWARDS = 10, 20


@pytest.mark.parametrize(
    ("name", "batch", "forwards"),
    [
        ("valora", 16, 0),  # the next forward counts beforehand
        ("dlora", 16, 1),
        ("merge-only", 16, 4),  # another adapter in each
        ("valora", 4, 4 * FORWARDS),  # until those of its adapter that came before have ended
        ("dlora", 4, 4 * FORWARDS),
        ("merge-only", 4, 4 * FORWARDS),
    ],
)
def test_nobody_waits_for_ever(name: str, batch: int, forwards: int) -> None:
    """Nine wait for a batch of so many. Each runs FORWARDS times at most; then another one comes."""
    for seed in range(5):
        chance, policy, merged, now_ms = random.Random(seed), make_policy(name, batch, THETA_MS), None, NOW_MS
        waiting = queue("aaaaaabc-")
        left = {each.number: chance.randrange(1, FORWARDS) for each in waiting}
        longest = 0.0
        for _ in range(500):
            state = state_of(*waiting, merged=merged, forward_ms=FORWARD_MS)
            state.now_ns = round(now_ms * 1e6)
            longest = max(longest, *(state.waited_ns(each) / 1e6 for each in waiting))
            choice = policy.choose(waiting, state)
            assert 1 <= len(choice.requests) <= batch
            merged, now_ms = choice.merged, now_ms + FORWARD_MS
            for each in choice.requests:
                each.ran_ns = round(now_ms * 1e6)
                left[each.number] -= 1
                if not left[each.number]:
                    waiting.remove(each)
                    number, adapter = max(left) + 1, chance.choices([A, B, C, None], (6, 1, 1, 1))[0]
                    waiting.append(request(number, adapter, NOW_MS - now_ms))
                    left[number] = chance.randrange(1, FORWARDS)
        assert max(left) > 50
        assert THETA_MS / 2 < longest <= THETA_MS + forwards * FORWARD_MS


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="lora_policy: 'best' is none of per-forward, valora, dlora, merge-only"):
        make_policy("best", 4, 1)


def test_thetas_are_read_and_what_is_none_is_named() -> None:
    assert make_policy("valora", 4, 1, "goal=60, way = 5") == Valora(4, 1, {"goal": 60.0, "way": 5.0})
    for given in ("goal", "goal=", "=3", "goal=0", "goal=1.5", "goal=-1", "goal=3,"):
        with pytest.raises(ValueError, match="lora_thetas: expected name=ms, whole numbers from 1, got"):
            make_policy("valora", 4, 1, given)
    with pytest.raises(ValueError, match="lora_thetas: 'a' is there twice"):
        make_policy("valora", 4, 1, "a=1,a=2")
    with pytest.raises(ValueError, match="lora_thetas: dlora has no thetas of adapters"):
        make_policy("dlora", 4, 1, "a=1")


class Always:
    """Chooses the one that has waited longest."""

    batch = 2

    def __init__(self, merged: Resident | None) -> None:
        self.merged = merged

    def choose(self, waiting: Any, state: EngineState) -> LoraBatch:
        return LoraBatch(waiting[:1], self.merged)


class Inner:
    """blocked: numbers of requests for which there are no blocks."""

    def __init__(self, *blocked: int) -> None:
        self.blocked = blocked

    def next(self, state: EngineState) -> Dispatch | None:
        ready = [each for each in state.ready("decode") if each.number not in self.blocked]
        return Dispatch("decode", tuple(ready), (1,) * len(ready)) if ready else None


def test_a_change_waits_for_the_decoder_and_the_chosen_alone_run() -> None:
    state = state_of(*queue("ab"), merged=A)
    scheduler = LoraScheduler(Inner(), Always(B))
    dispatch = scheduler.next(state)
    assert dispatch is not None
    assert dispatch.merged is B
    assert [each.number for each in dispatch.requests] == [0]
    state.running["prefill"] = Dispatch("prefill", ())
    assert scheduler.next(state) is None
    kept = LoraScheduler(Inner(), Always(A)).next(state)
    assert kept is not None
    assert kept.merged is A
    state.running = {"vision": Dispatch("vision", ())}
    assert scheduler.next(state) is not None


@pytest.mark.parametrize("policy", [Valora(4, 1e6), DLora(4, 1e6)])
def test_a_prompt_runs_beside_a_decode_whose_requests_have_other_adapters(policy: LoraPolicy) -> None:
    """It is no majority, although it waits alone while they decode: nothing is to be merged for it."""
    state = state_of(*queue("abac"))
    *decoding, last = state.queues["decode"]
    state.running["prefill"] = Dispatch("prefill", tuple(decoding))
    for each in decoding:
        each.busy = True
    dispatch = LoraScheduler(Inner(), policy).next(state)
    assert dispatch is not None
    assert (dispatch.requests, dispatch.merged) == ((last,), None)


def test_if_the_chosen_cannot_run_whoever_can_does_with_what_is_merged() -> None:
    state = state_of(*queue("ab"), merged=A)
    dispatch = LoraScheduler(Inner(0), Always(B)).next(state)
    assert dispatch is not None
    assert ([each.number for each in dispatch.requests], dispatch.merged) == ([1], A)
    state.running["vision"] = Dispatch("vision", ())
    assert LoraScheduler(Inner(0), Always(B)).next(state) is None  # what runs may free blocks


def test_those_that_run_instead_of_the_chosen_are_a_batch_at_most() -> None:
    dispatch = LoraScheduler(Inner(0), Always(B)).next(state_of(*queue("abab"), merged=A))
    assert dispatch is not None
    assert [each.number for each in dispatch.requests] == [1]


@pytest.mark.parametrize("policy", [Valora(8, 1e6), DLora(8, 1e6), MergeOnly(8, 1e6)])
def test_who_waits_for_its_image_decides_nothing(policy: LoraPolicy) -> None:
    """Five of A wait for theirs; three of B decode, as they do after each image."""
    state = state_of()
    *decoding, last = queue("bbbb")
    state.queues["decode"] += [*decoding, last]
    state.queues["vision"] += queue("aaaaa")
    state.last = "vision"
    dispatch = LoraScheduler(InterleavedScheduler(64, chunked=False), policy).next(state)
    assert dispatch is not None
    assert (dispatch.stage, dispatch.requests, dispatch.merged) == ("decode", (*decoding, last), B)


def test_images_keep_nobody_waiting_for_blocks_that_others_have() -> None:
    state, (first, second, looking) = state_of(merged=A), queue("aba")
    state.queues["decode"] += [first, second]
    state.queues["vision"] += [looking]

    class Looking(Inner):
        def next(self, state: EngineState) -> Dispatch | None:
            return super().next(state) or next_image(state)

    dispatch = LoraScheduler(Looking(0), Always(B)).next(state)
    assert dispatch is not None
    assert (dispatch.stage, dispatch.requests, dispatch.merged) == ("decode", (second,), A)


def test_a_batchs_images_wait_for_no_choice() -> None:
    state, seen = state_of(merged=A), list[list[int]]()
    decoding, *looking = queue("abbb")
    state.queues["decode"] += [decoding]
    state.queues["vision"] += looking

    class Looking(Inner):
        def next(self, state: EngineState) -> Dispatch | None:
            seen.append([each.number for each in state.ready("vision")])
            return super().next(state)

    assert LoraScheduler(Looking(), Always(A)).next(state) is not None
    assert seen == [[1, 2]]
