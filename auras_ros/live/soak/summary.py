"""What a soak found, as a report and as a table for people. Pure: what it says, it was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from auras_ros.live.referee.measures import Spread
from auras_ros.live.soak.faults.presses import cases
from auras_ros.live.soak.run import SoakResult
from auras_ros.live.soak.usage import Usage
from auras_ros.report.result import Report


def spread(values: list[float]) -> dict[str, float]:
    """p50, p99, max and n of times in ms; n alone of none."""
    found = Spread.of(values)
    return {"n": 0} if found is None else vars(found)


def report(result: SoakResult, *, interrupted: bool) -> Report:
    """rows: one a fault; summary: figures by name; more: violations and what each process used."""
    judge, skipped = result.judge, result.skips
    made = Report("soak", [vars(each) for each in result.outcomes])
    made.summary = {"seconds": result.seconds, "faults": len(result.outcomes), "violations": judge.kinds.total()}
    made.summary |= {"actions": judge.count, "actions_lost": max(0, judge.lost - skipped)}
    made.summary |= {"trajectories_unjudged": judge.unjudged}
    made.summary |= {"skipped_ticks": max(0, skipped - result.planned_skips)}
    for kind in result.kinds:
        times = [each.ms for each in result.outcomes if each.kind == kind and each.ms is not None]
        for name, value in spread(times).items():
            made.summary[f"{kind}_{name}" if name == "n" else f"{kind}_ms_{name}"] = value
    for name, value in (result.state.get("interval_error_ms") or {}).items():
        made.summary[f"interval_error_{name}" if name == "n" else f"interval_error_ms_{name}"] = value
    made.summary |= _pressed(result)
    if load := result.load:
        made.summary |= {"ended_unasked": judge.kinds["process ended"]}
        made.summary |= {"rearmed": load.rearmed, "disarmed_by_stall": load.by_stall}
        made.summary |= {"driven_share": load.driven / max(1, load.samples)}
    if averages := result.load_averages:
        made.summary |= {"load_1min_mean": float(np.mean(averages)), "load_1min_max": max(averages)}
    made.more = {
        "promises": {kind: {"to": each.promise, "limit_ms": each.limit_ms} for kind, each in result.kinds.items()},
        "violations": judge.violations,
        "armed_again_because": load.reasons if load else [],
        "violations_by_kind": dict(judge.kinds),
        "processes": {name: _used(usage, result.control) for name, usage in result.usage.items()},
        "control": _used(result.control, result.control),
        "scheduling": str(result.state.get("scheduling", "unknown")),
    }
    if interrupted:
        made.more["interrupted"] = True
    return made


def _pressed(result: SoakResult) -> dict[str, float]:
    """Of a run that presses the emergency stop case by case: how often, how often that was wanted, how many were lost,
    how many could not be timed and were pressed again, and how soon it held where the process ran. Empty for another
    run."""
    pressed = [each for each in result.outcomes if each.case]
    if not pressed:
        return {}
    frozen = {case.name for case in cases() if case.frozen}
    found = spread([each.ms for each in pressed if each.ms is not None and each.case not in frozen])
    lost = sum(each.ms is None for each in pressed)
    made = {"presses": len(pressed), "presses_wanted": result.presses_wanted, "presses_lost": lost}
    return made | {"presses_again": result.presses_again, **{f"press_ms_{name}": found[name] for name in found}}


def _used(usage: Usage, control: Usage) -> dict[str, Any]:
    """What one process used. Memory above the control's is what is judged."""
    slope, above = usage.slope(), usage.above(control).slope()
    return {
        "lives": len(usage.lives),
        "memory_kib_per_min": None if slope is None else slope.kib_per_min,
        "memory_error_kib_per_min": None if slope is None else slope.error,
        "memory_above_control_kib_per_min": None if above is None else above.kib_per_min,
        "memory_above_control_error_kib_per_min": None if above is None else above.error,
        "memory_bins": 0 if slope is None else slope.bins,
        "memory_mib_max": max((each.kib for life in usage.lives.values() for each in life), default=0.0) / 1024,
        "descriptors": usage.risen("descriptors"),
        "threads": usage.risen("threads"),
    }


def table(made: Report) -> str:
    """The report for people."""
    return "\n".join([*_kinds(made), *_cases(made), "", *_processes(made), "", *_rest(made)])


def _kinds(made: Report) -> Iterator[str]:
    yield f"{'fault':<23} {'to':<16} {'n':>4} {'p50':>8} {'p99':>8} {'max':>8} {'promised':>9}   ms"
    for kind, promise in made.more["promises"].items():
        figures = [made.summary.get(f"{kind}_ms_{name}") for name in ("p50", "p99", "max")]
        cells = " ".join(f"{'-' if value is None else f'{value:.1f}':>8}" for value in figures)
        limit = "-" if promise["limit_ms"] is None else f"{promise['limit_ms']:g}"
        n = made.summary[f"{kind}_n"]
        yield f"{kind.replace('_', ' '):<23} {promise['to']:<16} {n:>4.0f} {cells} {limit:>9}"


def _cases(made: Report) -> Iterator[str]:
    """Of a run that presses case by case."""
    times: dict[str, list[float | None]] = {}
    for row in made.rows:
        if row.get("case"):
            times.setdefault(str(row["case"]), []).append(row["ms"])
    for case, found in times.items():
        held = spread([ms for ms in found if ms is not None])
        figures = " ".join(f"{held[name]:>8.1f}" if name in held else f"{'-':>8}" for name in ("p50", "p99", "max"))
        yield f"  {case:<33} {len(found):>4} {figures}   {len(found) - held['n']:.0f} lost"


def _processes(made: Report) -> Iterator[str]:
    """control: a node that does nothing."""
    yield f"{'process':<14} {'lives':>5}  {'KiB a minute':<28} {'above the control':<20} {'descriptors':<12} threads"
    for name, used in {**made.more["processes"], "control": made.more["control"]}.items():
        memory, above = f"at most {used['memory_mib_max']:.0f} MiB, no slope yet", "-"
        if used["memory_kib_per_min"] is not None:
            memory = f"{used['memory_kib_per_min']:+.0f} +- {used['memory_error_kib_per_min']:.0f}"
            error = used["memory_above_control_error_kib_per_min"]
            above = f"{used['memory_above_control_kib_per_min']:+.0f} +- {error:.0f}"
        risen = [f"{used[what][0]} to {used[what][1]}" if used[what] else "-" for what in ("descriptors", "threads")]
        yield f"{name:<14} {used['lives']:>5}  {memory:<28} {above:<20} {risen[0]:<12} {risen[1]}"


def _rest(made: Report) -> Iterator[str]:
    found = made.summary
    heard = f"{found['actions']:.0f} actions, {found['actions_lost']:.0f} not received"
    heard += (
        f", {found['trajectories_unjudged']:.0f} trajectories not judged for that"
        if found["trajectories_unjudged"]
        else ""
    )
    late = f"{found['skipped_ticks']:.0f} ticks missed unasked"
    yield f"{found['faults']:.0f} faults in {found['seconds']:.0f} s; {heard}; {late}"
    if "rearmed" in found:
        yield (
            f"{found['ended_unasked']:.0f} processes ended unasked, {found['rearmed']:.0f} armings needed, "
            f"{found['disarmed_by_stall']:.0f} more after stalls of the actuator; "
            f"driven at {found['driven_share']:.0%} of the samples, one a second"
        )
    if "presses_wanted" in found:
        yield (
            f"{found['presses']:.0f} of {found['presses_wanted']:.0f} presses, {found['presses_lost']:.0f} lost; "
            f"{found['presses_again']:.0f} more could not be timed: the actuator or this process stood still"
        )
    if "interval_error_ms_p99" in found:
        yield (
            f"interval error p50 {found['interval_error_ms_p50']:.2f}, p99 {found['interval_error_ms_p99']:.2f}, "
            f"max {found['interval_error_ms_max']:.1f} ms of the newest ticks; scheduling {made.more['scheduling']}"
        )
    if made.more["violations"]:
        yield f"{found['violations']:.0f} violations:"
        yield from (f"  {text}" for text in made.more["violations"])
    else:
        yield "no violation"
