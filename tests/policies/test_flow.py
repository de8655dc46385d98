"""Flow matching against Euler's steps over one joint forward, by itself and in the four modes of the pipeline.

Guards: a step that runs up in time instead of down; a batch in which rows share one time; blocks that give another
context; a context that a mode reads otherwise than the policy wrote it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from auras_ros.models.pi0 import Pi0
from auras_ros.models.presets import PI0S
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.policies.flow import FlowMatchingPolicy, FlowState
from auras_ros.policies.flow_prefix import FlowPrefix
from auras_ros.policies.policy import generate
from tests.models.joint_pi0 import joint_velocity
from tests.pipeline import real
from tests.policies.test_capturable import OneDevice
from tests.policies.tiny_flow import CENTER, CONFIG, PROMPT, SCALE, TRAINED, noise_of, observed, tiny_flow

POLICY = tiny_flow()
DEPTH = 5  # generation stages, two steps each


@torch.no_grad()
def test_a_chunk_is_euler_s_from_noise_to_data() -> None:
    """dx / dt = velocity from t = 1 to t = 0, each velocity of one joint forward with nothing kept."""
    policy, double = tiny_flow(torch.float64), torch.float64
    (images, state), x = observed(2, dtype=double), noise_of(2, dtype=double)
    made = generate(policy, x, policy.perceive(images, state))
    for i in range(10):
        time = torch.full((2,), 1 - i / 10, dtype=double)
        x = x - 0.1 * joint_velocity(policy.prefix.model, images[:, -1], PROMPT, state[:, -1], x, time)
    assert made.dtype == torch.float64
    torch.testing.assert_close(made, CENTER.double() + SCALE.double() * x[..., :3], rtol=1e-12, atol=1e-12)


def test_on_the_straight_path_the_steps_arrive_at_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The velocity it is trained on is noise - data: any number of steps ends on the data."""
    noise, data = noise_of(2).double(), noise_of(2, 3).double()
    for steps in (1, 7, 10):
        policy = tiny_flow(torch.float64, steps)
        monkeypatch.setattr(policy.prefix.model, "velocity", lambda x, time, context: noise - data)
        made = generate(policy, noise, torch.zeros(2, 1))
        torch.testing.assert_close(made, CENTER + SCALE * data[..., :3], rtol=0, atol=1e-12)


def test_rows_of_one_batch_stand_each_at_their_own_step_and_context() -> None:
    policy, index = tiny_flow(torch.float64), torch.tensor([0, 4, 9])
    context = policy.perceive(*observed(3, dtype=torch.float64))
    noise = noise_of(3, dtype=torch.float64)
    together = policy.step(policy.begin(noise), context, index).sample
    for row in range(3):
        span = slice(row, row + 1)
        alone = policy.step(FlowState(noise[span]), context[span], index[span]).sample
        torch.testing.assert_close(together[span], alone, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(together, policy.step(FlowState(noise), context, torch.zeros_like(index)).sample)


def test_perception_in_blocks_is_perception_bit_for_bit() -> None:
    images, state = observed(2)
    carried: tuple[Any, ...] = (images, state)
    blocks = POLICY.perception_blocks()
    for block in blocks:
        carried = block(*carried)
    assert len(carried) == 1
    assert torch.equal(carried[0], POLICY.perceive(images, state))
    assert len(blocks) > CONFIG.language.layers + CONFIG.vision.depth


def test_the_newest_instant_is_looked_at_alone_and_all_of_it() -> None:
    images, state = observed(1)
    before = POLICY.perceive(images, state)
    older = images.clone()
    older[:, 0] += 1
    assert torch.equal(POLICY.perceive(older, state.clone().index_fill_(1, torch.tensor([0]), 9.0)), before)
    for camera in (0, 1):
        other = images.clone()
        other[:, -1, camera] += 1
        assert not torch.equal(POLICY.perceive(other, state), before)
    assert not torch.equal(POLICY.perceive(images, state + 1), before)


def test_a_prompt_of_another_length_is_a_copy() -> None:
    """As if the policy had been made for it; what is filled up may hold anything."""
    policy, given = tiny_flow(limit=7), observed(1)
    before, at = policy.perceive(*given), (policy.prefix.prompt.data_ptr(), policy.prefix.there.data_ptr())
    for ids in (PROMPT.flip(0), PROMPT[:2], torch.tensor([5, 1, 3, 4, 2, 9, 8])):
        policy.set_prompt(ids)
        alone = FlowMatchingPolicy(FlowPrefix(policy.prefix.model, ids), TRAINED)
        context, noise = policy.perceive(*given), noise_of(1)
        assert context.shape == before.shape
        assert not torch.equal(context, before)
        made = generate(policy, noise, context)
        torch.testing.assert_close(made, generate(alone, noise, alone.perceive(*given)), rtol=1e-5, atol=1e-4)
    assert at == (policy.prefix.prompt.data_ptr(), policy.prefix.there.data_ptr())


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        ([1] * 5, "prompt: 5 tokens, but this policy takes 1 to 4"),
        ([], "prompt: 0 tokens, but this policy takes 1 to 4"),
        ([3, 512], "prompt: .3, 512. are not all tokens of a vocabulary of 512"),
    ],
)
def test_a_prompt_that_it_cannot_take_is_refused_and_the_old_one_stays(ids: list[int], why: str) -> None:
    policy = tiny_flow()
    before = policy.perceive(*observed(1))
    with pytest.raises(ValueError, match=why):
        policy.set_prompt(torch.tensor(ids, dtype=torch.int64))
    assert torch.equal(policy.perceive(*observed(1)), before)


@pytest.mark.parametrize("channels", [5, 0])
def test_channels_that_do_not_fit_and_no_steps_are_refused(channels: int) -> None:
    with pytest.raises(ValueError, match=f"actions: {channels} channels, expected 1 to 4"):
        FlowMatchingPolicy(POLICY.prefix, replace(TRAINED, lower=torch.zeros(channels), upper=torch.ones(channels)))
    with pytest.raises(ValueError, match="steps: 0 is less than 1"):
        FlowMatchingPolicy(POLICY.prefix, TRAINED, steps=0)


def test_it_stays_on_its_device_and_reads_nothing_back() -> None:
    """Of the published size, on a device without values: what a CUDA graph would refuse fails here."""
    with torch.device("meta"):
        prefix = FlowPrefix(Pi0(PI0S["pi0"]), torch.zeros(8, dtype=torch.int64))
    policy = FlowMatchingPolicy(prefix, TRAINED).to("meta").bfloat16()
    given = [(1, 1, 2, 3, 224, 224), (1, 1, 14), (1, *policy.noise_shape)]
    images, state, noise = (torch.empty(shape, device="meta") for shape in given)
    with OneDevice("meta") as watch:
        context = policy.perceive(images, state)
        moved = policy.step(policy.begin(noise), context, torch.zeros(1, dtype=torch.int64, device="meta"))
        assert policy.finish(moved).dtype == torch.float64
    assert context.shape == (1, 18 * 2 * (2 * 256 + 8) * 256 + 32 + 2 * 256 + 8)
    assert context.dtype == torch.bfloat16
    assert moved.sample.dtype == torch.float32
    assert watch.calls > 1000


def test_half_precision_takes_and_gives_what_the_pipeline_holds() -> None:
    """Pictures, noise and the slab's copy of the context are float32: the actions are added up in float32."""
    policy, noise = tiny_flow(torch.bfloat16), noise_of(2)
    context = policy.perceive(*observed(2))
    assert context.dtype == torch.bfloat16
    made = generate(policy, noise, context.float())
    assert torch.equal(made, generate(policy, noise, context))
    torch.testing.assert_close(made, generate(POLICY, noise, POLICY.perceive(*observed(2))), rtol=0, atol=2.0)
    assert policy.step(policy.begin(noise), context, torch.zeros(2)).sample.dtype == torch.float32


# -- the four modes -------------------------------------------------------------------------------------


def seen(frames: int, moving: bool) -> list[Latched]:
    return [Latched(*observed(2, 1 + frame * moving), ObservationOrigin(frame, frame)) for frame in range(frames)]


def emitted(text: str, frames: int, moving: bool = False) -> list[Emission]:
    looks = seen(frames, moving)
    return real.run(real.real(Plan.parse(text), POLICY, like=looks[0]), looks)


def test_one_stage_unbatched_is_seq_bit_for_bit() -> None:
    plain, auras = (emitted(text, 3, True) for text in ("all", "all,mode=auras,batched=false"))
    assert len(plain) == len(auras) == 3
    for one, other in zip(plain, auras, strict=True):
        assert torch.equal(one.actions, other.actions)
    assert not torch.equal(plain[0].actions, plain[1].actions)


@pytest.mark.parametrize(
    "text",
    [
        "all,mode=dec",
        "all,mode=par,concurrency=2",
        f"all,mode=auras,pp_generation={DEPTH}",
        f"all,mode=auras,pp_generation={DEPTH},fetch_offset=-1",
        f"all,mode=auras,pp_generation={DEPTH},pp_perception=3,batched=false",
        "all,mode=auras,pp_generation=4,alpha=0.5",
    ],
)
def test_every_mode_makes_the_chunk_of_seq_while_nothing_moves(text: str) -> None:
    expected = {e.request: e.actions for e in emitted("all", 3)}
    found = [e for e in emitted(text, 12) if e.request in expected]
    assert found
    for emission in found:
        torch.testing.assert_close(emission.actions, expected[emission.request], rtol=0, atol=1e-4)


@pytest.mark.parametrize("offset", [0, -1])
def test_every_stage_reads_the_newest_context(offset: int) -> None:
    """Two steps of a request on each of five observations that follow one another."""
    emission = emitted(f"all,mode=auras,pp_generation={DEPTH},fetch_offset={offset}", DEPTH + 3, True)[0]
    stamps = [origin.mono_ns for origin in emission.contexts]
    assert stamps == list(range(stamps[0], stamps[0] + DEPTH))
    noise = torch.stack([noise_tape(POLICY.noise_shape, seed, emission.request) for seed in real.SEEDS])
    state = POLICY.begin(noise)
    for i in range(10):
        context = POLICY.perceive(*observed(2, 1 + stamps[i // 2]))
        state = POLICY.step(state, context, torch.full((2,), i))
    torch.testing.assert_close(emission.actions, POLICY.finish(state), rtol=0, atol=1e-4)
