"""The baselines of V-A7, decision by decision: each does what its papers say, so that none is handicapped.

Guards: a decode that runs too early or too late for the threshold; a forward over the budget, or beside another one; a
token that is left out of a hybrid forward; a chunk that makes a token before the prompt is through.
"""

from __future__ import annotations

import pytest

from auras_ros.engine.baselines import ChunkScheduler, PfLimitScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.scheduler import Dispatch, EngineState, InterleavedScheduler, StageScheduler
from auras_ros.engine.simulation import Arrival, Served, SimulatedForwards, simulate
from tests.engine.simulated import SMALL, Queues, Watched, active, decoding, in_order

TRACE = [Arrival(0.05 * index, 3 + index % 9, prompt=7 + 13 * index % 90) for index in range(40)]


def run(scheduler: StageScheduler) -> tuple[list[Served], SimulatedForwards]:
    return simulate(scheduler, SMALL, TRACE, EngineOptions(kv_mib=1, running=100, waiting=100))


def turns_are_kept(state: EngineState, dispatch: Dispatch | None) -> None:
    assert dispatch is None or not state.running
    assert dispatch is None or dispatch.split is None


@pytest.mark.parametrize("threshold", [0, 1, 5, 100])
def test_pf_limit_decodes_when_more_than_the_threshold_wait_or_nothing_else_can_run(threshold: int) -> None:
    decodes = {True: 0, False: 0}

    def limit(state: EngineState, dispatch: Dispatch | None) -> None:
        if state.running:
            return
        others, over = state.ready("prefill") + state.ready("vision"), len(state.ready("decode")) > threshold
        assert (dispatch is not None and dispatch.stage == "decode") == (
            bool(state.ready("decode")) and (over or not others)
        )
        if dispatch is not None and dispatch.stage != "decode":
            assert dispatch.stage == ("prefill" if state.ready("prefill") else "vision")
            assert len(dispatch.requests) == 1
        decodes[over] += dispatch is not None and dispatch.stage == "decode"

    served, _ = run(Watched(PfLimitScheduler(threshold), in_order, turns_are_kept, limit))
    assert [len(each.tokens_ns) for each in served] == [each.tokens for each in TRACE]
    assert (decodes[True] > 0) == (threshold < 100)
    assert (decodes[False] > 0) == (threshold > 0)


def test_pf_limit_lets_images_go_before_a_few_answers() -> None:
    queues = Queues()
    queues.add("decode", decoding(1), decoding(2))
    queues.add("vision", active(3, images=[0]))
    assert [each.stage for each in queues.started(PfLimitScheduler(2))] == ["vision"]
    queues.end("vision")
    assert [each.stage for each in queues.started(PfLimitScheduler(1))] == ["decode"]


@pytest.mark.parametrize("budget", [1, 2, 5, 16, 128, 1000])
def test_chunks_hold_every_answer_and_never_more_than_the_budget(budget: int) -> None:
    seen = {"hybrid": 0, "cut": 0}

    def bounded(state: EngineState, dispatch: Dispatch | None) -> None:
        if dispatch is None or dispatch.stage != "prefill":
            assert dispatch is None or not state.ready("prefill")  # a prompt, if there is one, goes first
            return
        rows = state.ready("decode")
        assert list(dispatch.requests[: len(rows)]) == rows
        assert sum(dispatch.counts) <= max(budget, len(rows) + 1)
        prompts = list(zip(dispatch.requests, dispatch.counts, strict=True))[len(rows) :]
        for each, count in prompts:
            assert 1 <= count <= state.remaining(each)
        for each, count in prompts[:-1]:
            assert count == state.remaining(each)
        assert sum(dispatch.counts) >= budget or len(prompts) == len(state.ready("prefill"))  # as full as can be
        seen["hybrid"] += bool(rows)
        seen["cut"] += prompts[-1][1] < state.remaining(prompts[-1][0])

    served, forwards = run(Watched(ChunkScheduler(budget), in_order, turns_are_kept, bounded))
    assert [len(each.tokens_ns) for each in served] == [each.tokens for each in TRACE]
    assert seen["hybrid"] > 0
    assert (seen["cut"] > 0) == (budget < max(each.prompt or 0 for each in TRACE))
    for index, each in enumerate(served):
        pieces = [
            (end, count)
            for dispatch, _, end in forwards.log
            if dispatch.stage == "prefill"
            for request, count in zip(dispatch.requests, dispatch.counts, strict=True)
            if request.number == index + 1 and end <= each.usage.timings.first_token_ns
        ]
        assert sum(count for _, count in pieces) == TRACE[index].prompt
        assert pieces[-1][0] == each.usage.timings.first_token_ns == each.tokens_ns[0]
        if budget == 1:
            assert len(pieces) == TRACE[index].prompt


def test_a_chunk_waits_for_no_image_but_an_answer_alone_does() -> None:
    queues = Queues()
    queues.add("decode", decoding(1))
    queues.add("vision", active(2, images=[0]))
    assert [each.stage for each in queues.started(ChunkScheduler(8))] == ["vision"]
    queues.end("vision")
    queues.add("prefill", active(3, prompt=20))
    (begun,) = queues.started(ChunkScheduler(8))
    assert (begun.stage, [each.number for each in begun.requests], begun.counts) == ("prefill", [1, 3], (1, 7))


def test_several_prompts_fill_one_budget() -> None:
    queues = Queues()
    queues.add("prefill", active(1, prompt=3), active(2, prompt=4), active(3, prompt=50))
    (begun,) = queues.started(ChunkScheduler(10))
    assert begun.counts == (3, 4, 3)


def test_the_interleaved_one_decodes_between_any_two_others() -> None:
    served, forwards = run(Watched(InterleavedScheduler(64, chunked=False), in_order, turns_are_kept))
    assert [len(each.tokens_ns) for each in served] == [each.tokens for each in TRACE]
    decoding_ends: dict[int, int] = {}
    for each in served:
        decoding_ends[each.tokens_ns[0]] = each.tokens_ns[-1]
    for (first, _, end), (second, _, _) in zip(forwards.log, forwards.log[1:], strict=False):
        if first.stage != "decode" and second.stage != "decode":
            assert not any(begin <= end < last for begin, last in decoding_ends.items())


@pytest.mark.parametrize("budget", [5, 64, 1000])
def test_in_chunks_a_token_is_made_within_the_prefill(budget: int) -> None:
    joined = 0

    def all_decode(state: EngineState, dispatch: Dispatch | None) -> None:
        nonlocal joined
        rows = state.ready("decode")
        if dispatch is not None and dispatch.stage == "prefill":
            assert list(dispatch.requests[: len(rows)]) == rows
            assert sum(dispatch.counts) <= max(budget, len(rows) + 1)
            joined += bool(rows)

    served, _ = run(Watched(InterleavedScheduler(budget, chunked=True), in_order, turns_are_kept, all_decode))
    assert [len(each.tokens_ns) for each in served] == [each.tokens for each in TRACE]
    assert joined > 0


def test_in_chunks_a_token_is_made_between_two_images_and_none_between_a_chunk_and_an_image() -> None:
    queues, scheduler = Queues(), InterleavedScheduler(8, chunked=True)
    queues.add("decode", decoding(1))
    queues.add("vision", active(2, images=[0, 1, 2]))
    order = list[str]()
    for _ in range(3):
        (begun,) = queues.started(scheduler)
        order.append(begun.stage)
        queues.end(begun.stage)
    assert order == ["vision", "decode", "vision"]
    queues.add("prefill", active(3, prompt=4))
    assert [each.stage for each in queues.started(scheduler)] == ["decode"]  # an image and a chunk are two forwards
    queues.end("decode")
    (begun,) = queues.started(scheduler)
    assert (begun.stage, begun.counts) == ("prefill", (1, 4))
    queues.end("prefill", "decode")
    assert [each.stage for each in queues.started(scheduler)] == ["vision"]


@pytest.mark.parametrize(("prompt", "counts"), [(8, [8]), (9, [5, 4]), (20, [7, 7, 6]), (7, [7])])
def test_a_prompt_is_divided_in_equal_parts(prompt: int, counts: list[int]) -> None:
    """Each with a row of the request that decodes."""
    queues, scheduler = Queues(), InterleavedScheduler(9, chunked=True)
    queues.add("decode", decoding(1))
    request = active(2, prompt=prompt)
    queues.add("prefill", request)
    found = []
    while request.remaining:
        (begun,) = queues.started(scheduler)
        assert (begun.stage, begun.counts[0]) == ("prefill", 1)
        found.append(begun.counts[1])
        request.stored += begun.counts[1]
        queues.end("prefill")
    assert found == counts
