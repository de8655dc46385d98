"""`auras trace`: run a plan live for a few seconds and show where its stages ran, as a Chrome trace and a picture."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from auras_ros import resources
from auras_ros.cli.command import command_parser, print_errors
from auras_ros.cli.outputs import check_outputs, make_folder, written

TRACE, PICTURE = "trace.json", "timeline.png"
DEFAULT_PLAN = "ddpm100,mode=auras,pp_generation=8"
EXAMPLE = f"""
examples
  auras trace --out out/trace                                    the small diffusion policy, {DEFAULT_PLAN}
  auras trace --plan ddpm100,mode=par,concurrency=2 --out out/par    requests side by side instead
  auras trace --checkpoint pusht --plan quick --out out/pusht    a trained policy

Files in OUT: trace.json (open it in ui.perfetto.dev or chrome://tracing) and timeline.png. Observations are random and
always available. A registered policy has random weights; its generation plan is ddpmN or ddimN, with N steps.
"""


def run(argv: list[str]) -> int:
    parser = command_parser("trace", __doc__, EXAMPLE)
    parser.add_argument("--plan", default=DEFAULT_PLAN, help=f"what to run (default: {DEFAULT_PLAN})")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--policy", default="dp-small", help="a registered architecture (default: dp-small)")
    which.add_argument("--checkpoint", help="a checkpoint: the name of a shipped one, or a folder")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to run after the first chunk (default: 3)")
    parser.add_argument(
        "--device", default="auto", choices=("auto", "cpu", "cuda"), help="default: a GPU if there is one"
    )
    parser.add_argument("--dtype", metavar="TYPE", help="type of a checkpoint's weights, as the agent's `dtype` (auto)")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads of each worker (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, noise and observations (default: 0)")
    parser.add_argument("--out", type=Path, required=True, help="folder for trace.json and timeline.png")
    options = parser.parse_args(argv)
    if not options.seconds > 0 or options.threads < 1:
        parser.error("--seconds must be above 0 and --threads at least 1")
    if options.dtype and options.checkpoint is None:
        parser.error("--dtype: only with --checkpoint")
    return _trace(options, parser)


def _trace(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from auras_ros.measure import trace
    from auras_ros.pipeline.plan import Plan

    try:
        plan = Plan.parse(options.plan)
        if options.checkpoint is None:
            setup = trace.from_registry(options.policy, plan, options.seed)
        else:
            folder, dtype = resources.checkpoint(options.checkpoint), options.dtype or "auto"
            setup = trace.from_checkpoint(folder, plan, options.seed, options.device, dtype)
    except (ValueError, FileNotFoundError) as error:  # such as PlanError and CheckpointError
        print_errors(error)
        return 2
    importlib.import_module("matplotlib")  # checked, like the folder, before measuring
    make_folder(parser, "--out", options.out)
    for name in (TRACE, PICTURE):
        check_outputs(parser, {"--out": options.out / name})
    print(f"{setup.name}, plan {plan}: warming up, then {options.seconds:g} s after its first chunk ...", flush=True)
    traced = trace.record(setup, options.device, options.seconds, options.seed, options.threads)
    print(traced.summary())
    written(options.out / TRACE, traced.write_trace)
    written(options.out / PICTURE, traced.write_picture)
    return 0
