"""What workers that end requests have in common; and those whose frame is one whole request.

`seq`, `par` and `dec` generate with all steps in one stage, from a context that they keep; `auras` has the slab. Where
the context comes from is a subclass's: from a perception of its own (`whole`), or from another worker's (`decoupled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from auras_ros.device import Download, Mark
from auras_ros.pipeline.context import store
from auras_ros.pipeline.continuity import Continuity
from auras_ros.pipeline.guided import GuidedSteps
from auras_ros.pipeline.noise import NoiseBuffer
from auras_ros.pipeline.request import Emission, Ledger, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.policy import CausalPolicy, Policy


class ChunkWorker:
    """Base of a worker that emits chunks: who counts its frames, and when its last one was."""

    emits = True

    def __init__(self, run_context: RunContext, ledger: Ledger, continuity: Continuity, name: str) -> None:
        self.name, self._ledger, self._continuity = name, ledger, continuity
        self._policy, self._plan, self._device = run_context.policy, run_context.plan, run_context.device
        self._noise, self._clock = run_context.noise, run_context.clock
        self._frame, self._latched_ns = -1, 0
        self._perceived_ns = self._generated_ns = 0

    def _emission(
        self, actions: Tensor, request: int, contexts: Sequence[ObservationOrigin], stage_ns: Sequence[int], epoch: int
    ) -> Emission:
        """A request that this frame has finished."""
        return Emission(
            actions=actions,
            request=request,
            frame=self._frame,
            epoch=epoch,
            contexts=tuple(contexts),
            stage_ns=tuple(stage_ns),
            latched_ns=self._latched_ns,
            perceived_ns=self._perceived_ns,
            generated_ns=self._generated_ns,
        )

    def _over(self, mark: Mark) -> int:
        """Wait for the mark. Returns the time then, in ns."""
        mark.wait()
        return self._clock.now_ns()


class Admitted(NamedTuple):
    """A request in flight: its number, its epoch, and the one observation that it answers."""

    number: int
    epoch: int
    seen: ObservationOrigin


class WholeRequestWorker(ChunkWorker):
    """context [batch, ...] has a fixed address; `_generation` generates from what is there when it runs, for `count`
    requests that begin together. The batch has one request after the other, each with all environments."""

    def __init__(
        self,
        run_context: RunContext,
        ledger: Ledger,
        continuity: Continuity,
        name: str,
        context: Tensor,
        count: int = 1,
    ) -> None:
        policy, device, batch = run_context.policy, run_context.device, len(context)
        super().__init__(run_context, ledger, continuity, name)
        self._context, self._count = context, count
        self._lane, self._copies = device.lane(name), device.lane(f"{name} copies")
        self._drawn = NoiseBuffer(policy, device, self._copies, batch)
        start = policy.begin(self._drawn.buffer)
        self._state = start._make(part.clone() for part in start)
        guided = run_context.plan.guide != "none"
        self._guide = GuidedSteps(run_context, 1, batch, self._lane, self._copies) if guided else None
        self._step = policy.step if self._guide is None else self._guide.step
        self._kept = _kept(policy, context)
        body = self._decode if isinstance(policy, CausalPolicy) else self._denoise
        self._generation = device.capture("generation", body, self._lane)
        self._leaving = Download("copy out", device, self._copies, self._finish, self._finish())
        self._request: Admitted | None = None
        self._begun: Sequence[Mark] = ()

    def _denoise(self) -> None:
        store(self._state, self._policy.begin(self._drawn.buffer))
        for index in self._kept:
            store(self._state, self._step(self._state, self._context, index))

    def _decode(self) -> None:
        """All tokens with a KV cache, so that the baseline is not handicapped."""
        store(self._state, cast("CausalPolicy", self._policy).complete(self._context, self._kept))

    def _finish(self) -> Tensor:
        return self._policy.finish(self._state)

    def _admit(self, seen: ObservationOrigin | None, now_ns: int, epoch: int) -> Admitted | None:
        """Count a frame, and admit a request on this observation if there is one that is newer."""
        self._frame, self._latched_ns = self._ledger.count_frame(), now_ns
        self._continuity.began(epoch, now_ns)
        number = self._ledger.admit(seen, now_ns, epoch, self._count)
        self._request = None if number is None or seen is None else Admitted(number, epoch, seen)
        return self._request

    def _send(self, request: Admitted, now_ns: int) -> None:
        """Launch the copies of a new request's noise, and of what its chunk continues."""
        if self._guide is not None:
            self._guide.aim(self._continuity.aim(request.seen, now_ns))
        noise = [self._noise(request.number + i) for i in range(self._count)]
        self._begun = self._drawn.send(noise[0] if self._count == 1 else torch.cat(noise))

    def end(self, now_ns: int) -> Emission | None:
        request, self._request = self._request, None
        emission = None
        if request is not None and request.epoch == self._ledger.epoch:
            emission = self._finished(request)
        self._continuity.ended(emission, now_ns, generated=request is not None)
        return emission

    def _finished(self, request: Admitted) -> Emission:
        actions = self._leaving.take().unflatten(0, (self._count, -1))
        first, *others = (
            self._emission(each, number, (request.seen,), (self._perceived_ns,), request.epoch)
            for number, each in enumerate(actions, request.number)
        )
        return replace(first, beside=tuple(others))


def _kept(policy: Policy, context: Tensor) -> Any:
    """What a captured generation reads besides: room for keys and values, or the index of each step."""
    batch = len(context)
    if isinstance(policy, CausalPolicy):
        return policy.workspace(batch, context.shape[1])
    return [torch.full((batch,), i, device=context.device) for i in range(policy.steps)]
