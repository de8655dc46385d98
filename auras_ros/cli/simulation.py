"""Options of the commands that time plans on this machine and then play them in a simulator: eval and tune."""

from __future__ import annotations

import argparse


def add_simulation_options(
    parser: argparse._ActionsContainer, default: str, *, device: str | None, dtype: str | None
) -> None:
    """default: how the help names the defaults of device and dtype."""
    sims = "the world: pusht, pusht-drift, pusht:drift_px=0.7; others: auras list simulators"
    parser.add_argument("--sim", default="pusht", help=sims)
    parser.add_argument("--max-steps", type=int, default=300, metavar="N", help="control steps of an episode (300)")
    where = f"where frames are timed {default.format('cpu')}; episodes are played on the CPU"
    precision = "with --dtype auto in float32, even if cuda then times half precision"
    parser.add_argument("--device", default=device, choices=("cpu", "cuda"), help=f"{where}, {precision}")
    types = f"type of the weights, as the agent's `dtype` {default.format('auto')}"
    parser.add_argument("--dtype", default=dtype, metavar="TYPE", help=types)
    cores = "cores of every plan, seq too, while it is timed (1; with a GPU all)"
    parser.add_argument("--cores", type=int, metavar="N", help=cores)
