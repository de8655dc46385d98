"""transformers' part of `auras bench peers`, for real, at tiny size.

Guards: weights that are not the same in every tensor; tokens that are not the same and were not compared; a first
request that counts; a token that rounding decides taken for a mistake, or a mistake for rounding.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from auras_ros.bench.peers import command, generate
from auras_ros.bench.peers.contest import UnequalError
from auras_ros.bench.peers.generate import (
    TransformersPair,
    check_prefix,
    check_tokens,
    their_rate,
    their_tokens,
)
from auras_ros.bench.policies import build
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import Feed
from auras_ros.measure.same import constant_chunks
from auras_ros.measure.window import Length
from auras_ros.models.presets import OPENVLAS
from auras_ros.pipeline.plan import Plan

pytest.importorskip("transformers")
VOCABULARY = OPENVLAS["openvla-tiny"].language.vocabulary


@pytest.fixture(scope="module")
def sides() -> Any:
    """Every parameter is random, those of norms and registers too: two that changed places would show."""
    torch.set_num_threads(1)
    built = build("openvla-tiny", tokens=generate.TOKENS)
    random = torch.Generator().manual_seed(3)
    for parameter in built.policy.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
    bench = Bench(built.policy, "cpu", 0, most=1)
    yield generate._sides(built, bench)
    bench.close()


@pytest.fixture(scope="module")
def tokens(sides: TransformersPair) -> torch.Tensor:
    return torch.cat([their_tokens(sides.theirs, images) for images, _ in sides.examples[: generate.CHECKED]])


def chunks_of(sides: TransformersPair, plan: Plan) -> torch.Tensor:
    feed = Feed(sides.examples[: generate.CHECKED])
    return constant_chunks(sides.bench, plan, [feed(at) for at in range(1, generate.CHECKED + 1)])


def test_rows_and_ratios() -> None:
    argv = ["--only=transformers", "--shape=tiny", "--device=cpu", "--rounds=2", "--seconds=0", "--chunks=1"]
    report = command.run(argv, lambda text: None)
    rows = {row["contender"]: row for row in report.rows}
    assert list(rows) == ["generate", "seq", "auras"]
    assert rows["auras"]["plan"] == "mode=auras,pp_generation=7"
    assert rows["seq"]["max_difference"] <= generate.TOLERANCE
    assert rows["seq"]["tokens_unlike"] == rows["auras"]["tokens_unlike"] == 0
    assert report.summary["transformers_auras_over_generate"] == rows["auras"]["ratio"]
    assert rows["generate"]["transformers"]
    assert "transformers, tiny shape, 7 tokens, random weights, cpu, 1 core" in command.table(report)


def test_every_tensor_is_where_it_belongs(sides: TransformersPair, tokens: torch.Tensor) -> None:
    assert check_prefix(sides) < 1e-4
    policy, (images, state) = sides.policy, sides.examples[0]
    written = policy.complete(policy.perceive(images, state), policy.workspace(1, sum(policy.segments)))
    assert torch.equal(written.tokens, tokens[:1])
    assert len({tuple(row) for row in tokens.tolist()}) > 1  # what is seen makes a difference


@pytest.mark.parametrize("plan", [Plan(), Plan(mode="auras", pp_generation=generate.TOKENS)], ids=["seq", "auras"])
def test_each_mode_writes_generates_tokens(sides: TransformersPair, tokens: torch.Tensor, plan: Plan) -> None:
    chunks = chunks_of(sides, plan)
    assert check_tokens(plan.mode, sides, chunks, tokens) == 0
    for at in range(generate.TOKENS):  # each of them is looked at
        other = tokens.clone()
        other[1, at] = (other[1, at] + 1) % VOCABULARY
        with pytest.raises(UnequalError, match=rf"tokens are not generate's \(observation 1, from token {at} on"):
            check_tokens(plan.mode, sides, chunks, other)


def test_a_token_that_hardly_wins_may_be_another(
    sides: TransformersPair, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so may those that follow it; one before it may not."""
    chunks, other = chunks_of(sides, Plan()), tokens.clone()
    other[2, 4:] = (other[2, 4:] + 1) % VOCABULARY
    margins = torch.ones(1, generate.TOKENS)
    monkeypatch.setattr(sides.policy, "margins", lambda context: margins)
    margins[0, 4] = 1e-6
    assert check_tokens("seq", sides, chunks, other) == 3
    other[2, 3] = (other[2, 3] + 1) % VOCABULARY
    with pytest.raises(UnequalError, match="4 of 7 tokens are not generate's"):
        check_tokens("seq", sides, chunks, other)


@pytest.mark.parametrize("part", ["_dinov2", "_siglip", "_project", "_embed"])
def test_another_network_is_not_timed(sides: TransformersPair, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs a little larger than they were."""
    inner = getattr(sides.theirs, part)

    class Louder(nn.Module):
        def forward(self, *args: Any) -> Any:
            out = inner(*args)
            if isinstance(out, torch.Tensor):
                return out * 1.01
            out.last_hidden_state = out.last_hidden_state * 1.01
            return out

    monkeypatch.setattr(sides.theirs, part, Louder())
    with pytest.raises(UnequalError, match=r"our prefix differs from transformers' by up to 0\.\d+ of its standard"):
        check_prefix(sides)


def test_the_first_request_of_a_window_is_not_counted(sides: TransformersPair, monkeypatch: pytest.MonkeyPatch) -> None:
    took, now, ends = [100.0, 1.0, 2.0, 3.0], [0.0], iter([False, True] * 10)

    def perf_counter() -> float:
        if next(ends):
            now[0] += took.pop(0)
        return now[0]

    seen = []
    monkeypatch.setattr(generate, "their_tokens", lambda theirs, images: seen.append(images))
    monkeypatch.setattr(generate.time, "perf_counter", perf_counter)
    assert their_rate(sides)(Length(chunks=2, seconds=5.5, limit_s=600.0)) == 3 / 6
    assert [each is images for each, (images, _) in zip(seen, sides.examples, strict=False)] == [True] * 4


def test_no_token_ends_a_chunk(sides: TransformersPair, tokens: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is written may be what ends a sentence elsewhere: with it as the end there would be fewer."""
    images, _ = sides.examples[0]
    settings = sides.theirs._llama.generation_config
    assert settings.eos_token_id is None
    monkeypatch.setattr(settings, "eos_token_id", int(tokens[0, 2]))
    assert their_tokens(sides.theirs, images).shape[1] < generate.TOKENS


def test_weights_are_not_copied(sides: TransformersPair) -> None:
    """Both fit where one does."""
    assert sides.theirs._llama.lm_head.weight.data_ptr() == sides.policy.decoder.lm_head.weight.data_ptr()
    vision = sides.policy.prefix.model.vision.featurizer
    first = sides.theirs._dinov2.encoder.layer[0].attention
    assert first.q_proj.weight.data_ptr() == vision.layers[0].attn.qkv.weight.data_ptr()


def test_networks_of_another_transformers_are_refused(sides: TransformersPair) -> None:
    from auras_ros.bench.peers.published import filled

    with pytest.raises(ValueError, match=r"transformers \S+ has other networks than 5\.23"):
        filled(nn.Linear(2, 2), {"weights": torch.zeros(2, 2)})


def test_a_prefix_of_another_length(sides: TransformersPair) -> None:
    other = replace(sides, examples=sides.examples)
    before = other.theirs._after
    other.theirs._after = before[:, 1:]
    try:
        with pytest.raises(UnequalError, match=r"our prefix is \[1, 29, 32\], theirs \[1, 28, 32\]"):
            check_prefix(other)
    finally:
        other.theirs._after = before
