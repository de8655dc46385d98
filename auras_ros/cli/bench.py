"""`auras bench NAME`: measure this machine. Each figure comes with its command, hardware, versions and N."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from auras_ros.cli.progress import Progress
from auras_ros.evaluate.report import Report

INTERRUPTED = 130
BENCHES = {
    "ros": "image latency between two processes; the actuator's interval error beside inference, with and without FIFO",
    "fig15": "auras over seq with the number of action tokens, autoregressive",
    "pipeline": "chunks per second of the modes seq, dec, par and auras, side by side",
}
EXAMPLE = """
example
  auras bench ros                          prints the figures
  auras bench ros --json ros.json          and writes them
  auras bench pipeline --policy dp-small   the four modes on the small diffusion policy
  auras bench pipeline --help              a bench's own options
"""


def run(argv: list[str]) -> int:
    listed = "\n".join(f"  {name:8} {text}" for name, text in BENCHES.items())
    parser = argparse.ArgumentParser(
        prog="auras bench",
        description=f"{__doc__}\n\nbenches\n{listed}",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=list(BENCHES), help="which bench")
    parser.add_argument("--json", type=Path, help="write the report here")
    if argv[:1] and argv[0] in BENCHES and not {"-h", "--help"}.isdisjoint(argv):
        importlib.import_module(f"auras_ros.bench.{argv[0]}").run(["--help"], print)  # its own options; ends here
    options, rest = parser.parse_known_args(argv)
    bench = importlib.import_module(f"auras_ros.bench.{options.name}")
    progress = Progress()
    report = bench.run(rest, progress.say)
    progress.done()
    print(bench.table(report) if hasattr(bench, "table") else _plain(report))
    if options.json:
        report.write(options.json)
        print(f"written: {options.json}")
    return INTERRUPTED if "interrupted" in report.more else 0


def _plain(report: Report) -> str:
    rows = ["  ".join(f"{key}={_short(value)}" for key, value in row.items()) for row in report.rows]
    return "\n".join([*rows, *(f"{name:34} {value:.4g}" for name, value in report.summary.items())])


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
