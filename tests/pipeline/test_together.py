"""`par` whose requests begin together and run as one batch: what each gives, what it saw, and when the next may begin.

Guards: a batch that gives one request's chunk to another, or all of them one request's noise; a chunk whose age or
number is another's; one that is lost on its way out; a batch that begins more often than its requests may.
"""

from __future__ import annotations

import pytest
import torch

from auras_ros.clock import MonotonicClock
from auras_ros.device import make_device
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched
from tests.pipeline.families import FORMS, checkpoint, looks
from tests.pipeline.real_time import World, executor

TOGETHER = ",mode=par,concurrency=3,together=true"
MS = 1_000_000
CLOSE = 1e-3  # of the largest action: the rounding of another batch size, which untrained networks magnify


def pipeline_of(kind: str, changes: str) -> Pipeline:
    plan = Plan.parse(FORMS[kind][0] + changes)
    return Pipeline(checkpoint(kind), plan, PipelineSettings(5), MonotonicClock(), make_device("cpu"))


def left(pipeline: Pipeline, seen: Latched) -> tuple[Emission, ...]:
    """All that leaves after one frame."""
    (worker,) = pipeline.executor.workers
    worker.begin(seen, seen.origin.mono_ns)
    worker.run()
    emission = worker.end(seen.origin.mono_ns)
    return () if emission is None else emission.every


@pytest.mark.parametrize("kind", FORMS)
def test_each_request_of_a_batch_is_what_seq_makes_of_its_noise(kind: str) -> None:
    together, seq = pipeline_of(kind, TOGETHER), pipeline_of(kind, "")
    seen = looks(together.executor.policy, 2)
    got = [emission for one in seen for emission in left(together, one)]
    assert [emission.request for emission in got] == list(range(6))
    chunks = []
    for emission in got:
        origin = seen[emission.request // 3].origin
        assert emission.contexts == (origin,)
        assert len(emission.stage_ns) == 1
        seq.executor.reset(first_request=emission.request)
        (expected,) = left(seq, seen[emission.request // 3])
        assert expected.request == emission.request
        torch.testing.assert_close(
            emission.actions, expected.actions, rtol=0.0, atol=CLOSE * float(expected.actions.abs().max())
        )
        chunks.append(emission.actions)
    if together.executor.policy.noise_shape[0] and kind in ("diffusion", "pi0"):
        assert not torch.allclose(chunks[0], chunks[1], atol=1e-2), "another request's noise would not show"
    together.executor.close()
    seq.executor.close()


def test_live_every_chunk_of_a_batch_is_given_out_with_its_own_number_and_age() -> None:
    world, run = World(), executor("fine" + TOGETHER)
    live = Live(run, world.latch, world.take)
    live.start()
    world.until(lambda: len(world.emissions) >= 9)
    live.halt()
    run.close()
    assert set(world.threads) == {"frame"}
    assert [emission.request for emission in world.emissions[:9]] == list(range(9))
    for at in range(0, 9, 3):
        batch = world.emissions[at : at + 3]
        assert len({emission.origin.mono_ns for emission in batch}) == 1
        assert len({emission.frame for emission in batch}) == 1
        assert all(emission.stage_ns[0] >= emission.origin.mono_ns for emission in batch)
        assert batch[0].generated_ns <= world.emissions[at + 3 if at < 6 else at].generated_ns
    assert len({emission.origin.mono_ns for emission in world.emissions[:9]}) == 3


def test_a_batch_may_begin_as_often_as_its_requests_may() -> None:
    """frame_period_ms is of one request: three at once begin every three periods."""
    plan = Plan.parse("quick,frame_period_ms=20" + TOGETHER)
    assert plan.admission_ns == 60 * MS
    assert plan.interval_ns(10 * MS) == 60 * MS
    assert plan.interval_ns(90 * MS) == 90 * MS, "one observation is answered in a batch"
    assert plan.latency_frames == 1
    run = executor("fine,frame_period_ms=20" + TOGETHER)
    assert run.ledger.interval_ns == 60 * MS
    run.close()
    free = executor("fine" + TOGETHER)
    assert free.ledger.interval_ns == 0, "batches follow one another; there is nothing to space"
    free.close()


def test_the_same_plan_as_par_is_together_only_where_that_is_asked_for() -> None:
    base = Plan("quick", "auras", pp_generation=4)
    assert str(base.as_mode("par", 4, together=True)) == "quick,mode=par,concurrency=4,together=true"
    assert not base.as_mode("par", 4).together
    assert not Plan.parse("quick" + TOGETHER).as_mode("auras").together
