"""Optuna instead of the grid, if there are too many stages, offsets and skews to try them all (extra `tune`).

The sampler is seeded and measurements are stored, so an interrupted search is simply run again: it proposes the same
plans, which are already played.
"""

from __future__ import annotations

from dataclasses import replace

from auras_ros.evaluate.pace import PLAY, TIME
from auras_ros.evaluate.tuner.search import Explore, Search
from auras_ros.pipeline.plan import PlanError


def bayes(trials: int, seed: int) -> Explore:
    """Tree-structured Parzen estimation over checkpoint and generation plan, stages, offset and skew: the most
    successful plan among those that are fast and fresh enough. Invalid plans, and those that miss the rate or the age,
    are pruned before they are played."""
    import optuna

    def explore(search: Search) -> None:
        space = search.space
        labels = {" ".join(generation): generation for generation in search.trials}

        def objective(trial: optuna.Trial) -> float:
            _expect(search, trials - trial.number)
            # one choice is no draw: with one generation plan the same seed proposes the same plans as it always has
            label = trial.suggest_categorical("generation", list(labels)) if len(labels) > 1 else next(iter(labels))
            generation = labels[label]
            chosen = search.trials[generation]
            offsets = space.offsets(chosen.policy)
            plan = replace(
                chosen.settings.base,
                pp_perception=trial.suggest_categorical("pp_perception", space.pp_perception),
                pp_generation=trial.suggest_categorical("pp_generation", space.pp_generation),
                fetch_offset=trial.suggest_categorical(f"fetch_offset {offsets}", offsets),  # a family's own
                alpha=trial.suggest_categorical("alpha", (0.0, *(a for a in space.alpha if a))),
            )
            try:
                space.check(chosen.policy, plan)
            except PlanError as error:
                raise optuna.TrialPruned(str(error)) from error
            worth = search.time(generation, [plan])
            if not worth:
                raise optuna.TrialPruned
            return search.play(worth[0], search.effort.episodes).success or 0.0

        _expect(search, trials)
        search.play_seqs()
        optuna.logging.set_verbosity(optuna.logging.ERROR)  # no warning at an interrupt
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        study.optimize(objective, n_trials=trials)

    return explore


def _expect(search: Search, trials: int) -> None:
    """So many plans are still timed and played to the end, at most, as if of all generation plans alike."""
    search.expect([], [search.effort.episodes])
    for generation in search.trials:
        search.pace.ahead[TIME, generation] += trials / len(search.trials)
        search.pace.ahead[PLAY, generation] += trials * search.effort.episodes / len(search.trials)
