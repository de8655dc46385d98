"""From outcomes to rows: each mode compared with seq on the same seeds. Plain arithmetic on counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from auras_ros.evaluate.charged import DURATIONS
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.settings import EvaluatedMode, EvaluationSettings
from auras_ros.report.statistics import mean, paired_by_seed, quantile, success_fields

Outcomes = Mapping[tuple[str, str], ModeResult]  # (clock, name of the contender)
BASELINE = "seq"
_NOTHING = {"diff": 0.0, "diff_low": 0.0, "diff_high": 0.0}  # seq compared with itself


def rows(settings: EvaluationSettings, outcomes: Outcomes) -> list[dict[str, Any]]:
    """One flat row for each mode and clock; None marks values that do not exist."""
    return [
        _row(settings, clock, contender, outcomes[clock, contender.name], outcomes.get((clock, BASELINE)))
        for clock in settings.clocks
        for contender in settings.contenders()
    ]


def _row(
    settings: EvaluationSettings, clock: str, contender: EvaluatedMode, outcome: ModeResult, seq: ModeResult | None
) -> dict[str, Any]:
    frame_ms = settings.frame_steps * settings.dt_ms
    if clock == "charged":
        frame_ms = settings.durations_s[DURATIONS[contender.plan.mode][-1]] * 1e3  # type: ignore[assignment]
    seconds = outcome.steps * settings.dt_ms / 1e3
    until = _until_success(outcome.episodes, seq.episodes if seq else [])
    stale, worst = mean(outcome.staleness), quantile(outcome.staleness, 0.99)
    return {
        "mode": contender.name,
        "clock": clock,
        "cores": settings.cores,
        "plan": str(contender.plan),
        **success_fields(outcome.won.values()),
        "successes": outcome.successes,
        **(_NOTHING if contender.name == BASELINE else _difference(outcome, seq)),
        "frame_ms": frame_ms,
        "chunks_per_s": outcome.chunks / seconds if seconds else None,
        "staleness_ms_mean": None if stale is None else stale * settings.dt_ms,
        "staleness_ms_p99": None if worst is None else worst * settings.dt_ms,
        **{f"context_age_ms_{i}": age_ns / 1e6 / outcome.chunks for i, age_ns in enumerate(outcome.age_ns)},
        **until,
        "hold_share": sum(episode.holds for episode in outcome.episodes) / outcome.steps if seconds else None,
        "refused": sum(episode.refused for episode in outcome.episodes),
        "lost": len(outcome.lost),
    }


def _difference(outcome: ModeResult, seq: ModeResult | None) -> dict[str, float | None]:
    """Success minus that of seq, paired by seed, with its 95 % interval. A seed that one has lost is no pair."""
    won = {} if seq is None else {seed: success for seed, success in outcome.won.items() if seed in seq.won}
    found = paired_by_seed(won, seq.won) if seq and won else (None, None, None)
    return dict(zip(_NOTHING, found, strict=True))


def _until_success(episodes: Sequence[EpisodeRecord], seq: Sequence[EpisodeRecord]) -> dict[str, float | None]:
    """Steps to success: the median over all successful episodes, and the means over those in which seq succeeds too,
    beside seq's. In control steps, and in frames of the executor (Auras 4.2.4).
    """
    steps = [episode.steps for episode in episodes if episode.success]
    both = [(mine, its) for mine, its in _pairs(episodes, seq) if mine.success and its.success] if seq else []
    return {
        "steps_to_success": float(median(steps)) if steps else None,
        "both_succeed": float(len(both)) if seq else None,
        "steps_both": fmean(mine.steps for mine, _ in both) if both else None,
        "steps_both_seq": fmean(its.steps for _, its in both) if both else None,
        "frames_both": fmean(mine.frames for mine, _ in both) if both else None,
        "frames_both_seq": fmean(its.frames for _, its in both) if both else None,
    }


def _pairs(some: Sequence[EpisodeRecord], others: Sequence[EpisodeRecord]) -> list[tuple[EpisodeRecord, EpisodeRecord]]:
    """Pairs of the same seed. Raises ValueError if a seed has no partner."""
    by_seed = {episode.seed: episode for episode in others}
    if len(some) != len(others) or any(episode.seed not in by_seed for episode in some):
        raise ValueError("the modes were not played on the same seeds")
    return [(episode, by_seed[episode.seed]) for episode in some]


def summary(made: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The main figures, flat: success and difference of each row, and chunks per second."""
    found: dict[str, float] = {}
    for row in made:
        name = f"{row['mode'].replace('-', '_')}_{row['clock']}"
        found |= {f"{figure}_{name}": row[figure] for figure in ("success", "chunks_per_s") if row[figure] is not None}
        if row["diff"] is not None and row["mode"] != BASELINE:
            found[f"{name}_minus_seq"], found[f"{name}_minus_seq_low"] = row["diff"], row["diff_low"]
    return found
