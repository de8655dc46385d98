"""Times of faults that `auras soak` cannot bring about from outside: they are planted in a node's process.

usage: python -m tests.faults.measure [--only KIND,...] [-n N] [--json FILE]

One JSON line a figure: p50, p99, max and N, in ms. Times are from just before the fault to the label, or to the hearing
of the word, that shows the promise kept, on the host's monotonic clock. Exit status 1: a promise was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from auras_ros import resources
from auras_ros.live.soak.summary import spread
from auras_ros.report.result import Report
from tests.faults import planted

Times = dict[str, list[float]]
KINDS: dict[str, Callable[[str, Path, int], Times]] = {
    "frame_hung": planted.frame_hung,
    "max_age": planted.max_age,
    "overrun": planted.overrun,
    "image_compressed": planted.image_compressed,
    "prompt_huge": planted.prompt_huge,
}
LIMITS_MS = {"frame_hung found": 1000.0, "frame_hung hold": 1150.0, "prompt_huge refused": 10.0}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.measure", description=__doc__)
    parser.add_argument("--only", default=",".join(KINDS), help=f"kinds, of {', '.join(KINDS)}")
    parser.add_argument("-n", type=int, default=20, help="faults of each kind (default 20)")
    parser.add_argument("--json", type=Path, help="write the report here")
    options = parser.parse_args(argv)
    kinds = options.only.split(",")
    if options.n < 1 or not set(kinds) <= set(KINDS):
        parser.error(f"-n must be 1 or more, --only of {', '.join(KINDS)}; got {options.n}, {options.only}")
    found = measure(kinds, options.n)
    if options.json:
        found.write(options.json)
    return 1 if found.more["broken"] else 0


def measure(kinds: list[str], n: int, checkpoint: str = "") -> Report:
    """Each figure as it is known is a line on stdout. checkpoint: the shipped one where empty."""
    made, broken = Report("faults"), list[str]()
    folder = checkpoint or str(resources.checkpoint("pusht"))
    for kind in kinds:
        with tempfile.TemporaryDirectory(prefix="auras_faults_") as scratch:
            times: Times = defaultdict(list, KINDS[kind](folder, Path(scratch), n))
        for what, values in times.items():
            name, figures = f"{kind} {what}", spread(values)
            made.rows += [{"kind": kind, "to": what, "ms": value} for value in values]
            made.summary |= {f"{name}_{key}".replace(" ", "_"): figure for key, figure in figures.items()}
            print(json.dumps({"fault": name, **figures}), flush=True)
            if figures["n"] and figures["max"] > LIMITS_MS.get(name, float("inf")):
                broken.append(f"{name}: {figures['max']:.1f} ms, promised within {LIMITS_MS[name]:g}")
    made.more = {"limits_ms": LIMITS_MS, "broken": broken}
    print("\n".join(broken) or "no promise broken", flush=True)
    return made


if __name__ == "__main__":
    sys.exit(main())
