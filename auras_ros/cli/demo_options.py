"""The options of `auras demo`, checked, and the nodes' parameters that they change."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from auras_ros import resources
from auras_ros.cli.command import command_parser, refused_settings
from auras_ros.cli.outputs import check_outputs, make_folder
from auras_ros.live.referee.episode import Rules
from auras_ros.nodes.common.config import read_config, settings_of
from auras_ros.parameters import checked
from auras_ros.pipeline.plan import Plan
from auras_ros.sim.worlds import find

DEFAULT_SECONDS, DEFAULT_EPISODES = 60.0, 3
NODE = "pusht"  # of the world in demo.yaml
PLAYED, PLAYED_ALONE = "pusht-drift", "pusht"  # of several plays, of one plan
DESCRIPTION = "The complete closed loop on Push-T over real topics, scored by a referee, filmed and measured."
EXAMPLE = """
examples
  auras demo                                three episodes on a moving table: sequential, as auras, and as auras
                                            while a small vision-language model is asked about the image
  auras demo --plan quick                   a minute of episodes with one plan, on a table that stands still
  auras demo --plan quick --episodes 10     ten seeded episodes, however long they take
  auras demo --plan ddpm100,mode=auras,pp_generation=4 --sim pusht-drift   100 denoising steps, pipelined

Bridge, actuator and agent run in separate processes; this one only subscribes and calls their services. Files in OUT:
demo.mp4, timeline.png, demo.json, log.txt; of several plays also
demo.png, seq.mp4, auras.mp4, vlm.mp4. Unless the environment is set otherwise, ROS stays on this host.
"""


@dataclass(frozen=True)
class DemoOptions:
    """The command's options, checked. plan None: three plays."""

    rules: Rules
    plan: Plan | None
    seed: int
    sim: str
    out: Path
    json: Path | None
    video: bool
    dtype: str = "auto"


def parse(argv: list[str]) -> DemoOptions:
    """Exits with status 2 and one line if an option is invalid."""
    parser = command_parser("demo", DESCRIPTION, EXAMPLE)
    parser.add_argument(
        "--seconds", type=float, help="begin no episode after this time (default with --plan 60; without no limit)"
    )
    parser.add_argument(
        "--episodes", type=int, help="end after this many finished episodes (default without --plan: 3)"
    )
    parser.add_argument(
        "--plan",
        help="play this plan alone: quick, or ddpm100,mode=auras,alpha=0.5 (default: the same seeds sequentially, "
        "as auras, and as auras beside a vision-language model, with as many denoising steps (100 at most) as let a "
        "sequential request take 3 to 4 control periods)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the first table; each next one is one higher")
    parser.add_argument(
        "--sim", help=f"the world, as pusht-drift:drift_px=1 (default {PLAYED_ALONE}, without --plan {PLAYED})"
    )
    parser.add_argument("--dtype", default="auto", metavar="TYPE", help="type of the weights, as the agent's `dtype`")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the results (default: out/demo)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    parser.add_argument("--no-video", action="store_true", help="no viewer camera, no video")
    given = parser.parse_args(argv)
    seconds, episodes = given.seconds, given.episodes
    sim = given.sim or (PLAYED if given.plan is None else PLAYED_ALONE)
    if seconds is None and episodes is None:
        seconds, episodes = (None, DEFAULT_EPISODES) if given.plan is None else (DEFAULT_SECONDS, None)
    with refused_settings(parser):
        rules = Rules(seconds, episodes, grace_s=min(Rules.grace_s, seconds or Rules.grace_s))
        plan = None if given.plan is None else with_period(Plan.parse(given.plan))
    if given.dtype != "auto":
        from auras_ros.checkpoints.dtype import DTYPES

        if given.dtype not in DTYPES:
            parser.error(f"--dtype: {given.dtype!r}: must be one of {', '.join(DTYPES)}")
    if given.json:
        make_folder(parser, "--out", given.out)  # because --json may be in it
        check_outputs(parser, {"--json": given.json})
    video = not given.no_video
    options = DemoOptions(rules, plan, given.seed, sim, given.out, given.json, video, given.dtype)
    with refused_settings(parser):
        if (world := find(sim).world.name) != NODE:
            raise ValueError(f"sim: there is no demo of {world}, only of {NODE}")
        for node, values in overrides(options).items():
            for each in fields(settings_of(node)):
                checked(node, each, values.get(each.name, each.default))
    return options


def overrides(options: DemoOptions) -> dict[str, dict[str, Any]]:
    """Node -> parameters that are changed by the options."""
    world: dict[str, Any] = {"seed": options.seed, **vars(find(options.sim).options)}
    if not options.video:
        world["viewer_px"] = 0
    typed = {} if options.dtype == "auto" else {"dtype": options.dtype}
    planned = {} if options.plan is None else {"plan": str(options.plan)}
    return {NODE: world, "agent": {**planned, "seed": options.seed, **typed}}


def with_period(plan: Plan) -> Plan:
    """A generation plan alone gets the rest of the config's, whose frame period is only meant for whole requests."""
    configured = Plan.parse(read_config(resources.find("config", "demo.yaml")).section("agent")["plan"])
    return replace(configured, generation=plan.generation) if plan == Plan(plan.generation) else plan
