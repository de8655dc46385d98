"""pi0's layout against transformers' and against one joint forward in which nothing is cached.

Guards: a prefix that is causal; a state that sees the actions; positions of the suffix that begin again; keys of
another layer; time counted the other way; a context whose parts are laid out otherwise than they are read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from auras_ros.models.flow_context import PrefixKV, places_after, visible_after
from auras_ros.models.flow_expert import (
    ActionExpert,
    AdaptiveExpert,
    AdaptiveRmsNorm,
    time_embedding,
    visible_to_suffix,
)
from auras_ros.models.pi0 import Pi0
from auras_ros.models.presets import PI0S
from tests.models import published, published_gemma
from tests.models.joint_pi0 import joint_velocity

TINY = PI0S["pi0-tiny"]
CAMERAS, ROWS = 2, 3
PROMPT = torch.tensor([2, 77, 140, 9, 31])
GIVEN = tuple[Tensor, Tensor, Tensor, Tensor]


def tiny(dtype: torch.dtype = torch.float64) -> Pi0:
    torch.manual_seed(0)
    made = published.randomise(Pi0(TINY))
    assert isinstance(made, Pi0)
    return made.to(dtype)


def given(dtype: torch.dtype = torch.float64) -> GIVEN:
    """Images [B, cameras, ...], state, sample, and a time of its own for each row."""
    random = torch.Generator().manual_seed(5)
    side = TINY.vision.image_px
    shapes = [(ROWS, CAMERAS, 3, side, side), (ROWS, TINY.state), (ROWS, TINY.horizon, TINY.actions)]
    images, state, sample = (torch.randn(shape, generator=random, dtype=torch.float64).to(dtype) for shape in shapes)
    return images, state, sample, torch.tensor([1.0, 0.625, 0.125], dtype=torch.float64)


def context_of(model: Pi0, images: Tensor, state: Tensor, padding: int = 0) -> Tensor:
    """padding: ids behind the prompt that are not there."""
    ids, there = torch.nn.functional.pad(PROMPT, (0, padding), value=7), torch.arange(len(PROMPT) + padding)
    joined = model.join(model.see(images.flatten(0, 1)), ids[None], there[None] < len(PROMPT), state)
    carried: tuple[Tensor, ...] = (*joined, state)
    for _, block in model.prefix_blocks():
        carried = block(*carried)
    return carried[0]


@torch.no_grad()
def test_the_cached_velocity_is_that_of_one_joint_forward() -> None:
    model, (images, state, sample, time) = tiny(), given()
    mine = model.velocity(sample, time, context_of(model, images, state))
    naive = joint_velocity(model, images, PROMPT, state, sample, time)
    torch.testing.assert_close(mine, naive, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_a_prompt_that_is_filled_up_is_as_if_it_were_not() -> None:
    """Guards: padding that is seen by the prefix or by the actions, or that counts in a position."""
    model, (images, state, sample, time) = tiny(), given()
    padded = model.velocity(sample, time, context_of(model, images, state, padding=3))
    naive = joint_velocity(model, images, PROMPT, state, sample, time)
    torch.testing.assert_close(padded, naive, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-5), (torch.float64, "sdpa", 1e-11)]
)
def test_velocity_and_sampling_are_those_of_transformers(dtype: torch.dtype, attention: str, tolerance: float) -> None:
    pytest.importorskip("transformers")
    model = published_gemma.pi0(TINY, attention).to(dtype)
    count = TINY.expert.width // 2
    model.embed_action_time.sinusoid_embeds.sinusoid_freq = published_gemma.frequencies(count)
    if dtype == torch.float64:
        model = published_gemma.exact(model)
    ours = published_gemma.pi0_as_ours(model, TINY, dtype)
    images, state, sample, time = given(dtype)
    pictures = [TINY.language.vocabulary - 1] * (CAMERAS * TINY.vision.patches)
    ids = torch.cat([torch.tensor(pictures), PROMPT]).expand(ROWS, -1)
    inputs = {
        "state": state,
        "input_ids": ids,
        "pixel_values": images,
        "attention_mask": torch.ones_like(ids),
        "pixel_attention_mask": torch.ones(ROWS, CAMERAS, dtype=torch.bool),
    }
    context = context_of(ours, images, state)
    theirs = model(noise=sample, timestep=time, **inputs).logits
    torch.testing.assert_close(ours.velocity(sample, time, context), theirs, rtol=tolerance, atol=10 * tolerance)
    steps = 8  # whose times are exact in float32, which the other counts in
    x = sample
    for i in range(steps):
        x = x - ours.velocity(x, torch.full((ROWS,), 1 - i / steps), context) / steps
    sampled = model.sample_actions(noise=sample, num_steps=steps, **inputs)
    torch.testing.assert_close(x, sampled, rtol=tolerance, atol=20 * tolerance)


@torch.no_grad()
def test_pictures_and_prompt_see_one_another_in_both_directions() -> None:
    """The first picture's keys of a later layer know of the prompt."""
    model, (images, state, _, _) = tiny(), given()
    config, length = TINY.language, CAMERAS * TINY.vision.patches + len(PROMPT)
    shape = (config.layers, 2, config.kv_heads, length, config.size_of_head)

    def keys(prompt: Tensor) -> Tensor:
        there = torch.ones(1, len(prompt), dtype=torch.bool)
        x, *carried = *model.join(model.see(images.flatten(0, 1)), prompt[None], there, state), state
        for _, block in model.prefix_blocks()[:-1]:
            x, *carried = block(x, *carried)
        assert torch.stack(carried[:-2], 1).shape == (ROWS, *shape)
        return torch.stack(carried[:-2], 1)[:, :, 0]

    one, other = keys(PROMPT), keys(PROMPT.flip(0))
    assert torch.equal(one[:, 0, :, 0], other[:, 0, :, 0])
    assert not torch.equal(one[:, 1, :, 0], other[:, 1, :, 0])


def test_the_state_sees_prefix_and_itself_and_actions_see_all() -> None:
    valid = torch.tensor([[True] * 4, [True, True, True, False]])
    seen = visible_after(valid, visible_to_suffix(3, torch.device("cpu"))).tolist()
    assert seen[0] == [[[True] * 5 + [False] * 2, [True] * 7, [True] * 7]]
    assert seen[1][0][1] == [True] * 3 + [False] + [True] * 3
    assert places_after(valid, 2).tolist() == [[4, 5], [3, 4]]


def test_time_turns_from_the_shortest_to_the_longest_period() -> None:
    time = torch.tensor([0.0, 0.001, 1.0], dtype=torch.float64)
    expected = [[0.0, 0.0, 1.0, 1.0], [1.0, 0.00157079568, 0.0, 0.9999987663], [0.0, 1.0, 1.0, 0.0]]
    torch.testing.assert_close(time_embedding(time, 4), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-8)


def test_a_state_of_fewer_numbers_is_filled_up_and_one_of_more_refused() -> None:
    model, (images, state, _, _) = tiny(), given()
    short = torch.cat([state[:, :2], torch.zeros(ROWS, TINY.state - 2).double()], 1)
    assert torch.equal(context_of(model, images, state[:, :2]), context_of(model, images, short))
    with pytest.raises(ValueError, match=f"state: 6 numbers, but the network takes {TINY.state}"):
        context_of(model, images, torch.zeros(ROWS, 6).double())


@pytest.mark.parametrize("name", ["layers", "kv_heads", "head_dim", "rope_theta"])
def test_decoders_whose_keys_do_not_fit_are_refused_by_name(name: str) -> None:
    other = replace(TINY.expert, **{name: 2 * int(getattr(TINY.expert, name))}, heads=8)
    with pytest.raises(ValueError, match="size_of_head" if name == "head_dim" else name):
        replace(TINY, expert=other)


@pytest.mark.parametrize("name", ["horizon", "state", "actions"])
def test_nothing_of_size_zero(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: 0 is less than 1"):
        replace(TINY, **{name: 0})


def test_an_expert_too_narrow_for_its_time_is_refused() -> None:
    with pytest.raises(ValueError, match="width: 2 is not even and at least 4"):
        ActionExpert(replace(TINY.expert, width=2), 1, 1)


@pytest.mark.parametrize(("name", "limit"), [("pi0-small", 200_000_000), ("pi0-tiny", 1_000_000)])
def test_small_ones_are_small(name: str, limit: int) -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in Pi0(PI0S[name]).parameters()) < limit


def test_the_published_size() -> None:
    """PaliGemma 3B's folder without the 64 rows that pad its vocabulary, and Gemma 300M without words."""
    with torch.device("meta"):
        model = Pi0(PI0S["pi0"])
    expert = sum(p.numel() for p in model.expert.layers.parameters()) + model.expert.norm.weight.numel()
    whole = sum(p.numel() for part in (model.vision, model.projector, model.language) for p in part.parameters())
    assert whole == 2_923_466_480 - 64 * 2048
    assert expert // 1_000_000 == 311


# -- pi0.5 ----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_an_adaptive_norm_scales_shifts_and_gates() -> None:
    """Of the condition's linear image, in this order: scale, shift, gate."""
    norm = AdaptiveRmsNorm(2, 0.0).double()
    norm.dense.weight.zero_()
    norm.dense.bias.copy_(torch.tensor([1.0, 2.0, 10.0, 20.0, 0.5, -0.5]))
    normed, gate = norm(torch.tensor([[[3.0, 4.0]]]).double(), torch.zeros(1, 2).double())
    rms = 12.5**0.5
    torch.testing.assert_close(normed, torch.tensor([[[2 * 3 / rms + 10, 3 * 4 / rms + 20]]]).double())
    assert gate.tolist() == [[[0.5, -0.5]]]


@torch.no_grad()
def test_a_gate_that_is_shut_leaves_the_actions_as_they_are() -> None:
    """Both residuals of every layer go through their gates: with all shut, only the last norm and projection act."""
    torch.manual_seed(0)
    expert = AdaptiveExpert(TINY.expert, TINY.actions).double()
    for layer in expert.layers:
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            norm.dense.weight[2 * TINY.expert.width :] = 0
            norm.dense.bias[2 * TINY.expert.width :] = 0
    config = TINY.language
    kept = torch.randn(ROWS, config.layers, 2, config.kv_heads, 3, config.size_of_head).double()
    _, _, sample, time = given()
    made = expert(sample, time, torch.zeros(ROWS, 0), PrefixKV(kept, torch.ones(ROWS, 3, dtype=torch.bool)))
    when = time_embedding(time, TINY.expert.width)
    condition = torch.nn.functional.silu(expert.time_mlp_out(torch.nn.functional.silu(expert.time_mlp_in(when))))
    plain = expert.action_out_proj(expert.norm(expert.action_in_proj(sample), condition)[0])
    torch.testing.assert_close(made, plain, rtol=1e-12, atol=1e-12)
    for layer in expert.layers:
        layer.post_attention_layernorm.dense.bias[2 * TINY.expert.width :] = 1
    again = expert(sample, time, torch.zeros(ROWS, 0), PrefixKV(kept, torch.ones(ROWS, 3, dtype=torch.bool)))
    assert not torch.allclose(again, plain)


def test_the_published_size_of_pi05() -> None:
    """pi0 without the state's projection, with narrower layers of the time and wider norms."""
    with torch.device("meta"):
        one, other = Pi0(PI0S["pi0"]), Pi0(replace(PI0S["pi0"], adaptive=True))
    width, layers = 1024, 18
    norms = (2 * layers + 1) * (3 * width * width + 3 * width - width)
    gone = (32 * width + width) + width * width
    difference = sum(p.numel() for p in other.parameters()) - sum(p.numel() for p in one.parameters())
    assert difference == norms - gone
