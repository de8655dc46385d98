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
from auras_ros.pipeline.generation import WholeRequestWorker
from auras_ros.pipeline.request import Emission, Latched, Ledger, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext


class PerceptionWorker:
    """Perceives every new observation, whether it is used or not.

    lock: held by both workers for copies and marks, never during computation. version: the number of the newest
    context, which is in slot version mod 2; epoch: its epoch. fetched: by slot, launches that must end before it is
    written again.
    """

    name, emits = "perceive", False

    def __init__(self, run_context: RunContext, ledger: Ledger) -> None:
        self._policy, self._ledger, device = run_context.policy, ledger, run_context.device
        self._lane, copies = device.lane(self.name), device.lane(f"{self.name} copies")
        self._inputs = run_context.inputs()
        with torch.no_grad():
            self.context = PublicContext((self._policy.perceive(*self._inputs),))
        self._stages = [
            device.capture("perception", partial(self._perceive, slot), self._lane) for slot in self.context.slots
        ]
        self._arriving = Upload("copy in", device, copies, self._inputs)
        self._arrived: Sequence[Mark] = ()
        self._seen: ObservationOrigin | None = None
        self._seen_epoch = 0
        self.lock = threading.Lock()
        self.version, self.epoch = -1, 0
        self.fetched: list[Sequence[Mark]] = [(), ()]

    def _perceive(self, slot: tuple[Tensor, ...]) -> None:
        store(slot, self._policy.perceive(*self._inputs))

    def newest(self, epoch: int) -> ObservationOrigin | None:
        """The observation behind the newest context, if that belongs to this epoch."""
        return self.context.fetch(self.version, 0) if self.epoch == epoch else None

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        last = self._seen if self._seen_epoch == self._ledger.epoch else None
        return seen is not None and (last is None or seen.origin.mono_ns > last.mono_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("perception needs an observation")
        self._seen_epoch, self._seen = self._ledger.epoch, seen.origin
        self._arrived = (self._arriving.send((seen.images, seen.state)),)

    def run(self) -> None:
        slot = (self.version + 1) % 2
        with self.lock:
            read = self.fetched[slot]
        self._lane.launch(self._stages[slot], (*self._arrived, *read)).wait()

    def end(self, now_ns: int) -> Emission | None:
        with self.lock:
            self.version, self.epoch = self.version + 1, self._seen_epoch
            self.context.put(self.version, self._seen)
        return None


class GenerationWorker(WholeRequestWorker):
    """Generates from the newest context; idle until there is a newer context than that of its last request."""

    def __init__(
        self, run_context: RunContext, ledger: Ledger, continuity: Continuity, perception: PerceptionWorker
    ) -> None:
        slots = perception.context.slots
        super().__init__(run_context, ledger, continuity, "generate", torch.zeros_like(slots[0][0]))
        self._perception = perception
        self._fetch = [
            self._device.capture("fetch", partial(store, (self._context,), slot), self._lane) for slot in slots
        ]
        self._fetched: Sequence[Mark] = ()

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._ledger.would_admit(self._perception.newest(self._ledger.epoch), now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        epoch = self._ledger.epoch
        with self._perception.lock:
            request = self._admit(self._perception.newest(epoch), now_ns, epoch)
            if request is None:
                return
            slot = self._perception.version % 2
            self._fetched = self._perception.fetched[slot] = (self._lane.launch(self._fetch[slot]),)
        self._send(request, now_ns)

    def run(self) -> None:
        self._perceived_ns = self._generated_ns = self._clock.now_ns()
        if self._request is None:
            return
        generated = self._lane.launch(self._generation, (*self._fetched, *self._begun))
        left = self._leaving.launch((generated,))
        self._generated_ns = self._over(generated)
        left.wait()
