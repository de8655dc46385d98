"""The `dec` mode: perception and generation in two workers, each at its own rate (rule 11 of docs/pipeline.md).

Generation fetches the newest context once, when its request starts, and keeps it to the end.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from auras_ros.device import Mark, Upload
from auras_ros.pipeline.context import PublicContext, store
from auras_ros.pipeline.continuity import Continuity
from auras_ros.pipeline.generation import WholeRequestWorker, over
from auras_ros.pipeline.request import Emission, Latched, Ledger, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext


class Shared:
    """The public context between the two workers. The lock is held for copies and marks, never during computation."""

    def __init__(self, like: Tensor) -> None:
        self.lock = threading.Lock()
        self.context = PublicContext((like,))
        self.fetched: list[Sequence[Mark]] = [(), ()]  # by slot: launches that must end before it is written again
        self.version = -1
        self.epoch = 0  # of the newest context

    def newest(self, epoch: int) -> ObservationOrigin | None:
        """The observation behind the newest context, if that belongs to this epoch."""
        return self.context.fetch(self.version, 0) if self.epoch == epoch else None


class PerceptionWorker:
    """Perceives every new observation, whether it is used or not."""

    name = "perceive"

    def __init__(self, run_context: RunContext, ledger: Ledger) -> None:
        self._policy, self._ledger, device = run_context.policy, ledger, run_context.device
        self._lane, copies = device.lane(self.name), device.lane(f"{self.name} copies")
        self._inputs = run_context.inputs()
        with torch.no_grad():
            self.shared = Shared(self._policy.perceive(*self._inputs))
        self._stages = [
            device.capture("perception", partial(self._perceive, slot), self._lane)
            for slot in self.shared.context.slots
        ]
        self._arriving = Upload("copy in", device, copies, self._inputs)
        self._arrived: Sequence[Mark] = ()
        self._seen: ObservationOrigin | None = None
        self._epoch = 0

    def _perceive(self, slot: tuple[Tensor, ...]) -> None:
        store(slot, self._policy.perceive(*self._inputs))

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        last = self._seen if self._epoch == self._ledger.epoch else None
        return seen is not None and (last is None or seen.origin.mono_ns > last.mono_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("perception needs an observation")
        self._epoch, self._seen = self._ledger.epoch, seen.origin
        self._arrived = (self._arriving.send((seen.images, seen.state)),)

    def run(self) -> None:
        slot = (self.shared.version + 1) % 2
        with self.shared.lock:
            read = self.shared.fetched[slot]
        self._lane.launch(self._stages[slot], (*self._arrived, *read)).wait()

    def end(self, now_ns: int) -> Emission | None:
        with self.shared.lock:
            self.shared.version += 1
            self.shared.epoch = self._epoch
            self.shared.context.put(self.shared.version, self._seen)
        return None


class GenerationWorker(WholeRequestWorker):
    """Generates from the newest context; idle until there is a newer context than that of its last request."""

    def __init__(self, run_context: RunContext, ledger: Ledger, continuity: Continuity, shared: Shared) -> None:
        slots = shared.context.slots
        super().__init__(run_context, ledger, continuity, "generate", torch.zeros_like(slots[0][0]))
        self._shared = shared
        self._fetch = [
            self._device.capture("fetch", partial(store, (self._context,), slot), self._lane) for slot in slots
        ]
        self._fetched: Sequence[Mark] = ()

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._ledger.would_admit(self._shared.newest(self._ledger.epoch), now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        epoch = self._ledger.epoch
        with self._shared.lock:
            request = self._admit(self._shared.newest(epoch), now_ns, epoch)
            if request is None:
                return
            slot = self._shared.version % 2
            self._fetched = self._shared.fetched[slot] = (self._lane.launch(self._fetch[slot]),)
        self._send(request, now_ns)

    def run(self) -> None:
        self._perceived_ns = self._generated_ns = self._clock.now_ns()
        if self._request is None:
            return
        generated = self._lane.launch(self._generation, (*self._fetched, *self._begun))
        left = self._leaving.launch((generated,))
        self._generated_ns = over(generated, self._clock)
        left.wait()
