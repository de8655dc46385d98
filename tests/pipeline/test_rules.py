"""Rules 1 to 6 of docs/pipeline.md: when frames start, what they see, and how a request moves through.

Each test names its rule; the answers are worked out by hand. `test_modes_property` holds the same rules for random
plans; rules 7 and 8 are in `test_rules_chunks`, 9 to 11 in `test_rules_epochs`, 12 in `tests/evaluate/test_clocks`.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.context import PublicContext
from auras_ros.pipeline.frames import FrameClock
from auras_ros.pipeline.plan import Plan, PlanError, stage_steps
from auras_ros.policies.denoising import DenoisingState
from tests.device.null_device import NullDevice
from tests.pipeline.driver import MS, Both, executor_of
from tests.pipeline.recording import COPIES_NS, IMAGE, RecordingNoise, RecordingPolicy, latched, stamp_of
from tests.pipeline.reference import Tick, frame_starts, latency, split

EVERY_MODE = [Plan(mode="seq"), Plan(mode="dec"), Plan(mode="par", concurrency=2), Plan(mode="auras", pp_generation=2)]


def clocked(ticks: list[Tick], period: int) -> tuple[list[int], int]:
    """What the frame clock makes of these frames: their starts, and the ticks it counts as skipped."""
    clock, now = FrameClock(period), 0
    starts: list[int] = []
    for tick in ticks:
        now = clock.next_start_ns(now) + (tick.late if starts else 0)
        starts.append(now)
        clock.started(now)
        now += tick.runs
        if tick.idle:  # its driver waits for the next tick, looks, and finds nothing
            clock.next_start_ns(now)
            clock.idle()
            now += tick.idle
    return starts, clock.skipped


def test_rule_01_a_frame_starts_at_the_next_tick_and_an_overrun_skips_ticks() -> None:
    """Rule 1: period 10; the second frame runs past the ticks at 20 and 30, the third ends on one."""
    assert clocked([Tick(4), Tick(25), Tick(10), Tick(1), Tick(1)], 10) == ([0, 10, 40, 50, 60], 2)


def test_rule_01_without_a_period_a_frame_starts_where_the_last_one_ended() -> None:
    """Rule 1: free-running; nothing is skipped because there is no grid."""
    assert clocked([Tick(4), Tick(25), Tick(1, idle=7), Tick(1)], 0) == ([0, 4, 29, 37], 0)


def test_rule_01_ticks_with_nothing_to_do_are_not_missed() -> None:
    """Rule 1: only an overrun misses ticks; the grid stays where it was."""
    assert clocked([Tick(4, idle=33), Tick(1)], 10) == ([0, 40], 0)


@given(
    st.lists(
        st.one_of(
            st.builds(Tick, st.integers(1, 40), late=st.integers(0, 25)),
            st.builds(Tick, st.integers(1, 40), idle=st.integers(1, 40)),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 12),
)
@example([Tick(25, idle=20)], 10)
def test_rule_01_the_frame_clock_keeps_to_the_grid(ticks: list[Tick], period: int) -> None:
    """Rule 1: any durations, late wakings and pauses, against the model of the grid."""
    ticks = [*ticks, Tick(1)]  # what a frame missed is known when the next one starts
    assert clocked(ticks, period) == frame_starts(ticks, period)


@pytest.mark.parametrize("plan", EVERY_MODE, ids=lambda plan: plan.mode)
def test_rule_01_inputs_are_latched_once_at_the_start(plan: Plan) -> None:
    """Rule 1: what the camera's buffer holds after `begin` is of no account."""
    noise = RecordingNoise(4, [0])
    executor = executor_of(RecordingPolicy(4), plan, noise, VirtualClock())
    used = []
    for stamp in range(1, 7):
        for worker in executor.workers:
            seen = latched(stamp, [0])
            worker.begin(seen, 0)
            seen.images.fill_(99.0)
            seen.state.fill_(99.0)
            worker.run()
            seen.images.fill_(98.0)
            seen.state.fill_(98.0)
            emission = worker.end(0)
            if emission is not None:
                used += emission.actions[0, :4, IMAGE].tolist()
    executor.close()
    assert used
    assert max(used) <= 6


def timed(plan: Plan, durations_ms: dict[str, int]) -> list[int]:
    """How long each of six frames takes in virtual time, ms, when stages last so long."""
    clock = VirtualClock()
    device = NullDevice(clock, {name: ms * MS for name, ms in durations_ms.items()})
    executor = executor_of(RecordingPolicy(6), plan, RecordingNoise(6, [0]), clock, device)
    [worker] = executor.workers
    taken = []
    for stamp in range(1, 7):
        began_ns = clock.now_ns()
        worker.begin(latched(stamp, [0]), began_ns)
        worker.run()
        worker.end(clock.now_ns())
        taken.append((clock.now_ns() - began_ns) // MS)
    executor.close()
    return taken


def test_rule_02_offset_0_waits_for_perception_and_offset_minus_1_runs_beside_it() -> None:
    """Rule 2: perception 3 ms and generation 5 make 8 ms in sequence and 5 side by side, once the pipeline is full."""
    durations_ms = {**COPIES_NS, "perception": 3, "generation": 5}
    plan = Plan(mode="auras", pp_generation=2)
    assert timed(plan, durations_ms) == [8] * 6
    beside = Plan(mode="auras", pp_generation=2, fetch_offset=-1)
    assert timed(beside, durations_ms) == [3] + [5] * 5


def test_rule_02_perception_puts_in_the_slot_of_its_parity_and_generation_fetches_with_the_offset() -> None:
    """Rule 2: frame f writes slot f mod 2; generation reads slot (f + offset) mod 2; nothing before the first put."""
    context = PublicContext((latched(0, [0]).state,))
    assert context.fetch(0, -1) is None
    seen = [latched(stamp, [0]).origin for stamp in range(4)]
    for frame, one in enumerate(seen):
        context.put(frame, one)
        assert context.fetch(frame, 0) is one
        assert context.fetch(frame, -1) is (seen[frame - 1] if frame else None)
    context.clear()
    assert context.fetch(3, 0) is None
    assert context.fetch(3, -1) is None


@pytest.mark.parametrize(
    ("stages", "offset", "frames"),
    [((1, 1), 0, 1), ((1, 1), -1, 2), ((2, 4), -1, 6), ((2, 4), 0, 5), ((3, 8), 0, 10), ((3, 8), -1, 11)],
)
def test_rule_03_a_request_lives_so_many_frames(stages: tuple[int, int], offset: int, frames: int) -> None:
    """Rule 3: L; with offset -1 it is the paper's pp_perception + pp_generation (figure 9b: 2 + 4 = 6)."""
    perception, generation = stages
    plan = Plan(mode="auras", pp_perception=perception, pp_generation=generation, fetch_offset=offset)
    assert plan.latency_frames == frames == latency(perception, generation, offset)
    both = Both(plan, 8, 1)
    for frame in range(frames + 1):
        both.stamp = frame + 1
        assert (both.frame() is not None) == (frame >= frames - 1)
    both.close()


def test_rule_03_generation_sees_what_was_latched_so_many_frames_ago() -> None:
    """Rule 3: two perception stages, offset -1: frame f sees the observation of frame f - 2 in all four stages."""
    both = Both(Plan(mode="auras", pp_perception=2, pp_generation=4, fetch_offset=-1), 4, 1)
    for stamp in range(10, 18):  # frame 0 latches observation 10
        both.stamp = stamp
        both.frame()
    both.close()
    seen = [[stamp_of(context) for context in left.emission.contexts] for left in both.left]
    assert seen == [[10, 11, 12, 13], [11, 12, 13, 14], [12, 13, 14, 15]]
    assert [left.actions[0, :4, IMAGE].tolist() for left in both.left] == seen
    assert [left.emission.frame for left in both.left] == [5, 6, 7]


def test_rule_04_one_request_a_newer_context_and_bubbles_otherwise() -> None:
    """Rule 4: frames see 1 1 2 2 2 and two stages generate: requests come in frames 0 and 2, leave in 1 and 3."""
    both = Both(Plan(mode="auras", pp_generation=2), 4, 1)
    left = []
    for stamp in (1, 1, 2, 2):
        both.stamp = stamp
        left.append(both.frame() is not None)
    assert left == [False, True, False, True]
    assert both.noise.drawn == [0, 1]  # a bubble draws nothing
    assert [[stamp_of(c) for c in one.emission.contexts] for one in both.left] == [[1, 1], [2, 2]]
    assert both.frame() is None
    assert both.executor.frames == 4  # with nothing new and nothing on its way no frame runs
    both.close()


@pytest.mark.parametrize("plan", EVERY_MODE, ids=lambda plan: plan.mode)
def test_rule_04_an_older_or_equal_observation_is_never_admitted(plan: Plan) -> None:
    """Rule 4: newer than the last admission's, by the stamp; even when a frame runs all the same."""
    both = Both(plan, 4, 1)
    for stamp in (5, 5, 4, 5, 5, 4, 5, 4):
        both.stamp = stamp
        for number in range(len(both.executor.workers)):
            both.advance(number, forced=True)
            both.finish(number)
    assert [left.emission.request for left in both.left] == both.noise.drawn == [0]
    assert not any(worker.wants(None, 0) for worker in both.executor.workers)
    both.close()


class Counting(RecordingPolicy):
    """Notes at which step each row of every call of the network stands."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.calls: list[list[int]] = []

    def step(self, state: DenoisingState, context: Tensor, index: Tensor) -> DenoisingState:
        self.calls.append(index.tolist())
        return super().step(state, context, index)


@pytest.mark.parametrize(
    ("batched", "calls"), [(True, [[3, 1, 0], [4, 2], [5]]), (False, [[3], [4], [5], [1], [2], [0]])]
)
def test_rule_05_rows_with_steps_left_advance_in_one_batch(batched: bool, calls: list[list[int]]) -> None:
    """Rule 5: six steps as 1, 2 and 3: three calls of 3, 2 and 1 rows, the oldest first, each at its own step."""
    policy = Counting(6)
    plan = Plan(mode="auras", pp_generation=3, alpha=0.5, batched=batched)
    executor = executor_of(policy, plan, RecordingNoise(6, [0]), VirtualClock())
    [worker] = executor.workers
    for stamp in range(5):
        policy.calls.clear()
        worker.begin(latched(stamp, [0]), 0)
        worker.run()
        worker.end(0)
    executor.close()
    assert policy.calls == calls


@pytest.mark.parametrize(
    ("stages", "alpha", "counts"),
    [(4, 0.0, (25, 25, 25, 25)), (4, 0.5, (10, 17, 27, 46)), (5, 1.0, (1, 3, 9, 23, 64)), (1, 2.0, (100,))],
)
def test_rule_06_the_papers_figures(stages: int, alpha: float, counts: tuple[int, ...]) -> None:
    """Rule 6: 100 steps; 46 in the last of four at 0.5, 64 in the last of five at 1 (Auras 4.3.2 and 6.4)."""
    assert stage_steps(100, stages, alpha) == counts == tuple(split(100, stages, alpha))


def test_rule_06_every_stage_has_a_step_and_every_step_is_used_once() -> None:
    """Rule 6: a steep skew over as many stages as can be; fewer steps than stages are refused."""
    assert stage_steps(10, 8, 2.0) == (1, 1, 1, 1, 1, 1, 1, 3)
    assert stage_steps(8, 8, 2.0) == (1,) * 8
    with pytest.raises(PlanError, match="pp_generation: 8 stages for 7 generation steps"):
        executor_of(RecordingPolicy(7), Plan(mode="auras", pp_generation=8), RecordingNoise(7, [0]), VirtualClock())
