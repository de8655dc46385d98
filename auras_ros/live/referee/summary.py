"""The demo's figures as a flat object, and as a plain table for people. It only formats: all values are arguments."""

from __future__ import annotations

from collections.abc import Mapping

from auras_ros.live.referee.answers import TableAnswers
from auras_ros.live.referee.measures import Measures, Spread
from auras_ros.live.referee.referee import Referee, RefereePhase
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
    if "steps_per_s" in found:
        lines.append(("world", f"{found['steps_per_s']:.2f} control steps a second{_cameras(found)}"))
    lines.append(
        ("interval error", f"{_spread(measures.interval_error)}, newest ticks; scheduling {measures.scheduling}")
    )
    lines.append(("staleness", f"{_spread(measures.staleness())}; age of the observation behind each action"))
    lines.append(("deadline misses", _misses(found, deadline_ms)))
    late = f"{found['skipped_ticks']:.0f} ticks of the actuator, {found['missed_steps']:.0f} control steps of the world"
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


def _cameras(found: Mapping[str, float]) -> str:
    names = [key[len("camera_") : -len("_per_s")] for key in found if key.startswith("camera_")]
    return "".join(f"; camera {name} {found[f'camera_{name}_per_s']:.2f}" for name in names)


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


def progress_line(referee: Referee, now_ns: int) -> str:
    """Elapsed and remaining time of this play, successes so far, episode, seed, step, sub-goals and state."""
    elapsed_s = 0.0 if referee.began_ns is None else (now_ns - referee.began_ns) / 1e9
    left_s = remaining_s(referee, now_ns)
    left = "" if left_s is None else f", about {left_s:.0f} s left of this play"
    line = f"{elapsed_s:4.0f} s{left}  {referee.successes} of {len(referee.episodes)} succeeded"
    status = referee.status
    if not referee.playing or status is None:
        return f"{line}  {referee.phase.value}"
    goals = [f"{name} {share:.2f}" for name, share in status.sub_goals.items()]
    where = [f"episode {status.episode}", f"seed {status.seed}", f"step {status.step}", *goals, referee.actuator]
    return "  ".join([line, *where])


def remaining_s(referee: Referee, now_ns: int) -> float | None:
    """Until the time is over, or until as many episodes are finished as are wanted, if each takes as long as those so
    far; None where nothing is known: before the first, and in a last one that takes longer than the others."""
    rules, began_ns, finished_ns = referee.rules, referee.began_ns, referee.finished_ns
    if began_ns is None or referee.phase is RefereePhase.FINISHED:
        return None
    ends_ns = [] if rules.seconds is None else [began_ns + rules.seconds * 1e9]
    if rules.episodes is not None and finished_ns is not None:
        done = len(referee.episodes)
        typical_ns = max((finished_ns - began_ns) / done, (now_ns - began_ns) / (done + 1))  # this one, if it is longer
        ends_ns.append(began_ns + typical_ns * rules.episodes)
    left_s = (min(ends_ns, default=0.0) - now_ns) / 1e9
    return left_s if left_s > 0.0 else None
