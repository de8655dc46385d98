"""Nova's algorithm 1, decision by decision, on an engine's state without an engine; and a whole run of it.

Guards: a decode that waits for another stage; vision beside prefill, or before it; a decode on other units than those
that the forward beside it leaves; a split that is not that of the load; a divided device although nothing decodes.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from auras_ros.engine.baselines import StaticUnits
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.planner import SplitPlan
from auras_ros.engine.scheduler import Dispatch, EngineState
from auras_ros.engine.simulation import Arrival, simulate
from tests.engine.simulated import SMALL, Queues, Watched, active, decoding, in_order

PLAN = SplitPlan(by_vision=6, by_prefill=4, beta_vision=2, beta_prefill=1, least=2, sizes=(2, 4, 6))


def nova() -> NovaScheduler:
    return NovaScheduler(PLAN)


def shapes(dispatches: list[Dispatch]) -> list[tuple[str, list[int], int | None]]:
    return [(each.stage, [one.number for one in each.requests], each.split) for each in dispatches]


def test_nothing_waits_and_nothing_starts() -> None:
    assert nova().next(Queues().state) is None


def test_a_device_is_not_divided_while_nothing_decodes() -> None:
    queues = Queues()
    queues.add("vision", active(1, images=[0]), active(2, images=[1]))
    assert shapes(queues.started(nova())) == [("vision", [1], None)]
    queues.end("vision", to="prefill")
    assert shapes(queues.started(nova())) == [("prefill", [1], None)]
    queues.end("prefill", to="decode")


def test_decode_has_the_whole_device_while_it_is_alone() -> None:
    queues = Queues()
    queues.add("decode", decoding(1), decoding(2))
    assert shapes(queues.started(nova())) == [("decode", [1, 2], None)]


def test_decode_starts_first_and_on_the_part_that_the_other_stage_leaves() -> None:
    queues = Queues()
    queues.add("decode", decoding(1), decoding(2))
    queues.add("vision", active(3, images=[0]))
    assert shapes(queues.started(nova())) == [("decode", [1, 2], 6), ("vision", [3], 6)]
    queues = Queues()
    queues.add("decode", decoding(1))
    queues.add("prefill", active(3))
    assert shapes(queues.started(nova())) == [("decode", [1], 4), ("prefill", [3], 4)]


def test_prefill_goes_before_vision_alone_and_never_beside_it() -> None:
    queues = Queues()
    queues.add("vision", active(1, images=[0]), active(2, images=[1]))
    queues.add("prefill", active(3), active(4))
    assert shapes(queues.started(nova())) == [("prefill", [3], None)]
    queues.end("prefill", to="decode")
    assert shapes(queues.started(nova())) == [("decode", [3], 2), ("prefill", [4], 2)]
    assert queues.started(nova()) == []
    queues.end("prefill", to="decode")
    assert shapes(queues.started(nova())) == [("vision", [1], 4)]
    queues.add("prefill", active(5))
    assert queues.started(nova()) == []  # one that waits does not stop the image, nor run beside it


def test_what_comes_to_decode_joins_the_next_batch() -> None:
    queues = Queues()
    queues.add("decode", decoding(1))
    queues.add("prefill", active(2))
    queues.started(nova())
    queues.end("prefill", to="decode")
    assert queues.started(nova()) == []
    queues.end("decode")
    assert shapes(queues.started(nova())) == [("decode", [1, 2], None)]


def test_decode_keeps_the_split_of_what_runs_beside_it() -> None:
    """However the load changes meanwhile."""
    queues = Queues()
    queues.add("decode", decoding(1))
    queues.add("vision", active(2, images=[0]))
    assert shapes(queues.started(nova())) == [("decode", [1], 6), ("vision", [2], 6)]
    queues.add("vision", active(3, images=[1]), active(4, images=[2]))
    for _ in range(3):
        queues.end("decode")
        assert shapes(queues.started(nova())) == [("decode", [1], 6)]
    queues.end("vision", to="prefill")
    assert queues.started(nova()) == []  # the decode has six units, and the prefill's part begins behind two
    queues.end("decode")
    assert shapes(queues.started(nova())) == [("decode", [1], 2), ("prefill", [2], 2)]


@pytest.mark.parametrize(("pending", "by_vision", "by_prefill"), [(1, 6, 4), (2, 4, 4), (3, 2, 2), (9, 2, 2)])
def test_the_split_is_that_of_the_load_when_a_forward_begins(pending: int, by_vision: int, by_prefill: int) -> None:
    for stage, units in (("vision", by_vision), ("prefill", by_prefill)):
        queues = Queues()
        queues.add("decode", decoding(1))
        waiting = [active(number, images=[number]) for number in range(2, 2 + pending)]
        queues.add("vision", *waiting[1:])
        queues.add("vision" if stage == "vision" else "prefill", waiting[0])
        assert queues.state.pending == pending
        begun = queues.started(nova())
        assert [(each.stage, each.split) for each in begun] == [("decode", units), (stage, units)]
        assert queues.state.pending == pending  # what runs is counted


@pytest.mark.parametrize(("units", "waits"), [(None, True), (6, True), (4, False), (2, False)])
def test_a_forward_waits_for_a_decode_on_the_units_that_it_takes(units: int | None, waits: bool) -> None:
    """The prefill's part are the units behind the first four."""
    queues = Queues()
    queues.add("decode", decoding(1))
    queues.start(Dispatch("decode", (queues.state.queues["decode"][0],), (1,), split=units))
    queues.add("prefill", active(2))
    assert shapes(queues.started(nova())) == ([] if waits else [("prefill", [2], 4)])
    queues.end("decode")
    assert shapes(queues.started(nova()))[:1] == [("decode", [1], 4)]
    assert queues.state.running["prefill"].split == 4


def test_first_come_is_first_served_within_a_stage_and_priorities_before() -> None:
    queues = Queues()
    queues.add("vision", active(4, images=[0]), active(2, images=[1]), active(9, images=[2], priority=-1))
    queues.add("prefill", active(7), active(5), active(6, priority=1))
    order = []
    while begun := queues.started(nova()):
        order += [(each.stage, each.requests[0].number) for each in begun]
        for each in begun:
            queues.state.queues.move(each.requests[0], None)
            queues.end(each.stage)
    assert order == [
        ("prefill", 5), ("prefill", 7), ("prefill", 6), ("vision", 9), ("vision", 2), ("vision", 4)
    ]  # fmt: skip


def test_a_request_of_several_images_has_them_encoded_one_by_one() -> None:
    queues = Queues()
    several = active(1, images=[0, 1, 2])
    queues.add("vision", several)
    for place in range(3):
        (begun,) = queues.started(nova())
        assert (begun.stage, begun.image) == ("vision", place)
        several.images[place] = object()  # type: ignore[call-overload]
        queues.end("vision")


def test_a_prompt_without_blocks_lets_images_and_decodes_go_on() -> None:
    queues = Queues()
    queues.state.fits = lambda requests, counts: False
    queues.add("decode", decoding(1))
    queues.add("prefill", active(2))
    queues.add("vision", active(3, images=[0]))
    assert shapes(queues.started(nova())) == [("decode", [1], 4), ("vision", [3], 4)]


def test_prompts_are_whole_and_alone() -> None:
    queues = Queues()
    queues.add("prefill", active(1, prompt=500), active(2, prompt=1))
    (begun,) = queues.started(nova())
    assert begun.counts == (500,)


def follows_algorithm_1(state: EngineState, dispatch: Dispatch | None) -> None:
    front = state.running.get("prefill") or state.running.get("vision")
    waiting = state.ready("decode")
    if waiting:
        assert dispatch is not None
        assert dispatch.stage == "decode"
        if front is not None:
            assert dispatch.split == front.split
        return
    if front is not None:
        assert dispatch is None
        return
    if dispatch is None:
        assert "decode" in state.running or not state.ready("vision") + state.ready("prefill")
        return
    assert dispatch.stage == ("prefill" if state.ready("prefill") else "vision")
    beside = PLAN.beside_vision if dispatch.stage == "vision" else PLAN.beside_prefill
    assert dispatch.split == (beside(state.pending, len(state.queues["decode"])) if state.queues["decode"] else None)


@pytest.mark.parametrize("rate_hz", [2.0, 6.0, 12.0])
def test_a_run_follows_the_algorithm(rate_hz: float) -> None:
    drawn, at_s, trace = random.Random(3), 0.0, list[Arrival]()
    for _ in range(60):
        at_s += drawn.expovariate(rate_hz)
        trace.append(Arrival(at_s, drawn.randint(1, 12)))
    options = EngineOptions(kv_mib=1, running=100, waiting=100)
    served, forwards = simulate(Watched(nova(), in_order, follows_algorithm_1), SMALL, trace, options)
    assert [len(each.tokens_ns) for each in served] == [each.tokens for each in trace]
    fronts = sorted((begin, end) for dispatch, begin, end in forwards.log if dispatch.stage != "decode")
    assert all(end <= begin for (_, end), (begin, _) in pairwise(fronts))
    assert len(fronts) == 120
    for stage in ("vision", "prefill"):
        own = sorted((begin, each.requests[0].number) for each, begin, _ in forwards.log if each.stage == stage)
        assert [number for _, number in own] == list(range(1, 61))
    parts_are_apart(forwards.log)


def parts_are_apart(log: list[tuple[Dispatch, int, int]]) -> None:
    """A decode has the first units of its split, and what runs beside it those behind the first ones of its own."""
    for decode, begin, end in log:
        if decode.stage == "decode":
            beside = [each.split for each, *at in log if each.stage != "decode" and at[0] < end and at[1] > begin]
            assert all(other is not None and decode.split is not None and decode.split <= other for other in beside)


def test_without_units_both_stages_have_the_whole_device() -> None:
    queues = Queues()
    queues.add("decode", decoding(1))
    queues.add("vision", active(2, images=[0]))
    assert shapes(queues.started(NovaScheduler(StaticUnits()))) == [("decode", [1], None), ("vision", [2], None)]


def test_static_units_do_not_follow_the_load() -> None:
    units = StaticUnits(vision=4, prefill=6)
    assert {units.beside_vision(pending, 1) for pending in range(1, 9)} == {4}
    assert {units.beside_prefill(pending, 1) for pending in range(1, 9)} == {6}
