"""`auras train`: demonstrations or scenes, training, evaluation, checkpoint. An interrupted run can be continued."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from auras_ros.cli.command import command_parser, refused_settings
from auras_ros.cli.progress import Progress
from auras_ros.sim.robosuite.world import MOST_CAMERAS

EXAMPLE = """
example
  auras train pusht --out my_policy                     about 100 minutes on one core (figures: docs/pusht-policy.md)
  auras train pusht --out checkpoints/pusht --evaluate quick   only count successes, 200 seeded episodes
  auras train pusht-tokens --work my_policy.work --out my_tokens   the autoregressive one, with the same demonstrations
  auras train pusht --work my_policy.work --out my_160 --denoising-steps 160   the same with another number of steps
  auras train pusht-vlm --out my_vlm                    a small vision-language model about Push-T (docs/pusht-vlm.md)
  auras train pusht-vlm --out checkpoints/pusht-vlm --evaluate   only ask it held-out questions
  auras train pusht-monitor --out my_monitors           two adapters of it with task heads, which watch a table
  auras train pusht-detector --out my_detector          one that finds what is in the way, which the model cannot
  auras train lift --out my_lift                        for robosuite's Lift (docs/lift-policy.md)
  auras train lift --cameras 1 --out my_lift            the same with one camera, of which every step draws less
  auras train pusht --smoke --out try                   a minute: a test run that learns nothing
  auras run config/pusht.yaml                           then set `checkpoint: ./my_policy` for agent and actuator
"""


def run(argv: list[str]) -> int:
    parser = command_parser("train", __doc__, EXAMPLE)
    parser.add_argument(
        "policy",
        choices=["pusht", "pusht-tokens", "lift", "lift-flow", *VLMS],
        help="what to train: a diffusion policy, an autoregressive one, one of diffusion or of flow matching for "
        "Lift, a vision-language model, or adapters of it",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--work", type=Path, help="folder for demonstrations and stages (default: OUT.work)")
    parser.add_argument("--seed", type=int, default=0, help="seed of demonstrations, weights and batches")
    parser.add_argument(
        "--episodes", type=int, help="evaluation episodes in seq, seeds 0, 1, ... (200; with --smoke 2)"
    )
    parser.add_argument(
        "--questions", type=int, help=f"{', '.join(VLMS)}: evaluation questions of each type (500; with --smoke 10)"
    )
    parser.add_argument(
        "--evaluate",
        metavar="PLAN",
        nargs="?",
        const="",
        help=f"do not train; evaluate this plan of the checkpoint OUT ({', '.join(VLMS)}: without one)",
    )
    parser.add_argument(
        "--denoising-steps",
        type=int,
        default=100,
        help="pusht, lift: number of noise levels in training, and steps of its DDPM plan (100, as the shipped one)",
    )
    parser.add_argument("--cameras", type=int, help="lift, lift-flow: how many of Lift's cameras the policy sees (2)")
    parser.add_argument("--smoke", action="store_true", help="a test run with very little data and training")
    options = parser.parse_args(argv)
    episodes = options.episodes if options.episodes is not None else (2 if options.smoke else 200)
    if options.seed < 0 or episodes < 1:
        parser.error("--seed must not be negative and --episodes must be at least 1")
    more: dict[str, Any] = {}
    if options.denoising_steps != 100:
        if options.policy not in DENOISING or not 8 <= options.denoising_steps <= 1000:
            parser.error("--denoising-steps must be a whole number in [8, 1000], and only for pusht and lift")
        more = {"noise_levels": options.denoising_steps}
    if options.cameras is not None and (options.policy not in CAMERAS or not 1 <= options.cameras <= MOST_CAMERAS):
        parser.error(f"--cameras must be a whole number in [1, {MOST_CAMERAS}], and only for lift and lift-flow")
    work = options.work or options.out.with_name(options.out.name + ".work")
    if options.policy in VLMS:
        questions = options.questions if options.questions is not None else (10 if options.smoke else 500)
        if questions < 1 or options.evaluate or options.episodes is not None:
            parser.error(f"{options.policy} has neither plans nor episodes; --questions must be at least 1")
        return VLMS[options.policy](options, work, questions)
    if options.questions is not None or options.evaluate == "":
        parser.error(f"{options.policy}: --evaluate needs a plan, and --questions is for {', '.join(VLMS)}")
    from auras_ros.evaluate.settings import find_sim
    from auras_ros.train.lift_task import with_cameras
    from auras_ros.train.policies import POLICIES, evaluate, make_policy
    from auras_ros.train.task import Schedule

    task = POLICIES[options.policy][0]
    if options.cameras is not None:
        task = more["task"] = with_cameras(options.cameras)
    if options.evaluate:
        with Progress() as progress:
            result = evaluate(task.sim, options.out, options.evaluate, episodes, progress.say)
        _print(options.evaluate, result)
        return 0
    with refused_settings(parser):
        find_sim(task.sim).check()
    schedule = task.schedule
    if options.smoke:
        schedule = Schedule.smoke(schedule.drift_max)
    with Progress() as progress:
        record = make_policy(options.policy, options.out, work, options.seed, schedule, episodes, progress.say, **more)
    for name, result in record["success"].items():
        _print(name, result)
    print(f"written: {options.out}")
    return 0


def _vlm(options: argparse.Namespace, work: Path, questions: int) -> int:
    from auras_ros.train.vlm.evaluation import evaluate_vlm
    from auras_ros.train.vlm.make import make_vlm
    from auras_ros.train.vlm.stages import VlmSchedule

    schedule = VlmSchedule.smoke() if options.smoke else VlmSchedule()
    answers = _answers(options, work, questions, evaluate_vlm, make_vlm, schedule)
    for name, row in answers.items():
        interval = f"{row['low']:.1%} to {row['high']:.1%} at 95 %"
        others = f"with other pictures {row['shuffled']:.1%}, by chance {row['chance']:.1%}"
        print(f"{name}: {row['share']:.1%} of {row['questions']} right ({interval}); {others}")
    if options.evaluate is None:
        print(f"written: {options.out}")
    return 0


def _adapters(options: argparse.Namespace, work: Path, questions: int) -> int:
    from auras_ros.train.vlm.task_adapters import TaskSchedule, evaluate_adapters, make_adapters

    schedule = TaskSchedule.smoke() if options.smoke else TaskSchedule()
    evaluate, make = partial(evaluate_adapters, options.policy), partial(make_adapters, options.policy)
    answers = _answers(options, work, questions, evaluate, make, schedule)
    for name, row in answers.items():
        for who in ("head", "words"):
            share = row[who]
            interval = f"{share['low']:.1%} to {share['high']:.1%} at 95 %"
            print(f"{name}, {who}: {share['success']:.1%} of {share['episodes']} right ({interval})")
    if options.evaluate is None:
        print(f"written: {options.out}")
    return 0


def _answers(
    options: argparse.Namespace, work: Path, questions: int, evaluate: Callable[..., Any], make: Callable[..., Any],
    schedule: object,
) -> dict[str, Any]:  # fmt: skip
    """Of a model that is evaluated, or made and evaluated."""
    with Progress() as progress:
        if options.evaluate is not None:
            return dict(evaluate(options.out, questions, progress.say))
        made = make(options.out, work, options.seed, schedule, questions, progress.say)
        return dict(made["answers"])


DENOISING, CAMERAS = ("pusht", "lift"), ("lift", "lift-flow")
VLMS = {"pusht-vlm": _vlm, "pusht-monitor": _adapters, "pusht-detector": _adapters}


def _print(plan: str, result: dict[str, Any]) -> None:
    low, high = result["low"], result["high"]
    print(f"{plan}: {result['successes']}/{result['episodes']} succeed ({low:.1%} to {high:.1%} at 95 %)")
