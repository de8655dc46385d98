"""Merged autoregressive generation (Auras 4.2.1 to 4.2.3) against a plain model that decodes token by token."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan, PlanError, stage_steps
from auras_ros.pipeline.request import Latched
from auras_ros.pipeline.run_context import RunContext
from tests.pipeline.merging import MS, POLICY, actions, executor, frames, seen
from tests.pipeline.recording import RecordingPolicy
from tests.policies.tiny_autoregressive import TOKENS, naive_greedy, naive_token


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


def test_merged_by_frame_only_the_first_request_alone_is_greedy_decoding() -> None:
    """It begins with a plain decoding; each later one follows the tokens of the one before, of what was seen then."""
    stamps = [3, 4, 5, 6]
    found = frames(executor(Plan(mode="auras", merge="frame")), stamps)
    greedy = [naive_greedy(POLICY, POLICY.perceive(seen(stamp).images, seen(stamp).state)[0]) for stamp in stamps]
    same = [e is not None and torch.equal(e.actions, actions(own)) for e, own in zip(found, greedy, strict=True)]
    assert same == [True, False, False, False]


@pytest.mark.parametrize("emit", ["own", "newest"])
def test_with_one_token_a_stage_both_ways_to_merge_are_the_same(emit: str) -> None:
    """A stage's first token follows the frame before's, also by step; were it this frame's, they would differ."""
    stamps, plan = list(range(1, 3 * TOKENS)), Plan(mode="auras", pp_generation=TOKENS, emit=emit)
    step, frame = (frames(executor(replace(plan, merge=merge)), stamps) for merge in ("step", "frame"))
    assert [e is None for e in step] == [e is None for e in frame] == [n < TOKENS - 1 for n in range(len(stamps))]
    assert all(torch.equal(a.actions, b.actions) for a, b in zip(step, frame, strict=True) if a and b)


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


def test_environments_stay_apart() -> None:
    """Each row of a batch as if it were alone (lockstep)."""
    plan, stamps = Plan(mode="auras", pp_generation=TOKENS), list(range(1, 3 * TOKENS))
    together = frames(executor(plan, 3), stamps, 3)
    for environment in (2, 0):
        alone = executor(plan)
        one = alone.workers[0]
        for stamp, emission in zip(stamps, together, strict=True):
            look = seen(stamp, 3)
            mine = slice(environment, environment + 1)
            one.begin(Latched(look.images[mine], look.state[mine], look.origin), stamp * MS)
            one.run()
            expected = one.end(stamp * MS)
            assert (expected is None) == (emission is None)
            if expected is not None and emission is not None:
                assert torch.equal(emission.actions[environment], expected.actions[0])


def test_a_plan_that_has_no_meaning_is_refused() -> None:
    with pytest.raises(PlanError, match="merge: 'frame' has no meaning for a policy that is not autoregressive"):
        make_executor(
            RunContext(RecordingPolicy(4), Plan(mode="auras", merge="frame"), lambda _: torch.zeros(1), seen(0))
        )
    with pytest.raises(PlanError, match="batched: false has no meaning for an autoregressive policy"):
        executor(Plan(mode="auras", batched=False))
    with pytest.raises(PlanError, match="merge: must be one of step, frame, got 'all'"):
        Plan(mode="auras", merge="all")
    with pytest.raises(PlanError, match="merge: 'frame' has no meaning in mode seq, only auras"):
        Plan(merge="frame")
    with pytest.raises(PlanError, match="emit: must be one of own, newest, got 'oldest'"):
        Plan(mode="auras", emit="oldest")
    with pytest.raises(PlanError, match="emit: 'own' has no meaning for a policy that is not autoregressive"):
        make_executor(RunContext(RecordingPolicy(4), Plan(mode="auras", emit="own"), lambda _: torch.zeros(1), seen(0)))
