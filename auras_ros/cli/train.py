"""`auras train pusht`: demonstrations, training, evaluation, checkpoint. An interrupted run can be continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from auras_ros.cli.command import command_parser
from auras_ros.cli.progress import Progress

EXAMPLE = """
example
  auras train pusht --out my_policy                     about 100 minutes on one core (figures: docs/pusht-policy.md)
  auras train pusht --out checkpoints/pusht --evaluate quick   only count successes, 200 seeded episodes
  auras train pusht-tokens --work my_policy.work --out my_tokens   the autoregressive one, with the same demonstrations
  auras train pusht --work my_policy.work --out my_160 --denoising-steps 160   the same with another number of steps
  auras train pusht --smoke --out try                   a minute: a test run that learns nothing
  auras run config/pusht.yaml                           then set `checkpoint: ./my_policy` for agent and actuator
"""


def run(argv: list[str]) -> int:
    parser = command_parser("train", __doc__, EXAMPLE)
    parser.add_argument(
        "policy", choices=["pusht", "pusht-tokens"], help="what to train: a diffusion or an autoregressive policy"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--work", type=Path, help="folder for demonstrations and stages (default: OUT.work)")
    parser.add_argument("--seed", type=int, default=0, help="seed of demonstrations, weights and batches")
    parser.add_argument(
        "--episodes", type=int, help="evaluation episodes in seq, seeds 0, 1, ... (200; with --smoke 2)"
    )
    parser.add_argument("--evaluate", metavar="PLAN", help="do not train; evaluate this plan of the checkpoint OUT")
    parser.add_argument(
        "--denoising-steps",
        type=int,
        default=100,
        help="pusht: number of noise levels in training, and steps of its DDPM plan (100, as the shipped one)",
    )
    parser.add_argument("--smoke", action="store_true", help="a test run with very little data and training")
    options = parser.parse_args(argv)
    episodes = options.episodes if options.episodes is not None else (2 if options.smoke else 200)
    if options.seed < 0 or episodes < 1:
        parser.error("--seed must not be negative and --episodes must be at least 1")
    more = {}
    if options.denoising_steps != 100:
        if options.policy != "pusht" or not 8 <= options.denoising_steps <= 1000:
            parser.error("--denoising-steps must be a whole number in [8, 1000], and only for pusht")
        more = {"noise_levels": options.denoising_steps}
    from auras_ros.train.pusht import evaluate, make_policy
    from auras_ros.train.pusht_stages import Schedule

    if options.evaluate:
        with Progress() as progress:
            result = evaluate(options.out, options.evaluate, episodes, progress.say)
        _print(options.evaluate, result)
        return 0
    work = options.work or options.out.with_name(options.out.name + ".work")
    schedule = Schedule.smoke() if options.smoke else Schedule()
    with Progress() as progress:
        record = make_policy(options.policy, options.out, work, options.seed, schedule, episodes, progress.say, **more)
    for name, result in record["success"].items():
        _print(name, result)
    print(f"written: {options.out}")
    return 0


def _print(plan: str, result: dict[str, Any]) -> None:
    low, high = result["low"], result["high"]
    print(f"{plan}: {result['successes']}/{result['episodes']} succeed ({low:.1%} to {high:.1%} at 95 %)")
