"""Guided requests in every mode, driven by hand: a chunk goes on from the one before, environments stay apart, and a
GPU gives what the CPU gives. Which actions they go on from, and how far, is test_guidance.py's.

What is marked gpu here runs on a machine that has pytest and little else.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import ClassVar

import pytest
import torch

from auras_ros.clock import VirtualClock
from auras_ros.device import Device, make_device
from auras_ros.pipeline.continuity import GuidedContinuity
from auras_ros.pipeline.modes import Executor, make_executor
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Emission, Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from tests.pipeline.recording import LooseDevice
from tests.policies import tiny

MS, DT_MS, HORIZON = 1_000_000, 100, 8
DT_NS = DT_MS * MS
MODES = (
    "mode=seq",
    "mode=dec",
    "mode=auras",
    "mode=auras,pp_generation=4",
    "mode=auras,pp_generation=3,alpha=0.5",
    "mode=auras,pp_generation=4,fetch_offset=-1,pp_perception=2",
    "mode=auras,pp_generation=2,batched=false",
)
LOOK_NS = 2 * DT_NS  # between observations
FRAMES = 9
TOOK_NS = 150 * MS  # a frame: two of the new chunk's steps are over when it is there


class Guided:
    """The tiny policy in a mode, driven by hand: one observation a frame, each frame takes TOOK_NS."""

    made: ClassVar[list[Executor]] = []

    def __init__(self, text: str, seeds: tuple[int, ...] = (3, 8), device: str | Device = "cpu") -> None:
        policy = tiny.exact_policy(4)
        where = make_device(device) if isinstance(device, str) else device
        policy.to(where.tensors)
        self.seeds = list(seeds)
        contract = tiny.checkpoint().contract

        def noise(request: int) -> torch.Tensor:
            return torch.stack([noise_tape(policy.noise_shape, seed, request) for seed in self.seeds])

        like = Latched(*tiny.observed(len(seeds)), ObservationOrigin(0, 0))
        self.run: Executor = make_executor(
            RunContext(policy, Plan.parse(text), noise, like, VirtualClock(), where, contract=contract)
        )
        self.made.append(self.run)
        self.environments = torch.arange(len(seeds))
        self.frame = 0

    def play(self, frames: int) -> list[Emission]:
        emissions: list[Emission] = []
        for _ in range(frames):
            now_ns = self.frame * LOOK_NS
            images, state = tiny.observed(3, self.frame + 1)
            rows = self.environments
            look = Latched(images[rows], state[rows], ObservationOrigin(now_ns, now_ns))
            for worker in self.run.workers:
                worker.begin(look, now_ns)
                worker.run()
                emission = worker.end(now_ns + TOOK_NS)
                emissions += [] if emission is None else [emission]
            self.frame += 1
        return emissions


@pytest.fixture(autouse=True)
def lanes_end() -> Iterator[None]:
    yield
    while Guided.made:
        Guided.made.pop().close()


@cache
def unguided(mode: str) -> list[Emission]:
    return Guided(f"quick,{mode}").play(FRAMES)


def disagreement(emissions: list[Emission], step: int) -> float:
    """Root mean square, over neighbours, of how far a chunk is from the one before at its own step."""
    apart = []
    for old, new in pairwise(emissions):
        moved = (new.origin.mono_ns - old.origin.mono_ns) // DT_NS
        apart.append((new.actions[:, step] - old.actions[:, step + moved]).square().mean().item())
    return math.sqrt(sum(apart) / len(apart))


@pytest.mark.parametrize("guide", ["inpaint", "rtc"])
@pytest.mark.parametrize("mode", MODES)
def test_a_chunk_goes_on_from_the_one_before(mode: str, guide: str) -> None:
    """What is over when it comes is the old one's; and right after that it is nearer to it than an unguided one. (By
    gradient only where a network has learned how actions follow one another; this one has random weights.)"""
    guided = Guided(f"quick,{mode},guide={guide}").play(FRAMES)
    free = unguided(mode)
    assert len(guided) == len(free) > 3
    assert torch.equal(guided[0].actions, free[0].actions)  # there was nothing to go on from
    late = 0 if "fetch_offset=-1" not in mode else LOOK_NS * 2 // DT_NS  # the context is two frames older
    frozen = math.ceil(TOOK_NS / DT_NS) + 1 + late
    for step in range(min(frozen, HORIZON - LOOK_NS // DT_NS)):
        assert disagreement(guided, step) < 1e-3 < disagreement(free, step)
    if guide == "inpaint" and frozen < HORIZON - LOOK_NS // DT_NS:
        assert disagreement(guided, frozen) < 0.8 * disagreement(free, frozen)


@pytest.mark.parametrize("mode", MODES)
def test_environments_stay_apart(mode: str) -> None:
    """Each row of a batch as if it were alone (lockstep)."""
    batch, alone = (Guided(f"quick,{mode},guide=inpaint", seeds) for seeds in ((3, 8, 5), (5,)))
    alone.environments = torch.tensor([2])
    filling = batch.run.plan.latency_frames
    together = batch.play(filling + 5)
    assert len(together) > 4
    for emission, expected in zip(together, alone.play(filling + 5), strict=True):
        torch.testing.assert_close(emission.actions[2], expected.actions[0], rtol=0, atol=0.5)  # px of 512


@pytest.mark.parametrize("mode", MODES)
def test_a_guide_is_there_before_it_is_read_whatever_the_lanes_order(mode: str) -> None:
    text = f"quick,{mode},guide=inpaint"
    loose, plain = Guided(text, device=LooseDevice(random.Random(0))).play(FRAMES), Guided(text).play(FRAMES)
    assert len(loose) == len(plain) > 1
    for one, other in zip(loose, plain, strict=True):
        assert torch.equal(one.actions, other.actions)


@pytest.mark.gpu
@pytest.mark.parametrize("guide", ["inpaint", "rtc"])
@pytest.mark.parametrize("mode", MODES)
def test_captured_on_a_gpu_it_goes_on_as_on_the_cpu(mode: str, guide: str) -> None:
    frames = 10
    here, there = (Guided(f"quick,{mode},guide={guide}", device=device).play(frames) for device in ("cpu", "cuda"))
    assert len(here) == len(there) > 2
    for one, other in zip(here[:3], there[:3], strict=True):
        torch.testing.assert_close(one.actions, other.actions, rtol=0, atol=1.0)  # px of 512


@pytest.mark.parametrize("mode", ["mode=seq", "mode=dec", "mode=auras", MODES[5], MODES[6]])
def test_a_new_epoch_goes_on_from_nothing(mode: str) -> None:
    old, new = Guided(f"quick,{mode},guide=rtc"), Guided(f"quick,{mode},guide=rtc")
    old.play(5)
    old.run.reset(first_request=0)
    new.frame = old.frame
    for one, other in zip(old.play(6), new.play(6), strict=True):
        assert torch.equal(one.actions, other.actions)


def test_a_chunk_that_was_cut_off_is_not_gone_on_from() -> None:
    guided, free = Guided("quick,guide=rtc"), Guided("quick")
    for each in (guided, free):
        each.play(3)
    guided.run.continuity.cut()
    assert torch.equal(guided.play(1)[0].actions, free.play(1)[0].actions)


@pytest.mark.parametrize(
    ("mode", "frames"),
    [("mode=seq", [True] * 6), ("mode=auras,fetch_offset=-1,pp_perception=2", [False] * 2 + [True] * 4)],
)
def test_only_frames_that_generate_say_how_long_one_takes(
    monkeypatch: pytest.MonkeyPatch, mode: str, frames: list[bool]
) -> None:
    said = list[bool]()
    monkeypatch.setattr(GuidedContinuity, "ended", lambda self, emission, now_ns, generated: said.append(generated))
    Guided(f"quick,{mode},guide=rtc").play(6)
    assert said == frames


def test_a_latency_that_was_too_short_leaves_no_jump_where_nothing_held_it() -> None:
    """The estimate ends the freezing, nothing else: what comes later than it said is still held, only less."""
    guided, free = Guided("quick,guide=inpaint").play(FRAMES), unguided("mode=seq")
    late = math.ceil(TOOK_NS / DT_NS) + 2  # the actuator has executed one step more than the estimate
    assert disagreement(guided, late) < disagreement(free, late)
