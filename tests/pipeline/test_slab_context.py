"""The slab's context: one for all requests of a frame, and of one environment one memory for all rows.

Guards: a copy for every request of a context that may be tens of megabytes; rows that go on reading the context of the
frame before; an address that moves; environments that are mixed up when some are taken along.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.slab import DenoisingSlab
from tests.policies.tiny_flow import noise_of, observed, tiny_flow

POLICY = tiny_flow(steps=6)
ROWS = 3


def slab(batch: int, alpha: float = 0.0, batched: bool = True) -> DenoisingSlab:
    plan = Plan(mode="auras", pp_generation=ROWS, alpha=alpha, batched=batched)
    return DenoisingSlab(POLICY, plan, POLICY.perceive(*observed(batch)), POLICY.step)


def frames(made: DenoisingSlab, batch: int, count: int = 5) -> list[Tensor]:
    """What leaves after each frame, with a context and a request of its own for each."""
    out = []
    for frame in range(count):
        made.fetch(POLICY.perceive(*observed(batch, 10 + frame)))
        made.admit(noise_of(batch, 20 + frame))
        for body in made.variants()[None]:
            body()
        out.append(made.finish())
        made.roll()
    return out[ROWS - 1 :]


def expected(batch: int, alpha: float, frame: int) -> Tensor:
    """The request that was admitted in this frame: each stage's steps on that frame's context."""
    from auras_ros.pipeline.plan import stage_steps

    state, at = POLICY.begin(noise_of(batch, 20 + frame)), 0
    for stage, steps in enumerate(stage_steps(POLICY.steps, ROWS, alpha)):
        context = POLICY.perceive(*observed(batch, 10 + frame + stage))
        for _ in range(steps):
            state = POLICY.step(state, context, torch.full((batch,), at))
            at += 1
    return POLICY.finish(state)


def test_one_environment_has_one_context_for_all_rows() -> None:
    made = slab(1)
    context = POLICY.perceive(*observed(1, 9))
    at = [row.data_ptr() for row in made.context]
    made.fetch(context)
    assert len(set(at)) == 1
    assert [row.data_ptr() for row in made.context] == at
    assert made.context.untyped_storage().nbytes() == context.untyped_storage().nbytes()
    assert all(torch.equal(row, context) for row in made.context)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("alpha", "batched"), [(0.0, True), (0.0, False), (0.9, True)])
def test_each_stage_reads_the_context_of_its_frame(batch: int, alpha: float, batched: bool) -> None:
    """With a skew, rows that do not adjoin are gathered."""
    for frame, made in enumerate(frames(slab(batch, alpha, batched), batch)):
        torch.testing.assert_close(made, expected(batch, alpha, frame), rtol=0, atol=1e-4)
