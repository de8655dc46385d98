"""`auras tune`: find a plan with the required rate, success and age, by measuring and playing (Auras 4.3.2)."""

from __future__ import annotations

import argparse
import importlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auras_ros import resources
from auras_ros.cli.command import INTERRUPTED, command_parser, print_errors, refused_settings, term_interrupts
from auras_ros.cli.outputs import check_outputs, make_folder, written
from auras_ros.cli.progress import Progress
from auras_ros.cli.simulation import add_simulation_options
from auras_ros.cli.tuned_config import Template, follow, has_cuda, write_config
from auras_ros.nodes.common.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from auras_ros.evaluate.tuner.search import Explore, Search, SearchResult
    from auras_ros.evaluate.world_pool import WorldPool
    from auras_ros.policies.checkpoint import Checkpoint

NOT_FOUND = 3
EXAMPLE = """
examples
  auras tune --sim pusht-drift --plan ddpm100 --rate 2x --success seq-0.03 --work tune.json --out out
  auras tune --sim pusht-drift --generation quick,ddpm100     which generation plan, with the pipeline or without
  auras tune --sim lift-moving --checkpoint lift,lift-flow    the generation plans of both, on the same seeds
  auras tune ... --confirm 400                      then play the chosen plan on 400 seeds that the search has not used
  auras tune ... --trials 40                        Optuna instead of the grid (pip install 'auras_ros[tune]')
  auras tune ... --config pusht_drift               write OUT/tuned.yaml: auras run OUT/tuned.yaml

seq of every generation plan is played on all seeds. It may be chosen, and the most successful one is the seq of --rate
and --success. Every other plan is timed beside its seq; those that miss the rate, the age or the horizon are not
played. The others are played in lockstep on a few seeds, the better half of all on twice as many, up to --episodes;
then the skew of the best is tuned. The most successful plan that meets the requirements is chosen; of equals seq, then
the faster one.
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
    template: Template | None = None
    if options.config is not None:
        try:
            template = follow(resources.config(options.config), options, parser)
        except (ConfigError, FileNotFoundError) as error:
            print_errors(error)
            return 2
    options.device = options.device or "cpu"
    options.dtype = options.dtype or "auto"
    if options.device == "cuda" and not has_cuda():
        parser.error("no CUDA device for timing frames; --device cpu times them on the CPU")
    importlib.import_module("matplotlib")  # checked before hours of work
    from auras_ros.cli.included import included
    from auras_ros.evaluate.episode_runner import Task
    from auras_ros.evaluate.settings import find_sim
    from auras_ros.evaluate.world_pool import WorldPool
    from auras_ros.policies.loaders.open import load

    with refused_settings(parser):
        find_sim(options.sim).check()
        options.checkpoint = options.checkpoint or [included(find_sim(options.sim))]
    progress = Progress()
    checkpoints = {name: load(resources.checkpoint(name), options.dtype) for name in options.checkpoint}
    worlds = WorldPool(Task(options.sim, options.max_steps).world)
    with refused_settings(parser):
        search, explore = _prepared(checkpoints, options, progress, worlds)
        for generation in search.trials:
            search.grid(generation)
    with progress, term_interrupts(), closing(worlds):
        result = search.run(explore)
    _show(result, search, options, template)
    if result.partial or search.lost:
        return INTERRUPTED
    return 0 if result.found and not (template and result.too_few) else NOT_FOUND


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tune", __doc__, EXAMPLE)
    parser.add_argument(
        "--checkpoint", type=_words, metavar="NAME,...",
        help="folder or name of an included one (that of the agent in --config, or the world's); several, of one robot",
    )  # fmt: skip
    parser.add_argument("--plan", default="", help="common part of all plans, e.g. ddpm100 or ddpm100,batched=false")
    parser.add_argument(
        "--generation", type=_words, default=[], metavar="NAME,...",
        help="generation plans to search (that of --plan, else all of the checkpoints' own); also ddimN",
    )  # fmt: skip
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


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words) or len(set(words)) < len(words):
        raise argparse.ArgumentTypeError(f"expected names with commas between them, each once, got {text!r}")
    return words


def _prepared(
    checkpoints: Mapping[str, Checkpoint], options: argparse.Namespace, progress: Progress, worlds: WorldPool
) -> tuple[Search, Explore]:
    """Raises PlanError, or SettingsError naming the setting."""
    from auras_ros.evaluate.episode_runner import Task
    from auras_ros.evaluate.pace import Pace
    from auras_ros.evaluate.settings import SettingsError, batch_of, check_episodes, check_fit, cores_for, parse_plan
    from auras_ros.evaluate.tuner.bayes import bayes
    from auras_ros.evaluate.tuner.generations import generations
    from auras_ros.evaluate.tuner.record import EpisodeStore
    from auras_ros.evaluate.tuner.requirements import Requirements
    from auras_ros.evaluate.tuner.search import FRESH, Effort, Search, halving
    from auras_ros.evaluate.tuner.space import Space
    from auras_ros.evaluate.tuner.trials import Trials, TrialSettings

    played = FRESH + options.confirm if options.confirm else options.episodes
    check_episodes(options.sim, options.max_steps, range(options.seed, options.seed + played))
    if options.frame_steps < 0 or (options.trials is not None and options.trials < 1):
        raise SettingsError("trials must be at least 1, frame_steps must not be negative")
    for name, checkpoint in checkpoints.items():
        check_fit(checkpoint, name, options.sim)
    base = parse_plan(options.plan)
    if base.generation and options.generation:
        raise SettingsError(f"generation: --plan has {base.generation} already")
    found = generations(checkpoints, options.generation or ([base.generation] if base.generation else []))
    kinds: dict[str, type[Any]] = {"pp_perception": int, "pp_generation": int, "fetch_offset": int, "alpha": float}
    values = {name: _listed(name, getattr(options, name), kind) for name, kind in kinds.items()}
    space = Space(base, **values, longest=options.longest)
    settings = TrialSettings(
        base, Task(options.sim, options.max_steps),
        Requirements.parse(options.rate, options.success, options.max_age_ms), options.frame_steps,
        batch_of(options.sim, options.batch, 32), device=options.device,
        cores=cores_for(options.cores, options.device),
    )  # fmt: skip
    each = {(name, plan): replace(settings, base=replace(base, generation=plan)) for name, plan in found}
    more = {} if options.device == "cpu" else {"device": options.device}
    more |= {} if options.dtype == "auto" else {"dtype": options.dtype}
    keys = [its.key(checkpoints[name], options.sim) | more for (name, _), its in each.items()]
    again, pace = options.work.with_suffix(".fresh.json") if options.work else None, Pace()
    record, fresh = (
        [
            Trials(checkpoints[name], its, store, progress.say, name, worlds, pace)
            for ((name, _), its), store in zip(each.items(), EpisodeStore.open_all(some, path), strict=True)
        ]
        for some, path in ((keys, options.work), ([{**key, "fresh": True} for key in keys], again))
    )
    effort = Effort(options.first, options.episodes, confirm=options.confirm)
    search = Search(record, fresh, space, effort, options.seed, pace)
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
    options: argparse.Namespace,
    template: Template | None,
) -> None:
    from auras_ros.evaluate.tuner.show import draw, rows, table
    from auras_ros.report.result import Report

    settings = next(iter(search.trials.values())).settings
    wanted, cores = settings.requirements.words(), settings.cores
    print(f"{options.sim}, {wanted}, timed on {cores} core{'s' * (cores > 1)}{', PARTIAL' if result.partial else ''}")
    print(table(result))
    for each in search.lost:
        print("lost, and counted as no episode: {checkpoint}, {plan}, seed {seed}: {why}".format_map(each))
    if result.chosen is None:
        print("no plan that was played to the end meets the requirements")
    elif result.unconfirmed:
        print(f"NOT confirmed on new seeds ({result.unconfirmed}): {result.chosen.plan}")
    else:
        print(f"checkpoint: {result.chosen.checkpoint}")
        print(f"plan{' so far' if result.partial else ''}: {result.chosen.plan}")
    if options.json:
        more = {
            "space": search.space.to_dict(), "generations": [" ".join(each) for each in search.trials],
            "wanted": vars(settings.requirements), "partial": result.partial, "device": options.device,
            "unconfirmed": result.unconfirmed, "lost": search.lost,
        }  # fmt: skip
        report = Report("tune", [{**row, "cores": cores} for row in rows(result)], result.summary(), more)
        written(options.json, report.write)
    tuned = options.out / "tuned.yaml"
    if template is not None and result.found is not None and result.too_few:
        print(f"no config for that plan: {result.too_few} (--first, --episodes, --confirm)")
    if template is not None and result.found is not None and not result.partial and not result.too_few:
        found, where = result.found, {"device": options.device, "dtype": options.dtype}
        write_config(template, found.checkpoint, found.plan, where, tuned)
    elif tuned.exists():
        print(f"not changed, from an earlier search: {tuned}")
    title = f"{', '.join(options.checkpoint)}, {options.sim}: {wanted}"
    written(options.out / "tune.png", lambda path: draw(result, title, path))
