"""What swapped layers cost whole requests (Nova table VI, serving): Nova on a virtual clock with the paper's A6000,
whose vision stage takes as much longer as the swapped tower was measured to take here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from auras_ros.bench.nova import a6000
from auras_ros.bench.nova.contenders import Contender, DeviceSetup
from auras_ros.bench.nova.runs import RunJob, poisson, running
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.report.statistics import student

RATE_HZ = 0.7  # not given; there table V's processing and queueing, with 50 tokens, make the 11.96 s of table VI
REQUESTS, SEEDS = 500, 10
FIGURES = ("mean_e2e_s", "max_e2e_s")
PAPER = {  # table VI, A6000: mean and maximum E2E, s
    "resident": (11.96, 21.94),
    "swap-2": (11.85, 21.83),
    "swap-3": (12.35, 22.62),
    "swap-4": (12.21, 22.39),
    "swap-5": (12.20, 22.37),
}


def serving_rows(
    overheads: dict[str, float], processes: int, end_s: float, seed: int, requests: int = REQUESTS, seeds: int = SEEDS
) -> list[dict[str, Any]]:
    """overheads: of a forward of the tower, by side. Of each side the mean over traces of its E2E over the resident
    side's, with its 95 % interval, and the paper's ratio. Raises OverError after end_s."""
    profile = a6000.profile()
    sides = {"resident": profile} | {side: slower(profile, 1 + share) for side, share in overheads.items()}
    jobs = [
        RunJob(DeviceSetup(own, a6000.TBT_BOUND_MS), Contender("nova"), poisson(RATE_HZ, requests, seed + number))
        for number in range(seeds)
        for own in sides.values()
    ]
    with running(processes) as run_all:
        runs = run_all(jobs, end_s)
    of = {side: runs[place :: len(sides)] for place, side in enumerate(sides)}
    rows = []
    for side in overheads:
        row: dict[str, Any] = {"side": side, "measure": "serving", "rate": RATE_HZ, "n": seeds, "cores": processes}
        for place, name in enumerate(FIGURES):
            ratios = [own[name] / its[name] for own, its in zip(of[side], of["resident"], strict=True)]
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), student(ratios), strict=True))
            if side in PAPER:
                row[f"paper_{name}"] = PAPER[side][place] / PAPER["resident"][place]
        rows.append(row)
    return rows


def slower(profile: StageProfile, factor: float) -> StageProfile:
    """With a vision stage that takes so many times as long, alone and beside decode."""

    def times(own: CorunTimes) -> CorunTimes:
        return replace(own, vision=own.vision * factor)

    corun: dict[int, CorunTimes] = {size: times(own) for size, own in profile.corun.items()}
    return replace(profile, vision=profile.vision * factor, corun=corun, shared=times(profile.shared))
