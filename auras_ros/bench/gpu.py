"""`make gpu PART=...`: the GPU's tests and the benches at the papers' sizes, in parts that can be resumed.

Each part is a process with a time limit and writes one JSON file; a part whose JSON exists is not run again. Nothing is
installed and no network is needed: the interpreter that runs this runs the parts. The tests compare kernels and graphs
with the CPU: if they fail no bench is run, and if they have not passed on this GPU, with these versions and sources,
the table says so.

Exit status: 0 all parts are done, or were skipped by name; 1 a part failed; 2 no GPU, or unknown part; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auras_ros.bench.gpu_parts import GROUPS, PARTS, SOURCES, digest
from auras_ros.bench.gpu_process import PartError, PartSkippedError
from auras_ros.device.cuda import require_cuda
from auras_ros.device.lane import DeviceError
from auras_ros.report.result import hardware, versions, write_whole

TESTS = "tests"
INTERRUPTED = 130
NO_JSON = "no JSON"
ELSEWHERE = "(from another GPU, other versions or other sources)"
UNTESTED = "NOT TO BE TRUSTED: the GPU's tests have not passed here: make gpu PART=tests"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join([*PARTS, *GROUPS])}")
    parser.add_argument("--out", type=Path, default=Path("out/gpu"), help="folder for the JSON files")
    parser.add_argument("--force", action="store_true", help="run parts again whose JSON exists")
    options = parser.parse_args(argv)
    if not options.parts:
        print(listing())
    unknown = [part for part in options.parts if part not in PARTS and part not in GROUPS]
    if unknown:
        print(f"make gpu: no part '{unknown[0]}'; known: {', '.join([*PARTS, *GROUPS])}", file=sys.stderr)
        return 2
    try:
        require_cuda()
    except (DeviceError, ModuleNotFoundError) as error:
        print(f"make gpu: no GPU to run on: {error}", file=sys.stderr)
        return 2 if options.parts else 0
    wanted = dict.fromkeys(name for part in options.parts for name in GROUPS.get(part, [part]))
    try:
        return run_parts(list(wanted), options.out, options.force) if wanted else 0
    except OSError as error:
        print(f"make gpu: OUT={options.out}: {error}", file=sys.stderr)
        return 1


def listing() -> str:
    lines = ["make gpu PART=NAME[,NAME...] [OUT=out/gpu] [FORCE=1] [PYTHON=.venv/bin/python]", ""]
    lines += [f"  {name:18}{part.text} (about {part.seconds} s)" for name, part in PARTS.items()]
    lines += [f"  {name:18}{', '.join(parts)}" for name, parts in GROUPS.items()]
    return "\n".join(lines)


def run_parts(names: list[str], out: Path, force: bool) -> int:
    """Run the parts that are not done yet, the tests first. A part that fails does not stop the others, but if the
    tests fail no bench is run. Prints the table. Returns 0, 1, or 130 when interrupted. Raises OSError if `out` cannot
    be written."""
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    ended: dict[str, str] = {}
    order = sorted(names, key=lambda name: name != TESTS)
    try:
        for name in order:
            if ended.get(TESTS, "").startswith("FAILED"):
                ended[name] = "not run: the tests failed"
            else:
                ended |= run_part(name, out, force)
    except KeyboardInterrupt:
        print("\n" + table(names, out, ended))
        print("make gpu: interrupted; finished parts are kept, and the same command continues", file=sys.stderr)
        return INTERRUPTED
    print("\n" + table(names, out, ended))
    return 1 if any(word.startswith("FAILED") for word in ended.values()) else 0


def run_part(name: str, out: Path, force: bool) -> dict[str, str]:
    """Run a part. Returns how it ended, if it left no JSON."""
    path = out / f"{name}.json"
    if _kept(out, name) and not force and (name != TESTS or passed_here(out)):
        print(f"{name}: {path} exists (FORCE=1 runs it again)", flush=True)
        return {}
    path.unlink(missing_ok=True)
    print(f"{name}: {PARTS[name].text} ...", flush=True)
    try:
        PARTS[name].run(path)
    except PartSkippedError as error:
        print(f"{name}: skipped: {error}", flush=True)
        return {name: f"skipped: {error}"}
    except PartError as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)
        return {name: f"FAILED: {error}"}
    kept = _kept(out, name)
    if kept is None:
        return {name: f"FAILED: {NO_JSON}"}
    write_whole(path, json.dumps({**kept, SOURCES: digest()}, indent=1) + "\n")
    return {}


def table(names: list[str], out: Path, ended: dict[str, str]) -> str:
    """A line for each part with its main figures; at the end whether they can be trusted."""
    lines, here = [], _here()
    for name in names:
        if name in ended:
            lines.append(f"{name:18}{ended[name]}")
            continue
        kept = _kept(out, name)
        if kept is None:
            lines.append(f"{name:18}{NO_JSON}")
            continue
        shown = PARTS[name].judged(kept["summary"])
        lines.append(f"{name:18}" + "  ".join(shown if _origin(kept) == here else [ELSEWHERE, *shown]))
    return "\n".join(lines if passed_here(out) else [*lines, UNTESTED])


def passed_here(out: Path) -> bool:
    """Whether the GPU's tests have passed on this GPU, with these versions and these sources."""
    kept = _kept(out, TESTS)
    if kept is None:
        return False
    passed = kept["summary"].get("passed") and not kept["summary"].get("failed")
    return bool(passed) and _origin(kept) == _here()


def _kept(out: Path, name: str) -> dict[str, Any] | None:
    """A part's report; None if there is none, or if the file is invalid (the part is then run again)."""
    try:
        kept = json.loads((out / f"{name}.json").read_text(encoding="utf-8"))
        return {**kept, "summary": dict(kept["summary"])} if _origin(kept) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _origin(kept: Mapping[str, Any]) -> tuple[Any, ...]:
    """GPU, versions and sources of a part's JSON."""
    return kept["hardware"]["gpu"], kept["versions"], kept.get(SOURCES)


def _here() -> tuple[Any, ...]:
    return hardware()["gpu"], versions(), digest()


if __name__ == "__main__":
    sys.exit(main())
