"""`auras tune`: find a plan with the required rate, success and age, by measuring and playing (Auras 4.3.2)."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from auras_ros import resources
from auras_ros.cli.command import INTERRUPTED, command_parser, print_errors, refused_settings, term_interrupts
from auras_ros.cli.outputs import check_outputs, make_folder, written
from auras_ros.cli.progress import Progress
from auras_ros.cli.simulation import add_simulation_options
from auras_ros.nodes.common.config import ConfigError, NodeConfig, read_parameters_file

if TYPE_CHECKING:
    from auras_ros.evaluate.tuner.search import Explore, Search, SearchResult
    from auras_ros.pipeline.plan import Plan
    from auras_ros.policies.checkpoint import Checkpoint

NOT_FOUND = 3
EXAMPLE = """
examples
  auras tune --sim pusht-drift --plan ddpm100 --rate 2x --success seq-0.03 --work tune.json --out out
  auras tune ... --confirm 400                      then play the chosen plan on 400 seeds that the search has not used
  auras tune ... --trials 40                        Optuna instead of the grid (pip install 'auras_ros[tune]')
  auras tune ... --config pusht_drift               write OUT/tuned.yaml: auras run OUT/tuned.yaml

Every plan is timed beside seq; those that miss the rate, the age or the horizon are not played. The others are played
in lockstep on a few seeds, the better half on twice as many, up to --episodes; then the skew of the best is tuned.
With --work the search may be interrupted (Ctrl-C shows the results so far) and is continued by the same command.
A config is only written for a plan that was played on at least 16 episodes and succeeded in at least 4 of them.
Exit status: 0 found, 3 no plan is good enough (or the chosen one is not on new seeds), 130 interrupted, or episodes
were lost with their world (its process has died): these count for nothing, and are played when it is continued.
"""


def run(argv: list[str]) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    make_folder(parser, "--out", options.out)
    tuned, picture = options.out / "tuned.yaml" if options.config else None, options.out / "tune.png"
    check_outputs(parser, {"--work": options.work, "--out": picture, "--config": tuned, "--json": options.json})
    template: _Template | None = None
    if options.config is not None:
        try:
            template = _follow(resources.config(options.config), options, parser)
        except (ConfigError, FileNotFoundError) as error:
            print_errors(error)
            return 2
    options.checkpoint, options.device = options.checkpoint or "pusht", options.device or "cpu"
    options.dtype = options.dtype or "auto"
    if options.device == "cuda" and not _has_cuda():
        parser.error("no CUDA device for timing frames; --device cpu times them on the CPU")
    importlib.import_module("matplotlib")  # checked before hours of work
    from auras_ros.evaluate.settings import find_sim
    from auras_ros.policies.loaders.open import load

    with refused_settings(parser):
        find_sim(options.sim).check()
    progress = Progress()
    checkpoint = load(resources.checkpoint(options.checkpoint), options.dtype)
    with refused_settings(parser):
        search, explore = _prepared(checkpoint, options, progress)
        search.space.grid(checkpoint.policy(search.space.base.generation))
    with progress, term_interrupts():
        result = search.run(explore)
    _show(result, search, checkpoint, options, template)
    if result.partial or search.lost:
        return INTERRUPTED
    return 0 if result.found and not (template and result.too_few) else NOT_FOUND


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tune", __doc__, EXAMPLE)
    parser.add_argument(
        "--checkpoint", help="folder, or the name of a shipped one (that of the agent in --config, or pusht)"
    )
    parser.add_argument("--plan", default="", help="common part of all plans, e.g. ddpm100 or ddpm100,batched=false")
    add_simulation_options(parser, "(that of the agent in --config, or {})", device=None, dtype=None)
    wanted = parser.add_argument_group("requirements")
    wanted.add_argument("--rate", metavar="HZ|Nx", help="least chunks per second, or 2x for twice seq's rate")
    wanted.add_argument(
        "--success", metavar="SHARE|seq-X", help="0.8, or seq-0.03 for at most 0.03 less than seq on the same seeds"
    )
    wanted.add_argument(
        "--max-age-ms", type=float, metavar="MS", help="greatest age of an action when the next chunk takes over"
    )
    space = parser.add_argument_group("search space")
    space.add_argument("--pp-perception", default="1,2,3", metavar="N,...", help="stages of perception (1,2,3)")
    space.add_argument(
        "--pp-generation", default="1,2,3,4,6,8,10", metavar="N,...", help="stages of generation (1,2,...,10)"
    )
    space.add_argument("--fetch-offset", default="", metavar="N,...", help="=-1,0 for both (autoregressive -1, else 0)")
    space.add_argument(
        "--alpha", default="0.25,0.5,0.75,1,1.5", metavar="A,...", help="skews tried for the best plans (0.25 to 1.5)"
    )
    space.add_argument("--longest", type=int, default=12, metavar="L", help="frames that a request may live (12)")
    space.add_argument("--trials", type=int, metavar="N", help="let Optuna choose N plans; alpha is searched with them")
    effort = parser.add_argument_group("effort")
    effort.add_argument("--first", type=int, default=24, metavar="N", help="episodes of the first round (24)")
    effort.add_argument("--episodes", type=int, default=96, metavar="N", help="episodes of the last round (96)")
    effort.add_argument("--confirm", type=int, default=0, metavar="N", help="new episodes for the chosen plan (0)")
    effort.add_argument("--seed", type=int, default=0, metavar="S", help="seed of the first episode and of Optuna (0)")
    effort.add_argument(
        "--batch", type=int, metavar="N", help="episodes that are stepped together (32, or 8 worlds in processes)"
    )
    effort.add_argument(
        "--frame-steps", type=int, default=0, metavar="N", help="paused clock, N control steps a frame (0: charged)"
    )
    parser.add_argument(
        "--work",
        type=Path,
        metavar="FILE",
        help="store measurements here, new episodes of --confirm beside it (.fresh.json), and continue from it",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report here")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for tune.png and tuned.yaml (out)")
    parser.add_argument("--config", metavar="CONFIG", help="write OUT/tuned.yaml: this config with the chosen plan")
    return parser


def _prepared(checkpoint: Checkpoint, options: argparse.Namespace, progress: Progress) -> tuple[Search, Explore]:
    """Raises PlanError, or SettingsError naming the setting."""
    from auras_ros.evaluate.episode_runner import Task
    from auras_ros.evaluate.settings import SettingsError, batch_of, check_episodes, cores_for, parse_plan
    from auras_ros.evaluate.tuner.bayes import bayes
    from auras_ros.evaluate.tuner.record import EpisodeStore
    from auras_ros.evaluate.tuner.requirements import Requirements
    from auras_ros.evaluate.tuner.search import FRESH, Effort, Search, halving
    from auras_ros.evaluate.tuner.space import Space
    from auras_ros.evaluate.tuner.trials import Trials, TrialSettings

    played = FRESH + options.confirm if options.confirm else options.episodes
    check_episodes(options.sim, options.max_steps, range(options.seed, options.seed + played))
    if options.frame_steps < 0 or (options.trials is not None and options.trials < 1):
        raise SettingsError("trials must be at least 1, frame_steps must not be negative")
    base = parse_plan(options.plan).named(checkpoint.first_plan)
    kinds: dict[str, type[Any]] = {"pp_perception": int, "pp_generation": int, "fetch_offset": int, "alpha": float}
    values = {name: _listed(name, getattr(options, name), kind) for name, kind in kinds.items()}
    space = Space(base, **values, longest=options.longest)
    settings = TrialSettings(
        base, Task(options.sim, options.max_steps),
        Requirements.parse(options.rate, options.success, options.max_age_ms), options.frame_steps,
        batch_of(options.sim, options.batch, 32), device=options.device,
        cores=cores_for(options.cores, options.device),
    )  # fmt: skip
    key = settings.key(checkpoint, options.sim)
    key |= {} if options.device == "cpu" else {"device": options.device}
    key |= {} if options.dtype == "auto" else {"dtype": options.dtype}
    again = options.work.with_suffix(".fresh.json") if options.work else None
    record, fresh = (
        Trials(checkpoint, settings, EpisodeStore.open(each, path), progress.say)
        for each, path in ((key, options.work), ({**key, "fresh": True}, again))
    )
    effort = Effort(options.first, options.episodes, confirm=options.confirm)
    search = Search(record, fresh, space, effort, options.seed)
    return search, halving if options.trials is None else bayes(options.trials, options.seed)


def _listed(name: str, text: str, kind: type[Any]) -> tuple[Any, ...]:
    from auras_ros.evaluate.settings import SettingsError

    try:
        return tuple(kind(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise SettingsError(f"{name}: expected numbers with commas between them, got {text!r}") from None


def _show(
    result: SearchResult,
    search: Search,
    checkpoint: Checkpoint,
    options: argparse.Namespace,
    template: _Template | None,
) -> None:
    from auras_ros.evaluate.tuner.show import draw, rows, table
    from auras_ros.report.result import Report

    settings = search.trials.settings
    wanted, cores = settings.requirements.words(), settings.cores
    print(f"{options.sim}, {wanted}, timed on {cores} core{'s' * (cores > 1)}{', PARTIAL' if result.partial else ''}")
    print(table(result))
    for plan, seed, why in search.lost:
        print(f"lost, and counted as no episode: {plan}, seed {seed}: {why}")
    if result.chosen is None:
        print("no plan that was played to the end meets the requirements")
    elif result.unconfirmed:
        print(f"NOT confirmed on new seeds ({result.unconfirmed}): {result.chosen.plan}")
    else:
        print(f"plan: {result.chosen.plan}")
    if options.json:
        more = {
            "space": search.space.to_dict(), "wanted": vars(settings.requirements), "partial": result.partial,
            "device": options.device, "unconfirmed": result.unconfirmed,
            "lost": [dict(zip(("plan", "seed", "why"), each, strict=True)) for each in search.lost],
        }  # fmt: skip
        report = Report("tune", [{**row, "cores": cores} for row in rows(result)], result.summary(), more)
        written(options.json, report.write)
    tuned = options.out / "tuned.yaml"
    if template is not None and result.found is not None and result.too_few:
        print(f"no config for that plan: {result.too_few} (--first, --episodes, --confirm)")
    if template is not None and result.found is not None and not result.partial and not result.too_few:
        _write_config(template, result.found.plan, {"device": options.device, "dtype": options.dtype}, tuned)
    elif tuned.exists():
        print(f"not changed, from an earlier search: {tuned}")
    written(options.out / "tune.png", lambda path: draw(result, f"{checkpoint.name}, {options.sim}: {wanted}", path))


@dataclass(frozen=True)
class _Template:
    """The config that a plan is written into: its name, its contents, and in these the agent's parameters. The new file
    may be in another folder, so paths relative to this one are made absolute."""

    name: str
    document: dict[str, Any]
    agent: dict[str, Any]


def _follow(config: Path, options: argparse.Namespace, parser: argparse.ArgumentParser) -> _Template:
    """Set the options for what the config's agent can run: its checkpoint, on its device, within its `max_age_ms`.
    Raises ConfigError if it has no agent; exits with status 2 if the options contradict it."""
    read = read_parameters_file(config)
    agent, template = read.section("agent"), _template(read)
    named = str(agent.get("checkpoint", "pusht"))
    folders = [resources.checkpoint(name).resolve() for name in (named, options.checkpoint or named)]
    if folders[0] != folders[1]:
        parser.error(f"--checkpoint: {options.checkpoint} is not that of the agent in {config}: {named}")
    options.checkpoint = named
    device = options.device or str(agent.get("device", "cpu"))
    if device not in ("auto", "cpu", "cuda"):
        parser.error(f"--config: {config}: device: no {device!r}; known: auto, cpu, cuda")
    options.device = ("cuda" if _has_cuda() else "cpu") if device == "auto" else device
    options.dtype = options.dtype or str(agent.get("dtype", "auto"))
    ages = [age for age in (options.max_age_ms, float(agent.get("max_age_ms", 0.0)) or None) if age is not None]
    options.max_age_ms = min(ages, default=None)
    return template


def _template(config: NodeConfig) -> _Template:
    """Raises ConfigError if a node has no section into which its parameters can be written."""
    document = yaml.safe_load(config.path.read_text(encoding="utf-8"))
    sections = {name.strip("/"): section for name, section in document.items()}
    for node in ("agent", *config.placed):
        if node not in sections:
            raise ConfigError(f"{config.path}: {node}: auras tune needs a top-level section of this name")
        sections[node]["ros__parameters"].update(config.placed.get(node, {}))
    return _Template(config.path.name, document, sections["agent"]["ros__parameters"])


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _write_config(template: _Template, plan: Plan, where: Mapping[str, str], path: Path) -> None:
    """Write the config with this plan for its agent, on the device and in the type with which it was measured."""
    from auras_ros.report.result import write_whole

    template.agent.update({"plan": str(plan), **where})
    text = yaml.safe_dump(template.document, sort_keys=False)
    written(path, lambda to: write_whole(to, f"# {template.name} with the plan that auras tune chose\n{text}"))
