"""Which generation plans of which checkpoints are searched together.

Several checkpoints must be interchangeable on the robot: the same channels with the same limits, the same cameras and
states, the same period. This module plays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from auras_ros.evaluate.pace import Generation
from auras_ros.evaluate.settings import SettingsError
from auras_ros.policies.checkpoint import Checkpoint


def generations(checkpoints: Mapping[str, Checkpoint], named: Sequence[str]) -> list[Generation]:
    """Each checkpoint with those of the named generation plans that it has, or with all of its own if none is named.
    checkpoints: by the user's names. Raises SettingsError for a plan that no checkpoint has, and for a checkpoint that
    has none of them or is not for the same robot."""
    _check_same_robot(checkpoints)
    found, refused = [], dict[str, str]()
    for name, checkpoint in checkpoints.items():
        for plan in named or checkpoint.plans:
            try:
                checkpoint.policy(plan)
            except ValueError as error:
                refused.setdefault(plan, str(error))
                continue
            found.append((name, plan))
        if name not in dict(found):
            raise SettingsError(
                f"generation: {name} has none of {', '.join(named)}; its plans: {', '.join(checkpoint.plans)}"
            )
    for plan in named:
        if plan not in {its for _, its in found}:
            raise SettingsError(f"generation: {refused[plan]}")
    return found


def _check_same_robot(checkpoints: Mapping[str, Checkpoint]) -> None:
    """Raises SettingsError, naming the first difference, or if two have the same weights."""
    (first, mine), *others = [(name, _robot(checkpoint)) for name, checkpoint in checkpoints.items()]
    digests = {checkpoint.digest: name for name, checkpoint in checkpoints.items()}
    if len(digests) < len(checkpoints):
        raise SettingsError(f"checkpoint: {', '.join(checkpoints)}: two of them are the same")
    for name, its in others:
        for what in dict.fromkeys([*mine, *its]):
            if mine.get(what) != its.get(what):
                raise SettingsError(
                    f"checkpoint: {name} is not for the robot of {first}: {what}: {its.get(what)}, not {mine.get(what)}"
                )


def _robot(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint takes and gives, flat."""
    contract, spec = checkpoint.contract, checkpoint.spec
    cameras = {camera.name: f"{camera.width} x {camera.height} {camera.color}" for camera in spec.cameras}
    return {
        "channels": ", ".join(contract.names),
        "control period": f"{contract.dt_ms:g} ms",
        "cameras": ", ".join(cameras),
        **{f"camera {name}": picture for name, picture in cameras.items()},
        "state": ", ".join(spec.state.names) if spec.state else "none",
        **{f"{each.name}: {key}": value for each in contract.channels for key, value in asdict(each).items()},
    }
