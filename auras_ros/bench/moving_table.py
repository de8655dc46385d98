"""`auras bench moving-table`: success of Lift's scripted expert, by the speed of the table that carries the cube.

It says how fast the table of `lift-moving` may be: the highest of the speeds at which the expert succeeds in 95 of 100
episodes, whatever it does at lower ones. The expert of increments fixed it; that of positions, the same with actions as
`lift-moving` has them, shows the policies' demonstrations. With --delays the expert acts on what was some control steps
ago: what late observations cost. Nothing is drawn.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from auras_ros.bench.options import add_minutes, bench_parser, check_least, listed, refusing
from auras_ros.measure.cores import available
from auras_ros.measure.minutes import CUT, Ends, MeasureStep, OverError, run_parts
from auras_ros.report.result import Report, Say, hardware
from auras_ros.report.statistics import success_fields
from auras_ros.report.table import Column, grouped_by, in_columns
from auras_ros.sim.world import World
from auras_ros.sim.worlds import find
from auras_ros.train.demonstrations import EXPERT_STEPS
from auras_ros.train.lift_expert import LiftExpert, LiftPositionExpert

EXPERTS: Mapping[str, tuple[type[LiftExpert], str]] = {  # with the options of their world
    "increments": (LiftExpert, "absolute=false,turns=true"),
    "positions": (LiftPositionExpert, "absolute=true,turns=false"),
}
KEPT = 0.95
SPEEDS = [0.0, 0.04, 0.08, 0.12, 0.16, 0.18, 0.2, 0.22, 0.24, 0.28]
SOON_STEPS = (60, 100)  # success within so many control steps is shown too


def run(argv: list[str], progress: Say) -> Report:
    options = _options(argv)
    report = Report("moving-table", more={"seeds": options.episodes, "steps": EXPERT_STEPS})
    parts: dict[str, MeasureStep] = {
        f"{expert}, {speed:g} m/s": partial(_measure, report, options, expert, speed, progress)
        for expert in options.expert
        for speed in options.speeds
    }
    run_parts(report, options.minutes, parts)
    report.summary.update(_summary(report.rows))
    return report


def _measure(report: Report, options: argparse.Namespace, name: str, speed: float, say: Say, ends: Ends) -> None:
    expert, channels = EXPERTS[name]
    machine = {"cpu": hardware()["cpu"], "cores": available()}
    with closing(find(f"lift:objects=true,{channels},table_m_s={speed:g}").make()) as world:
        for delay in options.delays:
            say(f"{name}, {speed:g} m/s, {delay} steps late")
            row = _row(world, expert(), delay, options.episodes, ends)
            report.rows.append({"expert": name, "table_m_s": speed, "delay_steps": delay, **machine, **row})


def _row(world: World, expert: LiftExpert, delay: int, episodes: int, ends: Ends) -> dict[str, Any]:
    steps = list[int]()
    for seed in range(episodes):
        if time.monotonic() > ends.hard_s:
            raise OverError(CUT)
        steps.append(_steps(world, expert, delay, seed))
    solved = [each for each in steps if each]
    soon = {f"within_{limit}": sum(each <= limit for each in solved) / episodes for limit in SOON_STEPS}
    row = {**success_fields([bool(each) for each in steps]), **soon}
    return row | {"failed_seeds": [seed for seed, each in enumerate(steps) if not each]} | _median(solved)


def _median(solved: list[int]) -> dict[str, float]:
    return {"median_steps": median(solved)} if solved else {}


def _steps(world: World, expert: LiftExpert, delay: int, seed: int) -> int:
    """Control steps until success; 0: none."""
    states = deque[Any](maxlen=delay + 1)
    low, high = np.array([(each.low, each.high) for each in world.channels]).T
    world.reset(seed)
    expert.reset()
    for step in range(1, EXPERT_STEPS + 1):
        states.append(world.state())
        if world.step(np.clip(expert.decide(states[0]), low, high)).success:
            return step
    return 0


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The highest speed with `KEPT`, for each expert and delay."""
    found = dict[str, float]()
    for (expert, delay), group in grouped_by(rows, "expert", "delay_steps").items():
        if kept := [row["table_m_s"] for row in group if row["success"] >= KEPT]:
            found[f"{expert}_kept_m_s_delay_{delay}"] = max(kept)
    return found


def _options(argv: list[str]) -> argparse.Namespace:
    parser = bench_parser("moving-table", __doc__)
    actions = "what the expert's actions are: increments, positions, or both, with a comma (increments)"
    parser.add_argument("--expert", type=listed(str, EXPERTS), default=["increments"], help=actions)
    parser.add_argument("--speeds", type=listed(float), default=SPEEDS, help="of the table, m/s, with commas")
    parser.add_argument("--delays", type=listed(int), default=[0], help="control steps of 50 ms, with commas (0)")
    parser.add_argument("--episodes", type=int, default=100, help="of each speed and delay, seeds 0, 1, ... (100)")
    add_minutes(parser, 20.0)
    options = parser.parse_args(argv)
    check_least(parser, options, episodes=1)
    if min(options.delays) < 0:
        parser.error("--delays must not be negative")
    with refusing(parser, ValueError):
        find("lift").check()
    return options


COLUMNS: tuple[Column, ...] = (
    ("expert", "{expert}"),
    ("table m/s", "{table_m_s:g}"),
    ("late steps", "{delay_steps}"),
    ("episodes", "{episodes}"),
    ("success", "{success:.0%}"),
    ("at 95 %", "{low:.0%} to {high:.0%}"),
    *((f"in {limit} steps", f"{{within_{limit}:.0%}}") for limit in SOON_STEPS),
    ("median steps", "{median_steps:g}"),
)


def table(report: Report) -> str:
    ending = [f"{name}: {value:g}" for name, value in report.summary.items()]
    return "\n".join([*in_columns(report.rows, COLUMNS), *ending])
