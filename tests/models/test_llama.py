"""The decoder against transformers', and what causal attention promises: one forward holds those of every prefix.

Guards: a rotation in the other layout; a norm's eps; heads grouped the wrong way round; a cache that shows what it
must not, or an incremental forward that differs from the whole one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.models.presets import LLAMAS
from auras_ros.models.rotary import RopeScaling
from tests.models import published
from tests.models.decoding import greedy, hidden_states

TINY = LLAMAS["llama-tiny"]
SCALED = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=16)
CONFIGS = {
    "grouped": TINY,
    "one-head-each": replace(TINY, kv_heads=4, norm_eps=1e-3),
    "tied": replace(TINY, tied=True),
    "wide-heads": replace(TINY, head_dim=12, rope_theta=500.0),
    "llama3": replace(TINY, rope_scaling=SCALED),
}
TOKENS = 21


def reference(config: LlamaConfig, attention: str) -> Any:
    extra: dict[str, Any] = {}
    if config.rope_scaling is not None:
        scaling = config.rope_scaling
        extra["rope_parameters"] = {
            "rope_type": "llama3",
            "rope_theta": config.rope_theta,
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_positions,
        }
    return published.llama(config, attention, **extra)


def decoder(config: LlamaConfig = TINY, dtype: torch.dtype = torch.float64) -> Llama:
    torch.manual_seed(0)
    made = published.randomise(Llama(config))
    assert isinstance(made, Llama)
    return made.to(dtype)


def same_weights(config: LlamaConfig, model: Any) -> Llama:
    ours = Llama(config).to(next(model.parameters()).dtype).eval().requires_grad_(False)
    given = published.without("model.", model.state_dict())
    if config.tied:
        del given["lm_head.weight"]
    ours.load_state_dict(given)
    return ours


def tokens(rows: int = 2, count: int = TOKENS, width: int = TINY.width) -> Tensor:
    return torch.randn(rows, count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-5), (torch.float64, "sdpa", 1e-12)]
)
def test_every_layer_and_the_logits_are_those_of_transformers(
    name: str, dtype: torch.dtype, attention: str, tolerance: float
) -> None:
    pytest.importorskip("transformers")
    config = CONFIGS[name]
    model = published.exact_norms(reference(config, attention)).to(dtype)
    ours, given = same_weights(config, model), tokens().to(dtype)
    theirs = model(inputs_embeds=given, output_hidden_states=True)
    states = hidden_states(ours, given)
    for layer, (mine, other) in enumerate(zip(states, theirs.hidden_states, strict=True)):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance, msg=lambda m, at=layer: f"{at}: {m}")
    torch.testing.assert_close(ours.logits(states[-1]), theirs.logits, rtol=tolerance, atol=10 * tolerance)


@torch.no_grad()
def test_norms_of_half_precision_are_taken_in_float32_as_published() -> None:
    pytest.importorskip("transformers")
    model = reference(TINY, "sdpa").to(torch.bfloat16)
    ours, given = same_weights(TINY, model), tokens().to(torch.bfloat16)
    assert torch.equal(ours.layers[0].input_layernorm(given), model.model.layers[0].input_layernorm(given))
    torch.testing.assert_close(ours.logits(ours(given)), model(inputs_embeds=given).logits, rtol=0.05, atol=0.05)


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
def test_a_shorter_prefix_has_the_hidden_states_that_it_has_inside_a_longer_one(name: str) -> None:
    """Auras 4.2.3, in every layer: what lets requests at different tokens share one forward."""
    model, given = decoder(CONFIGS[name]), tokens()
    whole = hidden_states(model, given)
    for length in (1, 2, 8, TOKENS - 1):
        for short, long in zip(hidden_states(model, given[:, :length]), whole, strict=True):
            torch.testing.assert_close(short, long[:, :length], rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("parts", [(TOKENS,), (20, 1), (8, 1, 1, 1, 10), (1,) * TOKENS], ids=str)
@pytest.mark.parametrize("name", CONFIGS)
def test_prefill_and_decoding_in_parts_are_the_whole_forward(name: str, parts: tuple[int, ...]) -> None:
    model, given = decoder(CONFIGS[name]), tokens()
    cache, whole = model.make_cache(2, 32), hidden_states(model, given)
    start = 0
    for count in parts:
        at = torch.arange(start, start + count)
        for part, long in zip(hidden_states(model, given[:, at], at, cache), whole, strict=True):
            torch.testing.assert_close(part, long[:, at], rtol=1e-12, atol=1e-12)
        start += count


@torch.no_grad()
def test_refreshed_positions_reuse_the_keys_before_them_and_nothing_after() -> None:
    """Positions 5 to 11 change: refreshed alone, they are what a whole forward over the new tokens gives."""
    model, old, new = decoder(), tokens(), tokens(count=TOKENS + 1)[:, :TOKENS]
    cache = model.make_cache(2, 32)
    model(old, torch.arange(TOKENS), cache)
    changed = torch.cat([old[:, :5], new[:, 5:12], old[:, 12:]], 1)
    at = torch.arange(5, 12)
    torch.testing.assert_close(model(changed[:, at], at, cache), model(changed)[:, at], rtol=1e-12, atol=1e-12)
    rest = torch.arange(12, TOKENS)
    torch.testing.assert_close(model(changed[:, rest], rest, cache), model(changed)[:, rest], rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_rows_may_stand_at_positions_of_their_own() -> None:
    """Three prefixes of 3, 7 and 12 tokens in one cache: the next token of each, in one forward."""
    model, given = decoder(), tokens(rows=3)
    cache, lengths = model.make_cache(3, 32), torch.tensor([3, 7, 12])
    model(given[:, :12], torch.arange(12), cache)  # the next token overwrites, and sees nothing behind itself
    rows = torch.arange(3)
    step = model(given[rows, lengths][:, None], lengths[:, None], cache)
    for row, length in enumerate(lengths.tolist()):
        alone = model(given[row : row + 1, : length + 1])[:, -1:]
        torch.testing.assert_close(step[row : row + 1], alone, rtol=1e-12, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
def test_a_masked_token_is_as_if_it_were_not_there(cached: bool) -> None:
    """Padding on the right of row 0 (tokens 6 to 8): the tokens after it, at the places that follow, do not see it."""
    model, given = decoder(), tokens(rows=1, count=14)
    kept = torch.tensor([0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13])
    keys = 32 if cached else 14
    mask = torch.ones(1, 14, keys, dtype=torch.bool)
    mask[:, 9:, 6:9] = False
    cache = model.make_cache(1, keys) if cached else None
    masked = model(given, torch.arange(14), cache, mask)
    torch.testing.assert_close(masked[:, kept], model(given[:, kept], kept), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(masked, model(given))


@torch.no_grad()
def test_a_mask_that_hides_nothing_changes_nothing() -> None:
    model, given = decoder(), tokens()
    everything = torch.ones(1, TOKENS, TOKENS, dtype=torch.bool)
    torch.testing.assert_close(model(given, mask=everything), model(given), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_greedy_decoding_is_that_of_transformers() -> None:
    pytest.importorskip("transformers")
    model = reference(TINY, "eager")
    ours, prompt = same_weights(TINY, model), torch.arange(2 * 9).view(2, 9) * 7 % TINY.vocabulary
    cache = ours.make_cache(2, 20)
    cache.store.normal_()  # what an earlier request left behind
    cache.written.fill_(True)
    ids = greedy(ours, ours.embed(prompt), 12, cache)
    settings = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    theirs = model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)
    assert torch.equal(ids, theirs[:, 9:])
    assert len(set(ids.flatten().tolist())) > 4


@torch.no_grad()
def test_rows_of_a_batch_do_not_see_each_other() -> None:
    model, given = decoder(), tokens(rows=3)
    together = model(given)
    for row in range(3):
        torch.testing.assert_close(together[row : row + 1], model(given[row : row + 1]), rtol=1e-12, atol=1e-12)


def test_weights_may_come_after_a_start_without_memory() -> None:
    """What a loader does: build on "meta", then put tensors in place. A table made at the start would be lost."""
    model, given = decoder(), tokens()
    with torch.device("meta"):
        empty = Llama(TINY)
    empty.load_state_dict(model.state_dict(), assign=True)
    with torch.no_grad():
        assert torch.equal(empty.eval()(given), model(given))


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"width": 30}, "width: 30 is not a multiple of heads, 4"),
        ({"kv_heads": 3}, "heads: 4 is not a multiple of kv_heads, 3"),
        ({"head_dim": 7}, "head_dim: 7 is not even"),
        ({"layers": 0}, "layers: 0 is less than 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(sizes: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"llama: {said}"):
        replace(TINY, **sizes)


@pytest.mark.parametrize(
    ("numbers", "said"), [((0.5, 1, 4, 16), "factor: 0.5"), ((8, 4, 4, 16), "low_freq_factor 4 and high_freq_factor 4")]
)
def test_a_scaling_that_is_none_is_refused_by_name(numbers: tuple[float, float, float, int], said: str) -> None:
    with pytest.raises(ValueError, match=f"llama3 rope scaling: {said}"):
        RopeScaling(*numbers)
