"""The `dec` mode: perception and generation in two workers, each at its own rate (rule 11 of docs/pipeline.md).

Generation fetches the newest context once, when its request starts, and keeps it to the end.
"""

from __future__ import annotations

import threading
from functools import partial

import torch
from torch import Tensor

from auras_ros.clock import SchedulerClock
from auras_ros.device import Device, Mark, Upload
from auras_ros.pipeline.context import PublicContext, store
from auras_ros.pipeline.continuity import Continuity
from auras_ros.pipeline.generation import Admitted, WholeGeneration
from auras_ros.pipeline.request import Emission, Latched, Ledger, NoiseTape, ObservationOrigin
from auras_ros.policies.policy import Policy


class Shared:
    """The public context between the two workers. The lock is held for copies and marks, never during computation."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.context: PublicContext | None = None
        self.fetched: list[tuple[Mark, ...]] = [(), ()]  # by slot: launches that must end before it is written again
        self.version = -1
        self.epoch = 0  # of the newest context

    def newest(self, epoch: int) -> ObservationOrigin | None:
        """The observation behind the newest context, if that belongs to this epoch."""
        return None if self.context is None or self.epoch != epoch else self.context.fetch(self.version, 0)


class PerceptionWorker:
    """Perceives every new observation, whether it is used or not."""

    name = "perceive"

    def __init__(self, policy: Policy, shared: Shared, ledger: Ledger, device: Device) -> None:
        self._policy, self._shared, self._ledger, self._device = policy, shared, ledger, device
        self._lane, self._copies = device.lane(self.name), device.lane(f"{self.name} copies")
        self._inputs: tuple[Tensor, ...] | None = None
        self._seen: ObservationOrigin | None = None
        self._epoch = 0

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        last = self._seen if self._epoch == self._ledger.epoch else None
        return seen is not None and (last is None or seen.origin.mono_ns > last.mono_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("perception needs an observation")
        if self._inputs is None:
            self._allocate(seen.images, seen.state)
        assert self._inputs is not None
        self._epoch, self._seen = self._ledger.epoch, seen.origin
        self._arrived = self._arriving.send((seen.images, seen.state))

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
        self._arriving = Upload("copy in", self._device, self._copies, inputs)
        self._shared.context, self._shared.fetched = context, [(), ()]

    def run(self) -> None:
        slot = (self._shared.version + 1) % 2
        with self._shared.lock:
            read = self._shared.fetched[slot]
        self._lane.launch(self._stages[slot], (self._arrived, *read)).wait()

    def end(self, now_ns: int) -> Emission | None:
        assert self._shared.context is not None
        with self._shared.lock:
            self._shared.version += 1
            self._shared.epoch = self._epoch
            self._shared.context.put(self._shared.version, self._seen)
        return None


class GenerationWorker:
    """Generates from the newest context; idle until there is a newer context than that of its last request."""

    name = "generate"

    def __init__(
        self,
        policy: Policy,
        shared: Shared,
        noise: NoiseTape,
        ledger: Ledger,
        clock: SchedulerClock,
        device: Device,
        continuity: Continuity,
    ) -> None:
        self._continuity = continuity
        self._policy, self._shared, self._noise = policy, shared, noise
        self._ledger, self._clock, self._device = ledger, clock, device
        self._lane, self._copies = device.lane(self.name), device.lane(f"{self.name} copies")
        self._request: Admitted | None = None
        self._generation: WholeGeneration | None = None

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._ledger.would_admit(self._shared.newest(self._ledger.epoch), now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        self._frame, self._latched_ns = self._ledger.count_frame(), now_ns
        self._began_ns = self._generated_ns = now_ns
        epoch, self._request = self._ledger.epoch, None
        self._continuity.began(epoch, now_ns)
        with self._shared.lock:
            newest = self._shared.newest(epoch)
            number = self._ledger.admit(newest, now_ns, epoch)
            if number is None or newest is None:
                return
            assert self._shared.context is not None
            slot = self._shared.version % 2
            if self._generation is None:
                self._generation = self._captured(torch.zeros_like(self._shared.context.slots[slot][0]))
            self._fetched = self._lane.launch(self._fetch[slot])
            self._shared.fetched[slot] = (self._fetched,)
            self._request = Admitted(number, epoch, newest)
        self._generation.begin(self._noise(number), self._continuity.aim(newest, now_ns))

    def _captured(self, context: Tensor) -> WholeGeneration:
        guide, public = self._continuity.guide, self._shared.context
        assert public is not None
        self._fetch = [
            self._device.capture("fetch", partial(store, (context,), slot), self._lane) for slot in public.slots
        ]
        return WholeGeneration(self._policy, self._device, self._lane, context, self._copies, guide)

    def run(self) -> None:
        if self._request is not None:
            assert self._generation is not None
            self._began_ns = self._clock.now_ns()
            self._generation.launch((self._fetched,))
            self._generated_ns = self._generation.wait(self._clock)
        else:
            self._generated_ns = self._clock.now_ns()

    def end(self, now_ns: int) -> Emission | None:
        request, self._request = self._request, None
        emission = None
        if request is not None and request.epoch == self._ledger.epoch:
            emission = self._emission(request)
        self._continuity.ended(emission, now_ns, generated=request is not None)
        return emission

    def _emission(self, request: Admitted) -> Emission:
        assert self._generation is not None
        return Emission(
            actions=self._generation.finished(),
            request=request.number,
            frame=self._frame,
            epoch=request.epoch,
            contexts=(request.seen,),
            stage_ns=(self._began_ns,),
            latched_ns=self._latched_ns,
            perceived_ns=self._began_ns,
            generated_ns=self._generated_ns,
        )
