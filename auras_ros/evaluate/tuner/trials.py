"""Measures and plays plans, and keeps the results. The caller decides which plans, and on how many episodes.

Durations come from the live executor, always beside seq in the same rounds; success from lockstep on the same seeds.
On the charged clock a plan is charged seq's frame time multiplied by the ratio measured in the same rounds, so that a
machine that slows down between measurements does not make later plans look worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from auras_ros.evaluate.charged import Charged
from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.episode_runners import EpisodeRunners
from auras_ros.evaluate.lockstep import Timing, grouped, play
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.tuner.record import EpisodeStore, Played, Timed
from auras_ros.evaluate.tuner.requirements import Requirements
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.measure.durations import FrameDuration, measure_durations, refusal
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.checkpoint import Checkpoint
from auras_ros.report.result import Say
from auras_ros.report.statistics import paired_by_seed, success_fields

SEQ = "seq"
TOGETHER = 6  # number of plans that are timed in the same rounds, each with its own executor


@dataclass(frozen=True)
class Candidate:
    """A plan and its measurements. refused: why it was not played, or not to its end; empty if it was.

    rate_hz: chunks per second; speedup: over seq's. oldest_ms: age of an action when the next chunk takes over. success
    and the following fields: on `episodes` seeds, with the difference from seq and its 95 % interval; None before it
    was played. lost: seeds beside these whose world was lost.
    """

    plan: Plan
    rate_hz: float
    speedup: float
    oldest_ms: float
    refused: str = ""
    episodes: int = 0
    success: float | None = None
    low: float | None = None
    high: float | None = None
    above_seq: float | None = None
    above_low: float | None = None
    above_high: float | None = None
    staleness_ms: float | None = None
    hold_share: float | None = None
    lost: int = 0

    @property
    def tried(self) -> int:
        """Seeds that it was played on, to the end or not."""
        return self.episodes + self.lost

    def row(self) -> dict[str, Any]:
        """Flat, for the report."""
        return {**vars(self), "plan": str(self.plan)}


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
    """See the module's docstring. Raises what `measure_durations` and `play` raise; at a KeyboardInterrupt the store
    has everything that was finished."""

    def __init__(
        self, checkpoint: Checkpoint, settings: TrialSettings, record: EpisodeStore, say: Say = lambda text: None
    ) -> None:
        self.checkpoint, self.settings, self._record, self._say = checkpoint, settings, record, say
        self._seq = settings.base.as_mode(SEQ)
        self._worlds = WorldPool(settings.task.world)

    def time(self, plans: Sequence[Plan]) -> None:
        """Time the plans that were not timed yet, a few at a time beside seq."""
        left = list({str(plan): plan for plan in plans if str(plan) not in self._record.timed}.values())
        for group in grouped(range(len(left)), TOGETHER):
            some = [left[i] for i in group]
            self._say(f"timing plans {group[0] + 1} to {group[-1] + 1} of {len(left)}")
            found = measure_durations(
                self.checkpoint, {SEQ: self._seq, **{str(plan): plan for plan in some}},
                observation_ms=self.checkpoint.contract.dt_ms, device=self.settings.device, cores=self.settings.cores,
            )  # fmt: skip
            for plan in some:
                self._record.timed[str(plan)] = Timed(found[str(plan)], found[SEQ])
            self._record.save()

    def is_timed(self, plan: str) -> bool:
        return plan in self._record.timed

    def time_as(self, other: Trials, plan: Plan) -> None:
        """Use the durations of other trials, so that both charge the same."""
        self._record.timed = {str(plan): Timed(FrameDuration(other.charged_s(plan)), FrameDuration(other.seq_s))}
        self._record.save()

    @property
    def seq_s(self) -> float:
        """Seconds of a frame of seq, the first that was measured; all charged times are relative to it."""
        return next(iter(self._record.timed.values())).seq.seconds

    @property
    def _seq_hz(self) -> float:
        return 1e9 / self._seq.interval_ns(round(self.seq_s * 1e9))

    def charged_s(self, plan: Plan) -> float:
        """Seconds of a frame of this timed plan, relative to `seq_s`."""
        return self.seq_s / self._record.timed[str(plan)].speedup

    def play(self, plan: Plan, seeds: Sequence[int]) -> None:
        """Play the plan on the seeds that are missing, and seq on the same ones."""
        self._play(SEQ, self._seq, self.seq_s, seeds)
        self._play(str(plan), plan, self.charged_s(plan), seeds)

    def _play(self, name: str, plan: Plan, charged_s: float, seeds: Sequence[int]) -> None:
        settings, steps = self.settings, self.settings.frame_steps
        timing: Timing = Paused(steps) if steps else Charged({plan.mode: round(charged_s * 1e9)})
        before = self._record.played.get(name)
        if before is not None and not steps and before.charged_s != charged_s:
            self._say(f"{name}: frame time changed ({1e3 * before.charged_s:.0f} ms before): playing all again")
            del self._record.played[name]
        left = self._record.missing(name, seeds)
        for group in grouped(left, settings.batch):

            def watch(episode_runners: EpisodeRunners) -> None:
                self._say(f"{name}: {len(episode_runners.finished)} of {len(group)} episodes over")  # noqa: B023

            plain = settings.plain and name != SEQ
            outcome = play(self.checkpoint, plan, group, settings.task, timing, plain, watch, worlds=self._worlds)
            self._record.played.setdefault(name, Played(charged_s)).add(outcome)
            self._record.save()

    def candidate(self, plan: Plan, seeds: range | None = None) -> Candidate:
        """The candidate of a timed plan, from these seeds only; for a refused plan only the reason.

        Plans are compared on the same seeds: the store may have more seeds of one plan than of another.
        """
        made = self.measured(plan, seeds)
        return Candidate(made.plan, made.rate_hz, made.speedup, made.oldest_ms, made.refused) if made.refused else made

    def measured(self, plan: Plan, seeds: range | None = None) -> Candidate:
        """The candidate of a timed plan with its measurements, even if it is refused (for figures)."""
        charged_s, wanted = self.charged_s(plan), self.settings.requirements
        made = self._candidate(str(plan), plan, charged_s, seeds)
        horizon_ns = self.checkpoint.horizon * self.checkpoint.contract.dt_ns
        refused = refusal(plan, round(charged_s * 1e9), horizon_ns)
        return replace(made, refused=refused or wanted.before_playing(made.rate_hz, self._seq_hz, made.oldest_ms))

    @property
    def lost(self) -> list[tuple[str, int, str]]:
        """The episodes that have lost their world: plan, seed, and why."""
        return [(name, *each) for name, played in self._record.played.items() for each in played.lost.items()]

    def seq(self) -> Candidate | None:
        """seq as a candidate: its rate, and its success on all its seeds; None before it was timed."""
        return self._candidate(SEQ, self._seq, self.seq_s, None) if self._record.timed else None

    def _candidate(self, name: str, plan: Plan, charged_s: float, seeds: range | None) -> Candidate:
        duration_ns = round(charged_s * 1e9)
        rate_hz = 1e9 / plan.interval_ns(duration_ns)
        made = Candidate(plan, rate_hz, rate_hz / self._seq_hz, plan.oldest_ns(duration_ns) / 1e6)
        played, seq = self._record.played.get(name), self._record.played.get(SEQ)
        if played is None or seq is None:
            return made
        won = {seed: success for seed, success in played.success.items() if seeds is None or seed in seeds}
        made = replace(made, lost=sum(seeds is None or seed in seeds for seed in played.lost))
        paired = {seed: success for seed, success in won.items() if seed not in seq.lost}
        if not paired:
            return made
        above_seq, above_low, above_high = paired_by_seed(paired, seq.success)
        made = replace(made, **success_fields(won.values()), **played.figures(self.checkpoint.contract.dt_ms))
        return replace(made, above_seq=above_seq, above_low=above_low, above_high=above_high)
