"""The demo's figures as a flat object, and as a plain table for people. It only formats: all values are arguments."""

from __future__ import annotations

from collections.abc import Mapping

from auras_ros.live.referee.answers import TableAnswers
from auras_ros.live.referee.measures import Measures, Spread
from auras_ros.live.referee.referee import Referee
from auras_ros.report.statistics import wilson


def figures(referee: Referee, measures: Measures) -> dict[str, float]:
    """The report's summary: numbers only. Rates and intervals are missing where nothing was finished."""
    played, won = len(referee.episodes), referee.successes
    found: dict[str, float] = {"episodes": played, "successes": won}
    if played:
        low, high = wilson(won, played)
        found |= {"success_rate": won / played, "success_low": low, "success_high": high}
    found |= {"unfinished": int(referee.unfinished is not None), "void": len(referee.void)}
    found["fifo"] = int(measures.scheduling.startswith("fifo"))
    return found | measures.figures()


def table(referee: Referee, measures: Measures, deadline_ms: float, answers: TableAnswers | None = None) -> str:
    """The summary for people, a line a figure. answers: of a vision-language model, if one was asked."""
    found = figures(referee, measures)
    lines = [("success", _success(found))]
    lines += [("left out", text) for text in _left_out(referee)]
    lines += [(f"seed {e.seed}", "; ".join(e.notes)) for e in referee.episodes if e.notes]
    if "chunks_per_s" in found:
        lines.append(("chunks", f"{found['chunks_per_s']:.2f} a second over {found['armed_s']:.1f} s armed"))
        lines.append(("actions", f"{found['actions_per_s']:.2f} a second, {found['held_share']:.1%} of them holds"))
    lines.append(
        ("interval error", f"{_spread(measures.interval_error)}, newest ticks; scheduling {measures.scheduling}")
    )
    lines.append(("staleness", f"{_spread(measures.staleness())}; age of the observation behind each action"))
    lines.append(("deadline misses", _misses(found, deadline_ms)))
    late = f"{found['skipped_ticks']:.0f} ticks of the actuator, {found['missed_steps']:.0f} control steps of the table"
    lines.append(("skipped", late))
    lines.append(("chunks refused", _reasons(measures.refused_chunks)))
    if measures.refused_actions:
        lines.append(("actions refused", _reasons(measures.refused_actions)))
    lines += answers.table() if answers is not None else []
    return "\n".join(f"  {name:<16} {text}" for name, text in lines)


def _success(found: Mapping[str, float]) -> str:
    if not found["episodes"]:
        return "no episode was finished"
    text = f"{found['successes']:.0f} of {found['episodes']:.0f} episodes ({found['success_rate']:.0%}"
    return f"{text}, 95 % interval {found['success_low']:.0%} to {found['success_high']:.0%})"


def _misses(found: Mapping[str, float], deadline_ms: float) -> str:
    text = f"{found['deadline_misses']:.0f} of {deadline_ms:g} ms at this listener"
    if "sent_gap_ms_max" in found:
        text += f", {found['actions_lost']:.0f} actions lost"
        text += f"; longest gap between two sent {found['sent_gap_ms_max']:.1f} ms"
    return text


def _left_out(referee: Referee) -> list[str]:
    texts = [f"{reason} (void)" for reason in referee.void]
    if referee.unfinished is not None:
        episode = referee.unfinished
        texts.append("; ".join([f"seed {episode.seed}: unfinished after {episode.steps} steps", *episode.notes]))
    return texts


def _spread(spread: Spread | None) -> str:
    if spread is None:
        return "not measured"
    p50, p99, highest = (f"{v:.0f}" if v >= 100 else f"{v:.3g}" for v in (spread.p50, spread.p99, spread.max))
    return f"p50 {p50}, p99 {p99}, max {highest} ms (n {spread.n})"


def _reasons(counted: Mapping[str, int]) -> str:
    parts = [f"{reason} {n}" for reason, n in sorted(counted.items())]
    return f"{sum(counted.values())} ({', '.join(parts)})" if parts else "none"
