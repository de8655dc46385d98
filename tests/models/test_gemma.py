"""Gemma against transformers': every layer, the logits, and cached decoding.

Guards: another gate or its exact GELU; a norm around zero; words that are not scaled; a Llama that has changed with it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auras_ros.models.gemma import gemma_config
from auras_ros.models.llama import Llama
from tests.models import published, published_gemma
from tests.models.decoding import greedy, hidden_states

TINY = gemma_config(128, 64, 3, 4, 1, 96, 24)
CONFIGS = {"one-key-head": TINY, "grouped": replace(TINY, kv_heads=2, rope_theta=500.0, norm_eps=1e-3)}


def ours_and_theirs(name: str, dtype: torch.dtype, attention: str) -> tuple[Llama, object]:
    pytest.importorskip("transformers")
    config = CONFIGS[name]
    model = published_gemma.gemma(config, attention).to(dtype)
    if dtype == torch.float64:
        model = published_gemma.exact(model)
    ours = Llama(config).to(dtype).eval().requires_grad_(False)
    given = published.without("model.", model.state_dict())
    del given["lm_head.weight"]
    ours.load_state_dict(given)
    return ours, model


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-5), (torch.float64, "sdpa", 1e-12)]
)
def test_every_layer_and_the_logits_are_those_of_transformers(
    name: str, dtype: torch.dtype, attention: str, tolerance: float
) -> None:
    ours, model = ours_and_theirs(name, dtype, attention)
    ids = torch.randint(0, 128, (2, 17), generator=torch.Generator().manual_seed(0))
    theirs = model(input_ids=ids, output_hidden_states=True)  # type: ignore[operator]
    states = hidden_states(ours, ours.embed(ids))
    for layer, (mine, other) in enumerate(zip(states, theirs.hidden_states, strict=True)):
        torch.testing.assert_close(
            mine, other, rtol=tolerance, atol=10 * tolerance, msg=lambda m, at=layer: f"{at}: {m}"
        )
    torch.testing.assert_close(ours.logits(states[-1]), theirs.logits, rtol=tolerance, atol=100 * tolerance)


@torch.no_grad()
def test_cached_decoding_is_that_of_whole_forwards() -> None:
    ours, model = ours_and_theirs("grouped", torch.float64, "sdpa")
    ids = torch.randint(0, 128, (2, 7), generator=torch.Generator().manual_seed(1))
    made = greedy(ours, ours.embed(ids), 5, ours.make_cache(2, 11))
    for _ in range(5):
        ids = torch.cat([ids, model(input_ids=ids).logits[:, -1:].argmax(-1)], 1)  # type: ignore[operator]
    assert torch.equal(made, ids[:, 7:])


@torch.no_grad()
def test_half_precision_rounds_where_the_published_one_does() -> None:
    """Embeddings times the rounded square root of the width, norms rounded after their weight: bit for bit."""
    ours, model = ours_and_theirs("one-key-head", torch.bfloat16, "sdpa")
    ids = torch.arange(128)
    x = model.model.embed_tokens(ids)  # type: ignore[attr-defined]
    assert torch.equal(ours.embed(ids), x)
    assert torch.equal(ours.norm(x), model.model.norm(x))  # type: ignore[attr-defined]


def test_half_precision_scale_is_the_rounded_one() -> None:
    """Where the root is not exact: 45.25 in bfloat16, not 45.2548."""
    model = Llama(gemma_config(8, 2048, 1, 1, 1, 8, 8)).to(torch.bfloat16)
    weight = model.embed_tokens.weight.detach()
    assert torch.equal(model.embed(torch.arange(8)), weight * torch.tensor(45.25, dtype=torch.bfloat16))


def test_an_unknown_gate_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="activation: 'relu' is not known; known: silu, gelu_tanh"):
        replace(TINY, activation="relu")  # type: ignore[arg-type]
