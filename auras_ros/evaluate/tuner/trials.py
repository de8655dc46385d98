"""Measures and plays plans of one checkpoint and generation plan, and keeps the results. The caller decides which, and
on how many episodes.

Durations come from the live executor, always beside seq in the same rounds; success from lockstep on the same seeds.
On the charged clock a plan is charged seq's frame time multiplied by the ratio measured in the same rounds, so that a
machine that slows down between measurements does not make later plans look worse. The frames of several seq are timed
in the same rounds too, so rates can be compared across checkpoints and generation plans.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import Timing, grouped, play
from auras_ros.evaluate.pace import PLAY, TIME, Generation, GroupPace, Pace
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.tuner.candidate import Candidate
from auras_ros.evaluate.tuner.record import EpisodeStore, Played, Timed
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.measure.durations import FrameDuration, measure_durations, refusal
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.policies.family import LoadedPolicy
from auras_ros.report.result import Say
from auras_ros.report.statistics import paired_by_seed, success_fields

SEQ = "seq"
TOGETHER = 6  # number of plans that are timed in the same rounds, each with its own executor


@dataclass(frozen=True)
class TrialSettings:
    """base: the plan whose seq all are compared with. frame_steps: control steps of a frame on the paused clock; 0 is
    the charged clock. batch: episodes that are stepped together. plain: chunks of the tried plans, but not of seq, run
    from their index 0 whenever they come (par, as published). device: where frames are timed; episodes are played on
    the CPU. cores: for each plan while it is timed."""

    base: Plan
    task: Task
    requirements: Requirements
    frame_steps: int = 0
    batch: int = 32
    plain: bool = False
    device: str = "cpu"
    cores: int = 1

    def key(self, checkpoint: Checkpoint, sim: str) -> dict[str, Any]:
        """What all measurements of one store have in common."""
        return {
            "checkpoint": f"{checkpoint.name}@{checkpoint.digest[:12]}",
            "sim": sim,
            "clock": f"paused, {self.frame_steps} steps" if self.frame_steps else "charged",
            "max_steps": self.task.max_steps,
            "seq": str(self.base.as_mode(SEQ)),
            "cores": self.cores,
        }


class Trials:
    """See the module's docstring. baseline: whose seq the candidates are compared with. Raises what `measure_durations`
    and `play` raise; at a KeyboardInterrupt the store has everything that was finished."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: TrialSettings,
        record: EpisodeStore,
        say: Say = lambda text: None,
        name: str = "",
        worlds: WorldPool | None = None,
        pace: Pace | None = None,
    ) -> None:
        """name: of the checkpoint, as the user calls it. worlds, pace: may be those of other trials too."""
        self.checkpoint, self.settings, self._record, self._say = checkpoint, settings, record, say
        self.seq_plan = settings.base.as_mode(SEQ)
        self.generation: Generation = (name or checkpoint.name, self.seq_plan.generation)
        self.baseline = self
        self._worlds = WorldPool(settings.task.world) if worlds is None else worlds
        self._pace = pace or Pace()

    def time(self, plans: Sequence[Plan]) -> None:
        """Time the plans that were not timed yet, a few at a time beside seq."""
        left = list({str(plan): plan for plan in plans if not self.is_timed(str(plan))}.values())
        kind = (TIME, self.generation)
        for group in grouped(range(len(left)), TOGETHER):
            some, began_s = [left[i] for i in group], time.monotonic()
            which = f"{group[0] + 1} to {group[-1] + 1} of {len(left)}"
            self._say(f"timing plans {which} of {' '.join(self.generation)}{self._pace.left(kind)}")
            found = measure_durations(
                self.checkpoint, {SEQ: self.seq_plan, **{str(plan): plan for plan in some}},
                observation_ms=self.checkpoint.contract.dt_ms, device=self.settings.device, cores=self.settings.cores,
            )  # fmt: skip
            for plan in some:
                self._record.timed[str(plan)] = Timed(found[str(plan)], found[SEQ])
            self._record.save()
            self._pace.took(kind, len(some), time.monotonic() - began_s)

    def is_timed(self, plan: str) -> bool:
        return plan in self._record.timed

    def time_as(self, other: Trials, plan: Plan) -> None:
        """Use the durations of other trials, so that both charge the same."""
        self.keep_seq(FrameDuration(other.seq_s))
        if plan != self.seq_plan:
            timed = Timed(FrameDuration(other.charged_s(plan)), FrameDuration(other.seq_s))
            self._record.timed[str(plan)] = timed
        self._record.save()

    def keep_seq(self, duration: FrameDuration) -> None:
        """Charge this for seq from now on, and other plans relative to it."""
        self._record.timed[SEQ] = Timed(duration, duration)
        self._record.save()

    @property
    def policy(self) -> LoadedPolicy:
        return self.checkpoint.policy(self.generation[1])

    @property
    def has_seq(self) -> bool:
        """Whether seq was timed beside that of other trials, or is charged as it was there."""
        return SEQ in self._record.timed

    @property
    def any_timed(self) -> bool:
        return bool(self._record.timed)

    @property
    def seq_s(self) -> float:
        """Seconds of a frame of seq: as it was timed beside other trials, or else the first that was measured. All
        charged times are relative to it."""
        timed = self._record.timed
        return (timed[SEQ] if SEQ in timed else next(iter(timed.values()))).seq.seconds

    @property
    def _seq_hz(self) -> float:
        return 1e9 / self.seq_plan.interval_ns(round(self.seq_s * 1e9))

    def charged_s(self, plan: Plan) -> float:
        """Seconds of a frame of this timed plan, relative to `seq_s`."""
        return self.seq_s if plan == self.seq_plan else self.seq_s / self._record.timed[str(plan)].speedup

    def missing(self, plan: Plan, seeds: Sequence[int]) -> int:
        """How many of the seeds it was not played on yet."""
        return len(self._record.missing(self._key(plan), seeds))

    def play(self, plan: Plan, seeds: Sequence[int]) -> None:
        """Play the plan on the seeds that are missing, and the baseline on the same ones."""
        self.baseline.play_seq(seeds)
        self._play(plan, seeds)

    def play_seq(self, seeds: Sequence[int]) -> None:
        """Play seq on the seeds that are missing."""
        self._play(self.seq_plan, seeds)

    def _key(self, plan: Plan) -> str:
        return SEQ if plan == self.seq_plan else str(plan)

    def _play(self, plan: Plan, seeds: Sequence[int]) -> None:
        settings, steps, charged_s = self.settings, self.settings.frame_steps, self.charged_s(plan)
        timing: Timing = Paused(steps) if steps else Charged({plan.mode: round(charged_s * 1e9)})
        name, kind = self._key(plan), (PLAY, self.generation)
        shown = f"{self.generation[0]}, {plan}{' (seq)' if name == SEQ else ''}"
        before = self._record.played.get(name)
        if before is not None and not steps and before.charged_s != charged_s:
            self._say(f"{shown}: frame time changed ({1e3 * before.charged_s:.0f} ms before): playing all again")
            del self._record.played[name]
        left = self._record.missing(name, seeds)
        for group in grouped(left, settings.batch):
            pace = GroupPace(self._pace, kind)

            def watch(runners: EpisodeRunners) -> None:
                over = f"{len(runners.finished)} of {len(group)} episodes over"  # noqa: B023
                self._say(f"{shown}: {over}{pace.left(runners)}")  # noqa: B023

            plain = settings.plain and name != SEQ
            outcome = play(self.checkpoint, plan, group, settings.task, timing, plain, watch, worlds=self._worlds)
            self._record.played.setdefault(name, Played(charged_s)).add(outcome)
            self._record.save()
            pace.end(outcome)

    def candidate(self, plan: Plan, seeds: range | None = None) -> Candidate:
        """The candidate of a timed plan, from these seeds only; for a refused plan only the reason, but for seq.

        Plans are compared on the same seeds: the store may have more seeds of one plan than of another.
        """
        made = self.measured(plan, seeds)
        if not made.refused or plan == self.seq_plan:
            return made
        return Candidate(plan, made.rate_hz, made.speedup, made.oldest_ms, made.refused, checkpoint=made.checkpoint)

    def measured(self, plan: Plan, seeds: range | None = None) -> Candidate:
        """The candidate of a timed plan with its measurements, even if it is refused (for figures)."""
        charged_s, wanted = self.charged_s(plan), self.settings.requirements
        made = self._candidate(plan, charged_s, seeds)
        horizon_ns = self.checkpoint.horizon * self.checkpoint.contract.dt_ns
        refused = refusal(plan, round(charged_s * 1e9), horizon_ns)
        refused = refused or wanted.before_playing(made.rate_hz, self.baseline._seq_hz, made.oldest_ms)
        return replace(made, refused=refused)

    @property
    def lost(self) -> list[tuple[str, int, str]]:
        """The episodes that have lost their world: plan, seed, and why."""
        return [(name, *each) for name, played in self._record.played.items() for each in played.lost.items()]

    def seq(self) -> Candidate | None:
        """seq as a candidate: its rate, and its success on all its seeds; None before it was timed."""
        return self._candidate(self.seq_plan, self.seq_s, None) if self.any_timed else None

    def _candidate(self, plan: Plan, charged_s: float, seeds: range | None) -> Candidate:
        duration_ns, name = round(charged_s * 1e9), self._key(plan)
        rate_hz = 1e9 / plan.interval_ns(duration_ns)
        speedup, oldest_ms = rate_hz / self.baseline._seq_hz, plan.oldest_ns(duration_ns) / 1e6
        made = Candidate(plan, rate_hz, speedup, oldest_ms, checkpoint=self.generation[0])
        played, seq = self._record.played.get(name), self.baseline._record.played.get(SEQ)
        if played is None or seq is None:
            return made
        won = {seed: success for seed, success in played.success.items() if seeds is None or seed in seeds}
        made = replace(made, lost=sum(seeds is None or seed in seeds for seed in played.lost))
        paired = {seed: success for seed, success in won.items() if seed in seq.success}
        if not paired:
            return made
        made = replace(made, **success_fields(won.values()), **played.figures(self.checkpoint.contract.dt_ms))
        if self.baseline is self and name == SEQ:
            return made
        above_seq, above_low, above_high = paired_by_seed(paired, seq.success)
        return replace(made, above_seq=above_seq, above_low=above_low, above_high=above_high)


def time_seqs(trials: Sequence[Trials]) -> None:
    """Time the seq of all in the same rounds. One that was timed before keeps its time, and the others are scaled to
    it, so that stored episodes are not played again."""
    left = [each for each in trials if not each.has_seq]
    if not left:
        return
    known = [each for each in trials if each.has_seq] or [each for each in trials if each.any_timed]
    first = (known or left)[0]
    labels = {" ".join(each.generation): each for each in dict.fromkeys([first, *left])}
    began_s = time.monotonic()
    found = measure_durations(
        {label: each.checkpoint for label, each in labels.items()},
        {label: each.seq_plan for label, each in labels.items()},
        observation_ms=first.checkpoint.contract.dt_ms, say=first._say, device=first.settings.device,
        cores=first.settings.cores,
    )  # fmt: skip
    spent_s = (time.monotonic() - began_s) / len(labels)
    scale = first.seq_s / found[" ".join(first.generation)].seconds if known else 1.0
    for label, each in labels.items():
        if each in left:  # the first keeps its time to the last digit: else its episodes would be played again
            each.keep_seq(FrameDuration(first.seq_s) if each is first and known else _scaled(found[label], scale))
        each._pace.took((TIME, each.generation), 1, spent_s)


def _scaled(duration: FrameDuration, scale: float) -> FrameDuration:
    p10_s, p90_s = (None if each is None else scale * each for each in (duration.p10_s, duration.p90_s))
    return FrameDuration(scale * duration.seconds, duration.n, p10_s, p90_s)
