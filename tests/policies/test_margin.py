"""A golden sample is made where every token wins clearly: rounding on another machine must choose no other.

Guards: a sample that a near-tie decides; other observations that are not tried, or not the same on another day.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies import margin
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.checkpoint import load
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.margin import MARGIN, clear_sample, smallest_margin
from tests.policies import tiny as tiny_diffusion
from tests.policies import vision_language_checkpoints as tiny
from tests.policies.tiny_autoregressive import naive_greedy, tiny_autoregressive


def test_margins_are_those_of_plain_decoding() -> None:
    policy = tiny_autoregressive()
    random = torch.Generator().manual_seed(3)
    context = policy.perceive(torch.randn(2, 1, 1, 3, 1, 1, generator=random), torch.randn(2, 1, 2, generator=random))
    got = policy.margins(context)
    assert got.shape == (2, policy.steps)
    for row in range(2):
        tokens = naive_greedy(policy, context[row])
        for at in range(policy.steps):
            written = policy.decoder.embed(torch.tensor(tokens[:at], dtype=torch.int64))
            scores = policy.decoder.logits(policy.decoder(torch.cat([context[row], written])[None])[0, -1]).double()
            best = scores.sort(descending=True).values
            torch.testing.assert_close(got[row, at], (best[0] - best[1]) / scores.std(), rtol=1e-9, atol=1e-12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("margin") / "rt2"
    found = tiny.written(made, "rt2")
    assert found is not None
    assert found >= MARGIN
    return made


def parts(folder: Path) -> tuple[AutoregressivePolicy, object, GoldenSample]:
    checkpoint = load(folder)
    policy = checkpoint.policy("greedy")
    assert isinstance(policy, AutoregressivePolicy)
    return policy, checkpoint.spec, GoldenSample.load(folder / "golden.safetensors")


def tied(policy: AutoregressivePolicy, by: float = 0.0) -> AutoregressivePolicy:
    """The same with every word there twice, all but equal: a near-tie at every token."""
    close = copy.deepcopy(policy)
    weight = close.decoder.lm_head.weight  # type: ignore[attr-defined]
    weight[256:] = weight[:256] * (1 + by)
    return close


def test_a_near_tie_is_refused_whatever_is_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, spec, sample = parts(folder)
    monkeypatch.setattr(margin, "TRIES", 5)
    with pytest.raises(CheckpointError, match=r"in 5 observations like this one a token wins by .* expected 1e-03"):
        clear_sample([tied(policy, 1e-6)], spec, sample)  # type: ignore[arg-type]
    clear_sample([tied(policy, 0.5)], spec, sample)  # type: ignore[arg-type]


def test_other_observations_are_tried_and_are_the_same_every_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, spec, sample = parts(folder)
    real, calls = smallest_margin, []

    def at_first_close(policy: object, spec: object, tried: GoldenSample) -> float:
        calls.append(tried)
        return MARGIN / 2 if len(calls) % 4 else real(policy, spec, tried)  # type: ignore[arg-type]

    monkeypatch.setattr(margin, "smallest_margin", at_first_close)
    first, found = clear_sample([policy], spec, sample)  # type: ignore[arg-type]
    again, same = clear_sample([policy], spec, sample)  # type: ignore[arg-type]
    assert len(calls) in (8, 16, 24)
    assert found == same
    assert found is not None
    assert found >= MARGIN
    np.testing.assert_array_equal(calls[0].images["top"], sample.images["top"])  # the first is the one that was given
    np.testing.assert_array_equal(first.images["top"], again.images["top"])
    off = np.abs(first.images["top"].astype(int) - sample.images["top"])
    assert 0 < off.max() <= margin.GREY_LEVELS


def test_the_margin_holds_for_every_policy_of_the_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, spec, sample = parts(folder)
    monkeypatch.setattr(margin, "TRIES", 2)
    with pytest.raises(CheckpointError, match="golden sample: in 2 observations"):
        clear_sample([policy, tied(policy)], spec, sample)  # type: ignore[arg-type]


def test_scores_that_are_no_numbers_count_as_no_margin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, spec, sample = parts(folder)
    broken = copy.deepcopy(policy)
    broken.decoder.lm_head.weight.fill_(float("nan"))  # type: ignore[attr-defined]
    assert smallest_margin(broken, spec, sample) == -1.0  # type: ignore[arg-type]


def test_a_policy_that_chooses_nothing_takes_any_observation(tmp_path: Path) -> None:
    made, sample = tiny_diffusion.checkpoint(), GoldenSample({}, {}, {})
    assert clear_sample([made.policy("quick")], made.spec, sample) == (sample, None)


def test_writing_refuses_a_checkpoint_whose_tokens_never_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(margin, "TRIES", 2)
    monkeypatch.setattr(margin, "MARGIN", 50.0)
    with pytest.raises(CheckpointError, match="a token wins by"):
        tiny.written(tmp_path / "rt2", "rt2")
