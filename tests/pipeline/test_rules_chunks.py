"""Rules 7 and 8 of docs/pipeline.md: a request's noise, and the chunk that it becomes.

Each test names its rule. Where the actions themselves matter, the policy is the small real one.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from auras_ros.action import ActionStream, ActionStreamOptions
from auras_ros.clock import VirtualClock
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Identity, ObservationOrigin, to_chunk
from tests.device.null_device import NullDevice
from tests.pipeline.driver import MS, Both, executor_of
from tests.pipeline.real import moving, real, run, still
from tests.pipeline.recording import COPIES_NS, RecordingNoise, RecordingPolicy, latched
from tests.policies import tiny

# Of a range of 512, for eight DDIM steps: another batch size sums in another order. Random weights let rounding grow:
# over 100 DDPM steps it reaches whole pixels, as does a change of the first noise by one part in a million.
BATCHED_TOLERANCE_PX = 0.05


@pytest.mark.parametrize(("sampler", "steps"), [("ddim", 4), ("ddpm", 10)])
def test_rule_07_one_stage_of_each_unbatched_is_seq_bit_for_bit(sampler: str, steps: int) -> None:
    """Rule 7: auras at pp 1/1, offset 0, unbatched, two environments, two requests."""
    policy, seen = tiny.policy(sampler, steps), moving(2)
    seq = run(real(Plan(mode="seq"), policy), seen)
    auras = run(real(Plan(mode="auras", batched=False), policy), seen)
    assert [e.request for e in seq] == [e.request for e in auras] == [0, 1]
    for one, other in zip(seq, auras, strict=True):
        assert torch.equal(one.actions, other.actions)
    assert not torch.equal(seq[0].actions, seq[1].actions)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(mode="dec"),
        Plan(mode="par", concurrency=3),
        Plan(mode="auras"),
        Plan(mode="auras", pp_generation=4),
        Plan(mode="auras", pp_generation=3, fetch_offset=-1, alpha=0.5, batched=False),
    ],
    ids=str,
)
def test_rule_07_every_mode_draws_the_same_noise(plan: Plan) -> None:
    """Rule 7: while the picture stands still, request k gives the same actions in every mode, within the tolerance."""
    policy = tiny.policy("ddim", 8)
    expected = {e.request: e.actions for e in run(real(Plan(mode="seq"), policy), still(6))}
    emissions = run(real(plan, policy), still(6))
    assert len(emissions) >= 3
    for emission in emissions:
        error = (emission.actions - expected[emission.request]).abs().max()
        assert error <= BATCHED_TOLERANCE_PX, f"request {emission.request}: {error} px"
    apart = (expected[0] - expected[1]).abs().max()
    assert apart > 100 * BATCHED_TOLERANCE_PX, "another request's noise would not show"


def test_rule_07_the_tape_is_drawn_once_at_admission() -> None:
    """Rule 7: not before, not for a bubble, not again while the request lives."""
    both = Both(Plan(mode="auras", pp_generation=3), 6, 1)
    drawn = []
    for stamp in (1, 1, 2, 2, 3):
        both.stamp = stamp
        both.advance(0)  # begin
        drawn.append(list(both.noise.drawn))
        both.finish(0)
    assert drawn == [[0], [0], [0, 1], [0, 1], [0, 1, 2]]
    both.close()


def test_rule_08_the_last_stages_observation_is_the_chunks_origin() -> None:
    """Rule 8: stages saw 1, 2 and 3 (stamps 1000, 2000, 3000 ns): the origin is 3; each stage has its own age."""
    both = Both(Plan(mode="auras", pp_generation=3), 6, 1)
    start_ns = both.clock.now_ns()
    for stamp in (1, 2, 3):
        both.stamp = stamp
        both.frame()  # begins, a millisecond later runs, a millisecond later ends, and one more
    [left] = both.left
    chunk = to_chunk(left.emission, Identity("host", "session", "plan", "checkpoint"))
    source = chunk.provenance
    assert (source.origin_mono_ns, source.origin_stamp_ns) == (3_000, 7_003_000)
    ran_ns = [start_ns + (3 * frame + 1) * MS for frame in range(3)]
    assert source.context_age_ns == (ran_ns[0] - 1_000, ran_ns[1] - 2_000, ran_ns[2] - 3_000)
    assert (source.frame, source.request, source.epoch) == (2, 0, 0)
    assert (source.host, source.session, source.plan, source.checkpoint) == ("host", "session", "plan", "checkpoint")
    np.testing.assert_array_equal(chunk.actions, left.actions[0])
    both.close()


@pytest.mark.parametrize(("used_after_ms", "index"), [(0, 0), (1, 1), (100, 1), (101, 2), (250, 3)])
def test_rule_08_a_chunk_used_late_starts_at_its_later_index(used_after_ms: int, index: int) -> None:
    """Rule 8: d = ceil((now - origin) / dt) with dt 100 ms; the first command comes at the next tick."""
    contract = tiny.checkpoint().contract
    origin_ns = 1_000 * MS
    [emission] = run(real(Plan(mode="seq"), tiny.policy(), seeds=(3,)), [still(1, (3,))[0]])
    seen = ObservationOrigin(origin_ns, origin_ns)
    emission = Emission(emission.actions, 0, 0, 0, (seen,), (origin_ns,), 0, 0, 0)
    stream = ActionStream(contract, ActionStreamOptions(contract.dt_ns))
    stream.tick(origin_ns - contract.dt_ns)
    assert stream.arm(origin_ns - contract.dt_ns, [0.0, 0.0]).ok
    now_ns, tick_ns = origin_ns + used_after_ms * MS, origin_ns
    while tick_ns < now_ns:  # the ticks that pass before the chunk is there
        stream.tick(tick_ns)
        tick_ns += contract.dt_ns
    assert stream.offer(to_chunk(emission, Identity()), now_ns).ok
    np.testing.assert_array_equal(stream.tick(tick_ns).values, emission.actions[0, index].numpy())


@pytest.mark.parametrize(
    ("plan", "frames", "stages_ms", "perceived_ms", "generated_ms"),
    [
        (Plan(mode="seq"), 3, [23], 23, 28),
        (Plan(mode="auras", pp_generation=2), 3, [13, 23], 23, 28),
        (Plan(mode="auras", pp_generation=2, fetch_offset=-1), 4, [20, 30], 33, 35),
    ],
    ids=str,
)
def test_rule_08_an_emission_says_when_each_part_was(
    plan: Plan, frames: int, stages_ms: list[int], perceived_ms: int, generated_ms: int
) -> None:
    """Rule 8: a frame every 10 ms; perception takes 3 ms and generation 5, one after the other or side by side."""
    clock = VirtualClock()
    device = NullDevice(
        clock,
        {**COPIES_NS, "perception": 3 * MS, "generation": 5 * MS},
    )
    executor = executor_of(RecordingPolicy(4), plan, RecordingNoise(4, [0]), clock, device)
    [worker] = executor.workers
    for frame in range(frames):
        clock.sleep_until_ns(10 * frame * MS)
        worker.begin(latched(frame, [0]), clock.now_ns())
        worker.run()
        emission = worker.end(clock.now_ns())
    executor.close()
    assert emission is not None
    assert [ns // MS for ns in emission.stage_ns] == stages_ms
    assert emission.latched_ns == (frames - 1) * 10 * MS
    assert (emission.perceived_ns, emission.generated_ns) == (perceived_ms * MS, generated_ms * MS)
