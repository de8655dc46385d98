"""An autoregressive policy small enough for exact tests: random weights in float64, four tokens of two channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.llama import Llama, LlamaConfig
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive import AutoregressivePolicy

WIDTH, PREFIX, HORIZON, CHANNELS = 16, 5, 3, 2
TOKENS = HORIZON * CHANNELS
VOCABULARY = 300
SHAPE = Architecture("tiny-tokens", 1, (1, 1), 1, 2, HORIZON, CHANNELS)


class TinyPrefix(nn.Module):
    """Images [B, 1, 1, 3, 1, 1] and state [B, 1, 2] -> [B, 5, 16]: two embeddings of the picture, one of a prompt that
    is always the same, two of the state."""

    segments = (2, 1, 2)

    def __init__(self) -> None:
        super().__init__()
        self.picture, self.state = nn.Linear(3, 2 * WIDTH), nn.Linear(2, 2 * WIDTH)
        self.prompt = nn.Parameter(torch.randn(1, 1, WIDTH))

    def blocks(self) -> list[tuple[str, object]]:
        return [("inputs", self._inputs), ("embed", self._embed)]

    def _inputs(self, images: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return images.flatten(1).double(), state.flatten(1).double()

    def _embed(self, images: Tensor, state: Tensor) -> tuple[Tensor]:
        parts = [layer(x).unflatten(1, (2, WIDTH)) for layer, x in ((self.picture, images), (self.state, state))]
        return (torch.cat([parts[0], self.prompt.expand(len(images), -1, -1), parts[1]], 1),)

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        value = (images, state)
        for _, block in self.blocks():
            value = block(*value)
        return value[0]


def tiny_autoregressive(seed: int = 0) -> AutoregressivePolicy:
    """Tokens depend on observation and on one another: large weights, so that few are alike."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        decoder = Llama(LlamaConfig(VOCABULARY, WIDTH, layers=2, heads=4, kv_heads=2, hidden=24)).double()
        prefix = TinyPrefix().double()
        for weight in decoder.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.5)
    codec = Rt2Tokens([0.0, 10.0], [1.0, 20.0], first=VOCABULARY - 256)
    return AutoregressivePolicy(prefix, decoder, codec, SHAPE).eval().requires_grad_(False)


def naive_token(policy: AutoregressivePolicy, context: Tensor, before: list[int]) -> int:
    """The likeliest token after `context` [prefix, width] and these tokens: one forward, nothing kept."""
    embedded = torch.cat([context, policy.decoder.embed(torch.tensor(before, dtype=torch.int64))])
    return int(policy.decoder.logits(policy.decoder(embedded[None])[0, -1]).argmax())


def naive_greedy(policy: AutoregressivePolicy, context: Tensor) -> list[int]:
    """Plain greedy decoding."""
    tokens: list[int] = []
    while len(tokens) < policy.steps:
        tokens.append(naive_token(policy, context, tokens))
    return tokens
