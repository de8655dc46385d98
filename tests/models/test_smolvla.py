"""SmolVLA's layout: who sees whom, what is masked, and its sizes. Its numbers are compared with the published code's in
tests/policies/loaders.

Guards: a state that pictures see; padding that is seen or counted; an action that sees later ones; a picture that is
folded in another order; tokens of an empty camera that are left out.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from auras_ros.models.presets import SMOLVLAS
from auras_ros.models.smolvla import FoldProjector, SmolVla, SmolVlaConfig
from tests.models import published

TINY = SMOLVLAS["smolvla-tiny"]
PROMPT = torch.tensor([3, 77, 140, 9])
ROWS = 2


def tiny(config: SmolVlaConfig = TINY) -> SmolVla:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = published.randomise(SmolVla(config))
    assert isinstance(made, SmolVla)
    return made.double()


def given() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    random, side = torch.Generator().manual_seed(5), TINY.vision.image_px
    shapes = [(ROWS, 2, 3, side, side), (ROWS, 3), (ROWS, TINY.horizon, TINY.actions)]
    images, state, sample = (torch.randn(shape, generator=random, dtype=torch.float64) for shape in shapes)
    return images, state, sample, torch.tensor([1.0, 0.3], dtype=torch.float64)


def context_of(model: SmolVla, images: Tensor, state: Tensor, padding: int = 0, fill: int = 7) -> Tensor:
    ids = torch.nn.functional.pad(PROMPT, (0, padding), value=fill)
    there = torch.arange(len(ids))[None] < len(PROMPT)
    carried: tuple[Tensor, ...] = (*model.join(model.see(images.flatten(0, 1)), ids[None], there, state), state)
    for _, block in model.prefix_blocks():
        carried = block(*carried)
    return carried[0]


@torch.no_grad()
def test_a_prompt_that_is_filled_up_is_as_if_it_were_not() -> None:
    model, (images, state, sample, time) = tiny(), given()
    plain = model.velocity(sample, time, context_of(model, images, state))
    for fill in (0, 200):
        padded = model.velocity(sample, time, context_of(model, images, state, 3, fill))
        torch.testing.assert_close(padded, plain, rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_nothing_of_the_prefix_sees_the_state_and_the_expert_does() -> None:
    model, (images, state, sample, time) = tiny(), given()
    config = TINY.language
    before, after = (context_of(model, images, each) for each in (state, state + 1))
    tokens = before.shape[1] // (2 * config.layers * config.kv_heads * config.size_of_head + 1)
    shape = (config.layers, 2, config.kv_heads, tokens, config.size_of_head)
    one, other = (each[:, :-tokens].unflatten(1, shape) for each in (before, after))
    assert torch.equal(one[..., :-1, :], other[..., :-1, :])
    assert not torch.allclose(one[..., -1, :], other[..., -1, :])
    assert not torch.allclose(model.velocity(sample, time, before), model.velocity(sample, time, after))


@torch.no_grad()
@pytest.mark.parametrize(("every", "sees"), [(2, True), (1, True), (0, False)])
def test_an_action_sees_those_before_it_where_a_layer_lets_it(every: int, sees: bool) -> None:
    model, (images, state, sample, time) = tiny(replace(TINY, self_attention_every=every)), given()
    context = context_of(model, images, state)
    plain, changed = model.velocity(sample, time, context), sample.clone()
    changed[:, 2] += 1
    other = model.velocity(changed, time, context)
    assert torch.equal(other[:, :2], plain[:, :2])
    assert not torch.allclose(other[:, 2], plain[:, 2])
    assert torch.allclose(other[:, 3:], plain[:, 3:]) != sees


@torch.no_grad()
def test_patches_are_folded_square_by_square() -> None:
    """Token (r, c) is of the patches of its square, row by row, one after the other."""
    vision = replace(TINY.vision, width=2, heads=1)
    projector = FoldProjector(vision, 2, 1)
    projector.norm, projector.linear = torch.nn.Identity(), torch.nn.Identity()
    patches = torch.stack([torch.arange(16.0), torch.arange(16.0) / 100], -1)[None]
    folded = projector(patches)
    assert folded.shape == (1, 4, 8)
    assert folded[0, 1, 0::2].tolist() == [2.0, 3.0, 6.0, 7.0]
    torch.testing.assert_close(folded[0, 2, 1::2], torch.tensor([0.08, 0.09, 0.12, 0.13]))


@torch.no_grad()
def test_an_empty_camera_leaves_the_tokens_around_it() -> None:
    """Between the pictures and the prompt, without the factor of words, and they count in positions."""
    around = ((5, 6), (5,))
    model, (images, state, _, _) = tiny(replace(TINY, around=around, empty=1)), given()
    there = torch.ones(1, len(PROMPT), dtype=torch.bool)
    seen = model.see(images.flatten(0, 1))
    joined, valid = model.join(seen, PROMPT[None], there, state)
    each = 2 + seen.shape[1] + 1
    assert joined.shape[1] == 2 * each + 3 + len(PROMPT) + 1
    assert bool(valid.all())
    words = model.language.embed_tokens.weight
    for at, id_ in ((0, 5), (1, 6), (each - 1, 5), (each, 5), (2 * each, 5), (2 * each + 1, 6), (2 * each + 2, 5)):
        assert torch.equal(joined[:, at], words[id_].expand(ROWS, -1)), at
    torch.testing.assert_close(joined[0, 2 * each + 3], words[3] * TINY.language.width**0.5)
    assert torch.equal(joined[:, 2], seen.unflatten(0, (ROWS, 2))[:, 0, 0])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"fold": 3}, "fold: 3 does not divide the 4 patches of a side"),
        ({"fold": 0}, "fold: 0 is less than 1"),
        ({"actions": 0}, "actions: 0 is less than 1"),
        ({"self_attention_every": -1}, "self_attention_every: -1 is less than 0"),
        ({"empty": -1}, "empty: -1 is less than 0"),
        ({"around": ((512,), ())}, "around: 512 is not a token of 512"),
        ({"expert": replace(TINY.expert, layers=2)}, "layers: 3 in the language model, 2 in the expert"),
        ({"expert": replace(TINY.expert, heads=2)}, "heads: 4 in the language model, 2 in the expert"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=f"smolvla: {why}"):
        replace(TINY, **changes)  # type: ignore[arg-type]


def test_more_numbers_than_the_network_takes_are_refused() -> None:
    model, (images, _, _, _) = tiny(), given()
    with pytest.raises(ValueError, match="smolvla: state: 6 numbers, but the network takes 5"):
        context_of(model, images, torch.zeros(ROWS, 6).double())


def test_the_published_size() -> None:
    """0.45 billion in all, of which the expert has about 0.1 (Shukor et al. 2025, section 3)."""
    with torch.device("meta"):
        model = SmolVla(SMOLVLAS["smolvla"])
    count = sum(p.numel() for p in model.parameters())
    assert 0.39e9 < count < 0.46e9
    assert 0.09e9 < sum(p.numel() for p in model.expert.parameters()) < 0.11e9
