"""`auras bench NAME`: measure this machine. Each report has its command, hardware, versions and N."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from types import ModuleType

from auras_ros.cli.command import INTERRUPTED, command_parser, term_interrupts
from auras_ros.cli.outputs import check_outputs, written
from auras_ros.cli.progress import Progress
from auras_ros.measure.cores import unnamed
from auras_ros.report.result import Report

BENCHES = {
    "ros": "image latency between two processes; the actuator's interval error beside inference, with and without FIFO",
    "phase": "staleness over topics without and with frames in phase with the camera, on the same seeds",
    "monitor": "time from the image that shows a thing in the way to the answer and to the hold, and back to motion",
    "fig3": "how far a request's perception and generation use the device",
    "fig5": "success over the degree of parallelism, with stale observations and with the newest",
    "fig10": "the four modes: rates (as `pipeline`) and, from reports of `auras eval`, success",
    "fig11": "rate over par's concurrency, completion times under input rates, spread of output intervals",
    "fig12": "rate and success over the stages of generation and of perception",
    "fig13": "rate and success over the skew of generation's stages",
    "fig14": "speedup of auras over seq, by the sizes of perception and generation",
    "fig15": "speedup of auras over seq, by the number of action tokens and of denoising steps",
    "fig16": "rate of TinyVLA (a language model as encoder) over the stages, with either fetch_offset",
    "cohost": "the policy's rate and frames alone and beside a busy vision-language model: processes, threads, cores",
    "nova-load": "Nova, prefill first, chunked prefill and plain streams on a virtual GPU, by request rate",
    "nova-adaptive": "splits of a virtual GPU: latency against throughput, and adaptive against static ones",
    "nova-burst": "the same schedulers under bursts, and how Nova's split follows one",
    "nova-corun": "vision and prefill beside decode for each split of the device, and the profile Nova plans by",
    "nova-overhead": "what it costs to change the partition of a device before a forward",
    "lora-atmm": "low-rank products of many adapters: each shape in its quickest way, beside single ways and others",
    "startup": "time to the first chunk, cost of preparation, and memory of each worker",
    "seams": "jumps and success where one chunk follows another, for each way of joining them, under injected latency",
    "pipeline": "chunks per second of the modes seq, dec, par and auras, side by side",
    "moving-table": "success of Lift's scripted expert by the speed of the table, and with late observations",
    "nova-offload": "the vision tower's layers swapped from a file: time and memory beside the resident tower's",
    "lora-heads": "a task head's one forward beside decoding the same answer, by the prompt's length",
    "lora-swap": "two hundred adapters on disk and eight in memory: right answers, reads, what they cost",
    "lora-load": "many adapters at once by policy, S-LoRA-, Punica- and dLoRA-style serving, and vLLM, over HTTP",
    "lora-modes": "a forward of one batch merged, unmerged and mixed; two adapters in turn",
    "lora-skew": "`lora-load` by how much the most wanted adapter is",
    "lora-adapters": "`lora-load` by the number of adapters, more than memory holds, and by their rank",
    "lora-streams": "video streams in real time, by head or tokens and by policy; rounds of questions on an image",
    "lora-switch": "changing the adapter that is merged into a decoder's weights, over the time that it must take",
    "peers": "LeRobot's DiffusionPolicy and transformers' generate compared with seq and auras, on the same weights",
    "peers-vlm": "vLLM and transformers compared with `auras serve`, over HTTP: the same weights, requests and tokens",
}
FOLDERS = ("cohost", "peers", "peers-vlm", "pipeline", "seams")  # benches of several files
NOTES = {"left_out": "skipped", "disturbed": "disturbed, measure again on a quiet machine", "chose": "chose"}
EXAMPLE = """
example
  auras bench ros                          print the figures
  auras bench ros --json ros.json          and write them
  auras bench pipeline --policy dp-small   the four modes on the small diffusion policy
  auras bench pipeline --help              a bench's own options
  auras bench fig13 --json 13.json --picture 13.png   a figure of the paper, its numbers beside ours
"""


def run(argv: list[str]) -> int:
    listed = "\n".join(f"  {name:13} {text}" for name, text in BENCHES.items())
    parser = command_parser("bench", f"{__doc__}\n\nbenches\n{listed}", EXAMPLE)
    parser.add_argument("name", choices=list(BENCHES), help="which bench")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--picture", type=Path, help="write a PNG here, if the bench draws one")
    if argv[:1] and argv[0] in BENCHES and not {"-h", "--help"}.isdisjoint(argv):
        _explain(*argv)
    options, rest = parser.parse_known_args(argv)
    bench = _module(options.name)
    _check_outputs(parser, options, bench)
    with term_interrupts(), Progress() as progress:
        report = bench.run(rest, progress.say)
    if "interrupted" in report.more and not report.rows:
        print("interrupted before anything was measured: nothing was written", file=sys.stderr)
        return INTERRUPTED
    if why := unnamed(report.rows):
        report.fail(options.name, why)  # rates without their number of cores cannot be compared
    print(bench.table(report) if hasattr(bench, "table") else _plain(report))
    if "interrupted" in report.more:
        print(report.more["interrupted"])
    for note, said in NOTES.items():
        for each in report.more.get(note, []):
            print(f"{said}: {each}")
    if options.json:
        written(options.json, report.write)
    if options.picture:
        try:
            written(options.picture, lambda path: bench.draw(report, path))
        except ValueError as error:  # nothing was measured that can be drawn
            report.fail("--picture", error)
    for each in report.more.get("failed", []):
        print(f"failed: {each}", file=sys.stderr)
    if "failed" in report.more:
        return 1
    return INTERRUPTED if "interrupted" in report.more else 0


def _explain(name: str, *options: str) -> None:
    """Print a bench's own options, as these ask for help, then those of all benches. Ends the process."""
    try:
        _module(name).run(list(options), print)
    finally:
        print("\noptions of every bench:\n  --json FILE, and --picture FILE if it draws one")


def _module(name: str) -> ModuleType:
    """The bench's module, which has `run`, and may have `table` and `draw`."""
    family, _, rest = name.partition("-")
    if family in ("nova", "lora"):
        return importlib.import_module(f"auras_ros.bench.{family}.{rest.replace('-', '_')}")
    folder = "figures." if name.startswith("fig") or name == "startup" else ""
    file = ".command" if name in FOLDERS else ""
    return importlib.import_module(f"auras_ros.bench.{folder}{name.replace('-', '_')}{file}")


def _check_outputs(parser: argparse.ArgumentParser, options: argparse.Namespace, bench: ModuleType) -> None:
    """Check the output files before measuring. Exits with status 2 if one is invalid."""
    check_outputs(parser, {"--json": options.json, "--picture": options.picture})
    if options.picture and not hasattr(bench, "draw"):
        parser.error(f"--picture: {options.name} draws no picture")
    if options.picture:
        kinds = importlib.import_module("matplotlib.backend_bases").FigureCanvasBase.filetypes
        if options.picture.suffix[1:] not in kinds:
            parser.error(f"--picture: {options.picture}: no such format; known: {', '.join(sorted(kinds))}")


def _plain(report: Report) -> str:
    rows = ["  ".join(f"{key}={_short(value)}" for key, value in row.items()) for row in report.rows]
    return "\n".join([*rows, *(f"{name:34} {value:.4g}" for name, value in report.summary.items())])


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
