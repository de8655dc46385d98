"""Scores to the next token of each request: grammar, biases, penalties, sampling, log probabilities.

The order is that of vLLM's V1 engine: what the grammar allows, what `min_tokens` takes out, `logit_bias`, the
penalties, and then `models.sampler`'s. Log probabilities are of the scores as the model gave them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.request import AnswerToken
from auras_ros.models.sampler import likeliest, log_probabilities, penalised, penalised_by_count, sample


class NoTokenError(RuntimeError):
    """There is no next token; the text says why."""


def choose(scores: Tensor, requests: Sequence[ActiveRequest]) -> list[AnswerToken | NoTokenError]:
    """scores [n, vocabulary], a row for each request. Also remembers the tokens for penalties and grammar."""
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
    asked = request.request
    if asked.logprobs is not None or asked.logit_bias or request.matcher is not None:
        return False
    return asked.sampling.greedy and not asked.sampling.penalises and request.answered >= asked.min_tokens


def _chosen(scores: Tensor, request: ActiveRequest) -> AnswerToken | NoTokenError:
    """scores: [1, vocabulary]."""
    settings, asked, adjusted = request.request.sampling, request.request, scores
    if request.matcher is not None:
        adjusted = adjusted.masked_fill(~request.matcher.allowed().to(scores.device), -torch.inf)
        if not adjusted.max().isfinite():
            return NoTokenError(f"{request.matcher.kind}: no token fits it")
    if request.answered < asked.min_tokens:
        adjusted = _without_stops(adjusted, request)
    if asked.logit_bias:
        adjusted = adjusted + _biases(scores, request)
    if settings.penalises:
        adjusted = _penalised(adjusted, request)
    uniform = torch.tensor([0.0 if settings.greedy else request.random.random()], device=scores.device)
    drawn = sample(adjusted, [settings], uniform)
    token = int(drawn)
    if request.seen is not None:
        request.seen[token] = True
    if request.counts is not None:
        request.counts[token] += 1
    if request.matcher is not None and not request.matcher.accept(token):
        return NoTokenError(f"{request.matcher.kind}: it is too complex")
    if asked.logprobs is None:
        return AnswerToken(token)
    own, largest, names = log_probabilities(scores, drawn, asked.logprobs)
    return AnswerToken(token, float(own), tuple(zip(names[0].tolist(), largest[0].tolist(), strict=True)))


def _without_stops(scores: Tensor, request: ActiveRequest) -> Tensor:
    """The scores without the tokens that end the answer, unless the grammar allows no other one."""
    stops = [token for token in request.stop_ids if 0 <= token < scores.shape[-1]]
    others = scores.clone()
    others[:, stops] = -torch.inf
    return others if bool(others.max().isfinite()) else scores


def _biases(scores: Tensor, request: ActiveRequest) -> Tensor:
    """[vocabulary]; made once for a request."""
    if request.biases is None:
        given = request.request.logit_bias
        request.biases = scores.new_zeros(scores.shape[-1])
        tokens = torch.tensor(list(given), device=scores.device)
        request.biases[tokens] = scores.new_tensor(list(given.values()))
    return request.biases


def _penalised(scores: Tensor, request: ActiveRequest) -> Tensor:
    """The repetition penalty knows the tokens of prompt and answer, the other two those of the answer alone."""
    settings = request.request.sampling
    if settings.repetition_penalty != 1:
        if request.seen is None:
            request.seen = torch.zeros(scores.shape[-1], dtype=torch.bool, device=scores.device)
            request.seen[torch.tensor(request.ids, device=scores.device)] = True
        scores = penalised(scores, request.seen[None], scores.new_tensor([settings.repetition_penalty]))
    if settings.counts_tokens:
        if request.counts is None:
            answer = torch.tensor(request.ids[request.prompt_length :], dtype=torch.int64, device=scores.device)
            request.counts = torch.bincount(answer, minlength=scores.shape[-1]).to(scores.dtype)
        scores = penalised_by_count(scores, request.counts, settings)
    return scores
