"""One `auras` frame as captured stages on lanes: everything with a fixed address, and no bookkeeping.

Perception stages are pipelined over frames: stage j reads what stage j - 1 wrote in the previous frame, so that all of
them may run at once. The buffers of the last stage are the public context.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from auras_ros.device import Download, Lane, Mark, Stage, Upload, launches_ahead
from auras_ros.pipeline.context import PublicContext, as_tuple, store
from auras_ros.pipeline.continuity import Aim
from auras_ros.pipeline.guided import GuidedSteps
from auras_ros.pipeline.merged import MergedSlab
from auras_ros.pipeline.noise import NoiseBuffer
from auras_ros.pipeline.perception import Block, perception_stages, run_blocks
from auras_ros.pipeline.run_context import RunContext
from auras_ros.pipeline.slab import DenoisingSlab, Slab
from auras_ros.policies.policy import CausalPolicy

LaneStage = tuple[Lane, Stage]  # a stage and the lane that it was captured for


class FrameStages:
    """One lane for each perception stage; one for generation, or one for each row if rows are not batched; one for
    copies from and to the host. Perception has a thread of its own only if something runs beside it: fetch_offset -1,
    or several stages.

    perception: its stages, for frames of even and of odd number. generation: the stages that advance every row.
    leaving: computes the oldest row's actions, float64 [E, horizon, channels], and copies them to the host.
    """

    def __init__(self, run_context: RunContext) -> None:
        policy, plan, device = run_context.policy, run_context.plan, run_context.device
        self._device, self._offset = device, plan.fetch_offset
        perceiving, generating = _lanes(run_context)
        copies, self._first = device.lane("frame copies"), generating[0]
        first = self._first

        self.inputs = run_context.inputs()
        self._arriving = Upload("copy in", device, copies, self.inputs)
        self.arrived: Sequence[Mark] = ()
        self._groups = perception_stages(policy, plan.pp_perception, *self.inputs)  # captured: they must live on
        value: tuple[Tensor, ...] = self.inputs
        self._between: list[PublicContext] = []
        with torch.no_grad():
            for group in self._groups:
                value = run_blocks(group, value)
                self._between.append(PublicContext(value))
        self.perception: tuple[list[LaneStage], list[LaneStage]] = ([], [])
        for parity, stages in enumerate(self.perception):
            source: tuple[Tensor, ...] = self.inputs
            for lane, group, between in zip(perceiving, self._groups, self._between, strict=True):
                body = partial(_perceive, group, source, between.slots[parity])
                stages.append((lane, device.capture(lane.name, body, lane)))
                source = between.slots[1 - parity]  # of the previous frame

        guided = plan.guide != "none"
        rows, batch = plan.pp_generation, len(value[0])
        self._guide = GuidedSteps(run_context, rows, batch, first, copies) if guided else None
        self.slab: Slab
        if isinstance(policy, CausalPolicy):
            self.slab = MergedSlab(policy, plan, value[0])
        else:
            self.slab = DenoisingSlab(policy, plan, value[0], policy.step if self._guide is None else self._guide.step)
        self._fetch = [device.capture("fetch", partial(self.slab.fetch, slot[0]), first) for slot in self.public.slots]
        self._variants = {
            key: [(lane, device.capture(lane.name, body, lane)) for lane, body in zip(generating, bodies, strict=True)]
            for key, bodies in self.slab.variants().items()
        }
        self.generation = next(iter(self._variants.values()))
        self._prime = device.capture("prime", self.slab.prime, first) if self.slab.needs_priming else None
        self._unprimed = True
        self._noise = NoiseBuffer(policy, device, copies, batch)
        self._boundary = device.capture("boundary", self._move_up, first)
        self._moved: Sequence[Mark] = ()
        self.leaving = Download("copy out", device, copies, self.slab.finish, self.slab.finish())

    @property
    def launches_ahead(self) -> bool:
        """Whether generation can be launched before its context is perceived. It cannot if the context's values decide
        what is launched."""
        return launches_ahead(self._device) and not self.slab.inspects_context

    @property
    def public(self) -> PublicContext:
        return self._between[-1]

    def _move_up(self) -> None:
        """Move every request up by one row and begin a new one in the youngest row. In a bubble that row is unused."""
        self.slab.roll()
        self.slab.admit(self._noise.buffer)

    def latch(self, images: Tensor, state: Tensor) -> None:
        """Launch the copy of what this frame perceives. The caller may use the tensors again at once."""
        self.arrived = (self._arriving.send((images, state)),)

    def launch_boundary(self, noise: Tensor | None) -> None:
        """Between two frames: all rows move up, and with `noise` a new request begins."""
        drawn = () if noise is None else self._noise.send(noise)
        self._moved = (self._first.launch(self._boundary, drawn),)

    def aim(self, aim: Aim | None) -> None:
        """Set what this frame's requests continue (guided plans). Call before `launch_fetch`."""
        if self._guide is not None:
            self._guide.aim(aim)

    def launch_fetch(self, frame: int, after: Sequence[Mark]) -> Mark:
        """Fetch the context that this frame generates from, and choose its stages of `generation`."""
        slot = (frame + self._offset) % 2
        self.generation = self._variants[self.slab.select_variant(self.public.slots[slot][0])]
        fetched = self._first.launch(self._fetch[slot], (*after, *self._moved))
        if self._prime is not None and self._unprimed:
            fetched, self._unprimed = self._first.launch(self._prime, (fetched,)), False
        return fetched

    def clear(self) -> None:
        """Start an epoch: forget what was perceived and generated before."""
        self.public.clear()
        self.forget_generated()

    def forget_generated(self) -> None:
        """A new request must not continue from an earlier request's tokens or KV cache. Requests in flight are kept."""
        self.slab.clear()
        self._unprimed = True


def _perceive(blocks: Sequence[Block], value: tuple[Tensor, ...], into: tuple[Tensor, ...]) -> None:
    for block in blocks:
        value = as_tuple(block(*value))
    store(into, value)


def _lanes(run_context: RunContext) -> tuple[list[Lane], list[Lane]]:
    """Those of perception and those of generation."""
    plan, device = run_context.plan, run_context.device
    beside = plan.fetch_offset < 0 or plan.pp_perception > 1
    chosen, threads = (run_context.cores or None, 1) if beside else (None, None)
    perceiving = [device.lane(name, chosen, threads) for name in _names("perception", plan.pp_perception)]
    rows = 1 if plan.batched else plan.pp_generation
    return perceiving, [device.lane(name) for name in _names("generation", rows)]


def _names(stem: str, count: int) -> list[str]:
    return [stem] if count == 1 else [f"{stem}{i}" for i in range(count)]
