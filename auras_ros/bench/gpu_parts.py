"""The parts of `make gpu`: the GPU's tests first, then the benches at the papers' sizes.

Each part is one command of under eight minutes. `seconds` is estimated for one H200, not measured, from a
bench's windows (plans x rounds x the longer of --seconds and four chunks), captures (three warm-up runs and one
capture of each stage at 10 us a kernel), and the drawing of weights (on the GPU where they are 7 B: a host takes a
minute). A chunk's time is estimated from 50 TFLOP/s in float32, 600 in bfloat16, and 4 TB/s of weights read.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from auras_ros.bench.gpu_process import LIMIT_S, ROOT, PartError, PartSkippedError, call
from auras_ros.report.result import Report

CLI = (sys.executable, "-m", "auras_ros.cli.main")
NOTHING_COLLECTED = 5  # pytest's exit status
SOURCES = "sources"  # key of the sources' digest in a part's JSON
SPREAD_PERCENT = 2.0  # standard deviation of output intervals over their mean
LEROBOT_PYTHON = "LEROBOT_PYTHON"  # environment variable: the interpreter of LeRobot's own environment


@dataclass(frozen=True)
class GpuPart:
    """text: what it does. run(json): does it within LIMIT_S and writes the JSON; raises PartError, or PartSkippedError
    if something that it needs is missing. shown: patterns of the summary's keys that are shown in the table. command:
    the arguments of `auras`, for parts that are benches. least, below: the project's targets for a figure on a GPU, as
    lower or upper bound."""

    text: str
    run: Callable[[Path], None]
    seconds: int = 60
    shown: tuple[str, ...] = ("*",)
    command: tuple[str, ...] = ()
    least: Mapping[str, float] = field(default_factory=dict)
    below: Mapping[str, float] = field(default_factory=dict)

    def figures(self, summary: Mapping[str, float]) -> dict[str, float]:
        return {key: value for key, value in summary.items() if any(fnmatchcase(key, each) for each in self.shown)}

    def judged(self, summary: Mapping[str, float]) -> list[str]:
        """Figures as text; those with a target say whether it was met."""
        return [f"{key} {value:.3g}{self._judged(key, value)}" for key, value in self.figures(summary).items()]

    def _judged(self, key: str, value: float) -> str:
        if key in self.least:
            return f" ({'' if value >= self.least[key] else 'MISSED: '}wanted at least {self.least[key]:g})"
        if key in self.below:
            return f" ({'' if value < self.below[key] else 'MISSED: '}wanted below {self.below[key]:g})"
        return ""


def bench(
    text: str,
    seconds: int,
    shown: str,
    *command: str,
    needs: str = "",
    more: Callable[[], list[str]] = list,
    speedup: float | None = None,
) -> GpuPart:
    """`auras bench COMMAND`. shown: patterns separated by blanks. needs: a package without which it is skipped; more:
    returns further options, and may raise PartSkippedError. speedup: the target of auras over seq, with a spread of
    output intervals below SPREAD_PERCENT."""
    least = {} if speedup is None else {"auras_over_seq": speedup}
    below = {} if speedup is None else {"spread_percent_auras": SPREAD_PERCENT}

    def run(path: Path) -> None:
        if needs and importlib.util.find_spec(needs) is None:
            raise PartSkippedError(f"{needs} is not installed")
        code = call([*CLI, "bench", *command, *more(), "--json", str(path)], LIMIT_S)
        if code != 0:
            raise PartError(f"auras bench {command[0]} ended with status {code}")

    return GpuPart(text, run, seconds, tuple(shown.split()), command, least, below)


def gpu_tests(path: Path) -> None:
    """pytest -m gpu over the files with such tests, so that the others' imports are not needed. Each file has a process
    of its own, because after a CUDA error every later call in a process fails. Failures are in the JSON too."""
    where = importlib.machinery.PathFinder.find_spec("tests", [str(ROOT), *sys.path])
    if where is not None and where.origin is not None:
        raise PartError(f"the package at {where.origin} hides this repository's tests")
    report = Report("gpu-tests", summary={"passed": 0, "failed": 0, "skipped": 0})
    end_s = time.monotonic() + LIMIT_S
    for file in gpu_test_files():
        _run_tests(file, report, max(1.0, end_s - time.monotonic()))
    report.write(path)
    if report.summary["failed"] or not report.summary["passed"]:
        failed = [row["test"] for row in report.rows if row["outcome"] == "failed"]
        raise PartError(f"{report.summary['passed']:.0f} passed, {len(failed)} failed: {', '.join(failed)}")


def gpu_test_files() -> list[Path]:
    return [file for file in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in file.read_text("utf-8")]


def _run_tests(file: Path, report: Report, limit_s: float) -> None:
    """Add a file's results. A file that ends without any, or not in time, counts as a failure."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={results}", str(file)]
        try:
            code = call(command, limit_s)
            found = read_results(results)
            if code == NOTHING_COLLECTED:  # the file itself was skipped, because a package is missing
                found = found or [{"test": str(file.relative_to(ROOT)), "outcome": "skipped", "seconds": 0.0}]
            elif code != 0 and not any(row["outcome"] == "failed" for row in found):
                raise PartError(f"pytest ended with status {code}")
        except PartError as error:
            found = [{"test": f"{file.relative_to(ROOT)}: {error}", "outcome": "failed", "seconds": 0.0}]
    report.rows += found
    for row in found:
        report.summary[row["outcome"]] += 1


def digest() -> str:
    """Digest of the Python sources of the package and its tests."""
    made = hashlib.sha256()
    for file in sorted(sources()):
        made.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return made.hexdigest()[:16]


def sources() -> Iterator[Path]:
    """The Python files, also in folders that are symbolic links."""
    for room in ("auras_ros", "tests"):
        for folder, _, names in os.walk(ROOT / room, followlinks=True):
            yield from (Path(folder) / name for name in names if name.endswith(".py"))


def read_results(path: Path) -> list[dict[str, Any]]:
    """One row for each test in pytest's JUnit file: passed, failed or skipped. Raises PartError without a file."""
    if not path.is_file():
        raise PartError("pytest left no results")
    rows = []
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        test = f"{case.get('classname')}::{case.get('name')}"
        rows.append({"test": test, "outcome": outcome, "seconds": float(case.get("time", 0))})
    return rows


def lerobots_python() -> list[str]:
    """The option for LeRobot's interpreter. Raises PartSkippedError if LEROBOT_PYTHON is not set."""
    if not os.environ.get(LEROBOT_PYTHON):
        raise PartSkippedError(f"{LEROBOT_PYTHON} is not set; `auras bench peers --setup DIR` makes one")
    return ["--lerobot-python", os.environ[LEROBOT_PYTHON]]


def lora_atmm(path: Path) -> None:
    """Searches the tilings of the adapters' kernels into `lora-tilings.json` beside the report, for `--lora-ways`, and
    measures with them in another process."""
    if importlib.util.find_spec("triton") is None:
        raise PartSkippedError("triton is not installed")
    table = str(path.with_name("lora-tilings.json"))
    search, measure = ("--search", table, "--minutes", "4"), ("--table", table, "--minutes", "2", "--json", str(path))
    for options, share in ((search, 0.6), (measure, 0.4)):
        code = call([*CLI, *LORA_ATMM, *options], share * LIMIT_S)
        if code != 0:
            raise PartError(f"auras bench lora-atmm {options[0]} ended with status {code}")


_CUDA = ("--device", "cuda")
LORA_ATMM = (
    "bench", "lora-atmm", *_CUDA, "--layers", "qkv-896,gate_up-896,o-2048", "--tokens", "8,64,512", "--ranks", "16,64",
    "--adapters", "4", "--rounds", "5",
)  # fmt: skip
_SIZES = (*_CUDA, "--minutes", "2.5", "--seconds", "0.5")
_ROUNDS = (*_CUDA, "--minutes", "4", "--rounds", "5")
_TEN = ("--pp-generation", "10", *_ROUNDS)
_RATES = (*_ROUNDS, "--episodes", "0")
_TOKENS = (
    "--half", "tokens,reuse", "--fetch-offset", "-1", "--tokens", "1,2,4,7,14,28,56", "--rounds", "5", "--minutes", "6",
    *_CUDA,
)  # fmt: skip
_MODES = (
    "auras_over_seq auras_10_over_seq auras_over_par auras_over_batched auras_over_dec dec_over_seq par_over_seq "
    "batched_over_seq par_concurrency"
)
_FIG11 = (
    "auras_over_seq best_par_over_seq batched_over_seq auras_over_best_par best_par_concurrency spread_percent_auras"
)
_STARTUP = "first_chunk_ms_* worker_reserved_kib_*"

PARTS: dict[str, GpuPart] = {
    # a dozen files, each of which begins with about eight seconds of imports
    "tests": GpuPart("the tests marked gpu", gpu_tests, 240, ("passed", "failed", "skipped")),
    # DP: 13,000 kernels in a chunk of 100 steps, about 40 ms; trials, then 10 rounds within 2.5 min; memory
    "pipeline-dp": bench("four modes, DP, 100 steps", 330, _MODES, "pipeline", "--policy", "dp", *_SIZES),
    "pipeline-dp-plus": bench(
        "four modes, DP-plus, 100 steps", 300, _MODES, "pipeline", "--policy", "dp-plus", "--steady", "0", *_SIZES
    ),
    "pipeline-dp-cnn": bench(
        "four modes, DP-CNN, 40 steps", 300, _MODES,
        "pipeline", "--policy", "dp-cnn", "--steps", "40", "--steady", "0", *_SIZES,
    ),
    # TinyVLA's 1.3 B weights are drawn on the host: 20 s; 10 requests of each policy, one counted
    "fig3": bench("how far phases use the GPU", 100, "utilisation_*", "fig3", *_CUDA),
    # the project's targets for auras on a GPU: DP in ten stages, one token per stage for the others
    # 7 plans x 5 rounds x 0.6 s, 16 workers captured, 40 outputs of each plan and stream
    "fig11-dp": bench("par without control, DP", 110, _FIG11, "fig11", "--policy", "dp", *_TEN, speedup=6.0),
    "fig11-dp-plus": bench("the same, DP-plus", 130, _FIG11, "fig11", "--policy", "dp-plus", *_TEN, speedup=3.3),
    # 14 GB drawn; 4 plans x 5 rounds x 0.6 s; a chunk of seq about 35 ms
    "fig11-openvla": bench(
        "the same, OpenVLA-7B", 80, _FIG11, "fig11", "--policy", "openvla-7b", *_ROUNDS, speedup=2.5
    ),
    "fig11-rt2": bench(
        "the same, RT-2 (LLaVA-1.5-7B)", 80, _FIG11, "fig11", "--policy", "llava-1.5-7b", *_ROUNDS, speedup=2.3
    ),
    # 13, 10 and 7 plans x 5 rounds x 0.6 s and their captures
    "fig12-dp": bench("rates over stages, DP", 110, "speedup_*", "fig12", "--policy", "dp", *_RATES),
    "fig12-openvla": bench(
        "rates over stages, OpenVLA-7B", 90, "speedup_*",
        "fig12", "--policy", "openvla-7b", "--pp-generation", "1,2,3,5,7", *_RATES,
    ),
    "fig13-dp": bench("rates over skew, DP", 80, "rate_*", "fig13", "--policy", "dp", *_RATES),
    # 9 sizes each; DP-plus to 1.4 B, drawn on the host; OpenVLA to 107 B (layers shared): 0.4 s a chunk of seq there
    "fig14-dp-plus": bench("module sizes, DP-plus", 180, "least_* most_*", "fig14", "--policy", "dp-plus", *_ROUNDS),
    "fig14-openvla": bench("module sizes, OpenVLA", 200, "least_* most_*", "fig14", "--policy", "openvla-7b", *_ROUNDS),
    # 8 policies drawn; at 56 tokens a chunk of seq takes 0.25 s, and 36,000 kernels are captured
    "fig15-openvla": bench(
        "action tokens, OpenVLA-7B, 256 patches", 170, "*_over_*",
        "fig15", "--model", "openvla-7b", "--prefix", "281", *_TOKENS,
    ),
    "fig15-rt2": bench(
        "action tokens, RT-2 (LLaVA-1.5-7B), 576 patches", 180, "*_over_*",
        "fig15", "--model", "llava-1.5-7b", "--prefix", "601", *_TOKENS,
    ),
    # 5 numbers of steps x 2 plans x 5 rounds x 0.6 s; DP drawn and captured for each
    "fig15-dp": bench(
        "denoising steps, DP, ten stages", 80, "*_over_*",
        "fig15", "--half", "diffusion", "--diffusion", "dp", "--stages", "10", "--steps", "5,10,20,40,100", *_ROUNDS,
    ),
    # 31 plans x 5 rounds x 0.6 s each, and their captures; float32: perception of the largest takes 60 ms
    **{
        f"fig16-{size}": bench(
            f"TinyVLA-{size.upper()} over stages", seconds, "seq_per_s_* best_over_seq_*",
            "fig16", "--models", f"tinyvla-{size}", *_ROUNDS,
        )
        for size, seconds in (("400m", 160), ("700m", 180), ("1.3b", 220))
    },
    # five executors, five first chunks of each; a process for each policy, because cuBLAS never frees its memory
    "startup-dp": bench("first chunk and memory, DP", 50, _STARTUP, "startup", "--policy", "dp", *_CUDA),
    "startup-dp-plus": bench("the same, DP-plus", 50, _STARTUP, "startup", "--policy", "dp-plus", *_CUDA),
    "startup-openvla": bench("the same, OpenVLA-7B", 70, _STARTUP, "startup", "--policy", "openvla-7b", *_CUDA),
    "startup-rt2": bench("the same, RT-2 (LLaVA-1.5-7B)", 70, _STARTUP, "startup", "--policy", "llava-1.5-7b", *_CUDA),
    # 7 parts captured; 4000 forwards of well under a millisecond
    "nova-overhead": bench(
        "Nova: changing the partition before a forward", 40, "*_us_p50 *_us_p99", "nova-overhead", *_CUDA
    ),
    # a tiny model's graphs for eight parts, 11 rounds of its forwards; 11 rounds of ten times two products, 0.3 s each
    "nova-corun": bench(
        "Nova: decode beside other stages, by split", 120, "*_gain linear_*", "nova-corun", "--minutes", "5", *_CUDA
    ),
    # 18 shapes, of one, two and three parts, 34 tilings of each; about 150 kernels are compiled, a second each
    "lora-atmm": GpuPart("tilings for adapters, searched and measured", lora_atmm, 400, ("shapes", "over_*")),
    # lockstep on the host: jumps and success do not depend on the GPU
    "seams": bench(
        "joining chunks under 200 ms of latency, on the CPU", 300, "success_*",
        "seams", "--latency-ms", "200", "--join", "switch,blend-50,ensemble,rtc", "--episodes", "4", needs="gym_pusht",
    ),
    # 28 GB in float32; three competitors x 5 rounds x 1 s
    "peers-generate": bench(
        "transformers' generate, OpenVLA's shape", 150, "*_over_*",
        "peers", "--only", "transformers", "--rounds", "5", "--minutes", "3", *_CUDA, needs="transformers",
    ),
    # compiling the U-Net may take minutes
    "peers-lerobot": bench(
        "LeRobot's DiffusionPolicy", 400, "*_over_*",
        "peers", "--only", "lerobot", "--rounds", "5", "--minutes", "2", "--limit", "300", *_CUDA, more=lerobots_python,
    ),
}  # fmt: skip
_FAMILIES = dict.fromkeys(name.partition("-")[0] for name in PARTS if "-" in name)
GROUPS = {
    **{family: [name for name in PARTS if name.startswith(f"{family}-")] for family in _FAMILIES},
    "figures": [name for name in PARTS if name.startswith("fig")],
    "all": list(PARTS),
}
