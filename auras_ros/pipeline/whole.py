"""A whole request in one frame: perception, then all generation steps, from one observation.

One such worker is the `seq` mode, the baseline that every schedule is measured against. Several that share a ledger are
`par` (rule 11 of docs/pipeline.md). One worker whose frames are a batch of several requests is `par` with `together`:
each request perceives for itself, as if it had an observation of its own. Frames share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from auras_ros.device import Mark, Upload, launches_ahead
from auras_ros.pipeline.continuity import Continuity
from auras_ros.pipeline.generation import WholeRequestWorker
from auras_ros.pipeline.request import Latched, Ledger
from auras_ros.pipeline.run_context import RunContext


class RequestWorker(WholeRequestWorker):
    """See the module's docstring. count: requests that run as one batch."""

    def __init__(
        self, run_context: RunContext, ledger: Ledger, continuity: Continuity, name: str = "frame", count: int = 1
    ) -> None:
        inputs = run_context.inputs()
        with torch.no_grad():
            context = run_context.policy.perceive(*(_times(part, count) for part in inputs)).clone()
        super().__init__(run_context, ledger, continuity, name, context, count)
        self._inputs = inputs
        self._perception = self._device.capture("perception", self._perceive, self._lane)
        self._arriving = Upload("copy in", self._device, self._copies, inputs)
        self._arrived: Sequence[Mark] = ()

    def _perceive(self) -> None:
        self._context.copy_(self._policy.perceive(*(_times(part, self._count) for part in self._inputs)))

    def wants(self, seen: Latched | None, now_ns: int) -> bool:
        return self._ledger.would_admit(None if seen is None else seen.origin, now_ns)

    def begin(self, seen: Latched | None, now_ns: int) -> None:
        if seen is None:
            raise ValueError("a request needs an observation")
        request = self._admit(seen.origin, now_ns, self._ledger.epoch)
        if request is not None:
            self._arrived = (self._arriving.send((seen.images, seen.state)),)
            self._send(request, now_ns)

    def run(self) -> None:
        self._perceived_ns = self._generated_ns = self._clock.now_ns()
        if self._request is None:
            return  # a bubble: another worker took the observation
        ahead = launches_ahead(self._device)
        perceived = self._lane.launch(self._perception, self._arrived)
        if not ahead:
            self._perceived_ns = self._over(perceived)
        generated = self._lane.launch(self._generation, (perceived, *self._begun))
        left = self._leaving.launch((generated,))
        if ahead:
            self._perceived_ns = self._over(perceived)
        self._generated_ns = self._over(generated)
        left.wait()


def _times(part: Tensor, count: int) -> Tensor:
    """`part` repeated `count` times along the batch; itself if count is 1."""
    return part if count == 1 else torch.cat([part] * count)
