"""`auras eval`: compare modes by success, on the same seeds, in lockstep with a simulator."""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from auras_ros import resources
from auras_ros.cli.command import INTERRUPTED, command_parser, refused_settings, term_interrupts
from auras_ros.cli.outputs import check_outputs, make_folder, written
from auras_ros.cli.progress import Progress
from auras_ros.cli.simulation import add_simulation_options

if TYPE_CHECKING:
    from auras_ros.evaluate.parts import EvaluationPart
    from auras_ros.evaluate.settings import EvaluationSettings
    from auras_ros.evaluate.work import Work
    from auras_ros.measure.durations import FrameDuration
    from auras_ros.policies.checkpoint import Checkpoint

PICTURE = "eval.png"
EXAMPLE = """
clocks
  paused   the world waits for each frame, then moves --frame-steps control steps: all modes have equal frames
  charged  the world moves on while a frame is computed, by each mode's measured (or given) duration

example
  auras eval --sim pusht --episodes 20 --plan quick,pp_generation=4
  auras eval --sim pusht-drift --episodes 400 --plan ddpm100,pp_generation=8,alpha=0.5 --json eval.json --out out
  auras eval --sim pusht-drift --clock charged --modes seq,auras --durations seq=0.3,auras=0.1 --jitter 0.3
  auras eval ... --seed 400 --episodes 400 --durations eval.json --json more.json     400 more seeds, same durations
  auras eval --merge eval.json more.json --json all.json
  auras eval --checkpoint pusht-tokens --actions 1 --clock paused --frame-steps 1 --modes seq,auras \\
             --plan greedy,pp_generation=2,fetch_offset=-1,emit=own     one action a chunk, as published policies

With --work FILE every completed run of a mode over a group of seeds is stored, and the same command continues from
there, also with more episodes and, on the paused clock, more modes. Ctrl-C and SIGTERM end with the results so far.
An episode whose world is lost (its process has died) is reported with the reason and counted as neither success nor
failure; the exit status is then 130, and with --work the same command plays it again.
"""


def run(argv: list[str]) -> int:
    began_s = time.monotonic()
    parser = _parser()
    options = parser.parse_args(argv)
    if options.out:
        importlib.import_module("matplotlib")  # needed for the picture
        make_folder(parser, "--out", options.out)
    picture = options.out / PICTURE if options.out else None
    check_outputs(parser, {"--json": options.json, "--work": options.work, "--out": picture})
    with term_interrupts():
        part = _merged(options.merge) if options.merge else _played(options, parser)
    if part is None:
        kept = f"; {options.work} has all completed runs" if options.work else ""
        print(f"interrupted before the first group of seeds was done: no results{kept}")
        return INTERRUPTED
    _show(part, options, {} if options.merge else {"seconds": round(time.monotonic() - began_s, 1)})
    return INTERRUPTED if part.partial and not options.merge else 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("eval", __doc__, EXAMPLE)
    play = parser.add_argument_group("what is played")
    play.add_argument("--checkpoint", help="folder, or the name of an included one (default: the world's included one)")
    play.add_argument(
        "--plan",
        default="",
        metavar="PLAN",
        help="of auras, e.g. ddpm100,pp_generation=8,alpha=0.5 (default: the checkpoint's first generation plan)",
    )
    play.add_argument("--modes", default="seq,dec,par,auras", help="modes to compare; par is shown plain and aligned")
    play.add_argument("--clock", default="paused,charged", help="paused, charged or both")
    play.add_argument("--episodes", type=int, default=100, metavar="N", help="seeds --seed to --seed + N - 1 (100)")
    play.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the first episode (0)")
    play.add_argument("--concurrency", type=int, default=2, metavar="N", help="requests of par at a time (2)")
    play.add_argument(
        "--frame-steps", type=int, metavar="N", help="control steps of a paused frame (4; 1 if a chunk is one action)"
    )
    play.add_argument("--wait-for-first", action="store_true", help="the world stands still until the first chunk")
    play.add_argument(
        "--durations", metavar="FILE|LIST", help="an earlier --json, or seq=0.36,auras=0.08,...: do not measure"
    )
    play.add_argument(
        "--jitter",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="charged: each frame takes 1 - SHARE to 1 + SHARE of its duration; a batch's first seed draws (0)",
    )
    add_simulation_options(play, "({})", device="cpu", dtype="auto")
    play.add_argument(
        "--actions",
        type=int,
        default=0,
        metavar="N",
        help="generate only N actions of a chunk (autoregressive; all); a single one is executed when it comes",
    )
    play.add_argument("--work", type=Path, metavar="FILE", help="store played episodes here, and continue from it")
    play.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help="episodes that are stepped together (a quarter of all, at most 64, 8 in processes, 1 with language)",
    )
    parser.add_argument("--merge", nargs="+", type=Path, metavar="JSON", help="play nothing, but join these reports")
    parser.add_argument("--json", type=Path, help="write the report here")
    parser.add_argument("--out", type=Path, help="write the picture eval.png into this folder")
    return parser


def _merged(paths: Sequence[Path]) -> EvaluationPart:
    from auras_ros.evaluate.parts import EvaluationPart, merge

    return merge([EvaluationPart.load(path) for path in paths])


def _played(options: argparse.Namespace, parser: argparse.ArgumentParser) -> EvaluationPart | None:
    """The result, partial if not all episodes were played; None if no group was completed."""
    if options.episodes < 1 or options.seed < 0:
        parser.error("--episodes must be at least 1 and --seed must not be negative")
    from auras_ros.cli.included import included
    from auras_ros.evaluate.campaign import Campaign
    from auras_ros.evaluate.parts import EvaluationPart
    from auras_ros.evaluate.settings import batch_of, check_fit, check_seeds, find_sim, plan_named
    from auras_ros.evaluate.shortened import shortened
    from auras_ros.evaluate.work import Work
    from auras_ros.pipeline.modes import check_plan
    from auras_ros.policies.loaders.open import load

    with refused_settings(parser):
        check_seeds(range(options.seed, options.seed + options.episodes))
        settings = _settings(options)
        given = _given(options.durations, replace(settings, plan=plan_named(settings.plan, "")))
        if given is not None:
            settings.charging(_seconds(given))
        find_sim(settings.sim).check()
        options.checkpoint = options.checkpoint or included(find_sim(settings.sim))
        batch = batch_of(settings.sim, options.batch, min(64, -(-options.episodes // 4)))
    checkpoint = load(resources.checkpoint(options.checkpoint), options.dtype)
    plan = plan_named(settings.plan, checkpoint.first_plan)
    settings = replace(settings, checkpoint=f"{checkpoint.name}@{checkpoint.digest[:12]}", plan=plan)
    if checkpoint.horizon == 1:  # one action for each control step, with nothing to align
        settings = replace(settings, actions=1, frame_steps=options.frame_steps or 1)
    with refused_settings(parser):
        check_fit(checkpoint, options.checkpoint, settings.sim)
        checkpoint = shortened(checkpoint, settings.actions)
        for contender in settings.contenders():
            check_plan(checkpoint.policy(contender.plan.generation), contender.plan)
        given = _given(options.durations, settings)
        work = Work.open(settings, options.work)
        given = _agreed(given, work, options)
    with Progress() as progress:
        durations = _measured(checkpoint, settings, progress.say) if given is None else given
        settings = settings.charging(_seconds(durations))
        work.durations = {**(work.durations or {}), **durations}
        work.save()
        if options.batch is None and checkpoint.language is not None:
            batch = 1  # each episode may have its own instruction
        campaign = Campaign(checkpoint, settings, batch, progress.say, work)
        whole = campaign.run(range(options.seed, options.seed + options.episodes))
    kept = {key: durations[key] for key in settings.durations_s}
    lost = any(outcome.lost for outcome in campaign.outcomes.values())
    return EvaluationPart(settings, campaign.outcomes, kept, partial=lost or not whole) if campaign.seeds else None


def _settings(options: argparse.Namespace) -> EvaluationSettings:
    """Raises SettingsError or PlanError, naming the option."""
    from auras_ros.evaluate.settings import FRAME_STEPS, EvaluationSettings, cores_for

    same = ("plan", "sim", "max_steps", "concurrency", "device", "dtype", "actions", "jitter")
    return EvaluationSettings(
        checkpoint="",
        frame_steps=FRAME_STEPS if options.frame_steps is None else options.frame_steps,
        **{name: getattr(options, name) for name in same},
        waits=options.wait_for_first,
        modes=tuple(options.modes.split(",")),
        clocks=tuple(options.clock.split(",")),
        cores=cores_for(options.cores, options.device),
    )


def _agreed(
    given: Mapping[str, FrameDuration] | None, work: Work, options: argparse.Namespace
) -> dict[str, FrameDuration] | None:
    """The durations to charge: those of the work file, so that all its episodes are charged alike. Raises SettingsError
    if other durations are given."""
    from auras_ros.evaluate.settings import SettingsError

    known = work.durations or {}
    for key, duration in (given or {}).items():
        if key in known and known[key].seconds != duration.seconds:
            its, mine = known[key].seconds, duration.seconds
            raise SettingsError(
                f"{options.work}: was charged {its:g} s for {key}, not {mine:g}; use another --work file"
            )
    return {**known, **(given or {})} or None


def _measured(
    checkpoint: Checkpoint, settings: EvaluationSettings, say: Callable[[str], None]
) -> dict[str, FrameDuration]:
    """The durations of the compared modes, with observations as often as the simulator gives them."""
    from auras_ros.measure.durations import measure_durations

    if "charged" not in settings.clocks:
        return {}
    plans = {contender.plan.mode: contender.plan for contender in settings.contenders()}
    return measure_durations(
        checkpoint, plans, observation_ms=checkpoint.contract.dt_ms, say=say, device=settings.device,
        cores=settings.cores,
    )  # fmt: skip


def _given(text: str | None, settings: EvaluationSettings) -> dict[str, FrameDuration] | None:
    """Durations from a list or a file; None if none are given. Raises OSError, or SettingsError if the file is invalid
    or was measured with another plan, concurrency or checkpoint (once that is known).
    """
    from auras_ros.evaluate.parts import EvaluationPart
    from auras_ros.evaluate.settings import SettingsError, parse_durations
    from auras_ros.measure.durations import FrameDuration

    if text is None:
        return None
    if "=" in text:
        return {key: FrameDuration(seconds) for key, seconds in parse_durations(text).items()}
    if not Path(text).is_file():
        raise SettingsError(f"durations: no file {text}")
    part = EvaluationPart.load(Path(text))
    for name in ("plan", "concurrency", "checkpoint", "device", "dtype", "cores"):
        mine, its = getattr(settings, name), getattr(part.settings, name)
        if mine != its and mine != "" and its != 0:
            hint = f"measure again, or give --cores {its}" if name == "cores" else "measure again"
            raise SettingsError(f"durations: {text}: measured with {name} {its}, not {mine}; {hint}")
    return dict(part.durations)


def _seconds(durations: Mapping[str, FrameDuration]) -> dict[str, float]:
    return {key: duration.seconds for key, duration in durations.items()}


def _show(part: EvaluationPart, options: argparse.Namespace, more: Mapping[str, float]) -> None:
    """more: of the report, beside what the part says."""
    from auras_ros.evaluate.show import draw, table

    report, settings = part.report(), part.settings
    report.more.update(more)
    print(f"{settings.title}, {len(part.seeds)} seeds{', PARTIAL' if part.partial else ''}")
    print(table(report.rows))
    for (clock, name), outcome in part.outcomes.items():
        for seed, why in outcome.lost.items():
            print(f"lost, and counted as no episode: {clock} {name}, seed {seed}: {why}")
    if options.json:
        written(options.json, report.write)
    if options.out:
        title = f"{settings.title}{', partial' if part.partial else ''}"
        written(options.out / PICTURE, lambda path: draw(report.rows, title, path))
