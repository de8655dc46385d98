"""What merged requests leave to those that come later: tokens, keys and values. Reused where it is right, dropped after
a gap, a reset or too many frames."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.pipeline.merged import APPROXIMATE_FRAMES
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched
from tests.pipeline.merging import MS, POLICY, actions, executor, frames, frames_of, seen, still
from tests.policies.tiny_autoregressive import TOKENS, naive_greedy, naive_token


class Positions:
    """How many positions each forward of the decoder computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: list[int] = []
        forward = type(POLICY.decoder).forward

        def counting(decoder: Any, embeddings: Tensor, *rest: Any) -> Any:
            self.counts.append(embeddings.shape[1])
            return forward(decoder, embeddings, *rest)

        monkeypatch.setattr(type(POLICY.decoder), "forward", counting)

    def of_frames(self, run: Executor, looks: list[Latched]) -> tuple[list[Emission | None], list[list[int]]]:
        """What each frame emits, and what its forwards compute."""
        found: list[Emission | None] = []
        counts = []
        for look in looks:
            self.counts.clear()
            found += frames_of(run, [look])
            counts.append(list(self.counts))
        return found, counts


@pytest.mark.parametrize("merge", ["step", "frame"])
@pytest.mark.parametrize("stages", [1, 3, TOKENS])
@pytest.mark.parametrize("reuse", ["exact", "approximate"])
def test_reuse_behind_an_unchanged_beginning_is_exact(
    reuse: str, stages: int, merge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture stands still, the state after it changes: keys and values before it are what they would be."""
    plan, positions = Plan(mode="auras", pp_generation=stages, merge=merge), Positions(monkeypatch)
    looks = still(list(range(1, 2 * stages + 3)), picture=True)
    whole, all_counts = positions.of_frames(executor(plan), looks)
    reused, counts = positions.of_frames(executor(replace(plan, reuse=reuse)), looks)
    assert any(emission is not None for emission in whole)
    for one, other in zip(whole, reused, strict=True):
        assert (one is None) == (other is None)
        assert one is None or (other is not None and torch.equal(one.actions, other.actions))
    kept = sum(POLICY.segments[:2])
    assert [frame[0] for frame in counts[1:]] == [frame[0] - kept for frame in all_counts[1:]]


def test_approximate_reuse_computes_what_changed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The picture changes, what follows it does not: exact reuse recomputes everything behind the picture, the
    approximate one the picture, the last position and the tokens, from keys and values made of the picture before."""
    looks, positions = still([1, 2, 3], picture=False), Positions(monkeypatch)
    plan = Plan(mode="auras", pp_generation=1, merge="frame")
    (_, *exact), exact_counts = positions.of_frames(executor(replace(plan, reuse="exact")), looks)
    (_, *about), about_counts = positions.of_frames(executor(replace(plan, reuse="approximate")), looks)
    whole, tokens = sum(POLICY.segments), TOKENS - 1
    assert [frame[-1] for frame in exact_counts] == [whole + tokens] * 3
    assert [frame[-1] for frame in about_counts] == [whole + tokens, *[POLICY.segments[0] + 1 + tokens] * 2]
    contexts = [POLICY.perceive(look.images, look.state) for look in looks]
    by_hand, cache = naive_greedy(POLICY, contexts[0][0]), POLICY.workspace(1, whole)
    POLICY.decoder(contexts[0], torch.arange(whole), cache)
    recompute = torch.tensor([0, 1, whole - 1])
    by_hand = [naive_token(POLICY, contexts[0][0], by_hand[:i]) for i in range(TOKENS)]
    for context, emission in zip(contexts[1:], about, strict=True):
        embedded = torch.cat([context[:, recompute], POLICY.decoder.embed(torch.tensor([by_hand[:-1]]))], 1)
        at = torch.cat([recompute, torch.arange(whole, whole + tokens)])
        hidden = POLICY.decoder(embedded, at, cache)[:, 2:]
        by_hand = POLICY.decoder.logits(hidden).argmax(-1)[0].tolist()
        assert emission is not None
        assert torch.equal(emission.actions, actions(by_hand))
    assert not all(torch.equal(a.actions, e.actions) for a, e in zip(about, exact, strict=True) if a and e)


def test_approximate_reuse_has_an_age_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a moving picture all is recomputed after APPROXIMATE_FRAMES, and that frame's chunk is exact again."""
    positions, whole = Positions(monkeypatch), sum(POLICY.segments)
    rounds = APPROXIMATE_FRAMES + 1
    looks = still(list(range(1, 2 * rounds + 1)), picture=False)
    found, counts = positions.of_frames(executor(Plan(mode="auras", reuse="approximate")), looks)
    assert [n for n, frame in enumerate(counts) if frame[0] == whole] == [0, rounds]
    exact = frames_of(executor(Plan()), looks)
    same = [torch.equal(a.actions, e.actions) for a, e in zip(found, exact, strict=True) if a and e]
    assert len(same) == len(looks)
    assert same[0]
    assert same[rounds]
    assert not all(same[1:rounds])


def test_where_nothing_moves_there_is_nothing_to_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    positions, first = Positions(monkeypatch), seen(1)
    looks = [Latched(first.images, first.state, seen(stamp).origin) for stamp in range(1, APPROXIMATE_FRAMES + 4)]
    _, counts = positions.of_frames(executor(Plan(mode="auras", reuse="approximate")), looks)
    assert [frame[0] for frame in counts] == [sum(POLICY.segments), *[1] * (len(looks) - 1)]


def test_what_an_epoch_before_has_left_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, positions = Plan(mode="auras", pp_generation=TOKENS, reuse="exact"), Positions(monkeypatch)
    run, looks = executor(plan), still([1, 2, 3, 4], picture=True)
    _, before = positions.of_frames(run, looks[:2])
    run.reset()
    _, after = positions.of_frames(run, looks[2:])
    whole = sum(POLICY.segments) + TOKENS - 1
    assert [counts[-1] for counts in (*before, *after)] == [whole, whole - 3, whole, whole - 3]


@pytest.mark.parametrize("offset", ["fetch_offset=0", "fetch_offset=-1", "pp_perception=2"])
@pytest.mark.parametrize("reuse", ["none", "approximate"])
@pytest.mark.parametrize("merge", ["step", "frame"])
@pytest.mark.parametrize("stages", [1, 3])
def test_rule_09_no_token_is_of_before_a_gap(stages: int, merge: str, reuse: str, offset: str) -> None:
    """A second in which nothing was seen: what comes after it is what a new executor gives, whatever was before."""
    plan = Plan.parse(f"quick,mode=auras,pp_generation={stages},merge={merge},reuse={reuse},{offset}")
    before, after = list(range(1, 2 * stages + 4)), list(range(1000, 1003 + 2 * stages))
    old, new = executor(plan), executor(plan)
    for run in (old, new):
        run.ledger.stale_ns = 20 * MS
    frames_of(old, still(before, picture=False))
    looks = [replace(look, state=seen(before[0]).state) for look in still(after, picture=False)]
    found, expected = frames_of(old, looks), frames_of(new, looks)
    assert [e is None for e in found] == [e is None for e in expected]
    assert any(found)
    for one, other in zip(found, expected, strict=True):
        assert one is None or (other is not None and torch.equal(one.actions, other.actions))
    old.close()
    new.close()


def test_rule_09_no_token_follows_one_that_has_become_too_old() -> None:
    """Beside perception: at 30 no request is on its way; 12, perceived last, is young enough; the tokens are of 1."""
    plan = Plan(mode="auras", fetch_offset=-1, merge="frame")
    old, new = executor(plan), executor(plan)
    for run in (old, new):
        run.ledger.stale_ns = 20 * MS
    found, expected = frames(old, [1, 12, 30])[-1], frames(new, [12, 30])[-1]
    assert found is not None
    assert expected is not None
    assert torch.equal(found.actions, expected.actions)
    old.close()
    new.close()


def test_without_a_gap_the_tokens_of_before_count() -> None:
    """The test above can fail."""
    plan = Plan(mode="auras", pp_generation=2, merge="frame")
    old, new = executor(plan), executor(plan)
    frames(old, [1, 2, 3])
    later = [e for run in (old, new) for e in frames(run, [4, 5])[1:]]
    assert not torch.equal(later[0].actions, later[1].actions)  # type: ignore[union-attr]
