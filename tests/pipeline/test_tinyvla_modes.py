"""A language model that encodes (Auras 6.6) under plans of figure 16: which frame's context each step reads.

Guards: fetch_offset -1 that waits for this frame's context, or 0 that does not; a stage of perception that loses a
layer; a request whose steps read another frame than the rules say (`reference` counts, nothing here does).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product

import pytest
import torch
from torch import Tensor

from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.policies.tinyvla import TinyVlaPolicy, make_tinyvla
from tests.pipeline.driver import model_of
from tests.pipeline.real import real, run
from tests.pipeline.reference import Request

SEEDS = (3,)
STEPS = 5
PLANS = [
    Plan(mode="auras", pp_perception=p, pp_generation=g, fetch_offset=o, batched=False)
    for p, g, o in product((1, 2, 3), (1, 2, 3, 4, 5), (-1, 0))
    if p == 1 or g % 2
]
CLOSE = {"rtol": 0.0, "atol": 1e-5}


@pytest.fixture(scope="module")
def policy() -> TinyVlaPolicy:
    return make_tinyvla("tinyvla-tiny", seed=0, steps=STEPS)


def moving(policy: TinyVlaPolicy, frames: int, seeds: Sequence[int] = SEEDS) -> list[Latched]:
    """Another random observation every frame, whose stamp is its number."""
    return [observation(policy, frame, seeds) for frame in range(frames)]


def observation(policy: TinyVlaPolicy, frame: int, seeds: Sequence[int] = SEEDS) -> Latched:
    return Latched(*policy.example(len(seeds), torch.Generator().manual_seed(frame)), ObservationOrigin(frame, frame))


@cache
def perceived(policy: TinyVlaPolicy, frame: int) -> Tensor:
    seen = observation(policy, frame)
    return policy.perceive(seen.images, seen.state)


def by_the_rules(plan: Plan, frames: int) -> list[Request]:
    """The requests that leave, and which observation each of their steps has to use."""
    model, left = model_of(plan, STEPS), []
    for frame in range(frames):
        model.begin(0, frame, 0)
        left.append(model.end(0))
    return [request for request in left if request is not None]


def actions_of(policy: TinyVlaPolicy, number: int, contexts: Sequence[Tensor]) -> Tensor:
    """The plain way: one step after another, each on the context that it is given."""
    state = policy.begin(noise_tape(policy.noise_shape, SEEDS[0], number)[None])
    for step, context in enumerate(contexts):
        state = policy.step(state, context, torch.tensor([step]))
    return policy.finish(state)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_every_step_reads_the_context_of_the_frame_that_the_rules_name(policy: TinyVlaPolicy, plan: Plan) -> None:
    frames = plan.latency_frames + 2
    seen = moving(policy, frames)
    contexts = [perceived(policy, frame) for frame in range(frames)]
    expected = by_the_rules(plan, frames)
    emissions = run(real(plan, policy, SEEDS, seen[0]), seen)
    assert len(emissions) == len(expected) == 3
    for emission, request in zip(emissions, expected, strict=True):
        assert (emission.request, emission.frame) == (request.number, request.frame)
        right = actions_of(policy, request.number, [contexts[i] for i in request.used])
        torch.testing.assert_close(emission.actions, right, **CLOSE)
        late = actions_of(policy, request.number, [contexts[i + 1 if i + 1 < frames else i - 1] for i in request.used])
        assert (late - right).abs().max() > 100 * CLOSE["atol"]


@pytest.mark.parametrize("fetch_offset", [-1, 0])
def test_a_chunk_says_that_it_last_saw_this_frame_or_the_one_before(policy: TinyVlaPolicy, fetch_offset: int) -> None:
    plan = Plan(mode="auras", pp_generation=3, fetch_offset=fetch_offset)
    emissions = run(real(plan, policy, SEEDS, moving(policy, 1)[0]), moving(policy, 8))
    assert emissions
    for emission in emissions:
        assert emission.origin.mono_ns == emission.frame + fetch_offset


def test_one_stage_of_each_is_seq_bit_for_bit(policy: TinyVlaPolicy) -> None:
    seeds = (3, 8)
    seen = moving(policy, 4, seeds)
    seq = run(real(Plan(mode="seq"), policy, seeds, seen[0]), seen)
    auras = run(real(Plan(mode="auras", fetch_offset=0, batched=False), policy, seeds, seen[0]), seen)
    assert len(seq) == len(auras) == 4
    for one, other in zip(seq, auras, strict=True):
        assert torch.equal(one.actions, other.actions)


def test_batched_rows_are_the_same_but_for_rounding(policy: TinyVlaPolicy) -> None:
    text = "mode=auras,pp_perception=2,pp_generation=5,fetch_offset=-1,alpha=0.3"
    plans = Plan.parse(text), Plan.parse(f"{text},batched=false")
    batched, single = (run(real(plan, policy, SEEDS, moving(policy, 1)[0]), moving(policy, 9)) for plan in plans)
    assert len(batched) == len(single) > 1
    for one, other in zip(batched, single, strict=True):
        torch.testing.assert_close(one.actions, other.actions, rtol=0, atol=1e-3)
