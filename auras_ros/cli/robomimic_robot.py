"""robot.json that a robomimic file makes needless: its metadata name the task, and our world of that task the rest.

Channels, their limits and the control period are the world's; cameras and joints have the names that it gives them. A
file of another environment, robot or rate, or with an observation that the world does not tell, is refused by name:
a robot.json says then what its numbers mean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.manifest import PAGE
from auras_ros.parameters import ParameterError
from auras_ros.policies.loaders.ckpt_encoder import ShapeMetaEntry
from auras_ros.policies.loaders.robomimic_file import TrainedIn, trained_in
from auras_ros.policies.loaders.robot import Robot
from auras_ros.sim.robosuite.layout import OBJECTS, flattened, robot_names
from auras_ros.sim.robosuite.lift import LiftOptions
from auras_ros.sim.robosuite.metadata import ROBOSUITE_1_5, TaskMetadata, parse
from auras_ros.sim.robosuite.world import SENSORS, RobosuiteOptions, RobosuiteWorld
from auras_ros.sim.world import ActionChannel, Sim
from auras_ros.sim.worlds import SIMS
from auras_ros.values import shown

ROBOT_MODEL = "Panda"
IMAGE = "_image"  # the end of a camera's key
OBJECT = "object"


def robot_of(path: Path) -> tuple[Robot, str]:
    """The robot of this file, and the value of `--sim` that plays it. Raises CheckpointError by name."""
    trained = trained_in(path)
    with refusing(path, ParameterError):
        task = parse(trained.metadata, "env_metadata")
    environment = str(task.environment["env_name"])
    name, sim = _world(trained, environment)
    kind = sim.world
    assert issubclass(kind, RobosuiteWorld)
    if task.robots != (ROBOT_MODEL,) * kind.robots:
        raise _unknown(trained, "env_kwargs.robots", ", ".join(task.robots), f"{kind.robots} x {ROBOT_MODEL}")
    if task.control_dt_ms != kind.control_dt_ms:
        rates = (f"{1000 / each:g}" for each in (task.control_dt_ms, kind.control_dt_ms))
        raise _unknown(trained, "env_kwargs.control_freq", *rates)
    if len(task.robots) > 1 and task.frame != "world":  # a single arm's base has the world's axes
        raise _unknown(trained, "controller_configs.input_ref_frame", task.frame, "world")
    cameras = [camera.removesuffix(IMAGE) for camera in trained.cameras]
    for camera in cameras:
        if camera not in kind.views:
            raise _unknown(trained, "camera", camera, ", ".join(kind.views))
    state = [reading for key in trained.states for reading in _readings(trained, task, key)]
    options = _options(trained, task, kind, sim.options, cameras)
    changes = {key: value for key, value in vars(options).items() if value != getattr(sim.options, key)}
    told = ",".join(f"{key}={str(value).lower()}" for key, value in changes.items())
    raw = {
        "dt_ms": kind.control_dt_ms,
        "action": {"channels": [_channel(each) for each in kind.of(options).channels]},
        "state": state or None,
        "cameras": {key: {"name": camera} for key, camera in zip(trained.cameras, cameras, strict=True)},
    }
    return Robot.read(raw, path), f"{name}:{told}" if told else name


def metadata_of(path: Path) -> str:
    """What this file says of its task, JSON for the world `robomimic`; empty if that does not play it. Raises
    CheckpointError."""
    metadata = trained_in(path).metadata
    try:
        parse(metadata, "env_metadata")
        return json.dumps(metadata, indent=2) + "\n"
    except (TypeError, ValueError):  # of another simulator, say; or with what is no JSON
        return ""


def _world(trained: TrainedIn, environment: str) -> tuple[str, Sim]:
    known = dict[str, tuple[str, Sim]]()
    for name, sim in SIMS.items():
        if issubclass(sim.world, RobosuiteWorld) and sim.world.environment:
            known.setdefault(sim.world.environment, (name, sim))
    if environment not in known:
        raise _unknown(trained, "env_name", environment, ", ".join(known))
    return known[environment]


def _options(
    trained: TrainedIn,
    task: TaskMetadata,
    kind: type[RobosuiteWorld],
    usual: RobosuiteOptions,
    cameras: Sequence[str],
) -> RobosuiteOptions:
    """The world as the policy knows it, its pictures drawn as in the training."""
    made = replace(
        usual,
        absolute=task.absolute,
        cameras=max([usual.cameras, *(kind.views.index(camera) + 1 for camera in cameras)]),
        objects=any(key.name == OBJECT for key in trained.states),
        fast_rendering=not cameras,
    )
    return replace(made, turns=True) if isinstance(made, LiftOptions) else made


def _readings(trained: TrainedIn, task: TaskMetadata, key: ShapeMetaEntry) -> list[str]:
    """The names of one observation's numbers. Raises CheckpointError if the world does not tell them."""
    (size,) = key.shape
    if key.name == OBJECT:
        if not task.version.startswith(ROBOSUITE_1_5):  # it had other orders before, and Lift another sign
            raise _unknown(trained, "env_version", task.version, f"{ROBOSUITE_1_5}*, whose '{OBJECT}' is another")
        parts: tuple[tuple[str, int], ...] = OBJECTS[task.environment["env_name"]]
    else:
        told = [f"{robot}_{sensor}" for robot in robot_names(len(task.robots)) for sensor in SENSORS]
        if key.name not in told:
            raise _unknown(trained, "observation", key.name, ", ".join([*told, OBJECT]))
        parts = ((key.name, size),)
    names = [name for part, count in parts for name in flattened(part, [0.0] * count)]
    if len(names) != size:
        raise _unknown(trained, f"shape_metadata.all_shapes.{key.name}", str(size), str(len(names)))
    return names


def _channel(channel: ActionChannel) -> dict[str, Any]:
    """An increment counts from where the gripper is: one whose time has passed is lost, as that of a velocity."""
    kind = "velocity" if channel.unit.startswith("x ") else "absolute"
    if channel.name.endswith("gripper"):
        kind = "gripper"
    return {
        "name": channel.name,
        "unit": channel.unit,
        "kind": kind,
        "lower": channel.low,
        "upper": channel.high,
        "hold": "zero" if kind == "velocity" else "last",
    }


def _unknown(trained: TrainedIn, key: str, value: str, known: str) -> CheckpointError:
    return CheckpointError(
        f"{trained.path}: {key}: {shown(value)} is of no world here (known: {known}); a robot.json, given with "
        f"--robot, says what the numbers mean, see {PAGE}"
    )
