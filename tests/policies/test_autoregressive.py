"""The autoregressive policy against plain greedy decoding, one forward a token and nothing kept."""

from __future__ import annotations

import torch

from auras_ros.policies.policy import CausalPolicy, generate
from tests.policies.tiny_autoregressive import (
    CHANNELS,
    HORIZON,
    PREFIX,
    TOKENS,
    WIDTH,
    naive_greedy,
    naive_token,
    tiny_autoregressive,
)

POLICY = tiny_autoregressive()


def contexts(count: int) -> torch.Tensor:
    return torch.randn(count, PREFIX, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def test_the_tokens_are_worth_comparing() -> None:
    """Different contexts give different chunks, and a chunk has different tokens."""
    found = [naive_greedy(POLICY, context) for context in contexts(4)]
    assert len({tuple(tokens) for tokens in found}) == 4
    assert all(len(set(tokens)) > 2 for tokens in found)


def test_complete_is_greedy_decoding() -> None:
    context = contexts(4)
    workspace = POLICY.workspace(4, PREFIX)
    for _ in range(2):  # what the workspace held counts for nothing
        done = POLICY.complete(context, workspace)
        assert done.tokens.tolist() == [naive_greedy(POLICY, each) for each in context]
        context = context.flip(0)


def test_the_four_methods_are_greedy_decoding() -> None:
    context = contexts(3)
    actions = generate(POLICY, torch.zeros(3, *POLICY.noise_shape), context)
    tokens = torch.tensor([naive_greedy(POLICY, each) for each in context])
    assert actions.shape == (3, HORIZON, CHANNELS)
    assert torch.equal(actions, POLICY.codec.decode(tokens.view(3, HORIZON, CHANNELS)))


def test_a_step_gives_each_row_its_own_token() -> None:
    context, index = contexts(3), torch.tensor([4, 0, 2])
    tokens = torch.arange(3 * TOKENS).view(3, TOKENS) + 40
    after = POLICY.step(POLICY.begin(torch.zeros(3, 0))._make([tokens]), context, index).tokens
    for row, at in enumerate(index.tolist()):
        expected = tokens[row].tolist()
        expected[at] = naive_token(POLICY, context[row], expected[:at])
        assert after[row].tolist() == expected


def test_the_tokens_of_a_shorter_prefix_are_those_inside_the_longer_one() -> None:
    """Auras 4.2.3, as the policy uses it; the hidden states of every layer are compared in the decoder's tests."""
    context, tokens = contexts(2), torch.arange(2 * TOKENS).view(2, TOKENS) + 70
    whole = POLICY.refresh(tokens, context, TOKENS)
    for count in range(1, TOKENS + 1):
        assert torch.equal(POLICY.refresh(tokens, context, count), whole[:, :count])


def test_perception_in_blocks_is_perception() -> None:
    images, state = torch.randn(2, 1, 1, 3, 1, 1), torch.randn(2, 1, 2)
    value = (images, state)
    for block in POLICY.perception_blocks():
        value = block(*value)
    assert torch.equal(value[0], POLICY.perceive(images, state))


def test_it_is_known_as_causal() -> None:
    assert isinstance(POLICY, CausalPolicy)
