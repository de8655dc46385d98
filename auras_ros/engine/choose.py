"""Scores to the next token of each request: penalty, grammar, sampling, log probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.request import AnswerToken
from auras_ros.models.sampler import likeliest, log_probabilities, penalised, sample


class NoTokenError(RuntimeError):
    """There is no next token; the text says why."""


def choose(scores: Tensor, requests: Sequence[ActiveRequest]) -> list[AnswerToken | NoTokenError]:
    """scores [n, vocabulary], a row for each request. Also remembers the tokens for penalty and grammar."""
    tokens, finite = likeliest(scores)
    chosen: list[AnswerToken | NoTokenError] = []
    for row, request in enumerate(requests):
        if not finite[row]:
            chosen.append(NoTokenError("the model's scores are not finite"))
        elif is_plain(request):
            chosen.append(AnswerToken(tokens[row]))
        else:
            chosen.append(_chosen(scores[row : row + 1], request))
    return chosen


def is_plain(request: ActiveRequest) -> bool:
    """Whether the likeliest token is the next one, and nothing else is asked for."""
    settings, asked = request.request.sampling, request.request
    return settings.greedy and settings.repetition_penalty == 1 and request.matcher is None and asked.logprobs is None


def _chosen(scores: Tensor, request: ActiveRequest) -> AnswerToken | NoTokenError:
    """scores: [1, vocabulary]."""
    settings, asked, adjusted = request.request.sampling, request.request, scores
    if settings.repetition_penalty != 1:
        if request.seen is None:
            request.seen = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
            request.seen[torch.tensor(request.ids, device=scores.device)] = True
        penalty = scores.new_tensor([settings.repetition_penalty])
        adjusted = penalised(scores, request.seen[None], penalty)
    if request.matcher is not None:
        adjusted = adjusted.masked_fill(~request.matcher.allowed().to(scores.device), -torch.inf)
        if not adjusted.max().isfinite():
            return NoTokenError(f"{request.matcher.kind}: no token fits it")
    uniform = torch.tensor([0.0 if settings.greedy else request.random.random()], device=scores.device)
    drawn = sample(adjusted, [settings], uniform)
    token = int(drawn)
    if request.seen is not None:
        request.seen[token] = True
    if request.matcher is not None and not request.matcher.accept(token):
        return NoTokenError(f"{request.matcher.kind}: it is too complex")
    if asked.logprobs is None:
        return AnswerToken(token)
    own, largest, names = log_probabilities(scores, drawn, asked.logprobs)
    return AnswerToken(token, float(own), tuple(zip(names[0].tolist(), largest[0].tolist(), strict=True)))
