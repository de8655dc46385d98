"""`auras bench lora-atmm`: low-rank products of many adapters, each shape in its quickest way (VaLoRA 4.3, figures 17
and 18).

    auras bench lora-atmm --search ways.json     search the table on this machine (algorithm 2)
    auras bench lora-atmm --table ways.json      measure with it, in another run
    auras bench lora-atmm --device cuda ...      both for the tilings of the GPU's kernels (`atmm_gpu`)

ATMM takes each shape's way from the table, the look-up included; beside it stands every way for all shapes, and the
operators of dLoRA (einsum), Punica and S-LoRA as a CPU can have them. Ways that join the factors of a batch's adapters
are charged for it, once for `--set-decodes` decodes and for each prefill; those systems have them ready. All compute
the same, which is checked, and take turns in interleaved rounds; a ratio is taken within a round. The ways that are
near a shape's best are measured again beside ATMM, in more and shorter rounds: one half of these names the best way and
the other half compares it with ATMM, so that it is not the one that was lucky. A shape that comes out below 0.97 of its
best is measured twice more, each time after all others, and the median of the three counts for `worst_ratio`: the
smallest of a hundred figures would be that of the worst disturbance, and these last for minutes. `first_ratio` and
`mean_ratio` are of the first ones alone. Without a table the rule decides that holds where none was searched. On a GPU
the catalogue of `kernels/lora_tilings.py` takes the place of the ways, and stands beside the rule's and the published
fixed tilings: none of that has run on a GPU yet.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from auras_ros.bench.lora import atmm_gpu
from auras_ros.bench.lora.atmm_show import NOTE, TABLE_1, draw, paper_figures, table
from auras_ros.bench.lora.atmm_summary import ATMM, best_ratio, case_rows, summary
from auras_ros.bench.lora.baselines import BASELINES
from auras_ros.bench.lora.search import in_time, search
from auras_ros.bench.lora.shapes import LAYERS, CaseRun, LoraCase, cases
from auras_ros.bench.lora.timing import CaseWindows, near_best
from auras_ros.bench.options import add_minutes, add_seed, amount, bench_parser, check_least, listed, refusing
from auras_ros.device import DeviceError
from auras_ros.kernels.lora_batch import LoraShape
from auras_ros.kernels.lora_table import FixedWay, WayChooser, WayTable
from auras_ros.kernels.lora_table_file import cpu_name, read_own_table, read_tilings, write_table
from auras_ros.kernels.lora_tilings import TilingTable
from auras_ros.kernels.lora_ways import WAYS
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import CUT, Ends, OverError, run_parts
from auras_ros.measure.window import Length
from auras_ros.report.result import Report, Say, unwritable

__all__ = ["draw", "run", "table"]
LEAST_RUNS = 4  # of a window
DOUBTED, LOOKS = 0.97, 3  # of the best: below it a shape is measured so often
OF_A_CPU: dict[str, Any] = {"ways": list(WAYS), "set_decodes": 8, "cores": 1}  # options that a GPU does not have
SEARCHED: dict[str, list[Any]] = {
    "layers": [name for name in LAYERS if name != "tiny"],
    "tokens": [2**power for power in range(11)],
    "ranks": [8, 16, 64],
    "adapters": [1, 2, 4, 8],
}
MEASURED: dict[str, list[Any]] = {
    "layers": ["o-256", "qkv-896", "down-896", "o-2048", "o-4096"],
    "tokens": [1, 4, 16, 64, 256, 1024],
    "ranks": [16, 64],
    "adapters": [1, 4, 8],
}


class Doubted(NamedTuple):
    """A shape that came out below DOUBTED. near: ways near its best; row: ATMM's; ratios: of each look."""

    near: list[str]
    row: dict[str, Any]
    ratios: list[float]


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    more = {"note": NOTE, "table_1": TABLE_1, "device": options.where, "set_decodes": options.set_decodes}
    report = Report("lora-atmm", more=more)
    if options.gpu:
        run_parts(report, options.minutes, {options.part: partial(_on_a_gpu, options, report, progress)})
    else:
        step = _search if options.search else _measure
        torch.set_num_threads(options.cores)
        with on_cores(options.cores), torch.inference_mode():
            run_parts(report, options.minutes, {options.part: partial(step, options, report, progress)})
    if not options.search:
        report.more["paper"] = paper_figures(report.summary)
    return report


def _options(argv: list[str]) -> argparse.Namespace:
    parser = bench_parser("lora-atmm", __doc__)
    parser.add_argument("--search", type=Path, metavar="FILE", help="search, and write the table here")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure with the table of this file")
    known = [name for name in LAYERS if name != "tiny"]
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="default: cpu")
    parser.add_argument("--layers", type=listed(str, LAYERS), help=f"some of {', '.join(known)}")
    for name, kind in (("tokens", "rows of a batch"), ("ranks", "the largest"), ("adapters", "of a batch")):
        default = f"search: {_short(SEARCHED[name])}; else {_short(MEASURED[name])}"
        parser.add_argument(f"--{name}", type=listed(int), help=f"{kind} ({default})")
    known_ways = f"the search chooses among ({','.join(WAYS)})"
    parser.add_argument("--ways", type=listed(str, WAYS), help=known_ways)
    stays = "decodes that a set of adapters stays for: the time of joining them is divided by it (8)"
    parser.add_argument("--set-decodes", type=int, help=stays)
    parser.add_argument("--cores", type=int, help="and threads of torch (1)")
    parser.add_argument("--memory-mib", type=int, default=512, help="shapes that take more are left out (512)")
    parser.add_argument("--rounds", type=int, help="interleaved rounds of each shape (search: 9; else 12)")
    parser.add_argument("--seconds", type=amount, default=0.01, help="least seconds of a window (0.01)")
    add_minutes(parser, 30.0)
    add_seed(parser)
    options = parser.parse_args(argv)
    if options.search and options.table:
        parser.error("--search and --table: one of them; what is measured must not be what the table was made from")
    for option, values in (SEARCHED if options.search else MEASURED).items():
        setattr(options, option, getattr(options, option) or values)
    _check_device(parser, options)
    options.rounds = options.rounds or (9 if options.search else 12)
    check_least(parser, options, rounds=2, cores=1, set_decodes=1, memory_mib=1, seed=0)
    if bad := [each for each in [*options.tokens, *options.ranks, *options.adapters] if each < 1]:
        parser.error(f"--tokens, --ranks, --adapters: must be at least 1, got {bad[0]}")
    if options.cores > available():
        parser.error(f"--cores: from 1 to the {available()} of this process, got {options.cores}")
    if options.search and (why := unwritable(options.search)):
        parser.error(f"--search: {why}")
    options.length = Length(chunks=LEAST_RUNS, seconds=options.seconds)
    with refusing(parser, ValueError, OSError, what="--table: "):
        options.chooser = _chooser(options)
    return options


def _check_device(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Fills in what depends on the device. gpu: None on a CPU; where: the name of its table; part: what is done."""
    options.gpu, options.part = None, "search" if options.search else "atmm"
    for option, default in OF_A_CPU.items():
        given = getattr(options, option)
        if options.device == "cuda" and given is not None:
            parser.error(f"--{option.replace('_', '-')}: of a CPU; a GPU has tilings for ways, and launches alone")
        setattr(options, option, default if given is None else given)
    if options.device == "cuda":
        with refusing(parser, DeviceError):
            options.gpu = atmm_gpu.this_gpu()
    options.where = options.gpu.name if options.gpu else cpu_name(options.cores)


def _short(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def _chooser(options: argparse.Namespace) -> WayTable | TilingTable:
    """Raises ValueError, also for a file that has no table of this machine: it would measure the rule."""
    if options.table is None:
        return TilingTable({}) if options.gpu else WayTable({})
    if options.gpu:
        return read_tilings(options.table, options.where)
    return WayTable(read_own_table(options.table, options.where))


def _todo(options: argparse.Namespace) -> list[LoraCase]:
    return list(cases(options.layers, options.tokens, options.ranks, options.adapters, options.memory_mib))


def _on_a_gpu(options: argparse.Namespace, report: Report, say: Say, ends: Ends) -> None:
    with closing(atmm_gpu.timer_on(options.gpu.kind)) as timer:
        if not options.search:
            atmm_gpu.measure(_todo(options), options.chooser, options.gpu, timer, options, report, say, ends)
            return
        began_s = time.monotonic()
        entries = atmm_gpu.search(_todo(options), options.gpu, timer, options, report, say, ends)
    report.summary |= {"search_s": time.monotonic() - began_s, "shapes": len(report.rows)}
    write_table(options.search, options.where, entries, search_s=report.summary["search_s"], torch=torch.__version__)


def _search(options: argparse.Namespace, report: Report, say: Say, ends: Ends) -> None:
    began_s = time.monotonic()
    entries = search(_todo(options), options, report, say, ends)
    search_s = time.monotonic() - began_s
    report.summary |= {"search_s": search_s, "shapes": len(entries), "ways": len(options.ways)}
    for way in options.ways:
        report.summary[f"shapes_{way.replace('-', '_')}"] = sum(each == way for each in entries.values())
    write_table(options.search, options.where, entries, search_s=search_s, torch=torch.__version__)


def _measure(options: argparse.Namespace, report: Report, say: Say, ends: Ends) -> None:
    contenders: dict[str, WayChooser] = {name: FixedWay(way) for name, way in {**WAYS, **BASELINES}.items()}
    contenders[ATMM] = options.chooser
    shapes, doubted = list[LoraShape](), dict[LoraCase, Doubted]()

    def ratio(run: CaseRun, near: Sequence[str]) -> float | None:
        """ATMM's rate over that of the best of these ways, in rounds of their own. None: the minutes were over."""
        windows = CaseWindows(run, contenders, options.set_decodes)
        rates = windows.contest([ATMM, *near], options, report, ends, finer=True)
        return best_ratio(rates) if ATMM in rates and len(rates) > 1 else None

    for case in in_time("atmm", _todo(options), report, say, ends):
        made = CaseRun(case, options.seed)
        windows = CaseWindows(made, contenders, options.set_decodes, BASELINES)
        names = [name for name in contenders if case.fits(name, options.memory_mib)]
        rates = windows.contest(names, options, report, ends)
        near = near_best(rates, WAYS)
        if ATMM not in rates or not near or (first := ratio(made, near)) is None:
            continue
        rows = case_rows(case, options.cores, options.chooser.name(made.shape), rates, windows.layer_us, first)
        report.rows += rows
        shapes.append(made.shape)
        if first < DOUBTED:
            (own,) = (row for row in rows if row["operator"] == ATMM)
            doubted[case] = Doubted(near, own, [first])
    if not report.rows:
        raise OverError(CUT)
    for look in range(2, LOOKS + 1):
        for case in in_time(f"atmm, look {look}", list(doubted), report, say, ends):
            each = doubted[case]
            if (again := ratio(CaseRun(case, options.seed), each.near)) is not None:
                each.ratios.append(again)
                each.row["best_ratio"] = median(each.ratios)
    report.summary |= summary(report.rows) | {"lookup_us": _lookup_us(options.chooser, shapes)}


def _lookup_us(chooser: WayTable, shapes: list[LoraShape]) -> float:
    """Of one look-up, of a shape that was seen before."""
    count = 1000
    began_ns = time.perf_counter_ns()
    for _ in range(count):
        for shape in shapes:
            chooser.choose(shape)
    return (time.perf_counter_ns() - began_ns) / 1e3 / count / len(shapes)
