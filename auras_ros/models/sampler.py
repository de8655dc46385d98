"""Scores to tokens: greedy or sampled, each row by its own settings.

Rows of one batch have different settings, so all of them are tensors. A row's randomness is one number that its owner
gives, uniform in [0, 1): the same number gives the same token, whatever else is in the batch.

The order of the settings is that of vLLM's V1 engine: repetition penalty, frequency penalty, presence penalty,
temperature, min-p, top-k, top-p. transformers applies min-p last; with min-p and top-p together it keeps other tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

LEAST_PENALTY, MOST_PENALTY, MOST_TEMPERATURE = 0.01, 100.0, 100.0
MOST_COUNT_PENALTY = 2.0  # of frequency and presence, as OpenAI's
MOST_TOP_K = 1 << 20


@dataclass(frozen=True)
class Sampling:
    """temperature: 0 is greedy. top_k: 0 is all tokens. top_p: the smallest set of likeliest tokens whose probabilities
    reach it. min_p: at least this share of the likeliest token's probability. repetition_penalty: scores of tokens that
    stand in prompt or answer are divided by it where they are positive and multiplied where negative (Keskar et al.
    2019, 4.1). frequency_penalty: taken off a token's score as often as the answer has the token. presence_penalty:
    taken off once if the answer has it. Raises ValueError, naming the setting."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0

    def __post_init__(self) -> None:
        ranges = {
            "temperature": (0.0, MOST_TEMPERATURE),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repetition_penalty": (LEAST_PENALTY, MOST_PENALTY),
            "frequency_penalty": (-MOST_COUNT_PENALTY, MOST_COUNT_PENALTY),
            "presence_penalty": (-MOST_COUNT_PENALTY, MOST_COUNT_PENALTY),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise ValueError(f"{name}: {value!r} is not a number from {least:g} to {most:g}")
        if self.top_p == 0:
            raise ValueError("top_p: 0 is not above 0")
        if isinstance(self.top_k, bool) or not isinstance(self.top_k, int) or not 0 <= self.top_k <= MOST_TOP_K:
            raise ValueError(f"top_k: is not a whole number from 0 to {MOST_TOP_K}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1

    @property
    def counts_tokens(self) -> bool:
        """Whether a token's score depends on how often the answer has the token."""
        return self.frequency_penalty != 0 or self.presence_penalty != 0

    @property
    def penalises(self) -> bool:
        return self.repetition_penalty != 1 or self.counts_tokens


def likeliest(scores: Tensor) -> tuple[list[int], list[bool]]:
    """scores [B, V] -> the token with the largest score of each row, and whether that score is finite. A score that is
    no number counts as the largest."""
    if scores.device.type == "cpu" and scores.dtype == torch.float32:  # NumPy's is seven times as quick as torch's
        rows = scores.numpy()
        tokens = rows.argmax(-1)
        return tokens.tolist(), np.isfinite(rows[np.arange(len(rows)), tokens]).tolist()
    best, names = scores.max(-1)
    return names.tolist(), best.isfinite().tolist()


def penalised(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """logits [B, V]; seen: bool [B, V], tokens of prompt and answer; penalty [B]."""
    column = penalty[:, None]
    return torch.where(seen, torch.where(logits > 0, logits / column, logits * column), logits)


def penalised_by_count(logits: Tensor, counts: Tensor, settings: Sampling) -> Tensor:
    """logits [B, V]; counts: float [V], how often the answer has each token."""
    return logits - settings.frequency_penalty * counts - settings.presence_penalty * (counts > 0)


def sample(logits: Tensor, settings: Sequence[Sampling], uniform: Tensor) -> Tensor:
    """Finite scores [B, V], penalised already -> tokens int64 [B]. uniform: float [B] in [0, 1), read only where a row
    is not greedy."""
    best = logits.argmax(-1)
    rows = [row for row, each in enumerate(settings) if not each.greedy]
    if not rows:
        return best
    chosen = [settings[row] for row in rows]
    at = torch.tensor(rows, device=logits.device)
    tokens = _drawn(kept(logits[at].float(), chosen), uniform.to(logits.device)[at])
    return best.index_copy(0, at, tokens)


def kept(logits: Tensor, settings: Sequence[Sampling]) -> Tensor:
    """Scores [B, V] divided by the temperature; -inf for tokens that min-p, top-k and top-p take out."""

    def column(name: str) -> Tensor:
        return logits.new_tensor([getattr(each, name) for each in settings])[:, None]

    scores = logits / column("temperature").clamp_min(1e-5)
    if all(each.top_k == 0 and each.top_p == 1 and each.min_p == 0 for each in settings):
        return scores
    ordered, order = scores.sort(-1, descending=True)
    share = ordered.double().softmax(-1)
    place = torch.arange(scores.shape[-1], device=scores.device)
    limit = torch.tensor([each.top_k or scores.shape[-1] for each in settings], device=scores.device)[:, None]
    ordered = ordered.masked_fill((share < column("min_p") * share[:, :1]) | (place >= limit), -math.inf)
    share = ordered.double().softmax(-1)
    top_p = column("top_p")
    before = share.cumsum(-1) - share  # probability of the likelier tokens
    out = (before >= top_p) & (top_p < 1)
    out[:, 0] = False
    return torch.full_like(scores, -math.inf).scatter(1, order, ordered.masked_fill(out, -math.inf))


def log_probabilities(logits: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of the scores as the model gave them [B, V]: the tokens' own [B], the `count` largest [B, count], and their
    tokens."""
    everything = logits.float().log_softmax(-1)
    largest, names = everything.topk(min(count, logits.shape[-1]), -1)
    return everything.gather(1, tokens[:, None])[:, 0], largest, names


def _drawn(scores: Tensor, uniform: Tensor) -> Tensor:
    """The first token whose cumulative probability is above `uniform`; one of probability zero never."""
    shares = scores.double().softmax(-1)
    reached = shares.cumsum(-1)
    last = shares.shape[-1] - 1 - (shares > 0).flip(-1).to(torch.int8).argmax(-1)  # rounding may leave the sum below 1
    found = torch.searchsorted(reached, (uniform.double() * reached[:, -1])[:, None], right=True)[:, 0]
    return torch.minimum(found, last)
