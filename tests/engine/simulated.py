"""Engines on the virtual clock: a small profile, requests, and what must hold of every dispatch of every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.pictures import PreparedImage
from auras_ros.clock import VirtualClock
from auras_ros.engine import simulation
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import Delta, VlmRequest
from auras_ros.engine.scheduler import Dispatch, EngineState, Stage, StageScheduler
from auras_ros.engine.simulation import SimulatedForwards, make_simulated
from tests.engine.making import _small

MS = 1_000_000
BLOCK = 4
SMALL = StageProfile(
    device="made up",
    model="small",
    units=10,
    vision=80.0,
    prefill={10: 20.0, 100: 40.0, 200: 100.0},
    prompt=100,
    decode=10.0,
    decode_row=1.0,
    token_row=0.5,
    corun={
        2: CorunTimes(90.0, 45.0, 40.0, 44.0),
        4: CorunTimes(110.0, 55.0, 20.0, 26.0),
        6: CorunTimes(150.0, 75.0, 14.0, 16.0),
    },
    shared=CorunTimes(100.0, 50.0, 50.0, 60.0),
)


def request(prompt: int, images: Sequence[int] = (), **others: Any) -> VlmRequest:
    """images: a number for each; the same number is the same image."""
    pictures = tuple(PreparedImage(torch.empty(0), (1, 1), 1, "", f"{number:064x}") for number in images)
    text = VlmPrompt(torch.ones(prompt, dtype=torch.int64), pictures, torch.arange(len(pictures)))
    return VlmRequest(text, ignore_eos=True, **others)


def active(number: int, prompt: int = 10, images: Sequence[int] = (), **others: Any) -> ActiveRequest:
    """One that no engine has."""
    reply = cast(Reply, SimpleNamespace(cancelled=False))
    return ActiveRequest(request(prompt, images, **others), reply, number, 10**6, None)


def decoding(number: int, prompt: int = 10, **others: Any) -> ActiveRequest:
    made = active(number, prompt, **others)
    made.ids.append(1)
    made.stored = prompt
    return made


class Queues:
    """An engine's state without an engine. Dispatches run until `end`."""

    def __init__(self) -> None:
        self.state = EngineState(lambda each: each.remaining, lambda requests, counts: True)

    def add(self, stage: Stage, *requests: ActiveRequest) -> None:
        for each in requests:
            self.state.queues.move(each, stage)

    def start(self, dispatch: Dispatch) -> None:
        assert dispatch.stage not in self.state.running
        for each in dispatch.requests:
            assert not each.busy
            each.busy = True
        self.state.running[dispatch.stage] = dispatch
        self.state.last = dispatch.stage

    def started(self, scheduler: StageScheduler) -> list[Dispatch]:
        """All that a scheduler starts now."""
        begun = list[Dispatch]()
        while (dispatch := scheduler.next(self.state)) is not None:
            self.start(dispatch)
            begun.append(dispatch)
        return begun

    def end(self, stage: Stage, to: Stage | None = None) -> None:
        """What runs of the stage is over, and its requests go to the next one; None: they stay."""
        for each in self.state.running.pop(stage).requests:
            each.busy = False
            if to is not None:
                self.state.queues.move(each, to)


Check = Callable[[EngineState, Dispatch | None], None]


class Watched:
    """A scheduler each of whose decisions is checked against the state in which it was made."""

    def __init__(self, scheduler: StageScheduler, *checks: Check) -> None:
        self._scheduler, self._checks = scheduler, checks

    def next(self, state: EngineState) -> Dispatch | None:
        dispatch = self._scheduler.next(state)
        for check in self._checks:
            check(state, dispatch)
        return dispatch


def in_order(state: EngineState, dispatch: Dispatch | None) -> None:
    """What starts is idle and the first of its queue; decode takes everything."""
    if dispatch is None:
        return
    assert dispatch.stage not in state.running
    assert not any(each.busy for each in dispatch.requests)
    ready = {stage: state.ready(stage) for stage in state.queues}
    for queue in state.queues.values():
        assert queue == sorted(queue, key=lambda each: (each.request.priority, each.number))
    if dispatch.stage == "vision":
        assert list(dispatch.requests) == ready["vision"][:1]
        assert dispatch.image in dispatch.requests[0].unseen()
        return
    assert len(dispatch.counts) == len(dispatch.requests)
    rows = [each for each in dispatch.requests if each in ready["decode"]]
    prompts = [each for each in dispatch.requests if each not in rows]
    if rows:
        assert rows == ready["decode"]
        assert dispatch.counts[: len(rows)] == (1,) * len(rows)
    assert prompts == ([] if dispatch.stage == "decode" else ready["prefill"][: len(prompts)])
    assert prompts or dispatch.stage == "decode"


@dataclass(frozen=True)
class Asked:
    """One request of a play. cancel_ms: after its arrival."""

    at_ms: int = 0
    prompt: int = 8
    tokens: int = 3
    images: tuple[int, ...] = (0,)
    priority: int = 0
    deadline_ms: int | None = None
    cancel_ms: int | None = None

    @property
    def cancel_at_ns(self) -> int | None:
        return None if self.cancel_ms is None else (self.at_ms + self.cancel_ms) * MS


@dataclass
class Played:
    """One request's answer. tokens_ns: when each of its tokens came; ends: how often it ended."""

    asked: Asked
    reply: Reply
    tokens_ns: list[int] = field(default_factory=list)
    ends: int = 0


def play(
    scheduler: StageScheduler,
    profile: StageProfile,
    asked: Sequence[Asked],
    blocks: int = 10_000,
    running: int = 8,
    image_cache_mib: int = 0,
) -> tuple[list[Played], SimulatedForwards, Engine]:
    """As `simulate`, with few blocks and with requests that are cancelled, late, or about the same image. The engine
    must be at work until the last request has ended."""
    clock = VirtualClock()
    forwards = SimulatedForwards(profile, clock)
    options = EngineOptions(
        running=running, waiting=len(asked) + 1, block=BLOCK, kv_mib=1, image_cache_mib=image_cache_mib
    )
    with mock.patch.object(simulation, "PagedKVCache", partial(_small, blocks)):
        engine = make_simulated(scheduler, forwards, options, clock)
    played, coming = list[Played](), sorted(asked, key=lambda each: each.at_ms)
    cancels = list[Played]()
    while True:
        while engine.step():
            continue
        ends = [forwards.next_end_ns(), *(each.at_ms * MS for each in coming[:1]), deadline_ns(engine, clock)]
        ends += [each.asked.cancel_at_ns for each in cancels]
        times = [each for each in ends if each is not None]
        if not times:
            break
        clock.sleep_until_ns(min(times))
        forwards.advance()
        while coming and coming[0].at_ms * MS <= clock.now_ns():
            played.append(submit(engine, coming.pop(0), clock))
            cancels += [played[-1]] if played[-1].asked.cancel_ms is not None else []
        for each in list(cancels):
            if (each.asked.cancel_at_ns or 0) <= clock.now_ns():
                cancels.remove(each)
                each.reply.cancel()
    return played, forwards, engine


def deadline_ns(engine: Engine, clock: VirtualClock) -> int | None:
    left_s = engine._until_deadline_s()
    return None if left_s is None else clock.now_ns() + max(round(left_s * 1e9), 1)


def submit(engine: Engine, asked: Asked, clock: VirtualClock) -> Played:
    made: list[Played] = []

    def came(piece: Delta) -> None:
        made[0].tokens_ns.extend([clock.now_ns()] * len(piece.tokens))
        made[0].ends += piece.finish is not None

    wanted = request(
        asked.prompt,
        asked.images,
        max_tokens=asked.tokens,
        priority=asked.priority,
        deadline_ms=asked.deadline_ms,
    )
    made.append(Played(asked, engine.submit(wanted, came)))
    return made[0]
