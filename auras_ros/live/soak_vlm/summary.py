"""What a soak of a server found, as a report and as a table for people. Pure: what it says, it was given."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from auras_ros.live.soak_vlm.mix import VlmSoakResult
from auras_ros.live.soak_vlm.overload import REFUSED_MS, p99
from auras_ros.report.result import Report
from auras_ros.report.table import in_columns

COLUMNS = (
    ("request", "{kind}"), ("n", "{n}"), ("p50", "{ms_p50:.1f}"), ("p99", "{ms_p99:.1f}"), ("max ms", "{ms_max:.1f}"),
)  # fmt: skip


def vlm_report(result: VlmSoakResult, *, interrupted: bool) -> Report:
    """rows: one a kind of request; summary: figures by name; more: broken promises and what repeats them."""
    made = Report("soak-vlm")
    load = result.overload
    kinds = dict(sorted(result.times.items()))
    if load is not None:
        kinds |= {
            "full: admitted": load.full_ms,
            "ten times: admitted": load.admitted_ms,
            "ten times: refused": load.refused_ms,
        }
    made.rows = [
        {"kind": kind, "n": len(ms), "ms_p50": float(np.median(ms)), "ms_p99": p99(ms), "ms_max": max(ms)}
        for kind, ms in kinds.items()
        if ms
    ]
    made.summary = {
        "requests": sum(map(len, result.times.values())),
        "seconds": result.seconds,
        "violations": result.broken.kinds.total(),
        "refused_full": result.full,
        "known": result.known,
        "known_answers": result.answers,
        "left_out": result.left_out,
        "preemptions": result.counted.get("auras_preemptions_total", 0.0),
        "cached_tokens": result.counted.get("auras_cached_tokens_total", 0.0),
    }
    if len(result.readings) == 2:
        first, last = result.readings
        made.summary |= {"memory_mib": last.kib / 1024, "memory_risen_kib": last.kib - first.kib}
        made.summary |= {"descriptors": last.descriptors, "threads": last.threads}
    if load is not None:
        made.summary |= {"capacity_hz": load.capacity_hz, "offered_hz": load.offered_hz}
        made.summary |= {"admitted_hz": len(load.admitted_ms) / result.settings.overload_s}
        made.summary |= {"admitted_ms_bound": load.bound_ms, "refused_ms_bound": REFUSED_MS}
    made.more = {
        "seed": result.settings.seed,
        "ended": {name: value for name, value in result.counted.items() if name.startswith("auras_requests_total")},
        "violations": result.broken.texts,
        "violations_by_kind": dict(result.broken.kinds),
        "broken_requests": result.broken.requests,
    }
    if interrupted:
        made.more["interrupted"] = True
    return made


def vlm_table(made: Report) -> str:
    """The report for people."""
    return "\n".join([*in_columns(made.rows, COLUMNS), "", *_rest(made)])


def _rest(made: Report) -> Iterator[str]:
    found = made.summary
    yield f"seed {made.more['seed']}: {found['requests']:.0f} requests in {found['seconds']:.0f} s"
    yield (
        f"{found['known']:.0f} requests with {found['known_answers']:.0f} different answers, {found['left_out']:.0f} "
        f"left out (two tokens nearly as likely); {found['refused_full']:.0f} times full and asked again; "
        f"{found['preemptions']:.0f} preemptions"
    )
    if "memory_mib" in found:
        yield (
            f"memory {found['memory_mib']:.0f} MiB, {found['memory_risen_kib']:+.0f} KiB in the second half; "
            f"{found['descriptors']:.0f} descriptors, {found['threads']:.0f} threads"
        )
    if "capacity_hz" in found:
        yield (
            f"capacity {found['capacity_hz']:.1f} requests a second, offered {found['offered_hz']:.1f}, "
            f"answered {found['admitted_hz']:.1f} of them; promised p99: "
            f"admitted {found['admitted_ms_bound']:.0f} ms, refused {found['refused_ms_bound']:.0f} ms"
        )
    if made.more["violations"]:
        yield f"{found['violations']:.0f} violations:"
        yield from (f"  {text}" for text in made.more["violations"])
    else:
        yield "no violation"
