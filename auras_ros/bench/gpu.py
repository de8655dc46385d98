"""`make gpu PART=...`: the GPU's tests and the benches at the papers' sizes, in parts that can be taken up again.

Each part is a process of its own with a time limit and leaves one JSON; a part whose JSON is there is not run again.
Nothing is installed and no network is needed: the interpreter that runs this runs the parts.

Exit status: 0 all is there; 1 a part failed; 2 no GPU, or no such part.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from auras_ros.device.cuda import require_cuda
from auras_ros.device.lane import DeviceError
from auras_ros.evaluate.report import Report

LIMIT_S = 470.0  # a part
ROOT = Path(__file__).resolve().parents[2]
CLI = (sys.executable, "-m", "auras_ros.cli.main")


class PartError(RuntimeError):
    """A part that failed; the text says how."""


@dataclass(frozen=True)
class Part:
    """text: what it does. run(json): does it within LIMIT_S and leaves the JSON there, or raises PartError."""

    text: str
    run: Callable[[Path], None]


def bench(name: str, *options: str) -> Callable[[Path], None]:
    """Runs `auras bench NAME` on the GPU."""

    def run(path: Path) -> None:
        command = [*CLI, "bench", name, "--device", "cuda", *options, "--json", str(path)]
        code = call(command, LIMIT_S)
        if code != 0:
            raise PartError(f"auras bench {name} ended with status {code}")

    return run


def gpu_tests(path: Path) -> None:
    """pytest -m gpu over the files that hold such tests, so that the others' imports are not needed."""
    files = [str(file) for file in sorted((ROOT / "tests").rglob("test_*.py")) if "mark.gpu" in file.read_text("utf-8")]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", f"--junitxml={results}", *files]
        code = call(command, LIMIT_S)
        report = read_results(results)
    if code != 0 or not report.summary["passed"]:
        raise PartError(f"pytest ended with status {code}, {report.summary['passed']:.0f} passed")
    report.write(path)


def read_results(path: Path) -> Report:
    """One row a test from pytest's JUnit file; summary passed, failed, skipped. Raises PartError without a file."""
    if not path.is_file():
        raise PartError("pytest left no results")
    report = Report("gpu-tests", summary={"passed": 0, "failed": 0, "skipped": 0})
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        test = f"{case.get('classname')}::{case.get('name')}"
        report.rows.append({"test": test, "outcome": outcome, "seconds": float(case.get("time", 0))})
        report.summary[outcome] += 1
    return report


def call(command: list[str], limit_s: float) -> int:
    """The command's exit status. One that takes too long is killed with all that it started, and is a PartError."""
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        raise PartError(f"not done within {limit_s:g} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_SIZES = ("--minutes", "2.5", "--seconds", "0.5")
PARTS: dict[str, Part] = {
    "tests": Part("the tests marked gpu", gpu_tests),
    "pipeline-dp": Part("four modes, DP, 100 steps", bench("pipeline", "--policy", "dp", *_SIZES)),
    "pipeline-dp-plus": Part(
        "four modes, DP-plus, 100 steps", bench("pipeline", "--policy", "dp-plus", "--steady", "0", *_SIZES)
    ),
    "pipeline-dp-cnn": Part(
        "four modes, DP-CNN, 40 steps",
        bench("pipeline", "--policy", "dp-cnn", "--steps", "40", "--steady", "0", *_SIZES),
    ),
}
GROUPS = {
    "pipeline": [name for name in PARTS if name.startswith("pipeline-")],
    "all": list(PARTS),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join([*PARTS, *GROUPS])}")
    parser.add_argument("--out", type=Path, default=Path("out/gpu"), help="folder for the JSON files")
    parser.add_argument("--force", action="store_true", help="run a part again whose JSON is there")
    options = parser.parse_args(argv)
    if not options.parts:
        print(listing())
    unknown = [part for part in options.parts if part not in PARTS and part not in GROUPS]
    if unknown:
        print(f"make gpu: no part '{unknown[0]}'; there is {', '.join([*PARTS, *GROUPS])}", file=sys.stderr)
        return 2
    try:
        require_cuda()
    except (DeviceError, ModuleNotFoundError) as error:
        print(f"make gpu: no GPU to run on: {error}", file=sys.stderr)
        return 2
    wanted = dict.fromkeys(name for part in options.parts for name in GROUPS.get(part, [part]))
    return run_parts(list(wanted), options.out, options.force) if wanted else 0


def listing() -> str:
    lines = ["make gpu PART=NAME[,NAME...] [OUT=out/gpu] [FORCE=1] [PYTHON=.venv/bin/python]", ""]
    lines += [f"  {name:18}{part.text}" for name, part in PARTS.items()]
    lines += [f"  {name:18}{', '.join(parts)}" for name, parts in GROUPS.items()]
    return "\n".join(lines)


def run_parts(names: list[str], out: Path, force: bool) -> int:
    """Run what is not there yet, in order; one that fails does not stop the others. Prints the table; 0 or 1."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    failed: dict[str, str] = {}
    for name in names:
        path = out / f"{name}.json"
        if path.exists() and not force:
            print(f"{name}: {path} is there (FORCE=1 runs it again)", flush=True)
            continue
        path.unlink(missing_ok=True)
        print(f"{name}: {PARTS[name].text} ...", flush=True)
        try:
            PARTS[name].run(path)
        except PartError as error:
            failed[name] = str(error)
            print(f"{name}: {error}", file=sys.stderr, flush=True)
    print("\n" + table(names, out, failed))
    return 1 if failed else 0


def table(names: list[str], out: Path, failed: dict[str, str]) -> str:
    """A line a part: its figures that matter."""
    lines = []
    for name in names:
        path = out / f"{name}.json"
        if name in failed or not path.exists():
            lines.append(f"{name:18}FAILED: {failed.get(name, 'no JSON')}")
            continue
        summary = json.loads(path.read_text(encoding="utf-8"))["summary"]
        shown = {key: value for key, value in summary.items() if key in _SHOWN}
        lines.append(f"{name:18}" + "  ".join(f"{key} {value:.3g}" for key, value in shown.items()))
    return "\n".join(lines)


_SHOWN = ("passed", "failed", "skipped", "auras_over_seq", "auras_over_par", "auras_over_dec", "par_workers")

if __name__ == "__main__":
    sys.exit(main())
