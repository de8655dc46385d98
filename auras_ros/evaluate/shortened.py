"""An autoregressive checkpoint whose chunk ends after its first actions: with one, the case of the published policies.

The tokens of an action depend on those before them alone, so the first actions of a shorter chunk are those of the
whole one, and nothing has to be trained.
"""

from __future__ import annotations

from dataclasses import replace

from auras_ros.evaluate.settings import SettingsError
from auras_ros.pipeline.modes import family_offset
from auras_ros.policies.checkpoint import Checkpoint


def shortened(checkpoint: Checkpoint, actions: int) -> Checkpoint:
    """0: as it is. Raises SettingsError for a policy that cannot be shortened, or has no more actions than that."""
    if not actions:
        return checkpoint
    causal = family_offset(checkpoint.policy(next(iter(checkpoint.plans)))) == -1  # that of a policy that writes tokens
    if not causal or checkpoint.trained.executed is not None:
        raise SettingsError(f"actions: '{checkpoint.name}' does not write its chunk action by action")
    if actions > checkpoint.horizon:
        raise SettingsError(f"actions: '{checkpoint.name}' has {checkpoint.horizon} in a chunk, not {actions}")
    architecture = replace(checkpoint.trained.architecture, horizon=actions)
    return replace(checkpoint, trained=replace(checkpoint.trained, architecture=architecture))
