"""Rules 9 to 11 of docs/pipeline.md: epochs, warm-up, and what each mode promises.

Each test names its rule. The policy is the one that records, but for warm-up, which must not change real actions.
Requests that a gap has made stale are in `test_stale`; rule 12, both clocks, is in `tests/evaluate/test_clocks`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.measure.window import Length, Meter
from auras_ros.pipeline.decoupled import PerceptionWorker
from auras_ros.pipeline.plan import Plan, PlanError
from tests.device.null_device import NullDevice
from tests.pipeline.driver import BEGUN, MS, Both, executor_of
from tests.pipeline.real import moving, real, run
from tests.pipeline.recording import COPIES_NS, IMAGE, RecordingNoise, RecordingPolicy, latched, stamp_of
from tests.policies import tiny

EVERY_MODE = [
    Plan(mode="seq"),
    Plan(mode="dec"),
    Plan(mode="par", concurrency=3),
    Plan(mode="auras", pp_perception=2, pp_generation=3, fetch_offset=-1),
]


def named(plan: Plan) -> str:
    return plan.mode


@pytest.mark.parametrize("plan", EVERY_MODE, ids=named)
def test_rule_09_a_reset_drops_what_is_under_way_and_forgets_what_was_seen(plan: Plan) -> None:
    """Rule 9: nothing of the old epoch comes out, the first chunk of the new one saw only what came after."""
    both = Both(plan, 6, 2)
    for stamp in range(1, 8):
        both.stamp = stamp
        for number in range(len(both.executor.workers)):
            both.frame(number)
    assert both.left, "full before the reset"
    if plan.mode == "dec":
        both.stamp = 50
        both.frame(0)
    for number in range(len(both.executor.workers)):
        both.stamp = 51 + number
        both.advance(number)
    assert both.states == [BEGUN] * len(both.executor.workers)
    before = len(both.left)
    both.reset(first_request=500)
    for stamp in range(100, 110):
        both.stamp = stamp
        for number in range(len(both.executor.workers)):
            both.finish(number)
            both.frame(number)
    after = both.left[before:]
    assert after[0].emission.request == 500
    for left in after:
        assert left.emission.epoch == 1
        assert left.actions[:, :6, IMAGE].min() >= 100
        assert all(stamp_of(context) >= 100 for context in left.emission.contexts)
    both.close()


def test_rule_09_after_a_reset_the_pipeline_fills_again() -> None:
    """Rule 9: two perception stages, three of generation, offset -1: again five frames to the first chunk."""
    both = Both(EVERY_MODE[3], 6, 1)
    for stamp in range(1, 21):
        if stamp == 11:
            both.reset(None)
        both.stamp = stamp
        both.frame()
    assert EVERY_MODE[3].latency_frames == 5
    assert [(left.emission.epoch, left.emission.frame) for left in both.left] == [
        *[(0, frame) for frame in range(4, 10)],
        *[(1, frame) for frame in range(14, 20)],
    ]
    assert both.left[6].emission.request == 8  # eight were admitted before, six of them came out
    both.close()


def test_rule_09_what_was_seen_before_a_reset_may_be_used_again_after_it() -> None:
    """Rule 9: a new prompt over the same picture is a new request."""
    both = Both(Plan(mode="seq"), 4, 1)
    both.frame()
    assert both.frame() is None
    both.reset(None)
    again = both.frame()
    assert again is not None
    assert (again.emission.epoch, again.emission.request) == (1, 1)
    both.close()


def test_rule_09_a_context_perceived_across_a_reset_is_put_with_its_old_epoch_and_never_fetched() -> None:
    """Rule 9: perception began before the reset and ends after it; generation has nothing to fetch until the next."""
    both = Both(Plan(mode="dec"), 4, 1)
    perceive = both.executor.workers[0]
    assert isinstance(perceive, PerceptionWorker)
    both.advance(0)
    both.reset(None)
    both.finish(0)
    put = perceive.newest(0)
    assert put is not None
    assert stamp_of(put) == 1  # it is there
    assert perceive.newest(1) is None  # and not for the new epoch
    assert both.frame(1) is None
    assert both.noise.drawn == []
    both.stamp = 2
    both.frame(0)
    left = both.frame(1)
    assert left is not None
    assert left.actions[0, :4, IMAGE].tolist() == [2.0] * 4
    both.close()


def test_rule_09_a_plan_whose_frames_outlast_the_horizon_is_refused() -> None:
    """Rule 9: L = 3, so five frames of 100 ms need a horizon of 500 ms; seq needs three."""
    plan = Plan(mode="auras", pp_generation=3)
    plan.check_horizon(100 * MS, 500 * MS)
    with pytest.raises(PlanError, match=r"5 frames \(L \+ 2\) of 100.0 ms outlast the horizon of 499 ms"):
        plan.check_horizon(100 * MS, 499 * MS)
    Plan(mode="seq").check_horizon(100 * MS, 300 * MS)
    with pytest.raises(PlanError, match="3 frames"):
        Plan(mode="seq").check_horizon(100 * MS, 299 * MS)


def test_rule_09_configuring_refuses_it() -> None:
    """Rule 9: the small checkpoint's horizon is 8 steps of 100 ms: five frames of 160 ms fit, of 161 do not."""
    plan = "quick,mode=auras,pp_generation=3,frame_period_ms="
    Pipeline(tiny.checkpoint(), Plan.parse(f"{plan}160"), PipelineSettings(), VirtualClock()).warm_up()
    with pytest.raises(PlanError, match="outlast the horizon of 800 ms"):
        Pipeline(tiny.checkpoint(), Plan.parse(f"{plan}161"), PipelineSettings(), VirtualClock()).warm_up()


@pytest.mark.parametrize("plan", EVERY_MODE, ids=named)
def test_rule_10_warm_up_leaves_no_trace(plan: Plan) -> None:
    """Rule 10: warm or cold, the same chunks with the same numbers; warm-up is in no count."""
    policy, seen = tiny.policy(), moving(12)
    cold, warm = real(plan, policy), real(plan, policy)
    warm.warm_up()
    assert warm.frames == 0
    pairs = list(zip(run(cold, seen), run(warm, seen), strict=True))
    assert len(pairs) >= 3
    for one, other in pairs:
        assert torch.equal(one.actions, other.actions)
        assert (one.request, one.frame, one.epoch) == (other.request, other.frame, other.epoch)
        assert [c.mono_ns for c in one.contexts] == [c.mono_ns for c in other.contexts]


def test_rule_10_warm_up_runs_on_random_values() -> None:
    """Rule 10 (and "random values, never zeros"): what perception was given differs from frame to frame."""
    policy, given = RecordingPolicy(4), []
    perceive = policy.perceive
    policy.perceive = lambda images, state: given.append(images.clone()) or perceive(images, state)  # type: ignore
    executor = executor_of(policy, Plan(mode="seq"), RecordingNoise(4, [0, 1]), VirtualClock())
    executor.warm_up(runs=3)
    executor.close()
    assert len(given) >= 4  # three runs, beside what makes the buffers
    assert all(not torch.equal(a, b) and a.std() > 0.1 for a, b in zip(given[-2:], given[-3:-1], strict=True))


def test_rule_10_the_first_chunk_comes_after_l_frames() -> None:
    """Rule 10: warmed up or not, nothing comes out of frames 0 to L - 2."""
    both = Both(EVERY_MODE[3], 6, 1)
    both.warm_up()
    came = []
    for stamp in range(1, 8):
        both.stamp = stamp
        came.append(both.frame() is not None)
    assert came == [False] * 4 + [True] * 3
    assert both.left[0].emission.frame == 4
    both.close()


def test_rule_11_dec_fetches_once() -> None:
    """Rule 11: three contexts are put while a request is generated; it keeps the one of its start."""
    both = Both(Plan(mode="dec"), 6, 1)
    both.frame(0)
    both.advance(1)  # begin: fetches 1
    for stamp in (2, 3, 4):
        both.stamp = stamp
        both.frame(0)
    both.finish(1)
    both.frame(1)
    assert [left.actions[0, :6, IMAGE].tolist() for left in both.left] == [[1.0] * 6, [4.0] * 6]
    assert [len(left.emission.contexts) for left in both.left] == [1, 1]
    both.close()


def test_rule_11_par_has_n_whole_requests_at_a_time() -> None:
    """Rule 11: three workers hold three requests, each of its own observation; an observation is taken once."""
    both = Both(Plan(mode="par", concurrency=3), 6, 1)
    assert [worker.name for worker in both.executor.workers] == ["worker0", "worker1", "worker2"]
    for number in range(3):
        both.advance(number)  # begin
        both.stamp = number + 2
    assert both.noise.drawn == [0, 1, 2]
    for number in (2, 0, 1):
        both.advance(number)  # run
    for number in (1, 2, 0):
        both.advance(number)  # end
    assert [left.emission.request for left in both.left] == [1, 2, 0]
    both.advance(0)
    assert both.states[1] == both.states[0] - 1, "taken by worker 0"
    assert not both.executor.workers[1].wants(latched(4, [0]), 0)
    both.close()


@pytest.mark.parametrize(
    ("plan", "generation_ms", "per_second"),
    [
        (Plan(mode="seq"), 6, 125),
        (Plan(mode="auras", pp_generation=3), 2, 250),
        (Plan(mode="auras", pp_perception=2, pp_generation=3, fetch_offset=-1), 2, 500),
    ],
    ids=str,
)
def test_rule_11_throughput_is_chunks_per_second(plan: Plan, generation_ms: int, per_second: int) -> None:
    """Rule 11: as the bench counts it: not frames, steps or the frames in which a pipeline fills.

    seq: a chunk every 2 + 6 ms. auras, three stages: one every 2 + 2 ms, and every 2 ms where they run side by side.
    """
    clock = VirtualClock()
    durations = dict.fromkeys(("perception", "perception0", "perception1"), 2 * MS)
    device = NullDevice(
        clock,
        {**COPIES_NS, **durations, "generation": generation_ms * MS},
    )
    executor = executor_of(RecordingPolicy(6), plan, RecordingNoise(6, [0]), clock, device)
    meter = Meter(1, Length(chunks=10, seconds=0.0), clock.now_ns)
    [worker] = executor.workers
    for stamp in range(20):
        worker.begin(latched(stamp, [0]), clock.now_ns())
        worker.run()
        if (emission := worker.end(clock.now_ns())) is not None:
            meter.emit(emission)
    executor.close()
    assert meter.over.is_set()
    assert meter.rate() == per_second


def test_what_auras_adds_to_a_batch_is_freshness() -> None:
    """Rule 11: eight chunks of one batch are as stale as the batch is long; eight stages give as many, one by one."""
    stale: dict[str, float] = {}
    for plan, perception_ms, generation_ms in (
        (Plan(mode="auras", pp_generation=8), 2, 2),
        (Plan(mode="par", concurrency=8, together=True), 16, 16),
    ):
        clock = VirtualClock()
        lasts = {**COPIES_NS, "perception": perception_ms * MS, "generation": generation_ms * MS}
        executor = executor_of(RecordingPolicy(8), plan, RecordingNoise(8, [0]), clock, NullDevice(clock, lasts))
        meter = Meter(1, Length(chunks=40, seconds=0.0), clock.now_ns)
        [worker] = executor.workers
        for stamp in range(60):
            seen = latched(stamp, [0])
            now_ns = clock.now_ns()
            worker.begin(replace(seen, origin=replace(seen.origin, mono_ns=now_ns)), now_ns)
            worker.run()
            emission = worker.end(clock.now_ns())
            for each in () if emission is None else emission.every:
                meter.emit(each)
        executor.close()
        stale[plan.mode] = meter.staleness_ms() or 0.0
    assert stale == {"auras": pytest.approx(6.0, abs=0.5), "par": pytest.approx(48.0, abs=0.5)}
