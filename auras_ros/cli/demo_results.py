"""What comes of a demo's plays, and its files: summary, report, films, timeline."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auras_ros.cli.demo_options import DemoOptions
from auras_ros.live.referee.answers import TableAnswers
from auras_ros.live.referee.measures import Measures
from auras_ros.live.referee.referee import Referee
from auras_ros.live.referee.summary import figures, table
from auras_ros.live.referee.video import side_by_side
from auras_ros.measure.cores import available
from auras_ros.pipeline.plan import Plan
from auras_ros.report.result import Report
from auras_ros.sim.world import Sim

ASKED = "vlm"  # played like `auras`, with questions to the vision-language model beside it
KEPT_UP = 0.98  # of the world's control steps


@dataclass(frozen=True)
class DemoResult:
    """What came of a play. referee: None if it never began. film: its file and each seed's frames, or None. error: why
    it ended early, or "". answers: of the vision-language model, if it was asked."""

    name: str
    title: str
    plan: Plan
    sim: Sim
    referee: Referee | None
    measures: Measures
    deadline_ms: float
    film: tuple[Path, Mapping[int, int]] | None
    error: str
    answers: TableAnswers | None = None


def write(options: DemoOptions, plays: Sequence[DemoResult], learnt: Mapping[str, float]) -> None:
    """Write summary, report, timeline and film of the episodes so far. learnt: what was measured before them."""
    played = [(play, play.referee) for play in plays if play.referee is not None]
    if not played:
        return
    rows: list[dict[str, Any]] = []
    summary = dict(learnt)
    for play, referee in played:
        found = figures(referee, play.measures)
        print(f"\n{options.sim} over ROS 2 topics, {play.title}", flush=True)
        print(table(referee, play.measures, play.deadline_ms, play.answers), flush=True)
        if late := _too_slow(found.get("steps_per_s"), 1000.0 / play.sim.world.control_dt_ms):
            print(late, flush=True)
        extra = {
            "plan": str(play.plan),
            "sim": options.sim,
            "checkpoint": options.policy.checkpoint,
            **vars(play.sim.options),
            "scheduling": play.measures.scheduling,
            "cores": available(),
        }
        named = {"play": play.name} if play.name else {}
        rows += [{**named, **episode.row(), **extra} for episode in referee.episodes]
        found |= {} if play.answers is None else play.answers.figures()
        summary |= {f"{play.name}_{key}" if play.name else key: value for key, value in found.items()}
    kept = summary.get(f"{ASKED}_chunks_per_s", 0.0) / summary.get("auras_chunks_per_s", math.inf)
    if kept:
        summary["chunk_rate_kept"] = kept
        print(f"\n  with the questions {kept:.0%} as many chunks a second as without them", flush=True)
    report = Report("demo", rows, summary)
    written = [options.out / "demo.json"] + ([options.json] if options.json else [])
    for path in written:
        report.write(path)
    written += _film(options.out, plays)
    if _timeline({play.title: play.measures for play in plays}, options.out / "timeline.png"):
        written.append(options.out / "timeline.png")
    print(f"  {'files':<16} {', '.join(str(path) for path in [*written, options.out / 'log.txt'])}", flush=True)


def _too_slow(steps_per_s: float | None, wanted: float) -> str:
    """Said where this machine could not keep up with the world; empty if it could."""
    if steps_per_s is None or steps_per_s > KEPT_UP * wanted:
        return ""
    rates = f"{steps_per_s:.1f} of {wanted:g} control steps a second"
    return f"  {'too slow here':<16} {rates}: its time ran slower, and late actions cost less than they would"


def _film(out: Path, plays: Sequence[DemoResult]) -> list[Path]:
    """The films' files; of several plays also the one that shows them next to each other."""
    films = [play.film for play in plays if play.film is not None]
    files = [path for path, _ in films]
    if len(films) > 1 and side_by_side(films[:2], out / "demo.mp4", out / "demo.png"):
        return [out / "demo.mp4", out / "demo.png", *files]
    return files


def _timeline(plays: Mapping[str, Measures], path: Path) -> bool:
    try:
        from auras_ros.live.referee.timeline import draw_timeline
    except ModuleNotFoundError as error:
        print(f"no timeline: {error}; pip install 'auras_ros[plot]'", file=sys.stderr)
        return False
    return draw_timeline(plays, path)
