"""An autoregressive checkpoint whose chunk ends after its first actions; with one action, as in published policies.

The tokens of an action depend only on earlier tokens, so the actions of a shorter chunk are the first ones of the full
chunk, and no training is needed.
"""

from __future__ import annotations

from dataclasses import replace

from auras_ros.evaluate.settings import SettingsError
from auras_ros.pipeline.modes import family_offset
from auras_ros.policies.checkpoint import Checkpoint


def shortened(checkpoint: Checkpoint, actions: int) -> Checkpoint:
    """actions: length of the chunk; 0, or that of the checkpoint, changes nothing. Raises SettingsError if the policy
    cannot be shortened, or has fewer actions."""
    if actions in (0, checkpoint.horizon):
        return checkpoint
    causal = family_offset(checkpoint.policy(next(iter(checkpoint.plans)))) == -1  # -1 means autoregressive
    if not causal or checkpoint.trained.executed is not None:
        raise SettingsError(f"actions: '{checkpoint.name}' does not generate its chunk action by action")
    if actions > checkpoint.horizon:
        raise SettingsError(f"actions: '{checkpoint.name}' has {checkpoint.horizon} in a chunk, not {actions}")
    architecture = replace(checkpoint.trained.architecture, horizon=actions)
    return replace(checkpoint, trained=replace(checkpoint.trained, architecture=architecture))
