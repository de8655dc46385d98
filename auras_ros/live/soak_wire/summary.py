"""What a soak of the wire found, as a report and as a table for people."""

from __future__ import annotations

from auras_ros.live.soak.summary import spread
from auras_ros.live.soak_wire.run import WireResult
from auras_ros.report.result import Report


def wire_report(result: WireResult, *, interrupted: bool) -> Report:
    """rows: one a press; summary: figures by name."""
    judge, settings = result.judge, result.settings
    made = Report("soak-wire", [vars(press) for press in result.presses])
    made.summary = {"seconds": result.seconds, "violations": judge.kinds.total(), "actions": judge.count}
    made.summary |= {"nuisance_stops": len(result.nuisance_stops), "load": settings.load}
    if not settings.watch_s:
        made.summary |= {"presses": len(result.presses), "presses_wanted": settings.presses * len(settings.cases)}
        made.summary |= {"presses_lost": sum(press.ms is None for press in result.presses)}
    for case in settings.cases:
        name = case.name.replace(" ", "_")
        times_ms = [press.ms for press in result.presses if press.case == case.name and press.ms is not None]
        for key, value in spread(times_ms).items():
            made.summary[f"{name}_{key}" if key == "n" else f"{name}_ms_{key}"] = value
    made.more = {
        "signed": settings.signed,
        "violations": judge.violations,
        "violations_by_kind": dict(judge.kinds),
        "nuisance_stops": result.nuisance_stops,
    }
    if interrupted:
        made.more["interrupted"] = True
    return made


def wire_table(result: WireResult) -> str:
    """The result for people."""
    lines = [f"{'attack':<27} {'n':>4} {'p50':>8} {'p99':>8} {'max':>8} {'lost':>6} {'drives again':>13}   ms, s"]
    for case in result.settings.cases if result.presses else ():
        presses = [press for press in result.presses if press.case == case.name]
        times = spread([press.ms for press in presses if press.ms is not None])
        cells = " ".join(f"{times[name]:>8.1f}" if name in times else f"{'-':>8}" for name in ("p50", "p99", "max"))
        lost = sum(press.ms is None for press in presses)
        slowest_s = max((press.recovered_s for press in presses), default=0.0)
        lines.append(f"{case.name:<27} {len(presses):>4} {cells} {lost:>6} {slowest_s:>11.1f} s")
    signed = "signed words" if result.settings.signed else "no key"
    lines.append(f"\n{result.seconds:.0f} s, {signed}; {len(result.nuisance_stops)} stops that nobody asked for")
    lines.append(f"{result.judge.kinds.total()} violations" + (":" if result.judge.violations else ""))
    lines += [f"  {violation}" for violation in result.judge.violations]
    return "\n".join(lines)
