"""One `auras` frame as captured stages on lanes: everything with a fixed address, and no bookkeeping.

Perception stages are pipelined over frames: stage j reads what stage j - 1 wrote in the previous frame, so that all of
them may run at once. The buffers of the last stage are the public context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from auras_ros.device import Device, Download, Mark, Stage, Upload, launches_ahead
from auras_ros.pipeline.context import PublicContext, store
from auras_ros.pipeline.continuity import Aim
from auras_ros.pipeline.drawn import Drawn
from auras_ros.pipeline.merged import MergedSlab
from auras_ros.pipeline.perception import perception_stages, run_blocks
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.slab import Slab
from auras_ros.policies.policy import CausalPolicy, Policy


class Lanes:
    """One lane for each perception stage; one for generation, or one for each row if rows are not batched; one for
    copies from and to the host.

    Perception has a thread of its own only if something runs beside it: fetch_offset -1, or several stages.
    """

    def __init__(self, device: Device, plan: Plan, cores: Sequence[int] | None = None) -> None:
        beside = plan.fetch_offset < 0 or plan.pp_perception > 1
        chosen, threads = (cores or None, 1) if beside else (None, None)
        self.perception = [device.lane(name, chosen, threads) for name in _names("perception", plan.pp_perception)]
        self.copies = device.lane("frame copies")
        self.generation = [device.lane(n) for n in _names("generation", 1 if plan.batched else plan.pp_generation)]


class FrameStages:
    """images [E, history, cameras, 3, h, w] and state [E, history, D]: the shapes of every frame."""

    def __init__(
        self,
        policy: Policy,
        plan: Plan,
        device: Device,
        lanes: Lanes,
        images: Tensor,
        state: Tensor,
    ) -> None:
        self._policy, self._plan, self._device, self._lanes = policy, plan, device, lanes
        self.inputs = (images.to(device.tensors, copy=True), state.to(device.tensors, copy=True))
        self._groups = perception_stages(policy, plan.pp_perception, *self.inputs)
        value: tuple[Tensor, ...] = self.inputs
        self._between: list[PublicContext] = []
        with torch.no_grad():
            for group in self._groups:
                value = run_blocks(group, value)
                self._between.append(PublicContext(value))
        self.slab = make_slab(policy, plan, value[0])
        self._unprimed = self.slab.needs_priming
        self._capture()

    @property
    def launches_ahead(self) -> bool:
        """Whether generation can be launched before its context is perceived. It cannot if the context's values decide
        what is launched."""
        return launches_ahead(self._device) and not self.slab.inspects_context

    @property
    def public(self) -> PublicContext:
        return self._between[-1]

    def _capture(self) -> None:
        device, lanes = self._device, self._lanes
        self._arriving = Upload("copy in", device, lanes.copies, self.inputs)
        self._arrived: Mark | None = None
        self._leaving = Download("copy out", device, lanes.copies, self.slab.finish, self.slab.finish())
        self._perceive: list[tuple[Stage, ...]] = []  # by stage, then by frame parity
        for j, lane in enumerate(lanes.perception):
            bodies = [self._perception_body(j, parity) for parity in (0, 1)]
            self._perceive.append(tuple(device.capture(lane.name, body, lane) for body in bodies))
        first = lanes.generation[0]
        self._fetch = [device.capture("fetch", self._fetch_body(slot), first) for slot in (0, 1)]
        self._generate = {
            key: [device.capture(n.name, b, n) for n, b in zip(lanes.generation, bodies, strict=True)]
            for key, bodies in self.slab.variants().items()
        }
        self._prime = device.capture("prime", self.slab.prime, first) if self.slab.needs_priming else None
        self._noise = Drawn(self._policy, device, lanes.copies, len(self.inputs[0]))
        self._boundary = device.capture("boundary", self._move_up, first)
        self._moved: tuple[Mark, ...] = ()
        if isinstance(self.slab, Slab):
            self.slab.steps.capture(device, first, lanes.copies)

    def _move_up(self) -> None:
        """Move every request up by one row and begin a new one in the youngest row. In a bubble that row is unused."""
        self.slab.roll()
        self.slab.admit(self._noise.buffer)

    def _perception_body(self, j: int, parity: int) -> Callable[[], None]:
        source = self.inputs if j == 0 else self._between[j - 1].slots[1 - parity]
        target, group = self._between[j].slots[parity], self._groups[j]

        return lambda: store(target, run_blocks(group, source))

    def _fetch_body(self, slot: int) -> Callable[[], None]:
        return lambda: self.slab.fetch(self.public.slots[slot][0])

    def latch(self, images: Tensor, state: Tensor) -> None:
        """Launch the copy of what this frame perceives. The caller may use the tensors again at once."""
        self._arrived = self._arriving.send((images, state))

    def launch_boundary(self, noise: Tensor | None) -> None:
        """Between two frames: all rows move up, and with `noise` a new request begins."""
        drawn = () if noise is None else self._noise.send(noise)
        self._moved = (self._lanes.generation[0].launch(self._boundary, drawn),)

    def aim(self, aim: Aim | None) -> None:
        """Set what this frame's requests continue (guided plans). Call before `launch_generation`."""
        assert isinstance(self.slab, Slab)
        self.slab.steps.aim(aim)

    def launch_perception(self, frame: int) -> Sequence[Mark]:
        marks: list[Mark] = []
        for j, (lane, stages) in enumerate(zip(self._lanes.perception, self._perceive, strict=True)):
            after = (self._arrived,) if j == 0 and self._arrived is not None else ()
            marks.append(lane.launch(stages[frame % 2], after))
        return marks

    def launch_generation(self, frame: int, after: Sequence[Mark]) -> Sequence[Mark]:
        """Fetch the context that this frame generates from, then advance every row."""
        lanes, slot = self._lanes.generation, (frame + self._plan.fetch_offset) % 2
        stages = self._generate[self.slab.select_variant(self.public.slots[slot][0])]
        fetched = lanes[0].launch(self._fetch[slot], (*after, *self._moved))
        if self._prime is not None and self._unprimed:
            fetched, self._unprimed = lanes[0].launch(self._prime, (fetched,)), False
        return [lane.launch(s, (fetched,)) for lane, s in zip(lanes, stages, strict=True)]

    def launch_leaving(self, after: Sequence[Mark]) -> Mark:
        """Compute the oldest row's actions and copy them to the host."""
        return self._leaving.launch(after)

    def finished(self) -> Tensor:
        """The actions that were copied last, float64 [E, horizon, channels], on the host."""
        return self._leaving.take()

    def clear(self) -> None:
        """Start an epoch: forget what was perceived and generated before."""
        self.public.clear()
        self.forget_generated()

    def forget_generated(self) -> None:
        """A new request must not continue from an earlier request's tokens or KV cache. Requests in flight are kept."""
        self.slab.clear()
        self._unprimed = self.slab.needs_priming


def make_slab(policy: Policy, plan: Plan, like: Tensor) -> Slab | MergedSlab:
    """The buffer of the requests in flight: each with its own steps, or merged. like: one context."""
    if isinstance(policy, CausalPolicy):
        return MergedSlab(policy, plan, like)
    return Slab(policy, plan.pp_generation, plan.alpha, plan.batched, like, plan.guide)


def _names(stem: str, count: int) -> list[str]:
    return [stem] if count == 1 else [f"{stem}{i}" for i in range(count)]
