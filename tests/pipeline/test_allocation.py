"""The frame loop allocates no tensor once it runs, in any mode: beside the policy there are views and copies in place.

Every aten operation of steady frames is looked at, but for those inside the policy's own methods: what a network
allocates is gone when its stage ends. Two tensors a request are left, and counted: its noise tape, which the caller
makes, and its actions, which leave with the emission and come from `finish`. The executor runs on the null device:
the CPU's bodies, all in this thread, where a dispatch mode sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from auras_ros.clock import VirtualClock
from auras_ros.pipeline.context import store
from auras_ros.pipeline.frame_stages import FrameStages
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.denoising import DenoisingState
from auras_ros.policies.policy import Policy
from tests.device.null_device import NullDevice
from tests.pipeline.real import moving
from tests.policies import tiny

SEEDS = (3, 8)
STEPS, FILLING, STEADY = 8, 6, 5
IN_PLACE = {"aten::copy_"}
VIEWS = {"aten::select.int", "aten::slice.Tensor", "aten::view", "aten::unsqueeze", "aten::expand", "aten::unbind.int"}
# Rows that do not adjoin are gathered for their step and scattered after it (rule 5 of docs/pipeline.md). This
# allocates what one step needs and is gone after it; only plans that give a row in the middle fewer steps than its
# neighbours have it.
GIVEN = "aten::clone"  # a chunk's actions are the caller's own, out of the buffer that copies to the host end in
GATHERED = {"aten::index_select", "aten::index_copy_"}

STAGES = [
    "copy in",
    "copy out",
    "copy noise",
    "boundary",
    "perception",
    "fetch",
    "generation",
    *(f"{p}{i}" for p in ("perception", "generation") for i in range(8)),
]
PLANS = [
    "",
    "mode=dec",
    "mode=par,concurrency=3",
    "mode=auras",
    "mode=auras,pp_generation=4",
    "mode=auras,pp_generation=4,alpha=0.5",
    "mode=auras,pp_perception=2,pp_generation=3,fetch_offset=-1,batched=false",
]


class Operations(TorchDispatchMode):
    """Which operations run, how often, and which of them return memory that none of their arguments had."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.looking = True
        self.seen: Counter[str] = Counter()
        self.allocating: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {_memory(part) for part in _tensors([*args, *(kwargs or {}).values()])}
        result = func(*args, **(kwargs or {}))
        if self.looking:
            name = str(func.name())
            self.seen[name] += 1
            self.allocating[name] += any(_memory(part) not in given for part in _tensors([result]))
        return result

    @contextmanager
    def away(self) -> Iterator[None]:
        """What runs in here is not the frame loop's own."""
        before, self.looking = self.looking, False
        try:
            yield
        finally:
            self.looking = before


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _memory(part: Tensor) -> int:
    return part.untyped_storage().data_ptr()


class Unseen:
    """The policy, its own operations left out; its calls are counted."""

    def __init__(self, policy: Policy, operations: Operations) -> None:
        self._policy, self._operations = policy, operations
        self.steps, self.noise_shape = policy.steps, policy.noise_shape
        self.calls: Counter[str] = Counter()

    def _out_of_sight(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            with self._operations.away():
                self.calls[name] += 1
                return method(*args)

        return call

    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        return self._out_of_sight("perceive", self._policy.perceive)(images, state)  # type: ignore[no-any-return]

    def perception_blocks(self) -> list[Callable[..., tuple[Tensor, ...]]]:
        return [self._out_of_sight("block", block) for block in self._policy.perception_blocks()]

    def begin(self, noise: Tensor) -> DenoisingState:
        return self._out_of_sight("begin", self._policy.begin)(noise)  # type: ignore[no-any-return]

    def step(self, state: DenoisingState, context: Tensor, index: Tensor) -> DenoisingState:
        return self._out_of_sight("step", self._policy.step)(state, context, index)  # type: ignore[no-any-return]

    def finish(self, state: DenoisingState) -> Tensor:
        return self._out_of_sight("finish", self._policy.finish)(state)  # type: ignore[no-any-return]


class Steady:
    """A plan's executor, run until its pipeline is full and then watched for some rounds of frames."""

    def __init__(self, text: str, steps: int = STEPS) -> None:
        self.operations = Operations()
        self.policy = Unseen(tiny.policy("ddim", steps), self.operations)
        self.tapes = self.emissions = 0
        clock = VirtualClock()
        plan = Plan.parse(f"quick,{text}" if text else "quick")
        device = NullDevice(clock, dict.fromkeys(STAGES, 1))
        like = moving(1, SEEDS)[0]
        self.executor: Executor = make_executor(RunContext(self.policy, plan, self.noise, like, clock, device))
        self.looks = iter(moving((FILLING + STEADY) * len(self.executor.workers), SEEDS))
        self.rounds(FILLING)
        self.policy.calls.clear()
        self.tapes = self.emissions = 0
        with self.operations:
            self.rounds(STEADY)
        self.executor.close()

    def noise(self, request: int) -> Tensor:
        with self.operations.away():
            self.tapes += 1
            return torch.stack([noise_tape(self.policy.noise_shape, seed, request) for seed in SEEDS])

    def rounds(self, count: int) -> None:
        for _ in range(count):
            for worker in self.executor.workers:
                worker.begin(next(self.looks), self.executor.clock.now_ns())
                worker.run()
                self.emissions += worker.end(self.executor.clock.now_ns()) is not None


@pytest.mark.parametrize("text", PLANS)
def test_steady_frames_copy_in_place_and_allocate_nothing(text: str) -> None:
    """But for the exceptions, counted: one tape and one set of actions a chunk; every frame here gives one."""
    steady = Steady(text)
    assert +steady.operations.allocating == {GIVEN: steady.emissions}
    assert set(steady.operations.seen) <= IN_PLACE | VIEWS | {GIVEN}
    assert steady.operations.seen["aten::copy_"] > STEADY  # what is latched is copied: the mode was looking
    assert steady.emissions == STEADY * steady.executor.plan.concurrency
    assert steady.tapes == steady.policy.calls["begin"] == steady.policy.calls["finish"] == steady.emissions


def test_rows_that_do_not_adjoin_are_gathered_and_nothing_else_is_allocated() -> None:
    """Five steps in three stages are 2, 1 and 2: the second micro-step leaves out the row in the middle."""
    steady = Steady("mode=auras,pp_generation=3", steps=5)
    assert set(+steady.operations.allocating) == {"aten::index_select", GIVEN}
    assert steady.operations.seen[GIVEN] == STEADY
    parts = 2  # sample and tape; the context is the same for all rows
    assert steady.operations.seen["aten::index_select"] == parts * STEADY
    assert steady.operations.seen["aten::index_copy_"] == STEADY  # the sample; the tape is read only
    assert set(steady.operations.seen) <= IN_PLACE | VIEWS | GATHERED | {GIVEN}


def test_a_copy_that_allocates_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def latch(self: FrameStages, images: Tensor, state: Tensor) -> None:
        store(self.inputs, (images.clone(), state.clone()))

    monkeypatch.setattr(FrameStages, "latch", latch)
    steady = Steady("mode=auras,pp_generation=4")
    assert +steady.operations.allocating == {GIVEN: 3 * STEADY}
