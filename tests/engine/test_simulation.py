"""The virtual clock against timelines worked out by hand, and every scheduler against what must hold of any engine.

Guards: a forward that is quicker or slower than its profile allows; time that goes back; work that is done twice or
never; a request that is lost, answered twice, or waits while nothing runs; blocks that are not given back; a decode of
Nova that is blocked for longer than its parts allow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from auras_ros.clock import VirtualClock
from auras_ros.engine.baselines import ChunkScheduler, PfLimitScheduler, StaticUnits
from auras_ros.engine.marginal import MarginalUnits
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.planner import make_plan
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.engine.scheduler import Dispatch, EngineState, InterleavedScheduler, Stage, StageScheduler
from auras_ros.engine.simulation import Arrival, SimulatedForwards, duration_ms, simulate
from tests.engine.making import ended
from tests.engine.simulated import (
    BLOCK,
    MS,
    SMALL,
    Asked,
    Played,
    Watched,
    active,
    decoding,
    in_order,
    play,
)

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

ROUND_NS = 2  # a forward ends on a whole nanosecond, at the next one at most


def dispatch(stage: Stage, count: int = 1, split: int | None = None, requests: int = 1) -> Dispatch:
    made = [decoding(number) if stage == "decode" else active(number, prompt=300) for number in range(requests)]
    return Dispatch(stage, tuple(made), () if stage == "vision" else (count,) * requests, split=split)


def timeline(*entries: tuple[float, Dispatch]) -> list[float]:
    """When each of these forwards ends that begin at these times, ms."""
    clock = VirtualClock()
    forwards = SimulatedForwards(SMALL, clock)
    coming, ends = sorted(entries, key=lambda entry: entry[0]), dict[int, float]()
    while coming or forwards.next_end_ns() is not None:
        next_ns = forwards.next_end_ns()
        if coming and (next_ns is None or coming[0][0] * MS <= next_ns):
            clock.sleep_until_ns(round(coming[0][0] * MS))
            forwards.submit(coming.pop(0)[1])
        elif next_ns is not None:
            clock.sleep_until_ns(next_ns)
            forwards.advance()
        for done, _, end_ns in forwards.log:
            ends[id(done)] = end_ns / MS
    return [round(ends[id(each)], 4) for _, each in entries]


def test_a_forward_alone_takes_as_long_as_the_profile_says() -> None:
    assert timeline((3, dispatch("vision"))) == [83]
    assert timeline((0, dispatch("prefill", 100))) == [40]
    assert timeline((0, dispatch("decode"))) == [10]
    assert timeline((0, dispatch("decode", requests=5))) == [14]


def test_several_prompts_take_as_long_as_one_of_all_their_tokens() -> None:
    assert timeline((0, dispatch("prefill", 50, requests=2))) == [40]


def test_a_part_of_the_device_is_as_slow_alone_as_beside_another_stage() -> None:
    assert timeline((0, dispatch("vision", split=4))) == [110]
    assert timeline((0, dispatch("decode", split=4))) == [20]
    assert timeline((0, dispatch("prefill", 100, split=4))) == [55]


def test_two_stages_on_the_parts_of_one_split() -> None:
    """A prefill of half the time alone has half the time beside too; the batch of five takes 1.4 times as long."""
    assert timeline((0, dispatch("vision", split=4)), (0, dispatch("decode", split=4, requests=5))) == [110, 28]
    assert timeline((0, dispatch("prefill", 10, split=4)), (0, dispatch("decode", split=4))) == [27.5, 26]


def test_a_decode_beside_prefill_goes_on_as_beside_vision_when_that_has_ended() -> None:
    """At 8.25 ms the prefill ends; 26 ms would have been one decode, and the rest takes of 20 ms what is left."""
    short = Dispatch("prefill", (active(1),), (3,), split=4)
    alone = SMALL.prefill_ms(3) * 55 / 40
    assert timeline((0, short), (0, dispatch("decode", split=4))) == [alone, 26]
    later = timeline((0, dispatch("decode", split=4)), (10, dispatch("prefill", 100, split=4)))
    assert later[0] == pytest.approx(10 + (1 - 10 / 20) * 26)


def test_a_decode_that_began_on_the_whole_device_shares_it() -> None:
    """5 of its 10 ms are done when the image begins; the other half takes 25 of 50. The image has done a quarter of
    its 100 ms by then, and does the rest at its part's 110."""
    assert timeline((0, dispatch("decode")), (5, dispatch("vision", split=4))) == [30, 30 + 0.75 * 110]


def test_without_a_partition_both_stages_share_the_device() -> None:
    """One 50 ms decode after another; the last 20 ms of the image beside the second one's first two fifths."""
    ends = timeline((0, dispatch("vision")), (0, dispatch("decode")), (50, dispatch("decode")))
    assert ends == [100, 50, 100]
    ends = timeline((0, dispatch("prefill", 100)), (0, dispatch("decode")))
    assert ends == pytest.approx([50, 50 + (1 - 50 / 60) * 10], abs=1e-3)


@pytest.mark.parametrize(("decode", "vision", "overlap"), [(2, 4, False), (4, 4, False), (6, 4, True), (None, 4, True)])
def test_parts_of_two_splits_share_units_if_decode_has_more_than_the_other_stage_leaves(
    decode: int | None, vision: int, overlap: bool
) -> None:
    """Decode's part are the first units of the device, the other stages' those behind."""
    one, other = dispatch("decode", split=decode), dispatch("vision", split=vision)
    if overlap:
        assert (duration_ms(SMALL, one, [other]), duration_ms(SMALL, other, [one])) == (50, 100)
    else:
        assert decode is not None
        own = SMALL.corun[decode].decode_by_vision
        assert (duration_ms(SMALL, one, [other]), duration_ms(SMALL, other, [one])) == (own, 110)


def test_vision_and_prefill_halve_each_other() -> None:
    """20 ms of the prefill's 40 take 40; then it is alone. With a decode beside both are slower still."""
    assert timeline((0, dispatch("prefill", 100)), (0, dispatch("vision"))) == [80, 80 + 0.5 * 80]
    front, decode = dispatch("vision"), dispatch("decode")
    assert duration_ms(SMALL, front, [dispatch("prefill", 100)]) == 160
    assert duration_ms(SMALL, front, [dispatch("prefill", 100), decode]) == 200
    assert duration_ms(SMALL, decode, [dispatch("prefill", 100), front]) == 60


def test_a_chunk_pays_for_each_answer_in_it_and_not_for_a_prompts_last_token() -> None:
    rows = (decoding(1), decoding(2))
    hybrid = Dispatch("prefill", (*rows, active(3)), (1, 1, 8))
    assert duration_ms(SMALL, hybrid, []) == SMALL.prefill_ms(10) + 2 * SMALL.token_row
    last = Dispatch("prefill", (active(3),), (1,))
    assert duration_ms(SMALL, last, []) == SMALL.prefill_ms(1)


def test_a_run_in_numbers() -> None:
    """Two requests at once, three tokens each, by Nova with 4 units for decode: the first is alone with vision and
    prefill (120 ms); its second and third token come beside the second one's image, 20 ms each."""
    served, forwards = simulate(
        NovaScheduler(StaticUnits(4, 4)), SMALL, [Arrival(0, 3), Arrival(0, 3)], EngineOptions(kv_mib=1)
    )
    first, second = served
    assert [each / MS for each in first.tokens_ns] == pytest.approx([120, 140, 160])
    at = 120 + 110  # the second one's image, on its part from the start to the end
    assert [each / MS for each in second.tokens_ns] == pytest.approx([at + 40, at + 50, at + 60])
    times = second.usage.timings
    assert (times.arrived_ns, times.vision_ns, times.prefill_ns, times.decode_ns) == (0, 110 * MS, 40 * MS, 20 * MS)
    assert [each.stage for each, _, _ in forwards.log].count("decode") == 4


def test_arrivals_have_their_own_prompts_and_come_in_any_order() -> None:
    trace = [Arrival(1.0, 1, prompt=200), Arrival(0.0, 1)]
    served, _ = simulate(PfLimitScheduler(5), SMALL, trace, EngineOptions(kv_mib=1))
    assert [each.arrival for each in served] == [trace[1], trace[0]]
    assert [each.usage.timings.prefill_ns / MS for each in served] == [40, 100]
    assert [each.usage.prompt_tokens for each in served] == [100, 200]
    assert [each.usage.timings.arrived_ns for each in served] == [0, 1000 * MS]


def test_a_scheduler_that_starts_nothing_is_named() -> None:
    class Idle:
        def next(self, state: EngineState) -> Dispatch | None:
            return None

    with pytest.raises(RuntimeError, match="simulation: 2 requests wait, and the scheduler starts nothing"):
        simulate(Idle(), SMALL, [Arrival(0, 1), Arrival(1, 1)], EngineOptions(kv_mib=1))


# Every scheduler, over random profiles and requests.

TIMES = st.integers(1, 60).map(float)
CORUNS = st.builds(CorunTimes, TIMES, TIMES, TIMES, TIMES)
PROFILES = st.builds(
    StageProfile,
    device=st.just("random"),
    model=st.just("random"),
    units=st.just(8),
    vision=TIMES,
    prefill=st.dictionaries(st.sampled_from((2, 4, 12, 24)), TIMES, max_size=3).flatmap(
        lambda others: TIMES.map(lambda time: {**others, 8: time})
    ),
    prompt=st.just(8),
    decode=TIMES,
    decode_row=st.sampled_from((0.0, 0.5, 7.0)),
    token_row=st.sampled_from((0.0, 0.5)),
    corun=st.dictionaries(st.integers(1, 7), CORUNS, min_size=1, max_size=4),
    shared=CORUNS,
)
REQUESTS = st.lists(
    st.builds(
        Asked,
        at_ms=st.one_of(st.just(0), st.integers(0, 400)),
        prompt=st.integers(3, 20),
        tokens=st.integers(1, 12),
        images=st.lists(st.integers(0, 3), max_size=3, unique=True).map(tuple),
        priority=st.sampled_from((0, 0, 0, -1, 1)),
        deadline_ms=st.one_of(st.none(), st.none(), st.integers(1, 600)),
        cancel_ms=st.one_of(st.none(), st.none(), st.integers(0, 600)),
    ),
    min_size=1,
    max_size=9,
)
LEAST_BLOCKS = 32 // BLOCK  # the longest request
BLOCKS = st.one_of(st.integers(LEAST_BLOCKS, LEAST_BLOCKS + 6), st.just(200))


def nova_of(profile: StageProfile) -> StageScheduler:
    return NovaScheduler(replace(make_plan(profile, 6, 60), beta_vision=1.5, beta_prefill=1.0))


SCHEDULERS: dict[str, Callable[[StageProfile], StageScheduler]] = {
    "nova": nova_of,
    "marginal": lambda profile: NovaScheduler(MarginalUnits(profile, 60)),
    "pf-limit": lambda profile: PfLimitScheduler(2),
    "chunk": lambda profile: ChunkScheduler(5),
    "multi-stream": lambda profile: NovaScheduler(StaticUnits()),
    "static": lambda profile: NovaScheduler(StaticUnits(profile.sizes[0], profile.sizes[-1])),
    "interleaved": lambda profile: InterleavedScheduler(12, chunked=False),
    "interleaved, chunked": lambda profile: InterleavedScheduler(5, chunked=True),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=60)
@given(PROFILES, REQUESTS, BLOCKS, st.integers(1, 5), st.integers(0, 1))
def test_every_request_ends_once_and_none_waits_while_nothing_runs(
    name: str, profile: StageProfile, asked: list[Asked], blocks: int, running: int, image_cache_mib: int
) -> None:
    scheduler = Watched(SCHEDULERS[name](profile), in_order)
    played, forwards, engine = play(scheduler, profile, asked, blocks, running, image_cache_mib)
    assert len(played) == len(asked)
    for each in played:
        answered(each)
    ended(engine, [each.reply for each in played])
    assert sum(engine.stats.ended.values()) == len(asked)
    assert not forwards._running
    always_at_work(played, forwards)
    plausible(profile, forwards)


def answered(played: Played) -> None:
    """Once, in whole, unless it was cancelled or had to end sooner; the time of none lies before the one before."""
    answer, asked, times = played.reply.result(0), played.asked, played.tokens_ns
    assert played.ends == 1
    assert len(answer.tokens) == len(times) == len(answer.ids)
    assert times == sorted(times)
    if answer.finish == "length":
        assert len(times) == asked.tokens
    else:
        assert (answer.finish == "cancelled" and asked.cancel_ms is not None) or (
            answer.finish == "deadline" and asked.deadline_ms is not None
        ), answer
        assert len(times) < asked.tokens


def always_at_work(played: Sequence[Played], forwards: SimulatedForwards) -> None:
    """At any time between a request's arrival and its end some forward runs: so none is starved, and the last request
    ends when the work of all is done."""
    busy = sorted((begin, end) for _, begin, end in forwards.log)
    for each in played:
        times = each.reply.result(0).usage.timings
        reached = times.arrived_ns
        for begin, end in busy:
            if begin <= reached + ROUND_NS:
                reached = max(reached, end)
        assert reached >= times.ended_ns


def plausible(profile: StageProfile, forwards: SimulatedForwards) -> None:
    """No forward is quicker than the best that could be beside it, nor slower than the worst; and ends come in
    order."""
    ends = [end for _, _, end in forwards.log]
    assert ends == sorted(ends)
    for each, begin, end in forwards.log:
        least, most = extremes(profile, each)
        assert least * MS - ROUND_NS <= end - begin <= most * MS + ROUND_NS, (each, least, most)


def extremes(profile: StageProfile, one: Dispatch) -> tuple[float, float]:
    own = [profile.shared] if one.split is None else [profile.shared, profile.corun[one.split]]
    if one.stage == "vision":
        times = [each.vision for each in own] + ([profile.vision] if one.split is None else [])
        return min(times), 2 * max(times)
    if one.stage == "prefill":
        factors = [each.prefill / profile.prefill[profile.prompt] for each in own] + [1.0] * (one.split is None)
        alone = profile.prefill_ms(sum(one.counts))
        rows = profile.token_row * sum(count == 1 for count in one.counts)
        return min(factors) * alone, 2 * max(factors) * (alone + rows)
    beside = [time for each in own for time in (each.decode_by_vision, each.decode_by_prefill)]
    factors = [each / profile.decode for each in beside] + [1.0] * (one.split is None)
    alone = profile.decode_ms(len(one.requests))
    return min(factors) * alone, max(factors) * alone


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=20)
@given(PROFILES.map(lambda profile: replace(profile, token_row=0.0)), REQUESTS, BLOCKS)
def test_the_shares_of_a_forwards_work_add_up_to_one(
    name: str, profile: StageProfile, asked: list[Asked], blocks: int
) -> None:
    _, forwards, _ = play(SCHEDULERS[name](profile), profile, asked, blocks)
    for each, begin, end in forwards.log:
        beside = [other for other in forwards.log if other[0] is not each and other[1] < end and other[2] > begin]
        changes = sorted({begin, end, *(min(max(at, begin), end) for _, *times in beside for at in times)})
        done, rounding = 0.0, 1e-9
        for start, stop in pairwise(changes):
            others = [other for other, other_begin, other_end in beside if other_begin < stop and other_end > start]
            taken_ns = duration_ms(profile, each, others) * MS
            done, rounding = done + (stop - start) / taken_ns, max(rounding, ROUND_NS / taken_ns)
        assert done == pytest.approx(1, abs=rounding)


@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=5)
@given(PROFILES, REQUESTS, BLOCKS)
def test_a_run_can_be_repeated(name: str, profile: StageProfile, asked: list[Asked], blocks: int) -> None:
    runs = []
    for _ in range(2):
        played, forwards, _ = play(SCHEDULERS[name](profile), profile, asked, blocks)
        log = [(each.stage, [one.number for one in each.requests], begin, end) for each, begin, end in forwards.log]
        runs.append(([each.tokens_ns for each in played], log))
    assert runs[0] == runs[1]


@settings(max_examples=150)
@given(PROFILES, REQUESTS, BLOCKS, st.integers(1, 5))
def test_no_decode_of_nova_is_blocked_for_longer_than_its_parts_allow(
    profile: StageProfile, asked: list[Asked], blocks: int, running: int
) -> None:
    """The bound on the time between tokens, as tight as it is true. For a request that keeps its blocks one decode
    follows another without a gap; before its second token lies the rest of the batch that ran when its first one came,
    too. And a decode of n requests takes no longer than decode_ms(n) / decode times its time on its own part, beside
    vision or prefill: never what it takes without a partition."""
    plan = replace(make_plan(profile, 6, 60), beta_vision=1.5, beta_prefill=1.0)
    played, forwards, _ = play(NovaScheduler(plan), profile, asked, blocks, running)
    decodes = [entry for entry in forwards.log if entry[0].stage == "decode"]
    for decode, begin, end in decodes:
        bound = profile.decode
        if decode.split is not None:
            assert decode.split >= plan.least
            corun = profile.corun[decode.split]
            bound = max(corun.decode_by_vision, corun.decode_by_prefill)
        rows = profile.decode_ms(len(decode.requests)) / profile.decode
        assert end - begin <= rows * bound * MS + ROUND_NS
    for each in played:
        if each.reply.result(0).usage.preempted == 0:
            without_gaps(each.tokens_ns, [(begin, end) for _, begin, end in decodes])


def without_gaps(tokens_ns: list[int], decodes: list[tuple[int, int]]) -> None:
    for place, (before, after) in enumerate(pairwise(tokens_ns)):
        (begin,) = [begin for begin, end in decodes if end == after]
        if begin != before:
            assert place == 0
            assert [end for other, end in decodes if other < before < end] == [begin]


@settings(max_examples=60)
@given(PROFILES, REQUESTS, st.integers(1, 5))
def test_with_blocks_for_all_nova_divides_the_device_as_planned(
    profile: StageProfile, asked: list[Asked], running: int
) -> None:
    plan = replace(make_plan(profile, 6, 60), beta_vision=1.5, beta_prefill=1.0)

    def planned(state: EngineState, dispatch: Dispatch | None) -> None:
        front = state.running.get("prefill") or state.running.get("vision")
        assert not (state.running.get("prefill") and state.running.get("vision"))
        if dispatch is None:
            assert not state.ready("decode")
            waiting = state.ready("prefill") + state.ready("vision")
            assert front is not None or "decode" in state.running or not waiting
        elif dispatch.stage == "decode":
            assert front is None or dispatch.split == front.split
        else:
            assert front is None
            assert dispatch.stage == ("prefill" if state.ready("prefill") else "vision")
            units = plan.beside_vision if dispatch.stage == "vision" else plan.beside_prefill
            assert dispatch.split == (
                units(state.pending, len(state.queues["decode"])) if state.queues["decode"] else None
            )

    play(Watched(NovaScheduler(plan), in_order, planned), profile, asked, 200, running)


def test_few_blocks_take_them_from_the_youngest_and_everybody_is_answered() -> None:
    """The plays above are worth something only if requests give back blocks in them, find images again, and end in
    every way."""
    asked = [Asked(index, prompt=8, tokens=12, images=(index % 2,)) for index in range(6)]
    for name, make in SCHEDULERS.items():
        played, forwards, engine = play(make(SMALL), SMALL, asked, LEAST_BLOCKS + 2, 6, 1)
        assert engine.stats.preemptions > 0, name
        assert engine.stats.images == 2
        assert not any(each.reply.result(0).usage.preempted for each in played[:1])
        for each in played:
            answered(each)
        ended(engine)
        assert max(len(each.requests) for each, _, _ in forwards.log) > 1


def test_a_request_ends_at_its_deadline_or_when_it_is_cancelled() -> None:
    asked = [
        Asked(0, tokens=12, deadline_ms=131),
        Asked(0, tokens=12, cancel_ms=10),
        Asked(5, tokens=12, images=(), deadline_ms=2),
    ]
    played, _, engine = play(nova_of(SMALL), SMALL, asked, 200)
    assert [each.reply.result(0).finish for each in played] == ["deadline", "cancelled", "deadline"]
    assert [each.reply.result(0).usage.timings.ended_ns // MS for each in played][1:] == [10, 7]
    assert len(played[0].tokens_ns) in range(1, 12)
    ended(engine)
