"""`auras bench nova-offload`: a vision tower whose layers are swapped, beside the resident one (Nova III-E, table VI).

Each side is a process of its own. All compute on the first core of this process; with swapped layers the thread that
reads them has the second one. Their file is read past the page cache, which is memory too. The memory of a side is its
resident set and what the page cache holds of its file. Sides alternate within a round, in random order, after all have
been checked to give the same bits.

The baselines that map a file have nothing resident while the tower waits and the page cache is cold, but all of it at
the end of a forward: mmap without prefetch, and accelerate's hooks. Neither takes oneDNN's blocks, so each is compared
with `plain`, the resident tower with the same products as theirs.

What that is for whole requests is simulated: Nova with the paper's A6000, 0.7 requests a second, a vision stage that
takes as much longer (`offload_serving`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from auras_ros.bench.nova import offload_side
from auras_ros.bench.nova.offload_serving import FIGURES, serving_rows
from auras_ros.bench.options import add_minutes, add_seed, bench_parser, check_least, listed
from auras_ros.device.weights import MB
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.report.result import Report, Say, key
from auras_ros.report.statistics import spread
from auras_ros.report.table import Column, Row, in_columns

READY_S, WINDOW_S, END_S = 180.0, 300.0, 20.0
PAPER = {  # table VI, A6000: one forward in ms, the encoder's memory in MB
    "resident": (797.2, 8595.2),
    "swap-2": (798.6, 692.1),
    "swap-3": (802.2, 821.6),
    "swap-4": (804.8, 951.1),
    "swap-5": (805.8, 1080.7),
}
MAPPED = ("mmap", "accelerate")  # measured with the page cache emptied before each forward, and not emptied
Facts = dict[str, Any]


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("nova-offload")
    parts: dict[str, MeasureStep] = {
        "nova-offload": lambda ends: _measure(report, options, ends, progress),
        "serving": lambda ends: _serve(report, options, ends, progress),
    }
    run_parts(report, options.minutes, parts)
    return report


def _options(argv: list[str]) -> argparse.Namespace:
    parser = bench_parser("nova-offload", __doc__)
    parser.add_argument("--physical", type=listed(int), default=[2, 3, 4, 5], help="physical layers (2,3,4,5)")
    parser.add_argument("--layers", type=int, default=32, help="of the tower (32)")
    parser.add_argument("--width", type=int, default=384, help="of the tower, a multiple of 64 (384)")
    parser.add_argument("--px", type=int, default=448, help="side of the image; patches have 14 (448)")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds of all sides (15)")
    parser.add_argument("--forwards", type=int, default=3, help="of a side in a round (3)")
    parser.add_argument("--requests", type=int, default=500, help="of a simulated trace (500)")
    parser.add_argument("--folder", type=Path, help="on a disk, for the files (the system's for temporary ones)")
    add_minutes(parser, 20.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    check_least(parser, options, layers=3, width=64, px=14, rounds=1, forwards=1, requests=2, seed=0)
    if not options.physical or not 2 <= min(options.physical) <= max(options.physical) < options.layers:
        parser.error(f"--physical: from 2 to {options.layers - 1}, got {options.physical}")
    if options.width % offload_side.HEAD:
        parser.error(f"--width: must be a multiple of {offload_side.HEAD}, got {options.width}")
    options.folder = options.folder or Path(tempfile.gettempdir())
    if not options.folder.is_dir():
        parser.error(f"--folder: {options.folder} is not a folder")
    options.cores = sorted(os.sched_getaffinity(0))
    if len(options.cores) < 2:
        parser.error("two cores are needed: one for the tower, one for the copies")
    return options


class SideProcess:
    """A side's process, ready. `name`: of the side in the report; a mapped one may be cold."""

    def __init__(self, side: str, options: argparse.Namespace) -> None:
        sizes = {name: getattr(options, name) for name in ("layers", "width", "px", "seed")}
        cores = {"core": options.cores[0], "copy_core": options.cores[1]}
        spec = json.dumps({"side": side, "folder": str(options.folder.resolve()), **sizes, **cores})
        self.side, command = side, [sys.executable, "-m", offload_side.__name__, spec]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            self.facts: Facts = self._read(READY_S)
        except BaseException:
            self.close()
            raise

    def times(self, count: int, cold: bool) -> Facts:
        """As `offload_side.Side.times`. Raises RuntimeError if the process ends or takes too long."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"count": count, "cold": cold}) + "\n")
        self._process.stdin.flush()
        return self._read(WINDOW_S)

    def close(self) -> None:
        try:
            self._process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _read(self, limit_s: float) -> Facts:
        assert self._process.stdout is not None
        timer = threading.Timer(limit_s, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            raise RuntimeError(f"{self.side}: its process ended with {self._process.wait()}; its error is above")
        found: Facts = json.loads(line)
        return found


def _measure(report: Report, options: argparse.Namespace, ends: Ends, say: Say) -> None:
    swapped = [f"swap-{count}" for count in options.physical]
    with ExitStack() as stack:
        sides = {}
        for side in ("resident", "plain", *swapped, *MAPPED):
            say(f"{side}: starting")
            try:
                sides[side] = SideProcess(side, options)
            except RuntimeError as error:
                if side not in MAPPED:
                    raise
                report.fail(side, error)
                continue
            stack.callback(sides[side].close)
        _check_equal(sides)
        found = _rounds(sides, options, ends, say)
    for name, windows in found.items():
        side = name.removesuffix(" cold").removesuffix(" warm")
        facts = sides[side].facts
        base = "resident" if side == "resident" or side in swapped else "plain"
        report.rows.append(side_row(name, windows, found[base], found["resident"], facts) | {"beside": base})
    for row in report.rows:
        row |= {"cores": 1, "copy_cores": int(row["side"] in swapped), "layers": options.layers, "px": options.px}
        row |= dict(zip(("paper_ms", "paper_mb"), PAPER.get(row["side"], (None, None)), strict=True))
    report.summary = summarised(report.rows)


def _serve(report: Report, options: argparse.Namespace, ends: Ends, say: Say) -> None:
    swapped = {row["side"]: row["overhead"] for row in report.rows if row["side"].startswith("swap-")}
    say(f"serving with {', '.join(swapped)}")
    report.rows += serving_rows(swapped, len(options.cores), ends.hard_s, options.seed, options.requests)
    for name in FIGURES:
        worst = max(row[name] for row in report.rows if row.get("measure") == "serving")
        report.summary[f"serving_{name.removesuffix('_s')}_over_resident"] = worst


def _check_equal(sides: Mapping[str, SideProcess]) -> None:
    """Raises RuntimeError, naming the side, where the bits differ from those of the resident tower of the same form."""
    for side, process in sides.items():
        base = "resident" if side.startswith("swap-") else "plain"
        if side not in ("resident", "plain") and process.facts["digest"] != sides[base].facts["digest"]:
            raise RuntimeError(f"{side}: its output differs from that of '{base}'")


def _rounds(
    sides: Mapping[str, SideProcess], options: argparse.Namespace, ends: Ends, say: Say
) -> dict[str, list[Facts]]:
    """Each side's windows, round by round; a mapped side has one with the page cache cold and one with it warm."""
    turns = [(side, side, False) for side in sides if side not in MAPPED]
    turns += [(f"{side} {word}", side, word == "cold") for side in sides if side in MAPPED for word in ("cold", "warm")]
    order, found = random.Random(options.seed), {name: list[Facts]() for name, _, _ in turns}
    for number in range(options.rounds):
        if number and time.monotonic() > ends.soft_s:
            break
        say(f"round {number + 1} of {options.rounds}")
        for name, side, cold in order.sample(turns, len(turns)):
            found[name].append(sides[side].times(options.forwards, cold))
    return found


def side_row(
    name: str, windows: Sequence[Facts], base: Sequence[Facts], resident: Sequence[Facts], facts: Facts
) -> dict[str, Any]:
    """overhead: over the base's forward in the same round, its median and quartiles. saved: of the tower's bytes, what
    the process and the page cache hold less than the resident side does. holds: Eq. 8 with all layers swapped."""
    ms, base_ms = ([float(np.median(each["ms"])) for each in which] for which in (windows, base))
    low, middle, high = spread((np.divide(ms, base_ms) - 1).tolist())
    memory, most = (float(np.median([_memory(each) for each in which])) for which in (windows, resident))
    row = {
        "side": name, "ms": float(np.median(ms)), "overhead": middle, "overhead_low": low, "overhead_high": high,
        "rounds": len(ms), "tower_mb": facts["tower_bytes"] / MB, "memory_mb": memory / MB,
        "page_cache_mb": max(each["cached_bytes"] for each in windows) / MB,
        "saved": (most - memory) / facts["tower_bytes"],
        "major_faults": float(np.median([each["major_faults"] for each in windows])),
    }  # fmt: skip
    if "demand" in facts:
        row |= {"link_mb_s": facts["bandwidth"] / MB, "needed_mb_s": facts["demand"] / MB, "holds": facts["holds"]}
        row["layers_resident"] = facts["layers_resident"]
    return row


def summarised(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """latency_overhead, memory_saved: the worst over the numbers of physical layers with which Eq. 8 holds; and of each
    side."""
    held = [row for row in rows if row.get("holds")]
    found = {f"latency_overhead_{key(row['side'].replace(' ', '_'))}": row["overhead"] for row in rows}
    found |= {f"memory_saved_{key(row['side'].replace(' ', '_'))}": row["saved"] for row in rows}
    for name in ("resident", "plain"):
        found = {each: value for each, value in found.items() if not each.endswith(f"_{name}")}
    if held:
        found["latency_overhead"] = max(row["overhead"] for row in held)
        found["memory_saved"] = min(row["saved"] for row in held)
    return found


def _memory(window: Facts) -> int:
    return int(window["resident_bytes"] + window["cached_bytes"])


def table(report: Report) -> str:
    measured = [row for row in report.rows if "measure" not in row]
    served = [row for row in report.rows if "measure" in row]
    return "\n\n".join("\n".join(part) for part in (_tower(measured), _serving(served)) if part)


def _serving(rows: Sequence[Row]) -> list[str]:
    columns: tuple[Column, ...] = (
        ("serving, simulated", "{side}"),
        ("mean E2E over resident", "{mean_e2e_s:.3f}"),
        ("95 %", "{mean_e2e_s_low:.3f} to {mean_e2e_s_high:.3f}"),
        ("paper", "{paper_mean_e2e_s:.3f}"),
        ("longest", "{max_e2e_s:.3f}"),
        ("95 %", "{max_e2e_s_low:.3f} to {max_e2e_s_high:.3f}"),
        ("paper", "{paper_max_e2e_s:.3f}"),
        ("n", "{n}"),
    )
    return in_columns(rows, columns) if rows else []


def _tower(rows: Sequence[Row]) -> list[str]:
    return in_columns(
        rows,
        (
            ("side", "{side}"),
            ("ms", "{ms:.1f}"),
            ("overhead", "{overhead:+.1%}"),
            ("quartiles", "{overhead_low:+.1%} to {overhead_high:+.1%}"),
            ("beside", "{beside}"),
            ("MB", "{memory_mb:.1f}"),
            ("saved", "{saved:.1%}"),
            ("link MB/s", "{link_mb_s:.0f}"),
            ("needed", "{needed_mb_s:.0f}"),
            ("page faults", "{major_faults:.0f}"),
            ("paper ms", "{paper_ms}"),
            ("paper MB", "{paper_mb}"),
        ),
    )
