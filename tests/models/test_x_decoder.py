"""Decoders given as x-transformers' keywords, against the library's own generate, and those that are refused.

Guards: a keyword that means something else here than there; a decoder whose hidden states know what comes later; one
that is refused without being named.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.models.x_decoder import XDecoder

pytest.importorskip("x_transformers")

VOCABULARY, TOKENS, ROWS, PROMPT, STEPS, PREFIX = 24, 12, 5, 3, 5, 4
SIZES = {"dim": 32, "depth": 2, "heads": 2, "attn_dim_head": 16}
CLOSE = 1e-6  # of hidden states of about 1 in double: the library takes its softmax in single precision
Keywords = Mapping[str, Any]

DECODERS: dict[str, Keywords] = {
    "plain": {},
    "rotary": {"rotary_pos_emb": True},
    "rotary with decay, shifted": {"rotary_xpos": True, "shift_tokens": 1},
    "linear bias": {"alibi_pos_bias": True, "attn_flash": True},
    "relative bias": {"rel_pos_bias": True, "attn_kv_heads": 1},
    "learned relative bias": {"dynamic_pos_bias": True},
    "polar": {"polar_pos_emb": True},
    "gated": {"ff_swish": True, "ff_glu": True, "ff_no_bias": True, "use_rmsnorm": True, "attn_qk_norm": True},
    "sandwich": {"sandwich_norm": True, "macaron": True, "shift_tokens": 2},
    "sandwich of layers": {"sandwich_coef": 1, "use_scalenorm": True},
    "few attentions": {"par_ratio": 2, "depth": 4},
    "tied layers": {"weight_tie_layers": True, "pre_norm": False},
    "residuals": {"residual_attn": True, "gate_residual": True, "scale_residual": True},
    "branches that begin at zero": {"use_layerscale": True, "zero_init_branch_output": True},
    "several streams": {"num_residual_streams": 2, "add_value_residual": True},
    "layers mixed": {"integrate_layers": True, "unet_skips": True, "depth": 4},
    "talking heads": {"attn_pre_talking_heads": True, "attn_head_scale": True, "attn_num_mem_kv": 3},
    "short sight": {"attn_max_attend_past": 3, "attn_gate_values": True, "attn_on_attn": True},
    "bias by content": {"attn_data_dependent_alibi": True},
    "positions by content": {"attn_use_cope": True, "attn_softclamp_logits": True},
    "latent keys": {"attn_use_latent_kv": True, "attn_dim_latent_kv": 8},
    "selective": {"attn_selective": True},
    "dropped out in training": {"attn_dropout": 0.5, "ff_dropout": 0.5, "layer_dropout": 0.5},
}
WRAPPERS: dict[str, Keywords] = {
    "no positions": {"use_abs_pos_emb": False},
    "sines": {"scaled_sinu_pos_emb": True, "post_emb_norm": True},
    "narrow embeddings": {"emb_dim": 16, "tie_embedding": False},
    "tied head, unit embeddings": {"tie_embedding": True, "l2norm_embed": True},
    "memory": {"num_memory_tokens": 3},
}
CASES = {**{name: (keywords, {}) for name, keywords in DECODERS.items()}, **{n: ({}, k) for n, k in WRAPPERS.items()}}
# Where the library's own cache differs from its generate without one, or fails.
WITHOUT_CACHE = {"rotary with decay, shifted", "sandwich", "bias by content", "latent keys"}
SINGLE = {"learned relative bias"}  # cannot run in double
BY_IDS = ["plain", "linear bias", "sandwich", "sines", "memory"]  # tried without embeddings before the tokens too


@cache
def made(name: str, prefix: int) -> XDecoder:
    """With random weights away from their first values, in evaluation mode."""
    decoder, wrapper = CASES[name]
    torch.manual_seed(4)
    x = XDecoder(VOCABULARY, TOKENS, {**SIZES, **decoder}, wrapper, prefix).eval().requires_grad_(False)
    for weight in x.parameters():
        weight.add_(torch.randn_like(weight) * (weight.shape[-1] ** -0.5 if weight.dim() > 1 else 0.1))
    return x if name in SINGLE else x.double()


def prompted(x: XDecoder) -> tuple[Tensor, Tensor, Tensor]:
    """Ids of prompts, the prefix before them, and both as embeddings."""
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(0, VOCABULARY, (ROWS, PROMPT), generator=random)
    before = torch.randn(ROWS, x.prefix, x.width, generator=random).to(x.embed(ids))
    return ids, before, torch.cat([before, x.embed(ids)], 1)


def greedy(x: XDecoder, context: Tensor) -> Tensor:
    """As `AutoregressivePolicy.complete` does it: the embeddings are put into a store as they come."""
    length = context.shape[1]
    store, positions = x.make_cache(ROWS, length + STEPS - 1), torch.arange(length + STEPS - 1)
    store.embeddings.fill_(7.0)  # what stands there from an earlier request counts for nothing
    found = [x.logits(x(context, positions[:length], store)[:, -1]).argmax(-1)]
    for at in range(length, length + STEPS - 1):
        found.append(x.logits(x(x.embed(found[-1][:, None]), positions[at : at + 1], store)[:, -1]).argmax(-1))
    return torch.stack(found, 1)


@pytest.mark.parametrize(("name", "prefix"), [*((n, PREFIX) for n in CASES), *((n, 0) for n in BY_IDS)])
def test_the_tokens_are_those_of_the_librarys_own_generate(name: str, prefix: int) -> None:
    from x_transformers import AutoregressiveWrapper

    x = made(name, prefix)
    ids, before, context = prompted(x)
    wrapped, more = AutoregressiveWrapper(x.net).eval(), {"prepend_embeds": before} if prefix else {}
    tokens = greedy(x, context)
    assert torch.equal(tokens, wrapped.generate(ids, STEPS, temperature=0.0, cache_kv=False, **more))
    if name not in WITHOUT_CACHE:
        assert torch.equal(tokens, wrapped.generate(ids, STEPS, temperature=0.0, **more))
    assert len(set(tokens.flatten().tolist())) > 2  # worth comparing


@pytest.mark.parametrize("name", CASES)
def test_the_hidden_states_of_a_shorter_prefix_are_those_inside_the_longer_one(name: str) -> None:
    x = made(name, PREFIX)
    context = torch.cat([prompted(x)[2], x.embed(torch.randint(0, VOCABULARY, (ROWS, 6)))], 1)
    close = {"atol": 1e-4, "rtol": 0} if name in SINGLE else {"atol": CLOSE, "rtol": 0}
    whole = x(context)
    assert whole.dtype == (torch.float32 if name in SINGLE else torch.float64)
    for count in range(1, context.shape[1]):
        torch.testing.assert_close(x(context[:, :count]), whole[:, :count], **close)
    context[:, 0] += torch.randn(x.width)
    assert (x(context) - whole)[:, 1:].abs().max() > 0.01  # what is compared depends on what comes before it


def test_positions_of_each_row_are_refreshed_as_those_of_all() -> None:
    x = made("rotary", PREFIX)
    context = prompted(x)[2]
    length = context.shape[1]
    store = x.make_cache(2, length)
    context = context[:2]
    whole = x(context, torch.arange(length), store)
    assert torch.equal(store.embeddings, context)
    at = torch.tensor([[1, 5], [6, 2]])
    new = torch.randn(2, 2, x.width, dtype=torch.float64)
    hidden = x(new, at, store)
    expected = context.clone()
    for row in (0, 1):
        expected[row, at[row]] = new[row]
    assert torch.equal(store.embeddings, expected)
    again = x(expected)
    torch.testing.assert_close(hidden, torch.stack([again[row, at[row]] for row in (0, 1)]))
    torch.testing.assert_close(again[:, 0], whole[:, 0])


REFUSED: dict[str, tuple[Keywords, Keywords, str]] = {
    "mixes all positions": ({"orthog_residual": True}, {}, "'orthog_residual' .*depends on what comes after it"),
    "among others": (
        {"rotary_pos_emb": True, "attn_orthog_projected_values": True, "macaron": True},
        {},
        "'attn_orthog_projected_values' .*depends on what comes after it",
    ),
    "behind weights that begin at zero": (
        {"attn_orthog_projected_values": True, "zero_init_branch_output": True},
        {},
        "'attn_orthog_projected_values' .*depends on what comes after it",
    ),
    "random": ({"attn_gumbel_softmax": True}, {}, "'attn_gumbel_softmax' .*not those of the next"),
    "sees another sequence": ({"cross_attend": True}, {}, "'cross_attend' .*context must be passed in"),
    "needs a condition": ({"use_adaptive_layernorm": True}, {}, "'use_adaptive_layernorm' .*condition"),
    "no decoder": ({"causal": False}, {}, "'causal' .*cannot set causality"),
    "unknown": ({"colour": 1}, {}, "'colour' \\(1\\)"),
    "no heads": ({"heads": 0}, {}, "'heads' \\(0\\)"),
    "needs the ids": ({}, {"ff_deep_embed": True}, "'ff_deep_embed'"),
    "one state for all": ({}, {"average_pool_embed": True}, "'average_pool_embed' .*for each position"),
    "scores of several states": ({}, {"mixture_of_softmax": True}, "'mixture_of_softmax'"),
    "several heads": ({}, {"num_output_heads": 2}, "'num_output_heads' .*one score"),
    "recycled": ({}, {"recycling": True}, "'recycling'"),
    "looped": ({"pre_and_post_norm": True}, {"looped": True}, "'looped': the number of loops"),
    "another length": ({}, {"max_seq_len": 3}, "'max_seq_len' is set here and cannot be given"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_causal_decoder_of_embeddings_is_refused_by_name(name: str) -> None:
    decoder, wrapper, said = REFUSED[name]
    with pytest.raises(ValueError, match=said):
        XDecoder(VOCABULARY, TOKENS, {**SIZES, **decoder}, wrapper, PREFIX)


def test_together_they_are_named_together() -> None:
    with pytest.raises(ValueError, match="keywords depth, heads: keyword 'dim' is missing"):
        XDecoder(VOCABULARY, TOKENS, {"depth": 1, "heads": 2})


def test_the_check_leaves_the_callers_random_state_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with pytest.raises(ValueError, match="colour"):
        XDecoder(VOCABULARY, TOKENS, {**SIZES, "colour": 1})
    assert torch.equal(torch.rand(3), expected)


def test_more_than_there_is_room_for_is_refused() -> None:
    x = made("plain", PREFIX)
    with pytest.raises(ValueError, match=f"17 embeddings, but there is room for {PREFIX} of prefix and {TOKENS}"):
        x.make_cache(1, PREFIX + TOKENS + 1)
    with pytest.raises(ValueError, match="17 embeddings"):
        x(torch.zeros(1, PREFIX + TOKENS + 1, x.width, dtype=torch.float64))
    with pytest.raises(ValueError, match="positions need a store"):
        x(torch.zeros(1, 2, x.width), torch.arange(2))


@pytest.mark.parametrize("field", ["vocabulary", "tokens", "prefix"])
def test_a_size_that_is_none_is_named(field: str) -> None:
    sizes = {"vocabulary": VOCABULARY, "tokens": TOKENS, "prefix": PREFIX, field: -1}
    with pytest.raises(ValueError, match=f"{field}: -1 is not a whole number"):
        XDecoder(decoder=SIZES, **sizes)
