"""A whole request in one frame: perception, then all generation steps, from one observation.

One such worker is the `seq` mode, the baseline that every schedule is measured against. Several that share a ledger are
`par` (rule 11 of docs/pipeline.md). One worker whose frames are a batch of several requests is `par` with `together`:
each request perceives for itself, as if it had an observation of its own. Frames share nothing.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from auras_ros.clock import SchedulerClock
from auras_ros.device import Device, Lane, Mark, Upload, launches_ahead
from auras_ros.pipeline.continuity import Continuity
from auras_ros.pipeline.generation import Admitted, WholeGeneration
from auras_ros.pipeline.request import Emission, Latched, Ledger, NoiseTape
from auras_ros.policies.policy import Policy


class WholeStages:
    """Perception and generation of `count` requests as two captured stages, with their fixed addresses. The batch has
    one request after the other, each with all environments."""

    def __init__(
        self,
        policy: Policy,
        device: Device,
        lanes: tuple[Lane, Lane],
        images: Tensor,
        state: Tensor,
        guide: str = "none",
        count: int = 1,
    ) -> None:
        """lanes: one for the two stages, one for copies from and to the host."""
        self._policy, (lane, copies), self.count = policy, lanes, count
        self.inputs = (images.to(device.tensors, copy=True), state.to(device.tensors, copy=True))
        with torch.no_grad():
            context = self._perceived().clone()
        self.generation = WholeGeneration(policy, device, lane, context, copies, guide)
        self.perception = device.capture("perception", self._perceive, lane)
        self.arriving = Upload("copy in", device, copies, self.inputs)

    def _perceived(self) -> Tensor:
        return self._policy.perceive(*(_times(part, self.count) for part in self.inputs))

    def _perceive(self) -> None:
        self.generation.context.copy_(self._perceived())


class RequestWorker:
    """See the module's docstring."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        noise: NoiseTape,
        ledger: Ledger,
        clock: SchedulerClock,
        device: Device,
        continuity: Continuity,
        count: int = 1,
    ) -> None:
        """count: requests that run as one batch."""
        self.name, self._continuity, self._count = name, continuity, count
        self._policy, self._noise = policy, noise
        self._ledger, self._clock, self._device = ledger, clock, device
        self._lane, self._copies = device.lane(name), device.lane(f"{name} copies")
        self._stages: WholeStages | None = None
        self._request: Admitted | None = None

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._ledger.would_admit(None if seen is None else seen.origin, now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("a request needs an observation")
        if self._stages is None:
            self._stages = self._captured(seen.images, seen.state)
        epoch = self._ledger.epoch
        self._continuity.began(epoch, now_ns)
        self._frame, self._latched_ns = self._ledger.count_frame(), now_ns
        number = self._ledger.admit(seen.origin, now_ns, epoch, self._count)
        self._request = None if number is None else Admitted(number, epoch, seen.origin)
        if number is not None:
            self._arrived = self._stages.arriving.send((seen.images, seen.state))
            noise = [self._noise(number + i) for i in range(self._count)]
            drawn = noise[0] if self._count == 1 else torch.cat(noise)
            self._stages.generation.begin(drawn, self._continuity.aim(seen.origin, now_ns))

    def _captured(self, images: Tensor, state: Tensor) -> WholeStages:
        lanes = (self._lane, self._copies)
        return WholeStages(self._policy, self._device, lanes, images, state, self._continuity.guide, self._count)

    def run(self) -> None:
        stages = self._stages
        assert stages is not None
        self._perceived_ns = self._generated_ns = self._clock.now_ns()
        if self._request is None:
            return  # a bubble: another worker took the observation
        ahead = launches_ahead(self._device)
        perceived = self._lane.launch(stages.perception, (self._arrived,))
        if not ahead:
            self._perceived_ns = self._waited(perceived)
        stages.generation.launch((perceived,))
        if ahead:
            self._perceived_ns = self._waited(perceived)
        self._generated_ns = stages.generation.wait(self._clock)

    def _waited(self, mark: Mark) -> int:
        """Wait for the mark. Returns the time then, in ns."""
        mark.wait()
        return self._clock.now_ns()

    def end(self, now_ns: int) -> Emission | None:
        request, self._request = self._request, None
        emission = None
        if request is not None and request.epoch == self._ledger.epoch:
            emission = self._emission(request)
        self._continuity.ended(emission, now_ns, generated=request is not None)
        return emission

    def _emission(self, request: Admitted) -> Emission:
        assert self._stages is not None
        first, *others = self._stages.generation.finished().unflatten(0, (self._count, -1))
        emission = Emission(
            actions=first,
            request=request.number,
            frame=self._frame,
            epoch=request.epoch,
            contexts=(request.seen,),
            stage_ns=(self._perceived_ns,),
            latched_ns=self._latched_ns,
            perceived_ns=self._perceived_ns,
            generated_ns=self._generated_ns,
        )
        numbered = enumerate(others, request.number + 1)
        return replace(emission, beside=tuple(replace(emission, actions=a, request=n) for n, a in numbered))


def _times(part: Tensor, count: int) -> Tensor:
    """`part` repeated `count` times along the batch; itself if count is 1."""
    return part if count == 1 else torch.cat([part] * count)
