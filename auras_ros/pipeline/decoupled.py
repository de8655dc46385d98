"""The `dec` mode: perception and generation in two strands, each at its own pace (design rule 11).

Generation fetches the newest context once, at the request's start, and keeps it to the end.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from auras_ros.clock import Clock
from auras_ros.device import Device
from auras_ros.pipeline.context import PublicContext, store
from auras_ros.pipeline.request import Emission, Latched, Ledger, Noise
from auras_ros.policies.policy import GenerationState, Policy


class Shared:
    """The public context between the two strands. The lock is held for copies and marks, never for computing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.context: PublicContext | None = None
        self.version = -1
        self.epoch = 0  # of the newest context

    def newest(self, epoch: int) -> Latched | None:
        """The observation behind the newest context, if it is of this epoch."""
        return None if self.context is None or self.epoch != epoch else self.context.fetch(self.version, 0)


class PerceiveStrand:
    """Perceives every new observation, whether it is used or not."""

    name = "perceive"

    def __init__(self, policy: Policy, shared: Shared, ledger: Ledger, device: Device) -> None:
        self._policy, self._shared, self._ledger, self._device = policy, shared, ledger, device
        self._lane = device.lane(self.name)
        self._inputs: tuple[Tensor, ...] | None = None
        self._seen: Latched | None = None
        self._epoch = 0

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        last = self._seen if self._epoch == self._ledger.epoch else None
        return seen is not None and (last is None or seen.origin_mono_ns > last.origin_mono_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("perception needs an observation")
        if self._inputs is None:
            self._allocate(seen.images, seen.state)
        assert self._inputs is not None
        self._epoch, self._seen = self._ledger.epoch, seen
        store(self._inputs, (seen.images, seen.state))

    def _allocate(self, images: Tensor, state: Tensor) -> None:
        where = self._device.tensors
        inputs = self._inputs = (images.to(where, copy=True), state.to(where, copy=True))
        with torch.no_grad():
            context = PublicContext((self._policy.perceive(*inputs),))

        def body(slot: int) -> None:
            store(context.slots[slot], self._policy.perceive(*inputs))

        self._stages = [
            self._device.capture("perception", lambda slot=slot: body(slot), self._lane)  # type: ignore[misc]
            for slot in (0, 1)
        ]
        self._shared.context = context

    def run(self) -> None:
        self._lane.launch(self._stages[(self._shared.version + 1) % 2]).wait()

    def end(self, now_ns: int) -> Emission | None:
        assert self._shared.context is not None
        with self._shared.lock:
            self._shared.version += 1
            self._shared.epoch = self._epoch
            self._shared.context.put(self._shared.version, self._seen)
        return None

    def keep(self, rows: Tensor) -> None:
        """Go on with these environments alone (lockstep)."""
        old, inputs = self._shared.context, self._inputs
        if old is None or inputs is None:
            return
        self._allocate(inputs[0][rows], inputs[1][rows])
        assert self._shared.context is not None
        self._shared.context.take(old, rows)
        self._seen = None if self._seen is None else self._seen.keep(rows)


class GenerateStrand:
    """Generates from the newest context; idle until there is a newer one than that of its last request."""

    name = "generate"

    def __init__(
        self, policy: Policy, shared: Shared, noise: Noise, ledger: Ledger, clock: Clock, device: Device
    ) -> None:
        self._policy, self._shared, self._noise = policy, shared, noise
        self._ledger, self._clock, self._device = ledger, clock, device
        self._lane = device.lane(self.name)
        self._request: tuple[int, int, Latched] | None = None
        self._context: Tensor | None = None

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._ledger.would_admit(self._shared.newest(self._ledger.epoch), now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        self._frame, self._latched_ns = self._ledger.count_frame(), now_ns
        self._began_ns = self._generated_ns = now_ns
        epoch, self._request = self._ledger.epoch, None
        with self._shared.lock:
            newest = self._shared.newest(epoch)
            number = self._ledger.admit(newest, now_ns, epoch)
            if number is None or newest is None:
                return
            assert self._shared.context is not None
            slot = self._shared.context.slots[self._shared.version % 2][0]
            if self._context is None:
                self._allocate(slot)
            assert self._context is not None
            self._context.copy_(slot)
            self._request = number, epoch, newest
        store(self._state, self._policy.begin(self._noise(number).to(self._device.tensors)))

    def _allocate(self, like: Tensor) -> None:
        context = self._context = torch.zeros_like(like)
        noise = torch.zeros((len(like), *self._policy.noise_shape), device=like.device)
        state = self._state = GenerationState(*(part.clone() for part in self._policy.begin(noise)))
        indices = [torch.full((len(like),), i, device=like.device) for i in range(self._policy.steps)]

        def body() -> None:
            for index in indices:
                store(state, self._policy.step(state, context, index))

        self._stage = self._device.capture("generation", body, self._lane)

    def run(self) -> None:
        if self._request is not None:
            self._began_ns = self._clock.now_ns()
            self._lane.launch(self._stage).wait()
        self._generated_ns = self._clock.now_ns()

    def end(self, now_ns: int) -> Emission | None:
        request, self._request = self._request, None
        if request is None or request[1] != self._ledger.epoch:
            return None
        number, epoch, seen = request
        return Emission(
            actions=self._policy.finish(self._state).cpu(),
            request=number,
            frame=self._frame,
            epoch=epoch,
            contexts=(seen,),
            stage_ns=(self._began_ns,),
            latched_ns=self._latched_ns,
            perceived_ns=self._began_ns,
            generated_ns=self._generated_ns,
        )

    def keep(self, rows: Tensor) -> None:
        """Go on with these environments alone (lockstep)."""
        if self._context is None:
            return
        context, state = self._context, self._state
        self._allocate(context[rows])
        self._context.copy_(context[rows])
        store(self._state, GenerationState(*(part[rows] for part in state)))
        if self._request is not None:
            number, epoch, seen = self._request
            self._request = number, epoch, seen.keep(rows)
