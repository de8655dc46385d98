"""The options of `auras demo`, checked, and the nodes' parameters that they change."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from auras_ros.cli.command import command_parser, refused_settings
from auras_ros.cli.demo_policy import DemoPolicy
from auras_ros.cli.included import included
from auras_ros.cli.outputs import check_outputs, make_folder
from auras_ros.evaluate.fit import misfit
from auras_ros.live.referee.episode import Rules
from auras_ros.nodes.common.config import settings_of
from auras_ros.parameters import checked
from auras_ros.pipeline.plan import Plan
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import Sim
from auras_ros.sim.worlds import find

DEFAULT_SECONDS = 60.0
DEFAULT_EPISODES, OTHERS_EPISODES = 3, 8  # of Push-T, which is played three times; of others, which take less long
PLAYED, PLAYED_ALONE = "pusht-drift", "pusht"  # of several plays, of one plan
DESCRIPTION = "The complete closed loop over real topics, in any world: scored by a referee, filmed and measured."
EXAMPLE = """
examples
  auras demo                                three episodes on a moving table: sequential, as auras, and as auras
                                            while a small vision-language model is asked about the image
  auras demo --plan quick                   a minute of episodes with one plan, on a table that stands still
  auras demo --plan quick --episodes 10     ten seeded episodes, however long they take
  auras demo --plan ddpm100,mode=auras,pp_generation=4 --sim pusht-drift   100 denoising steps, pipelined
  auras demo --sim lift                     robosuite's Lift with the included policy: eight episodes sequentially, and
                                            the same as auras; auras doctor --sim lift --fix installs it
  auras demo --sim lift-moving:table_m_s=0.1 --checkpoint lift-flow --plan flow5
  auras demo --sim reach --checkpoint ./my_policy   a world and a policy of your own (docs/worlds.md)

Bridge, actuator and agent run in separate processes; this one only subscribes and calls their services. Files in OUT:
demo.mp4, timeline.png, demo.json, log.txt; of several plays also demo.png, seq.mp4, auras.mp4, of Push-T vlm.mp4.
Unless the environment is set otherwise, ROS stays on this host.
"""


@dataclass(frozen=True)
class DemoOptions:
    """The command's options, checked. plan None: several plays."""

    rules: Rules
    plan: Plan | None
    seed: int
    sim: str
    policy: DemoPolicy
    out: Path
    json: Path | None
    video: bool
    dtype: str = "auto"

    @property
    def world(self) -> Sim:
        return find(self.sim)

    @property
    def is_pusht(self) -> bool:
        """The world for which there is a vision-language model too."""
        return _is_pusht(self.world)


def parse(argv: list[str]) -> DemoOptions:
    """Exits with status 2 and one line if an option is invalid."""
    parser = _parser()
    given = parser.parse_args(argv)
    sim = given.sim or (PLAYED if given.plan is None else PLAYED_ALONE)
    with refused_settings(parser, "--sim"):
        world = find(sim)
    with refused_settings(parser):
        policy = _policy(world, given.checkpoint)
        plan = None if given.plan is None else policy.with_period(Plan.parse(given.plan))
        rules = _rules(given, world)
    if given.dtype != "auto":
        from auras_ros.checkpoints.dtype import DTYPES

        if given.dtype not in DTYPES:
            parser.error(f"--dtype: {given.dtype!r}: must be one of {', '.join(DTYPES)}")
    if given.json:
        make_folder(parser, "--out", given.out)  # because --json may be in it
        check_outputs(parser, {"--json": given.json})
    video = not given.no_video
    options = DemoOptions(rules, plan, given.seed, sim, policy, given.out, given.json, video, given.dtype)
    with refused_settings(parser):
        for node, values in overrides(options).items():
            for each in fields(settings_of(node)):
                checked(node, each, values.get(each.name, each.default))
    return options


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("demo", DESCRIPTION, EXAMPLE)
    parser.add_argument(
        "--seconds", type=float, help="begin no episode after this time (default with --plan 60; without no limit)"
    )
    parser.add_argument(
        "--episodes",
        type=int,
        help=f"end after this many finished episodes (default without --plan: {DEFAULT_EPISODES} of Push-T, "
        f"{OTHERS_EPISODES} of other worlds)",
    )
    parser.add_argument(
        "--plan",
        help="play this plan alone: quick, or ddpm100,mode=auras,alpha=0.5 (default: the same seeds sequentially, "
        "as auras, and on Push-T as auras beside a vision-language model, with as many denoising steps (100 at most) "
        "as let a sequential request take 3 to 4 control periods; policies that do not denoise: their first plan)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first episode; each next one is one higher")
    parser.add_argument(
        "--sim",
        help="the world, as lift or pusht-drift:drift_px=1: auras list simulators "
        f"(default {PLAYED_ALONE}, without --plan {PLAYED})",
    )
    parser.add_argument(
        "--checkpoint", help="folder, or the name of an included one (default: the world's included one)"
    )
    parser.add_argument("--dtype", default="auto", metavar="TYPE", help="type of the weights, as the agent's `dtype`")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the results (default: out/demo)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    parser.add_argument("--no-video", action="store_true", help="no video, and of Push-T no viewer camera")
    return parser


def _policy(world: Sim, checkpoint: str | None) -> DemoPolicy:
    """The one that is asked for, or the world's included one. Raises ValueError if it cannot play this world."""
    try:
        policy = DemoPolicy.read(checkpoint or included(world))
    except FileNotFoundError as error:
        raise ValueError(f"checkpoint: {error}") from error
    if why := misfit(policy.contract, policy.cameras, world.world):
        raise ValueError(f"checkpoint {policy.checkpoint} cannot play {world.name}: {why}")
    return policy


def _is_pusht(world: Sim) -> bool:
    return world.world.name == PushTWorld.name


def _rules(given: argparse.Namespace, world: Sim) -> Rules:
    """Raises ValueError, naming the option."""
    seconds, episodes = given.seconds, given.episodes
    if seconds is None and episodes is None and given.plan is not None:
        seconds = DEFAULT_SECONDS
    elif seconds is None and episodes is None:
        episodes = DEFAULT_EPISODES if _is_pusht(world) else OTHERS_EPISODES
    return Rules(seconds, episodes, grace_s=min(Rules.grace_s, seconds or Rules.grace_s))


def overrides(options: DemoOptions) -> dict[str, dict[str, Any]]:
    """Node -> parameters that are changed by the options."""
    world: dict[str, Any] = {"seed": options.seed, "auto_reset": False, **vars(options.world.options)}
    if not options.video:
        world["viewer_px"] = 0
    typed = {} if options.dtype == "auto" else {"dtype": options.dtype}
    planned = {} if options.plan is None else {"plan": str(options.plan)}
    policy = {"checkpoint": options.policy.checkpoint}
    agent = {**policy, **planned, "seed": options.seed, **typed}
    return {options.world.world.name: world, "actuator": policy, "agent": agent}
