"""Sampling: the distribution that each setting promises, by counting; and what is refused.

Guards: a setting of one row used for another; a token that was taken out and is drawn all the same; a draw that depends
on what else is in the batch.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.models.sampler import Sampling, kept, log_probabilities, penalised, sample

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, -2.0])
DRAWS = 20_000
SETTINGS = {
    "plain": Sampling(),
    "cold": Sampling(temperature=0.4),
    "top-k": Sampling(top_k=3),
    "top-p": Sampling(top_p=0.7),
    "min-p": Sampling(min_p=0.3),
    "all": Sampling(temperature=1.7, top_k=5, top_p=0.9, min_p=0.1),
    "one": Sampling(top_p=1e-6),
}


def shares(settings: Sampling) -> Tensor:
    """The probabilities that a loop over tokens gives."""
    scores = (LOGITS / settings.temperature).tolist()
    order = sorted(range(len(scores)), key=lambda token: -scores[token])
    weight = {token: torch.tensor(scores[token]).exp().item() for token in order}
    order = [token for token in order if weight[token] >= settings.min_p * weight[order[0]]]
    order = order[: settings.top_k or None]
    total, reached, stay = sum(weight[token] for token in order), 0.0, []
    for token in order:
        if reached / total < settings.top_p:
            stay.append(token)
        reached += weight[token]
    made = torch.zeros(len(scores))
    for token in stay:
        made[token] = weight[token] / sum(weight[each] for each in stay)
    return made


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_come_as_often_as_the_settings_say(name: str) -> None:
    settings, uniform = SETTINGS[name], (torch.arange(DRAWS) + 0.5) / DRAWS
    tokens = sample(LOGITS.expand(DRAWS, -1), [settings] * DRAWS, uniform)
    counted = torch.bincount(tokens, minlength=len(LOGITS)) / DRAWS
    torch.testing.assert_close(counted, shares(settings), atol=2e-4, rtol=0)


def test_a_row_is_drawn_by_its_own_settings_and_its_own_number() -> None:
    settings, random = list(SETTINGS.values()), torch.Generator().manual_seed(0)
    logits, uniform = torch.randn(len(settings), 50, generator=random), torch.rand(len(settings), generator=random)
    together = sample(logits, settings, uniform)
    for row, each in enumerate(settings):
        assert sample(logits[row : row + 1], [each], uniform[row : row + 1]) == together[row]
    mixed = [Sampling(temperature=0), *settings]
    assert not kept(logits[:1], [Sampling(top_k=5)]).isfinite().all()
    assert kept(logits[:2], [Sampling(), Sampling(top_k=5)])[0].isfinite().all()
    again = sample(torch.cat([logits[:1], logits]), mixed, torch.cat([torch.tensor([torch.nan]), uniform]))
    assert again[0] == logits[0].argmax()
    assert torch.equal(again[1:], together)


def test_what_was_taken_out_is_never_drawn() -> None:
    """Neither with the smallest number nor with the one next to 1."""
    edge = torch.tensor([0.0, 1 - 2**-24])
    for settings in SETTINGS.values():
        left = kept(LOGITS[None], [settings])[0].isfinite()
        assert all(left[token] for token in sample(LOGITS.expand(2, -1), [settings] * 2, edge))


def filtered(logits: Tensor, settings: Sampling, names: tuple[str, ...]) -> Tensor:
    """Scores after transformers' filters, in this order."""
    transformers = pytest.importorskip("transformers")
    filters = {
        "top_k": transformers.TopKLogitsWarper(settings.top_k) if settings.top_k else None,
        "top_p": transformers.TopPLogitsWarper(settings.top_p),
        "min_p": transformers.MinPLogitsWarper(settings.min_p),
    }
    scores: Tensor = logits / settings.temperature
    for name in names:
        warper = filters[name]
        scores = scores if warper is None else warper(None, scores)
    return scores


VLLM_ORDER, TRANSFORMERS_ORDER = ("min_p", "top_k", "top_p"), ("top_k", "top_p", "min_p")
BOTH = [Sampling(top_p=top_p, min_p=min_p) for top_p in (0.5, 0.8, 0.9) for min_p in (0.05, 0.1, 0.3)]


def test_the_filters_come_in_the_order_of_vllm() -> None:
    """Each is transformers'; where min-p meets top-p, transformers' own order keeps other tokens."""
    random = torch.Generator().manual_seed(5)
    logits, differences = torch.randn(4, 200, generator=random) * 3, 0
    for settings in [*SETTINGS.values(), *BOTH]:
        made = kept(logits, [settings] * 4)
        torch.testing.assert_close(made, filtered(logits, settings, VLLM_ORDER))
        theirs = filtered(logits, settings, TRANSFORMERS_ORDER)
        differences += int((made.isfinite() != theirs.isfinite()).any())
    assert differences > 0


def test_the_penalty_is_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    ids = torch.tensor([[0, 3, 3, 5], [1, 1, 2, 4]])
    logits = torch.stack([LOGITS, -LOGITS])
    wanted = transformers.RepetitionPenaltyLogitsProcessor(1.4)(ids, logits.clone())
    seen = torch.zeros(2, 6, dtype=torch.bool).scatter(1, ids, True)
    torch.testing.assert_close(penalised(logits, seen, torch.tensor([1.4, 1.4])), wanted)
    assert torch.equal(penalised(logits, seen, torch.ones(2)), logits)


def test_log_probabilities_are_those_of_the_model() -> None:
    own, largest, names = log_probabilities(LOGITS[None], torch.tensor([3]), 2)
    assert own[0] == LOGITS.log_softmax(0)[3]
    assert names.tolist() == [[0, 1]]
    assert torch.equal(largest[0], LOGITS.log_softmax(0)[:2])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "cold": ({"temperature": -1}, "temperature: -1 is not a number from 0 to 100"),
    "nan": ({"temperature": float("nan")}, "temperature: nan"),
    "text": ({"top_p": "0.9"}, "top_p: '0.9' is not a number from 0 to 1"),
    "p": ({"top_p": 1.5}, "top_p: 1.5 is not a number from 0 to 1"),
    "no-p": ({"top_p": 0}, "top_p: 0 is not above 0"),
    "k": ({"top_k": -1}, "top_k: is not a whole number from 0"),
    "half-k": ({"top_k": 2.5}, "top_k: is not a whole number from 0"),
    "penalty": ({"repetition_penalty": 0}, "repetition_penalty: 0 is not a number from 0.01 to 100"),
    "huge-k": ({"top_k": 2**70}, "top_k: is not a whole number from 0"),
    "true": ({"min_p": True}, "min_p: True"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_out_of_range_is_refused_by_name(name: str) -> None:
    values, said = REFUSED[name]
    with pytest.raises(ValueError, match=said):
        Sampling(**values)
