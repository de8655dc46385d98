"""Merged autoregressive generation (Auras 4.2.1 to 4.2.3) against a plain model that decodes token by token."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.plan import Plan, PlanError, stage_steps
from auras_ros.pipeline.request import Emission, Latched, Origin
from tests.pipeline.recording import RecordingPolicy
from tests.policies.tiny_autoregressive import CHANNELS, HORIZON, TOKENS, naive_greedy, naive_token, tiny_autoregressive

MS = 1_000_000
POLICY = tiny_autoregressive()


def seen(stamp: int, environments: int = 1) -> Latched:
    """A random observation, another one for each stamp."""
    generator = torch.Generator().manual_seed(stamp)
    images = torch.randn(environments, 1, 1, 3, 1, 1, generator=generator)
    state = torch.randn(environments, 1, 2, generator=generator)
    return Latched(images, state, Origin(stamp * MS, stamp * MS, None))


def executor(plan: Plan) -> Executor:
    return make_executor(POLICY, plan, lambda request: torch.zeros(1, 0), VirtualClock())


def frames(run: Executor, stamps: list[int], environments: int = 1) -> list[Emission | None]:
    """One frame a stamp; what each emits."""
    return frames_of(run, [seen(stamp, environments) for stamp in stamps])


def frames_of(run: Executor, looks: list[Latched]) -> list[Emission | None]:
    strand, found = run.strands[0], []
    for look in looks:
        strand.begin(look, look.origin.mono_ns)
        strand.run()
        found.append(strand.end(look.origin.mono_ns))
    return found


def actions(tokens: list[int]) -> Tensor:
    return POLICY.codec.decode(torch.tensor(tokens).view(1, HORIZON, CHANNELS))


@dataclass
class Plain:
    """The rules once more, with lists: fetch_offset 0, one perception stage, one request a frame."""

    plan: Plan
    public: list[int] = field(default_factory=lambda: [0] * TOKENS)
    requests: list[list[int]] = field(default_factory=list)  # oldest first, own tokens
    primed: bool = False

    def frame(self, stamp: int) -> list[int] | None:
        context = POLICY.perceive(seen(stamp).images, seen(stamp).state)[0]
        per_stage = stage_steps(TOKENS, self.plan.pp_generation, self.plan.alpha)
        if self.plan.merge == "frame" and not self.primed:
            self.public, self.primed = naive_greedy(POLICY, context), True
        self.requests.append([])
        turns = [range(len(own), len(own) + per_stage[self._stage(own, per_stage)]) for own in self.requests]
        if self.plan.merge == "frame":
            self._refresh(context, TOKENS)
            for own, turn in zip(self.requests, turns, strict=True):
                own += [self.public[i] for i in turn]
        else:
            # a row that holds no request is computed all the same: X_A is as long as the oldest stage makes it
            ends = [sum(per_stage[: stage + 1]) for stage in range(len(per_stage))]
            for k in range(max(per_stage)):
                self._refresh(context, max(e - n + k + 1 for e, n in zip(ends, per_stage, strict=True) if n > k))
                for own, turn in zip(self.requests, turns, strict=True):
                    if k < len(turn):
                        own.append(self.public[turn[k]])
        if len(self.requests[0]) < TOKENS:
            return None
        own = self.requests.pop(0)
        return own if self.plan.emit == "own" else list(self.public)

    def _refresh(self, context: Tensor, count: int) -> None:
        self.public[:count] = [naive_token(POLICY, context, self.public[:i]) for i in range(count)]

    @staticmethod
    def _stage(own: list[int], per_stage: tuple[int, ...]) -> int:
        return next(s for s in range(len(per_stage)) if sum(per_stage[:s]) == len(own))


@pytest.mark.parametrize("emit", ["own", "newest"])
@pytest.mark.parametrize("merge", ["step", "frame"])
@pytest.mark.parametrize(("stages", "alpha"), [(TOKENS, 0.0), (1, 0.0), (2, 0.0), (3, 1.0), (4, 0.5)])
def test_merged_requests_come_out_as_the_plain_model_says(emit: str, merge: str, stages: int, alpha: float) -> None:
    plan = Plan(mode="auras", pp_generation=stages, alpha=alpha, merge=merge, emit=emit)
    run, plain = executor(plan), Plain(plan)
    stamps = list(range(1, 4 * stages + 1))
    for stamp, emission in zip(stamps, frames(run, stamps), strict=True):
        expected = plain.frame(stamp)
        assert (emission is None) == (expected is None), f"frame {stamp}"
        if emission is not None and expected is not None:
            assert torch.equal(emission.actions, actions(expected)), f"frame {stamp}"
    run.close()


def test_the_tokens_of_a_chunk_come_from_different_observations() -> None:
    """The comparison above would pass on a policy that is blind, or where nothing merges."""
    stamps = list(range(1, 2 * TOKENS + 1))
    merged = [e for e in frames(executor(Plan(mode="auras", pp_generation=TOKENS)), stamps) if e is not None]
    alone = [naive_greedy(POLICY, POLICY.perceive(seen(stamp).images, seen(stamp).state)[0]) for stamp in stamps]
    assert merged
    assert not any(torch.equal(emission.actions, actions(tokens)) for emission in merged for tokens in alone)


@pytest.mark.parametrize("mode", ["seq", "auras"])
def test_a_request_alone_is_greedy_decoding(mode: str) -> None:
    """One request in flight, whether a KV cache serves it or a forward a frame: token for token."""
    plan = Plan(mode="auras", pp_generation=TOKENS) if mode == "auras" else Plan()
    run = executor(plan)
    emissions = frames(run, [7] * plan.latency_frames)  # the same observation: the second and later admit nothing
    context = POLICY.perceive(seen(7).images, seen(7).state)[0]
    assert emissions[-1] is not None
    assert torch.equal(emissions[-1].actions, actions(naive_greedy(POLICY, context)))
    run.close()


def test_one_stage_equals_seq() -> None:
    """Rule 7: stages 1/1 and offset 0."""
    stamps = [3, 4, 5]
    seq, auras = (frames(executor(plan), stamps) for plan in (Plan(), Plan(mode="auras")))
    for one, other in zip(seq, auras, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one.actions, other.actions)


@pytest.mark.parametrize("merge", ["step", "frame"])
def test_nothing_of_an_epoch_before_counts(merge: str) -> None:
    """Rule 9: tokens of the epoch before are no prefix of the new one's."""
    plan = Plan(mode="auras", pp_generation=3, merge=merge)
    old, new = executor(plan), executor(plan)
    frames(old, [1, 2, 3, 4])
    old.reset()
    stamps = [11, 12, 13, 14]
    for one, other in zip(frames(old, stamps), frames(new, stamps), strict=True):
        assert (one is None) == (other is None)
        assert one is None or (other is not None and torch.equal(one.actions, other.actions))
    assert one is not None


def test_environments_stay_apart_and_some_may_go() -> None:
    """Each row of a batch as if it were alone, before and after the others have left (lockstep)."""
    plan, stamps = Plan(mode="auras", pp_generation=TOKENS), list(range(1, 3 * TOKENS))
    kept = torch.tensor([2, 0])
    count = [3]
    run = make_executor(POLICY, plan, lambda request: torch.zeros(count[0], 0), VirtualClock())
    half = len(stamps) // 2
    before = frames(run, stamps[:half], 3)
    run.keep(kept)
    count[0], strand, after = 2, run.strands[0], []
    for stamp in stamps[half:]:
        look = seen(stamp, 3)
        strand.begin(Latched(look.images[kept], look.state[kept], look.origin), stamp * MS)
        strand.run()
        after.append(strand.end(stamp * MS))
    for row, environment in enumerate(kept.tolist()):
        alone = executor(plan)
        one = alone.strands[0]
        for stamp, emission in zip(stamps, [*before, *after], strict=True):
            look = seen(stamp, 3)
            mine = slice(environment, environment + 1)
            one.begin(Latched(look.images[mine], look.state[mine], look.origin), stamp * MS)
            one.run()
            expected = one.end(stamp * MS)
            assert (expected is None) == (emission is None)
            if expected is not None and emission is not None:
                place = row if len(emission.actions) == 2 else environment
                assert torch.equal(emission.actions[place], expected.actions[0])


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


def still(stamps: list[int], *, picture: bool) -> list[Latched]:
    """Observations of which the picture (or else the state) is always that of the first."""
    first, looks = seen(stamps[0]), [seen(stamp) for stamp in stamps]
    return [
        Latched(first.images if picture else look.images, look.state if picture else first.state, look.origin)
        for look in looks
    ]


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
    """The picture changes, what follows it does not: exact reuse computes everything behind the picture anew, the
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
    anew = torch.tensor([0, 1, whole - 1])
    by_hand = [naive_token(POLICY, contexts[0][0], by_hand[:i]) for i in range(TOKENS)]
    for context, emission in zip(contexts[1:], about, strict=True):
        embedded = torch.cat([context[:, anew], POLICY.decoder.embed(torch.tensor([by_hand[:-1]]))], 1)
        at = torch.cat([anew, torch.arange(whole, whole + tokens)])
        hidden = POLICY.decoder(embedded, at, cache)[:, 2:]
        by_hand = POLICY.decoder.logits(hidden).argmax(-1)[0].tolist()
        assert emission is not None
        assert torch.equal(emission.actions, actions(by_hand))
    assert not all(torch.equal(a.actions, e.actions) for a, e in zip(about, exact, strict=True) if a and e)


def test_what_an_epoch_before_has_left_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, positions = Plan(mode="auras", pp_generation=TOKENS, reuse="exact"), Positions(monkeypatch)
    run, looks = executor(plan), still([1, 2, 3, 4], picture=True)
    _, before = positions.of_frames(run, looks[:2])
    run.reset()
    _, after = positions.of_frames(run, looks[2:])
    whole = sum(POLICY.segments) + TOKENS - 1
    assert [counts[-1] for counts in (*before, *after)] == [whole, whole - 3, whole, whole - 3]


def test_a_plan_that_has_no_meaning_is_refused() -> None:
    with pytest.raises(PlanError, match="merge: 'frame' has no meaning for a policy that is not autoregressive"):
        make_executor(RecordingPolicy(4), Plan(mode="auras", merge="frame"), lambda _: torch.zeros(1), VirtualClock())
    with pytest.raises(PlanError, match="batched: false has no meaning for an autoregressive policy"):
        executor(Plan(mode="auras", batched=False))
    with pytest.raises(PlanError, match="merge: must be one of step, frame, got 'all'"):
        Plan(mode="auras", merge="all")
    with pytest.raises(PlanError, match="merge: 'frame' has no meaning in mode seq, only auras"):
        Plan(merge="frame")
    with pytest.raises(PlanError, match="emit: must be one of own, newest, got 'oldest'"):
        Plan(mode="auras", emit="oldest")
    with pytest.raises(PlanError, match="emit: 'own' has no meaning for a policy that is not autoregressive"):
        make_executor(RecordingPolicy(4), Plan(mode="auras", emit="own"), lambda _: torch.zeros(1), VirtualClock())
