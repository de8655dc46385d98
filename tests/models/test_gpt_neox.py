"""GPT-NeoX against transformers', and what it promises as an encoder.

Guards: a head's query, key and value taken apart the wrong way; a position turned into too many channels; layers that
follow one another where they stand side by side; a norm's eps; an approximate GELU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.hf_names import TensorNameError
from auras_ros.models.gpt_neox import GptNeox, GptNeoxConfig
from auras_ros.models.presets import PYTHIAS
from tests.models import published
from tests.models.hf_names import gpt_neox_rule, rename

TINY = replace(PYTHIAS["pythia-tiny"], head=True)
CONFIGS = {
    "pythia": TINY,
    "all-turned": replace(TINY, rotary_share=1.0, rope_theta=500.0),
    "many-heads": replace(TINY, heads=4, norm_eps=1e-3),
}
TOKENS = 21


def tokens(dtype: torch.dtype = torch.float64, count: int = TOKENS) -> Tensor:
    random = torch.Generator().manual_seed(count)
    return torch.randn(2, count, TINY.width, dtype=torch.float64, generator=random).to(dtype)


def model(config: GptNeoxConfig = TINY) -> GptNeox:
    made = published.randomise(GptNeox(config))
    assert isinstance(made, GptNeox)
    return made.double()


def same_weights(config: GptNeoxConfig, theirs: Any) -> GptNeox:
    ours = GptNeox(config).to(next(theirs.parameters()).dtype).eval().requires_grad_(False)
    given = published.without("gpt_neox.", theirs.state_dict())
    ours.load_state_dict(rename(given, gpt_neox_rule(config), ours.state_dict()))
    return ours


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-5), (torch.float64, "sdpa", 1e-12)]
)
def test_every_layer_and_the_logits_are_those_of_transformers(
    name: str, dtype: torch.dtype, attention: str, tolerance: float
) -> None:
    pytest.importorskip("transformers")
    theirs = published.gpt_neox(CONFIGS[name], attention).to(dtype)
    ours, given = same_weights(CONFIGS[name], theirs), tokens(dtype)
    expected = theirs(inputs_embeds=given, output_hidden_states=True)
    x = given
    for (layer, block), other in zip(ours.blocks(), expected.hidden_states[1:], strict=True):
        (x,) = block(x)
        torch.testing.assert_close(x, other, rtol=tolerance, atol=tolerance, msg=lambda m, at=layer: f"{at}: {m}")
    assert torch.equal(x, ours(given))
    assert ours.embed_out is not None
    torch.testing.assert_close(ours.embed_out(x), expected.logits, rtol=tolerance, atol=10 * tolerance)
    ids = torch.tensor([[3, 511]])
    assert torch.equal(ours.embed(ids), theirs.get_input_embeddings()(ids))


@torch.no_grad()
def test_a_token_knows_nothing_of_what_follows() -> None:
    whole = model()(tokens())
    for length in (1, 2, TOKENS - 1):
        torch.testing.assert_close(model()(tokens()[:, :length]), whole[:, :length], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_positions_are_told_apart() -> None:
    """The same token everywhere but one: where that one stands shows at the end."""
    given = tokens()[:, :1].expand(-1, TOKENS, -1).clone()
    other = given.clone()
    given[:, 3], other[:, 9] = 1.0, 1.0
    assert (model()(given)[:, -1] - model()(other)[:, -1]).abs().max() > 1e-3


def test_an_encoder_has_no_head() -> None:
    made = GptNeox(replace(TINY, head=False))
    assert not any("embed_out" in name for name in made.state_dict())


@pytest.mark.parametrize("head", [True, False])
@pytest.mark.parametrize("called", ["embed_out.weight", "lm_head.weight"])
def test_what_older_folders_hold_besides_is_known(head: bool, called: str) -> None:
    ours = GptNeox(replace(TINY, head=head))
    given = dict(ours.state_dict())
    given[called] = given.pop("embed_out.weight", torch.zeros(2))
    for rest in ("bias", "masked_bias", "rotary_emb.inv_freq"):
        given[f"layers.1.attention.{rest}"] = torch.zeros(1)
    assert rename(given, gpt_neox_rule(ours.config), ours.state_dict()).keys() == ours.state_dict().keys()


@pytest.mark.parametrize(
    "name", ["layers.3.mlp.dense_h_to_4h.weight", "layers.0.attention.query.weight", "layers.0.mlp.bias", "norm.weight"]
)
def test_a_name_without_a_place_is_refused(name: str) -> None:
    ours = GptNeox(TINY)
    with pytest.raises(TensorNameError, match=name.replace(".", r"\.")):
        rename({**ours.state_dict(), name: torch.zeros(1)}, gpt_neox_rule(TINY), ours.state_dict())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"layers": 0}, "layers: 0 is less than 1"),
        ({"heads": 3}, "width: 32 is not a multiple of heads, 3"),
        ({"rotary_share": 0.1}, "rotary_share: 0.1 turns 1 of 16"),
        ({"rotary_share": 0.2}, "rotary_share: 0.2 turns 3 of 16"),
        ({"rotary_share": 1.5}, "rotary_share: 1.5 turns 24 of 16"),
    ],
)
def test_sizes_that_do_not_fit_are_named(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"gpt_neox: {says}"):
        replace(TINY, **changes)
