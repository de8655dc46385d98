"""Plans of a figure on Push-T: the rate of each, measured beside seq, and its success on both clocks, by seed.

All measurements go through the tuner's trials and their records, so a run of hours can be interrupted and continued.
On the paused clock all modes have frames of the same length, as in the paper; on the charged one the simulation
advances while a frame is computed, by the time that the frame takes on this machine. The trained policy runs on the
CPU, every plan on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from auras_ros import resources
from auras_ros.bench.options import add_minutes
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import grouped
from auras_ros.evaluate.settings import CLOCKS, SettingsError, check_episodes, check_least, find_sim, parse_plan
from auras_ros.evaluate.tuner.candidate import Candidate
from auras_ros.evaluate.tuner.record import EpisodeStore
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.tuner.trials import Trials, TrialSettings
from auras_ros.measure.minutes import attempt, interruptible, run_turns, until
from auras_ros.pipeline.modes import check_plan
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.family import LoadedPolicy
from auras_ros.policies.loaders.open import load
from auras_ros.report.result import Report, Say, unwritable

MINUTES = 600.0  # a figure plays for hours
CORES = 1  # seq and every other plan are timed on these: only the schedules differ
Kind = tuple[str, bool]  # clock, plain


@dataclass(frozen=True)
class Point:
    """One plan of a figure, drawn in `panel` at the x value `at`. plain: its chunks run from their index 0 whenever
    they come, without compensation for staleness."""

    panel: str
    at: float
    plan: Plan
    plain: bool = False


def add_options(parser: argparse.ArgumentParser, plan: str, sim: str = "pusht-drift") -> None:
    """The options of every figure with success."""
    parser.add_argument("--clock", default=",".join(CLOCKS), help="paused, charged, or both with a comma (both)")
    parser.add_argument("--frame-steps", type=int, default=4, help="control steps per frame, paused clock (4)")
    add_play_options(parser, plan, sim)


def add_play_options(parser: argparse.ArgumentParser, plan: str, sim: str = "pusht-drift") -> None:
    """The options of what is played, on any clock."""
    parser.add_argument("--checkpoint", default="pusht", help="folder, or the name of an included one (pusht)")
    parser.add_argument("--plan", default=plan, help=f"the settings shared by all plans ({plan})")
    parser.add_argument("--sim", default=sim, help=f"the world, as auras eval takes it ({sim})")
    parser.add_argument("--episodes", type=int, default=100, help="seeds of each plan on each clock (100); 0: none")
    parser.add_argument("--seed", type=int, default=0, help="of the first episode (0)")
    parser.add_argument("--max-steps", type=int, default=300, help="control steps of an episode (300)")
    parser.add_argument("--batch", type=int, default=32, help="episodes that are stepped together (32)")
    parser.add_argument("--work", type=Path, help="file that keeps the results; a later run continues from it")
    add_minutes(parser, MINUTES)


class FigureCampaign:
    """The points of one figure, timed and played. Raises SettingsError, PlanError or CheckpointError by name."""

    def __init__(
        self, options: argparse.Namespace, points: Callable[[LoadedPolicy, Plan], Sequence[Point]], say: Say
    ) -> None:
        """points: makes the figure's plans from the policy and the plan that they share."""
        torch.set_num_threads(1)
        _checked(options)
        if options.episodes:
            find_sim(options.sim).check()
        self.checkpoint, self.base = load(resources.checkpoint(options.checkpoint)), parse_plan(options.plan)
        self.policy = self.checkpoint.policy(self.base.generation)
        self.points = list(points(self.policy, self.base))
        for point in self.points:
            check_plan(self.policy, point.plan)
        self._options, self._say = options, until(time.monotonic() + 60 * options.minutes, say)
        self._seeds = range(options.seed, options.seed + options.episodes)
        self.clocks = tuple(options.clock.split(","))
        self._trials = self._opened()
        self._timer = next(iter(self._trials.values()))

    def run(self, report: Report) -> None:
        """Time all plans, then play them, a batch of seeds at a time. The report names what failed or was not finished;
        finished results are kept. Does nothing with --episodes 0 and --policy: then only the rates of that architecture
        are measured."""
        if not self._seeds and getattr(self._options, "policy", None):
            return
        with interruptible(report):
            with attempt(report, "timing the plans"):
                self._timer.time([point.plan for point in self.points])
            timed = [point for point in self.points if self._timer.is_timed(str(point.plan))]
            turns = {
                f"{point.panel} {point.at:g}, {clock} clock": partial(self._play, point, clock)
                for point, clock in product(timed, self.clocks)
            }
            run_turns(report, grouped(self._seeds, self._options.batch), turns)

    def _play(self, point: Point, clock: str, seeds: Sequence[int]) -> None:
        self._say(f"seeds from {seeds[0]}, {clock}: {point.plan}")
        self._trials[clock, point.plain].play(point.plan, seeds)

    def rows(self) -> list[dict[str, Any]]:
        """seq's row of each clock, then one for each point that was timed and each clock."""
        known = [point for point in self.points if self._timer.is_timed(str(point.plan))]
        if not known:
            return []
        made = []
        for clock in self.clocks:
            seq = self._trials[clock, self.points[0].plain].seq()
            assert seq is not None
            alone = replace(seq, above_seq=None, above_low=None, above_high=None)
            made.append(_row(clock, Point("", 0.0, seq.plan), alone))
        for point, clock in product(known, self.clocks):
            made.append(_row(clock, point, self._trials[clock, point.plain].measured(point.plan)))
        return made

    def named(self) -> str:
        """The title: checkpoint, simulator, generation and seeds."""
        return f"{self.checkpoint.name}, {self._options.sim}, {self.base.generation}, {self._options.episodes} seeds"

    def _opened(self) -> dict[Kind, Trials]:
        """Trials of each clock. All share the durations measured by the first, so the charged times are those shown."""
        options = self._options
        found: dict[Kind, Trials] = {}
        records: list[EpisodeStore] = []
        plains = sorted({point.plain for point in self.points})
        for clock, plain in product(dict.fromkeys((*self.clocks, "charged")), plains):
            steps = options.frame_steps if clock == "paused" else 0
            task = Task(options.sim, options.max_steps)
            settings = TrialSettings(self.base, task, Requirements(), steps, options.batch, plain, cores=CORES)
            key = settings.key(self.checkpoint, options.sim) | ({"plain": True} if plain else {})
            record = EpisodeStore.open(key, self._path(clock, plain))
            record.timed = records[0].timed if records else record.timed
            records.append(record)
            found[clock, plain] = Trials(self.checkpoint, settings, record, self._say)
        return found

    def _path(self, clock: str, plain: bool) -> Path | None:
        work: Path | None = self._options.work
        suffix = f"{'.paused' if clock == 'paused' else ''}{'.plain' if plain else ''}{work.suffix if work else ''}"
        return None if work is None else work.with_suffix(suffix)


def _row(clock: str, point: Point, candidate: Candidate) -> dict[str, Any]:
    named = {"measure": "played", "panel": point.panel, "at": point.at, "mode": point.plan.mode, "plain": point.plain}
    return {**named, "cores": CORES, "clock": clock, **candidate.row()}


def _checked(options: argparse.Namespace) -> None:
    """Raises SettingsError, naming the option."""
    clocks = options.clock.split(",")
    if len(set(clocks)) < len(clocks) or any(clock not in CLOCKS for clock in clocks):
        raise SettingsError(f"clock: expected {' or '.join(CLOCKS)}, each once, got {options.clock}")
    check_least(options, frame_steps=1)
    check_play(options)


def check_play(options: argparse.Namespace, episodes: int = 0) -> None:
    """The options of `add_play_options`, with at least so many episodes. Raises SettingsError, naming the option."""
    check_least(options, episodes=episodes, batch=1)
    check_episodes(options.sim, options.max_steps, range(options.seed, options.seed + options.episodes))
    if options.work and (why := unwritable(options.work)):  # refused now rather than after an hour
        raise SettingsError(f"work: {why}")
