"""What attacks on a server found, as a report and as a table for people. Pure: what it says, it was given."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from auras_ros.live.soak_vlm.judge import BrokenPromises
from auras_ros.live.soak_vlm.under_attack import HEALTH_MS, RSS_MB, SIGTERM_S, VICTIM_RATIO, AttackResult
from auras_ros.report.result import Report
from auras_ros.report.table import in_columns

COLUMNS = (
    ("attack", "{attack}"),
    ("/health", "{health_n}"),
    ("p99 ms", "{health_ms_p99:.1f}"),
    ("answers", "{victim_n}"),
    ("p50 ms", "{victim_ms_p50:.1f}"),
    ("ratio", "{victim_ratio:.2f}"),
    ("memory MB", "{rss_growth_mb:+.0f}"),
    ("SIGTERM s", "{sigterm_s:.1f}"),
)


def attack_report(results: Sequence[AttackResult], broken: BrokenPromises, *, interrupted: bool) -> Report:
    """rows: one an attack; summary: the worst of each figure; more: broken promises."""
    report = Report("soak-vlm-attacks")
    report.rows = [_row(result) for result in results]
    for figure in ("health_ms_p99", "victim_ratio", "rss_growth_mb", "sigterm_s"):
        if report.rows:
            report.summary[figure] = max(row[figure] for row in report.rows)
    report.summary["violations"] = broken.kinds.total()
    report.more = {
        "promised": {
            "health_ms_p99": HEALTH_MS, "victim_ratio": VICTIM_RATIO, "rss_growth_mb": RSS_MB, "sigterm_s": SIGTERM_S,
        },
        "core_shared": any(result.is_core_shared for result in results),
        "violations": broken.texts,
        "violations_by_kind": dict(broken.kinds),
    }  # fmt: skip
    if interrupted:
        report.more["interrupted"] = True
    return report


def _row(result: AttackResult) -> dict[str, object]:
    attacked, alone = result.attacked, result.alone
    return {
        "attack": result.name,
        "health_n": len(attacked.health_ms),
        "health_ms_p99": result.health_ms_p99,
        "health_ms_max": max(attacked.health_ms, default=None),
        "victim_n": len(attacked.answer_ms),
        "victim_ms_p50": statistics.median(attacked.answer_ms) if attacked.answer_ms else None,
        "victim_ms_p50_alone": statistics.median(alone.answer_ms) if alone.answer_ms else None,
        "victim_ratio": result.victim_ratio,
        "rss_growth_mb": result.rss_growth_mb,
        "sigterm_s": result.sigterm_s,
    }


def attack_table(report: Report) -> str:
    """The report for people."""
    promised = report.more["promised"]
    lines = [*in_columns(report.rows, COLUMNS), ""]
    lines.append(
        f"promised: /health p99 {promised['health_ms_p99']:g} ms, answers {promised['victim_ratio']:g} times those "
        f"alone, memory +{promised['rss_growth_mb']:g} MB, end {promised['sigterm_s']:g} s"
    )
    if report.more["core_shared"]:
        lines.append("server and clients share one core here: the first two are measured, and not judged")
    if report.more["violations"]:
        lines.append(f"{report.summary['violations']:.0f} violations:")
        lines.extend(f"  {text}" for text in report.more["violations"])
    else:
        lines.append("no violation")
    return "\n".join(lines)
