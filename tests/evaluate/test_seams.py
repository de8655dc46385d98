"""Seams as they are counted, against a model that knows nothing of the action stream.

Guards: a seam missed, or seen where a chunk only goes on or follows a hold; a disagreement asked of the wrong tick, or
of actions as no limit has left them; figures that are not of what was counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from auras_ros.action import ActionStream, ActionStreamOptions, Channel, Chunk, Contract, ContractError
from auras_ros.evaluate.seams import Seams, SeamWatch
from auras_ros.evaluate.tuner.record import EpisodeStore, Played
from tests.action.conftest import channel, chunk
from tests.evaluate.tables import DT, MS

TICK = 10 * MS
SPAN = 2000 * MS


def two(**changes: Any) -> Contract:
    return Contract((channel("x", **changes), channel("y", **changes)), 100.0)


class Drive:
    """A stream and its watch, ticked every 10 ms from time 0; chunks are offered at their times, before the tick of
    the same instant."""

    def __init__(self, contract: Contract, tick_ns: int = TICK, **options: Any) -> None:
        self.seams = Seams()
        self.stream = ActionStream(contract, ActionStreamOptions(tick_ns, max_chunk_age_ms=SPAN / MS, **options))
        self.watch = SeamWatch(contract, tick_ns, SPAN, self.seams)
        self.tick_ns = tick_ns

    def run(self, offers: Sequence[tuple[int, Chunk]], until_ns: int) -> list[Any]:
        """offers: (ns, chunk) in order. Returns all commands."""
        assert self.stream.arm(0, [0.0] * len(self.stream.contract.channels)).ok
        commands, left = [], list(offers)
        for now_ns in range(0, until_ns, self.tick_ns):
            while left and left[0][0] <= now_ns:
                at_ns, each = left.pop(0)
                assert self.stream.offer(each, at_ns).ok
                self.watch.offered(each, at_ns)
            commands.append(self.stream.tick(now_ns))
            self.watch.ticked(commands[-1], now_ns)
        return commands


def ramp(origin_ms: int, request: int, start: float, slope: float, horizon: int = 8) -> Chunk:
    """Both channels: start + slope a step, the second one negated."""
    values = start + slope * np.arange(horizon)
    return chunk(np.stack([values, -values], 1), origin_ms * MS, request=request)


def tenths(value: float) -> int:
    return round(10 * value)


def test_a_seam_is_what_the_new_chunk_says_beside_what_the_old_one_would_have_said() -> None:
    """Origins at 0 and 200, the second taken over at 300 (step 1 of it, step 3 of the old one)."""
    drive = Drive(two())
    drive.run([(0, ramp(0, 0, 1.0, 5.0)), (300 * MS, ramp(200, 1, 30.0, 2.0))], 500 * MS)
    apart = np.sqrt(2) * abs((30 + 1 * 2) - (1 + 3 * 5))
    assert drive.seams.disagreements == {tenths(apart): 1}
    assert drive.seams.jumps == {tenths(apart): 1}  # the tick before is of the same step of the old chunk
    assert drive.seams.within == tenths(np.sqrt(2) * 5)
    assert drive.seams.limited == 0


def test_ticks_of_a_whole_step_jump_by_the_motion_too() -> None:
    drive = Drive(two(), tick_ns=DT)
    drive.run([(0, ramp(0, 0, 1.0, 5.0)), (300 * MS, ramp(200, 1, 30.0, 2.0))], 500 * MS)
    assert drive.seams.disagreements == {tenths(np.sqrt(2) * 16): 1}
    assert drive.seams.jumps == {tenths(np.sqrt(2) * 21): 1}


@st.composite
def offerings(draw: Any) -> list[tuple[int, Chunk]]:
    """Chunks with origins on the world's grid, each there at an instant of its own, often in the middle of a step."""
    offers, at_ms, origin_ms = [], 0, -100
    for request in range(draw(st.integers(1, 6))):
        origin_ms += 100 * draw(st.integers(1, 3))
        at_ms = max(at_ms + 1, origin_ms + draw(st.integers(0, 350)))
        start, slope = draw(st.integers(-40, 40)), draw(st.integers(-4, 4))
        offers.append((at_ms * MS, ramp(origin_ms, request, float(start), float(slope), draw(st.integers(6, 11)))))
    return offers


@settings(max_examples=60, deadline=None)
@given(offers=offerings(), tick_ms=st.sampled_from([10, 50, 100]))
def test_seams_against_a_model_without_a_stream(offers: list[tuple[int, Chunk]], tick_ms: int) -> None:
    """d = ceil(time since the origin / dt), the newest chunk that is there is active, and a used-up one holds."""
    drive, tick_ns = Drive(two(), tick_ms * MS), tick_ms * MS
    drive.run(offers, 2500 * MS)
    jumps, apart, within = [], [], [0]
    before: tuple[Chunk, Any] | None = None
    for now_ns in range(0, 2500 * MS, tick_ns):
        there = [each for at_ns, each in offers if at_ns <= now_ns]
        value = says(there[-1], now_ns) if there else None
        if value is not None and before is not None:
            step = tenths(np.linalg.norm(value - before[1]))
            if there[-1] is before[0]:
                within.append(step)
            else:
                jumps.append(step)
                old = says(before[0], now_ns)
                apart += [] if old is None else [tenths(np.linalg.norm(value - old))]
        before = None if value is None else (there[-1], value)
    assert sorted(drive.seams.jumps.elements()) == sorted(jumps)
    assert sorted(drive.seams.disagreements.elements()) == sorted(apart)
    assert drive.seams.within == max(within)


def says(each: Chunk, now_ns: int) -> Any:
    index = -(-(now_ns - each.provenance.origin_mono_ns) // DT)
    return each.actions[index] if index < each.horizon else None


def test_the_first_chunk_after_a_hold_makes_no_seam() -> None:
    drive = Drive(two())
    late = ramp(900, 1, 60.0, 0.0)
    commands = drive.run([(0, ramp(0, 0, 1.0, 0.0, horizon=3)), (900 * MS, late)], 1200 * MS)
    assert {command.source for command in commands} == {"chunk", "hold"}
    assert drive.seams == Seams()


@pytest.mark.parametrize("blend_ms", [50, 200])
def test_a_blend_spreads_a_jump_and_leaves_the_disagreement(blend_ms: int) -> None:
    drive = Drive(two(), seam="blend", blend_ms=blend_ms)
    drive.run([(0, ramp(0, 0, 0.0, 0.0)), (300 * MS, ramp(300, 1, 60.0, 0.0))], 700 * MS)
    apart, ticks = 60 * np.sqrt(2), blend_ms // 10
    assert drive.seams.disagreements == {tenths(apart): 1}
    assert drive.seams.jumps == {tenths(apart / (ticks + 1)): 1}
    assert drive.seams.within == tenths(apart / (ticks + 1))


def test_a_limit_on_the_rate_bounds_the_jump_and_is_counted() -> None:
    drive = Drive(two(max_rate=1000.0))
    drive.run([(0, ramp(0, 0, 0.0, 0.0)), (300 * MS, ramp(300, 1, 60.0, 0.0))], 700 * MS)
    assert drive.seams.jumps == {tenths(10 * np.sqrt(2)): 1}
    assert drive.seams.disagreements == {tenths(60 * np.sqrt(2)): 1}
    assert drive.seams.limited == 1


def test_what_a_chunk_says_is_what_its_limits_leave_of_it() -> None:
    drive = Drive(two())
    drive.run([(0, ramp(0, 0, 0.0, 0.0)), (300 * MS, ramp(300, 1, 101.0, 0.0))], 700 * MS)
    assert drive.seams.disagreements == {tenths(100 * np.sqrt(2)): 1}


def test_an_ensembles_seam_is_where_its_newest_chunk_changes() -> None:
    drive = Drive(two(), seam="ensemble", ensemble_decay=0.0)
    drive.run([(0, ramp(0, 0, 0.0, 0.0)), (300 * MS, ramp(300, 1, 60.0, 0.0))], 700 * MS)
    assert drive.seams.disagreements == {tenths(60 * np.sqrt(2)): 1}
    assert drive.seams.jumps == {tenths(30 * np.sqrt(2)): 1}


@pytest.mark.parametrize("kind", ["delta_previous", "velocity", "gripper"])
def test_a_kind_without_a_distance_is_refused_by_name(kind: str) -> None:
    rules = Contract((channel("x"), cast(Channel, channel("knob", kind))), 100.0)
    with pytest.raises(ContractError, match=f"'knob': kind: jumps of {kind}"):
        SeamWatch(rules, TICK, SPAN, Seams())


# -- what was counted ----------------------------------------------------------------------------------------


def seams(jumps: Sequence[int], disagreements: Sequence[int], limited: int = 0, within: int = 0) -> Seams:
    found = Seams(limited=limited, within=within)
    found.jumps.update(jumps)
    found.disagreements.update(disagreements)
    return found


@settings(deadline=None, max_examples=40)
@given(values=st.lists(st.integers(0, 9000), min_size=1, max_size=120))
def test_figures_are_of_the_values_in_order(values: list[int]) -> None:
    figures, order = seams(values, values[:1]).figures(), sorted(values)
    assert figures["jump_max"] == order[-1] / 10
    assert figures["jump_p99"] == order[-(-99 * len(order) // 100) - 1] / 10
    assert figures["jump_median"] == order[-(-len(order) // 2) - 1] / 10
    assert figures["disagreement_max"] == values[0] / 10


@pytest.mark.parametrize(("jumps", "within", "largest"), [([3, 20], 50, 5.0), ([3, 70], 50, 7.0)])
def test_the_largest_step_is_that_at_a_seam_or_within_a_chunk(jumps: list[int], within: int, largest: float) -> None:
    assert seams(jumps, [], within=within).figures()["step_max"] == largest


def test_without_a_seam_nothing_is_said() -> None:
    assert set(seams([], [], within=7).figures().values()) == {None}


def test_parts_joined_are_the_whole() -> None:
    whole = seams([1, 5, 5], [2], limited=1, within=9)
    whole.add(seams([5, 7], [2, 3], limited=2, within=4))
    assert whole == seams([1, 5, 5, 5, 7], [2, 2, 3], limited=3, within=9)


def test_they_are_kept_beside_the_episodes_and_a_record_without_them_is_read(tmp_path: Any) -> None:
    record = EpisodeStore({"bench": "seams"}, tmp_path / "work.json")
    record.played = {
        "one": Played(0.2, {3: True}, seams=seams([1, 14, 14], [3], 1, 5)),
        "other": Played(0.2, {3: False}),
    }
    record.save()
    assert '"seams"' not in (tmp_path / "work.json").read_text().split('"other"')[1]
    assert EpisodeStore.open(record.key, record.path).played == record.played
