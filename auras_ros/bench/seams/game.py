"""Plays every way of joining chunks under every latency, on the same seeds, and counts successes and jumps.

Each request is charged its latency in virtual time: nothing here depends on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from auras_ros import resources
from auras_ros.bench.figures.played import check_play
from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import grouped, play
from auras_ros.evaluate.seams import Seams
from auras_ros.evaluate.settings import SettingsError, check_known, parse_plan
from auras_ros.evaluate.tuner.record import EpisodeStore, Played
from auras_ros.measure.cores import available
from auras_ros.measure.durations import refusal
from auras_ros.measure.minutes import interruptible, run_turns, until
from auras_ros.pipeline.modes import check_plan
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.loaders.open import load
from auras_ros.report.result import Report, Say
from auras_ros.report.statistics import paired_by_seed, success_fields

MODES = ("seq", "auras")
SWITCH = "switch"


@dataclass(frozen=True)
class Join:
    """A way to go from one chunk to the next: in the action stream (seam), or while the new chunk is generated (the
    plan's guide)."""

    name: str
    seam: str = SWITCH
    blend_ms: float = 0.0
    guide: str = ""


@dataclass(frozen=True)
class SeamCase:
    """One row: a plan under a latency, its chunks joined in one way."""

    base: Plan
    latency_ms: float
    join: Join

    @property
    def plan(self) -> Plan:
        """With the guide of the join. Raises PlanError."""
        return Plan.parse(f"{self.base},guide={self.join.guide}") if self.join.guide else self.base

    @property
    def name(self) -> str:
        """Its key in the kept episodes."""
        return f"{self.join.name}, {self.latency_ms:g} ms, {self.plan}"

    @property
    def frame_ns(self) -> int:
        """Charged for each frame; the frames of a request add up to the whole latency in every mode."""
        return round(self.latency_ms * 1e6 / self.base.latency_frames)


def joins(options: argparse.Namespace) -> list[Join]:
    """The ways of joining that the options select. Raises SettingsError, naming an unknown one."""
    made = [
        Join(SWITCH),
        *(Join(f"blend-{blend_ms:g}", "blend", blend_ms) for blend_ms in options.blend_ms),
        Join("ensemble", "ensemble"),
        Join("inpaint", guide="inpaint"),
        Join("rtc", guide="rtc"),
    ]
    known = {join.name: join for join in made}
    check_known("join", options.join or [], known)
    return [known[name] for name in dict.fromkeys(options.join or known)]


class SeamCampaign:
    """All cases, played on the same seeds. Its errors are reported by the caller as one line."""

    def __init__(self, options: argparse.Namespace, say: Say) -> None:
        torch.set_num_threads(1)
        check_play(options, episodes=1)
        self._options, self._say = options, until(time.monotonic() + 60 * options.minutes, say)
        self._checkpoint, self._base = load(resources.checkpoint(options.checkpoint)), parse_plan(options.plan)
        self._horizon_ms = self._checkpoint.horizon * self._checkpoint.contract.dt_ms
        self._check()
        self.cases = list(self._cases())
        for case in self.cases:
            check_plan(self._checkpoint.policy(case.plan.generation), case.plan)
            self._task(case.join).stream(self._checkpoint.contract, self._horizon_ms)  # bad options are refused now
        self._record = EpisodeStore.open(self._key(), options.work)

    def run(self, report: Report) -> None:
        """Play all cases, a batch of seeds at a time. The report names what failed or was not finished; finished
        episodes are kept."""
        options = self._options
        groups = grouped(range(options.seed, options.seed + options.episodes), options.batch)
        with interruptible(report):
            run_turns(report, groups, {case.name: partial(self._play, case) for case in self.cases})

    def _play(self, case: SeamCase, group: Sequence[int]) -> None:
        seeds = self._record.missing(case.name, group)
        if not seeds:
            return
        self._say(f"seeds from {seeds[0]}, {case.name}")

        def watch(episode_runners: EpisodeRunners) -> None:
            over = len(episode_runners.finished)
            self._say(f"seeds from {seeds[0]}, {case.name}: {over} of {len(seeds)} episodes over")

        timing = Charged({case.plan.mode: case.frame_ns}, self._options.jitter, seeds[0])
        seams = Seams()
        outcome = play(self._checkpoint, case.plan, seeds, self._task(case.join), timing, watch=watch, seams=seams)
        played = self._record.played.setdefault(case.name, Played(case.frame_ns / 1e9))
        played.add(outcome)
        played.seams.add(seams)
        self._record.save()

    def rows(self) -> list[dict[str, Any]]:
        """One for each case that was played, even partly."""
        return [self._row(case) for case in self.cases if case.name in self._record.played]

    def named(self) -> str:
        """The title: checkpoint, simulator, generation, seeds, rate and jitter."""
        options = self._options
        jitter = f", ±{100 * options.jitter:g} %" if options.jitter else ""
        return (
            f"{self._checkpoint.name}, {options.sim}, {self._base.generation}, {options.episodes} seeds, "
            f"actuator at {options.rate_hz:g} Hz{jitter}"
        )

    def _row(self, case: SeamCase) -> dict[str, Any]:
        played = self._record.played[case.name]
        beside = self._record.played.get(replace(case, join=Join(SWITCH)).name)
        seams = played.seams
        above: tuple[float | None, ...] = (None, None, None)
        if beside is not None and played.success.keys() <= beside.success.keys():
            above = paired_by_seed(played.success, beside.success)
        return {
            "mode": case.plan.mode,
            "cores": available(),  # latencies are virtual: nothing here depends on them
            "latency_ms": case.latency_ms,
            "join": case.join.name,
            "plan": str(case.plan),
            "jitter": self._options.jitter,
            **success_fields(played.success.values()),
            **dict(zip(("above_switch", "above_low", "above_high"), above, strict=True)),
            "seams": seams.count,
            "limited_share": seams.limited / seams.count if seams.count else None,
            **{f"{name}_px": value for name, value in seams.figures().items()},
            **played.figures(self._checkpoint.contract.dt_ms),
            "refused": refusal(case.plan, case.frame_ns, round(self._horizon_ms * 1e6)),
        }

    def _cases(self) -> Iterator[SeamCase]:
        for mode in dict.fromkeys(self._options.mode):
            plan = self._base.as_mode(mode)
            plan = replace(plan, frame_period_ms=0.0) if mode == "auras" else plan
            for latency_ms in dict.fromkeys(self._options.latency_ms):
                for join in joins(self._options):
                    yield SeamCase(plan, latency_ms, join)

    def _task(self, join: Join) -> Task:
        options = self._options
        ticks = round(options.rate_hz * self._checkpoint.contract.dt_ms / 1e3)
        return Task(
            options.sim, options.max_steps, seam=join.seam, blend_ms=join.blend_ms,
            ensemble_decay=options.ensemble_decay, ticks_per_step=ticks,
        )  # fmt: skip

    def _check(self) -> None:
        """Raises SettingsError, naming the option."""
        options, dt_ms = self._options, self._checkpoint.contract.dt_ms
        if self._base.guide != "none":
            raise SettingsError(f"plan: guide: {self._base.guide!r} is one of the ways that are compared; see --join")
        check_known("mode", options.mode, MODES)
        for latency_ms in options.latency_ms:
            if not 0 <= latency_ms < self._horizon_ms:
                raise SettingsError(f"latency_ms: must be in [0, {self._horizon_ms:g}), got {latency_ms:g}")
        if not 0 <= options.jitter <= 1:
            raise SettingsError(f"jitter: must be in [0, 1], got {options.jitter:g}")
        ticks = options.rate_hz * dt_ms / 1e3
        if ticks < 1 or ticks != round(ticks) or self._checkpoint.contract.dt_ns % round(ticks):
            raise SettingsError(f"rate_hz: a step of {dt_ms:g} ms must hold a whole number of ticks, not {ticks:g}")

    def _key(self) -> dict[str, Any]:
        options = self._options
        # latencies are drawn for each batch, so all ways meet the same ones only in equal batches
        drawn = f"{options.jitter:g}, batches of {options.batch}, {options.episodes} seeds from {options.seed}"
        return {
            "bench": "seams",
            "checkpoint": f"{self._checkpoint.name}@{self._checkpoint.digest[:12]}",
            "sim": options.sim,
            "max_steps": options.max_steps,
            "rate_hz": options.rate_hz,
            "ensemble_decay": options.ensemble_decay,
            "jitter": drawn if options.jitter else "none",
        }
