"""Only a chunk that was published and is executed is gone on from: the agent's frames, all around them doubled."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from auras_ros.action import Channel, ChannelKind, Chunk, Contract, HoldPolicy, Provenance
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.overload import WINDOW, Overload, OverloadLevel
from auras_ros.nodes.agent.prompt import PromptGate
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.pipeline.continuity import GuidedContinuity
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Ledger, ObservationOrigin

MS = 1_000_000
CONTRACT = Contract((Channel("x", "m", ChannelKind.ABSOLUTE, -10.0, 10.0, hold=HoldPolicy.LAST),), 100)


class Scene:
    def __init__(self) -> None:
        self.continuity, self.ledger = GuidedContinuity(CONTRACT), Ledger()
        self.silent, self.session, self.seen, self.level = False, "ours", True, OverloadLevel.FIRST
        self.published: list[Chunk] = []
        plan = Plan(guide="inpaint")
        executor = SimpleNamespace(ledger=self.ledger, workers=(), plan=plan, continuity=self.continuity)
        chunk = Chunk([[0.0]], Provenance(0, 0))  # type: ignore[arg-type]
        pipeline: Any = SimpleNamespace(
            executor=executor,
            plan=plan,
            session="ours",
            latched=lambda observation: observation,
            not_executed=self.continuity.cut,
            chunk=lambda emission: chunk,
        )
        actuator: Any = SimpleNamespace(
            silent=lambda: self.silent, executes=lambda session: not self.silent and session == self.session
        )
        inputs: Any = SimpleNamespace(latch=lambda now_ns: "seen" if self.seen else None)
        self.prompts = PromptGate(None, lambda ids: None, 4096, None)
        overload: Any = SimpleNamespace(level=OverloadLevel.FIRST, finished=lambda *_: False)
        self.overload = overload
        publish = lambda chunk, emission: self.published.append(chunk)  # noqa: E731
        settings = AgentSettings(phase_lock=False)
        self.frames = FrameRunner([pipeline], inputs, actuator, self.prompts, settings, publish, lambda level: None)
        self.frames.overload = overload

    def frame(self, at_ms: int) -> bool:
        """Latch, generate and hand out; whether the chunk was published."""
        before = len(self.published)
        if self.frames._latch(0, at_ms * MS) is None:
            return False
        self.continuity.began(self.ledger.epoch, at_ms * MS)
        origin = ObservationOrigin(at_ms * MS, at_ms * MS)
        emission = Emission(
            torch.full((1, 8, 1), 5.0, dtype=torch.float64), 0, 0, self.ledger.epoch, (origin,), (0,), 0, 0, 0
        )
        self.continuity.ended(emission, (at_ms + 50) * MS)
        self.frames._emit(0, emission)
        return len(self.published) > before

    def goes_on(self, at_ms: int) -> bool:
        """Whether the next chunk would go on from the one before."""
        assert self.frames._latch(0, at_ms * MS) is not None
        return self.continuity.aim(ObservationOrigin(at_ms * MS, at_ms * MS), at_ms * MS) is not None


def test_a_published_chunk_that_is_executed_is_gone_on_from() -> None:
    scene = Scene()
    assert scene.frame(0)
    assert scene.goes_on(100)


def silence(scene: Scene, on: bool) -> None:
    scene.silent = on


def other_session(scene: Scene, on: bool) -> None:
    scene.session = "theirs" if on else "ours"


def overloaded(scene: Scene, on: bool) -> None:
    scene.overload.level = OverloadLevel.HALTED if on else OverloadLevel.FIRST


def other_prompt(scene: Scene, on: bool) -> None:
    scene.prompts.wanted = "another" if on else ""


@pytest.mark.parametrize("trouble", [silence, other_session])
def test_after_a_while_in_which_nothing_was_executed_nothing_is_gone_on_from(
    trouble: Callable[[Scene, bool], None],
) -> None:
    scene = Scene()
    assert scene.frame(0)
    trouble(scene, True)
    scene.frames._latch(0, 100 * MS)
    trouble(scene, False)
    assert not scene.goes_on(200)


@pytest.mark.parametrize("trouble", [silence, overloaded, other_prompt])
def test_a_chunk_that_was_not_published_is_not_gone_on_from(trouble: Callable[[Scene, bool], None]) -> None:
    scene = Scene()
    assert scene.frames._latch(0, 0) is not None
    scene.continuity.began(scene.ledger.epoch, 0)
    origin = ObservationOrigin(0, 0)
    emission = Emission(torch.zeros((1, 8, 1), dtype=torch.float64), 0, 0, 0, (origin,), (0,), 0, 0, 0)
    scene.continuity.ended(emission, 50 * MS)
    trouble(scene, True)
    scene.frames._emit(0, emission)
    trouble(scene, False)
    assert scene.published == []
    assert not scene.goes_on(100)


def test_frames_go_on_beside_an_overload_unpublished_until_they_are_in_time_again() -> None:
    scene = Scene()
    scene.frames.overload = Overload(0, has_fallback=False)
    scene.frames.overload.level = OverloadLevel.HALTED
    published = [scene.frame(number * 100) for number in range(WINDOW + 2)]
    assert published == [False] * WINDOW + [True] * 2
