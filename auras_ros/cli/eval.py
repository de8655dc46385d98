"""`auras eval`: compare schedules by success, mode against mode on the same seeds, in lockstep with a simulator."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auras_ros import resources
from auras_ros.cli.outputs import check_outputs
from auras_ros.cli.progress import Progress

if TYPE_CHECKING:
    from auras_ros.evaluate.durations import Duration
    from auras_ros.evaluate.parts import Part
    from auras_ros.evaluate.settings import Settings
    from auras_ros.pipeline.load import Checkpoint

INTERRUPTED = 130
EXAMPLE = """
clocks
  paused   the world waits for each frame, then moves --frame-steps control steps: frames of all modes are equal
  charged  the world moves on while a frame is computed, for each mode's measured (or given) duration

example
  auras eval --sim pusht --episodes 20 --plan quick,pp_generation=4
  auras eval --sim pusht-drift --episodes 400 --plan ddpm100,pp_generation=8,alpha=0.5 --json eval.json --out out
  auras eval ... --seed 400 --episodes 400 --durations eval.json --json more.json     400 more seeds, same durations
  auras eval --merge eval.json more.json --json all.json
"""


def run(argv: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    check_outputs(parser, {"--json": options.json})
    if options.out:
        importlib.import_module("matplotlib")  # it draws there
        options.out.mkdir(parents=True, exist_ok=True)
    part, whole = (_merged(options), True) if options.merge else _played(options, parser)
    if part is None:
        print("interrupted before the first group of seeds was done: nothing to show")
        return INTERRUPTED
    _show(part, options)
    return 0 if whole else INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="auras eval", description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    play = parser.add_argument_group("what is played")
    play.add_argument("--sim", default="pusht", help="pusht, or pusht-drift: the tee moves by itself")
    play.add_argument("--checkpoint", default="pusht", help="folder, or the name of one that ships (pusht)")
    play.add_argument(
        "--plan",
        default="",
        metavar="PLAN",
        help="of auras, e.g. ddpm100,pp_generation=8,alpha=0.5 (the first)",
    )
    play.add_argument("--pp-generation", type=int, metavar="N", help="the same as pp_generation=N in the plan")
    play.add_argument("--modes", default="seq,dec,par,auras", help="par is shown plain and aligned")
    play.add_argument("--clock", default="paused,charged", help="paused, charged or both")
    play.add_argument("--episodes", type=int, default=100, metavar="N", help="seeds --seed to --seed + N - 1 (100)")
    play.add_argument("--seed", type=int, default=0, metavar="S", help="the first episode's")
    play.add_argument("--workers", type=int, default=2, metavar="N", help="of par (2)")
    play.add_argument("--frame-steps", type=int, default=4, metavar="N", help="control steps of a paused frame (4)")
    play.add_argument("--max-steps", type=int, default=300, metavar="N", help="control steps of an episode (300)")
    play.add_argument("--drift-px", type=float, metavar="PX", help="drift each control step (pusht-drift: 0.5)")
    play.add_argument("--wait-for-first", action="store_true", help="the table stands still until the first chunk")
    play.add_argument(
        "--durations", metavar="FILE|LIST", help="an earlier --json, or seq=0.36,auras=0.08,...: do not measure"
    )
    play.add_argument(
        "--device",
        default="cpu",
        choices=("cpu", "cuda"),
        help="where durations are measured: the agent's `device` (cpu)",
    )
    play.add_argument("--dtype", default="auto", metavar="TYPE", help="of the weights: the agent's `dtype` (auto)")
    play.add_argument(
        "--batch", type=int, metavar="N", help="episodes that are stepped together (a quarter of them, at most 64)"
    )
    parser.add_argument("--merge", nargs="+", type=Path, metavar="JSON", help="play nothing: join these parts")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--out", type=Path, help="write the picture eval.png into this folder")
    return parser


def _merged(options: argparse.Namespace) -> Part:
    from auras_ros.evaluate.parts import Part, merge

    return merge([Part.load(path) for path in options.merge])


def _played(options: argparse.Namespace, parser: argparse.ArgumentParser) -> tuple[Part | None, bool]:
    """What was played, None if no group was done; and whether it is all that was asked for."""
    batch = min(64, -(-options.episodes // 4)) if options.batch is None else options.batch
    if options.episodes < 1 or options.seed < 0 or batch < 1:
        parser.error("--episodes and --batch must be at least 1 and --seed must not be negative")
    from auras_ros.evaluate.campaign import Campaign
    from auras_ros.evaluate.parts import Part
    from auras_ros.evaluate.settings import SettingsError, check_seeds, plan_named
    from auras_ros.pipeline.load import CheckpointError, PlanError, check_plan, load
    from auras_ros.sim import pusht

    pusht.check()
    try:
        check_seeds(range(options.seed, options.seed + options.episodes))
        settings = _settings(options)
        given = _given(options.durations, replace(settings, plan=plan_named(settings.plan, "")))
        if given is not None:
            settings.charging(_seconds(given))
    except (SettingsError, PlanError) as error:
        parser.error(str(error))
    checkpoint = load(resources.checkpoint(options.checkpoint), options.dtype)
    plan = plan_named(settings.plan, checkpoint.first_plan)
    settings = replace(settings, checkpoint=f"{checkpoint.name}@{checkpoint.digest[:12]}", plan=plan)
    try:
        for contender in settings.contenders():
            check_plan(checkpoint.policy(contender.plan.generation), contender.plan)
        _given(options.durations, settings)
    except (CheckpointError, SettingsError, PlanError) as error:
        parser.error(str(error))
    progress = Progress()
    try:
        durations = _measured(checkpoint, settings, progress.say) if given is None else given
        settings = settings.charging(_seconds(durations))
        campaign = Campaign(checkpoint, settings, batch, progress.say)
        whole = campaign.run(range(options.seed, options.seed + options.episodes))
    finally:
        progress.done()
    kept = {key: durations[key] for key in settings.durations_s}
    return (Part(settings, campaign.outcomes, kept, partial=not whole) if campaign.seeds else None), whole


def _settings(options: argparse.Namespace) -> Settings:
    """Raises SettingsError or PlanError, naming what is wrong."""
    from auras_ros.evaluate.settings import SIMS, Settings

    plan = options.plan if options.pp_generation is None else f"{options.plan},pp_generation={options.pp_generation}"
    return Settings(
        checkpoint="",
        plan=plan,
        sim=options.sim,
        drift_px=SIMS.get(options.sim, 0.0) if options.drift_px is None else options.drift_px,
        max_steps=options.max_steps,
        waits=options.wait_for_first,
        modes=tuple(options.modes.split(",")),
        clocks=tuple(options.clock.split(",")),
        workers=options.workers,
        frame_steps=options.frame_steps,
        device=options.device,
        dtype=options.dtype,
    )


def _measured(checkpoint: Checkpoint, settings: Settings, say: Callable[[str], None]) -> dict[str, Duration]:
    """Of the modes that are compared, with observations as often as the simulator gives them."""
    from auras_ros.evaluate.durations import measure_durations

    if "charged" not in settings.clocks:
        return {}
    plans = {contender.plan.mode: contender.plan for contender in settings.contenders()}
    return measure_durations(
        checkpoint, plans, observation_ms=checkpoint.contract.dt_ms, say=say, device=settings.device
    )


def _given(text: str | None, settings: Settings) -> dict[str, Duration] | None:
    """Durations from a list or a file; None if none are given. Raises OSError, or SettingsError where the file cannot
    be read or was measured with another plan, number of workers or checkpoint (once that is known).
    """
    from auras_ros.evaluate.durations import Duration
    from auras_ros.evaluate.settings import SettingsError, parse_durations

    if text is None:
        return None
    if "=" in text:
        return {key: Duration(seconds) for key, seconds in parse_durations(text).items()}
    if not Path(text).is_file():
        raise SettingsError(f"durations: no file {text}")
    try:
        report = json.loads(Path(text).read_text())
        measured = {"device": "cpu", "dtype": "auto", **report["settings"]}  # reports of before there was a choice
        for name in ("plan", "workers", "checkpoint", "device", "dtype"):
            mine, its = getattr(settings, name), measured[name]
            if mine != its and mine != "":
                raise SettingsError(f"durations: {text}: measured with {name} {its}, not {mine}; measure again")
        return {key: Duration(**each) for key, each in report["durations"].items()}
    except SettingsError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(f"durations: {text}: not a report of `auras eval`: {error!r}") from error


def _seconds(durations: Mapping[str, Duration]) -> dict[str, float]:
    return {key: duration.seconds for key, duration in durations.items()}


def _show(part: Part, options: argparse.Namespace) -> None:
    from auras_ros.evaluate.picture import draw
    from auras_ros.evaluate.table import table

    report, settings = part.report(), part.settings
    print(f"{settings.sim}, {settings.plan}, {len(part.seeds)} seeds{', PARTIAL' if part.partial else ''}")
    print(table(report.rows))
    if options.json:
        report.write(options.json)
        print(f"written: {options.json}")
    if options.out:
        picture = options.out / "eval.png"
        draw(report.rows, f"{settings.sim}, {settings.plan}{', partial' if part.partial else ''}", picture)
        print(f"written: {picture}")
