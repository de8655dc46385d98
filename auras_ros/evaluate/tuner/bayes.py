"""Optuna instead of the grid, if there are too many stages, offsets and skews to try them all (extra `tune`).

The sampler is seeded and measurements are stored, so an interrupted search is simply run again: it proposes the same
plans, which are already played.
"""

from __future__ import annotations

from dataclasses import replace

from auras_ros.evaluate.tuner.search import Explore, Search
from auras_ros.pipeline.plan import PlanError


def bayes(trials: int, seed: int) -> Explore:
    """Tree-structured Parzen estimation over stages, offset and skew: the most successful plan among those that are
    fast and fresh enough. Invalid plans, and those that miss the rate or the age, are pruned before they are played."""
    import optuna

    def explore(search: Search) -> None:
        space = search.space
        policy = search.trials.checkpoint.policy(space.base.generation)

        def objective(trial: optuna.Trial) -> float:
            plan = replace(
                space.base,
                pp_perception=trial.suggest_categorical("pp_perception", space.pp_perception),
                pp_generation=trial.suggest_categorical("pp_generation", space.pp_generation),
                fetch_offset=trial.suggest_categorical("fetch_offset", space.offsets(policy)),
                alpha=trial.suggest_categorical("alpha", (0.0, *(a for a in space.alpha if a))),
            )
            try:
                space.check(policy, plan)
            except PlanError as error:
                raise optuna.TrialPruned(str(error)) from error
            if not search.time([plan]):
                raise optuna.TrialPruned
            return search.play(plan, search.effort.episodes).success or 0.0

        optuna.logging.set_verbosity(optuna.logging.ERROR)  # no warning at an interrupt
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(objective, n_trials=trials)

    return explore
