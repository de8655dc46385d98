"""How far the gains depend on the profile's parameters: each of a6000's alone, 20 % less and more.

Nova's plan is made anew from each profile: S_0, S_min for the bound of 80 ms, and the steps between them. Where no
split keeps the bound the variant is left out, by name. Nova and the baselines have all of their settings, as in the
main run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.contenders import DeviceSetup
from auras_ros.bench.nova.gains import gain_rows, gain_summary
from auras_ros.bench.nova.runs import Results
from auras_ros.measure.minutes import CUT, OverError
from auras_ros.report.result import Report, Say
from auras_ros.report.table import Column, Row, in_columns

SHARE = 0.2
GAINS = ("mean_e2e_gain", "max_e2e_gain", "throughput_ratio")
COLUMNS: tuple[Column, ...] = (
    ("parameter", "{parameter}"),
    ("times", "{factor:.1f}"),
    ("S_min", "{least}"),
    ("S_0", "{by_vision}/{by_prefill}"),
    *((name, f"{{{name}:+.3f}}") for name in GAINS),
)


def measure(
    report: Report, rates: Sequence[float], cores: int, run: Callable[[DeviceSetup, Say], Results], say: Say
) -> None:
    """Adds a row for each variant, and the gains' ranges. run: Nova and the baselines on a profile; it may raise
    OverError."""
    variants = [("none", 1.0, a6000.Parameters()), *a6000.Parameters().varied(SHARE)]
    for number, (name, factor, parameters) in enumerate(variants):
        what = f"{name} x {factor:g}"
        setup = DeviceSetup(a6000.profile(parameters), a6000.TBT_BOUND_MS)
        try:
            plan = setup.plan()
            found = run(setup, _prefixed(say, f"{what}, {number + 1} of {len(variants)}"))
        except ValueError as error:
            report.leave_out(what, str(error))
            continue
        except OverError:
            report.leave_out(f"sensitivity from {what} on", CUT)
            return
        gains = gain_summary([row for rate in rates for row in gain_rows(found, rate, "nova")])
        where = {"measure": "sensitivity", "parameter": name, "factor": factor, "cores": cores}
        units = {"least": plan.least, "by_vision": plan.by_vision, "by_prefill": plan.by_prefill}
        report.rows.append(where | units | {each: gains[each] for each in GAINS})
        report.summary |= ranges(report.rows)


def _prefixed(say: Say, what: str) -> Say:
    return lambda text: say(f"{what}: {text}")


def ranges(rows: Sequence[Row]) -> dict[str, float]:
    """The least and the most of each gain over all variants."""
    own = [row for row in rows if row["measure"] == "sensitivity"]
    found = dict[str, float]()
    for name in GAINS:
        values = [row[name] for row in own]
        found |= {f"{name}_low": min(values), f"{name}_high": max(values)}
    return found


def lines(rows: Sequence[Row]) -> list[str]:
    own = [row for row in rows if row["measure"] == "sensitivity"]
    return in_columns(own, COLUMNS) if own else []
