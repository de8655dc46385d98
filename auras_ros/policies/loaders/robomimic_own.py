"""robomimic's checkpoints for its own inference (`policies.robomimic`), where our networks are not what they need.

Everything but the weights is kept as the JSON that robomimic's own `policy_from_checkpoint` takes, so that no pickle is
left. Policies that keep a plan over several control steps (HBC, IRIS, GL, the diffusion policy's queue) are refused.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.manifest import FORMAT
from auras_ros.checkpoints.torch_file import TorchFile
from auras_ros.observation import ObservationSpec, SpecError, StateSpec
from auras_ros.policies.loaders.robomimic import action_statistics, camera_of, check_robot
from auras_ros.policies.loaders.robomimic_file import RobomimicFile, read
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated
from auras_ros.policies.robomimic.checkpoint_text import ACTED, ALGORITHMS, OBSERVED, without_downloads
from auras_ros.policies.robomimic.checkpoint_text import read as read_text
from auras_ros.policies.robomimic.family import NAME, parameter_name


def translate(path: Path, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key."""
    with TorchFile(path) as opened:
        file = read(opened)
        file.payload.get("algo_name", allowed=ALGORITHMS)
        check_robot(file, robot)
        tensors = file.tensors()
        firsts = tensors.firsts()
        kept = list(dict.fromkeys(firsts.values()))
        tensors.check_bytes(kept)
        ours = {f"{NAME}.{parameter_name(name)}": name for name in kept}
        text = json.dumps(_checkpoint(file))
        with refusing(path, TypeError, ValueError):
            history = read_text(text).history
        manifest = {
            "format": FORMAT,
            "name": path.stem,
            "type": NAME,
            "encoder": {"type": "none"},
            "network": {
                "checkpoint": text,
                "tensors": {name: list(tensors.shape(name)) for name in kept},
                "same": {name: first for name, first in firsts.items() if name != first},
            },
            "horizon": 1,
            "observation": _observation(file, robot, history).to_dict(),
            "action": robot.contract.to_dict(),
            "statistics": action_statistics(file),
            "plans": {"once": {}},
        }
        origin = {name: f"{path}: tensor '{source}'" for name, source in ours.items()}
        return Translated(manifest, {name: tensors[source].float() for name, source in ours.items()}, origin)


def _checkpoint(file: RobomimicFile) -> dict[str, Any]:
    """What robomimic reads of the file beside the weights, of the observations that the policy sees."""
    inputs = file.inputs()
    told: dict[str, Any] = {
        "algo_name": file.payload.text("algo_name"),
        "config": json.dumps(without_downloads(file.config.values)),
        "shape_metadata": {
            "ac_dim": file.actions,
            "all_shapes": {each.name: list(each.shape) for each in inputs.features},
        },
    }
    if file.payload.get(OBSERVED, None) is not None:
        if inputs.cameras:
            raise CheckpointError(f"{file.path}: payload.{OBSERVED}: of images are not supported")
        told[OBSERVED] = {each.name: _scaled(file, OBSERVED, each.name, each.shape[0]) for each in inputs.states}
    if file.payload.get(ACTED, None) is not None:
        names = file.payload.object(ACTED).values
        told[ACTED] = {str(name): _scaled(file, ACTED, str(name), file.actions) for name in names}
    return told


def _scaled(file: RobomimicFile, key: str, name: str, size: int) -> dict[str, list[list[float]]]:
    offset, scale = file.statistics(key, name, size)
    return {"offset": [offset.tolist()], "scale": [scale.tolist()]}


def _observation(file: RobomimicFile, robot: Robot, history: int) -> ObservationSpec:
    """Raw numbers and whole images: robomimic normalises and crops."""
    inputs = file.inputs()
    with refusing(file.path, SpecError):
        cameras = tuple(camera_of(robot, each.name, each.shape[1:]) for each in inputs.cameras)
        state = StateSpec(robot.state or ()) if inputs.states else None
        return ObservationSpec(cameras, state, history, robot.dt_ms)
