"""Runs an executor live for a few seconds and records a Chrome trace and a picture of its timeline."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

from auras_ros.action import Contract
from auras_ros.clock import MonotonicClock
from auras_ros.device import Spans, make_device
from auras_ros.device.make import kind_of
from auras_ros.measure.feed import Feed, random_feed
from auras_ros.measure.recording import Recording, chrome_trace
from auras_ros.measure.running import Running
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.noise import noise_of
from auras_ros.pipeline.plan import Plan, PlanError
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.architectures import make_policy
from auras_ros.policies.denoising import SamplerName
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.loaders.open import load
from auras_ros.report.result import hardware, versions

CAPACITY = 200_000  # spans: hours of frames, 6 MB
FIRST_CHUNK_S = 120.0


@dataclass(frozen=True)
class Setup:
    """What to run: a policy, its plan and its observations."""

    name: str
    policy: LoadedPolicy
    plan: Plan
    feed: Feed
    contract: Contract | None = None  # the checkpoint's; a guided plan needs it


def from_registry(name: str, plan: Plan, seed: int) -> Setup:
    """A registered architecture with random weights. Raises PlanError or ValueError, naming what is unknown."""
    match = re.fullmatch(rf"({'|'.join(get_args(SamplerName))})([1-9][0-9]*)", plan.generation)
    if match is None:
        raise PlanError(f"plan: generation: {plan.generation!r}: without a checkpoint give ddpmN or ddimN, N steps")
    sampler: SamplerName = "ddpm" if match[1] == "ddpm" else "ddim"
    policy = make_policy(name, seed=seed, sampler=sampler, steps=int(match[2]))
    return Setup(name, policy, plan, random_feed(policy, seed))


def from_checkpoint(folder: Path, plan: Plan, seed: int, device: str, dtype: str) -> Setup:
    """A checkpoint's policy, with its weights in the dtype that an agent would use on that device, and random
    observations of its shapes. Raises CheckpointError, DeviceError."""
    checkpoint = load(folder, dtype, kind_of(device))
    policy = checkpoint.policy(plan.generation)
    return Setup(checkpoint.name, policy, plan, random_feed(policy, seed), checkpoint.contract)


@dataclass(frozen=True)
class Traced:
    """A finished run."""

    setup: Setup
    device: str
    spans: Spans
    recording: Recording

    def write_trace(self, path: Path) -> None:
        """The Chrome trace, with the machine and the plan in `otherData`."""
        run = {"policy": self.setup.name, "plan": str(self.setup.plan), "device": self.device}
        machine = {name: str(value) for name, value in {**hardware(), **versions()}.items() if value is not None}
        about = {**run, "spans_dropped": self.spans.dropped, **machine}
        path.write_text(json.dumps(chrome_trace(self.spans.rows(), self.recording, about)), encoding="utf-8")

    def write_picture(self, path: Path) -> None:
        """The timeline; needs matplotlib."""
        from auras_ros.measure.trace_picture import draw

        title = f"{self.setup.name}, {self.setup.plan} ({self.device})"
        draw(self.spans.rows(), self.recording, title, path)

    def summary(self) -> str:
        """One line: frames, chunks, and chunks per second."""
        times = sorted(r.emitted_ns for r in self.recording.requests() if r.emitted_ns)
        rate = (len(times) - 1) * 1e9 / (times[-1] - times[0]) if len(times) > 1 else 0.0
        lost = f"; the oldest {self.spans.dropped} spans were overwritten" if self.spans.dropped else ""
        return f"{len(self.recording.frames())} frames, {len(times)} chunks, {rate:.1f} per second{lost}"


def record(setup: Setup, device: str, seconds: float, seed: int, threads: int) -> Traced:
    """Run live until `seconds` after the first chunk; warm-up is not recorded.

    Raises RuntimeError if a worker fails or no chunk comes.
    """
    clock, spans = MonotonicClock(), Spans(CAPACITY)
    where = make_device(device, spans)
    policy, recording = setup.policy.to(where.tensors), Recording(clock)
    torch.set_num_threads(threads)
    noise, like = recording.noise(noise_of(policy, seed)), setup.feed(0)
    executor = make_executor(RunContext(policy, setup.plan, noise, like, clock, where, contract=setup.contract))
    try:
        executor.warm_up()
        spans.clear()
        recording.clear()
        first, observer = threading.Event(), recording.ended
        with Running(executor, setup.feed, lambda _: first.set(), threads=threads, observer=observer) as live:
            if not live.wait(first, FIRST_CHUNK_S):
                raise RuntimeError(f"{setup.name}, {setup.plan}: no chunk in {FIRST_CHUNK_S:g} s")
            live.wait(threading.Event(), seconds)
    finally:
        executor.close()
    return Traced(setup, where.tensors.type, spans, recording)
