"""Writes a trained policy as a checkpoint folder: manifest, weights, golden sample, and the record beside it."""

from __future__ import annotations

import copy
import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from auras_ros.policies import writing
from auras_ros.policies.writing import Description
from auras_ros.report.picture import canvas
from auras_ros.report.result import hardware, versions
from auras_ros.report.table import grouped_by
from auras_ros.sim.worlds import find
from auras_ros.train.loops import Curve
from auras_ros.train.task import TrainingTask

PLANS = {"quick": {"sampler": "ddim", "steps": 8}, "ddpm100": {"sampler": "ddpm", "steps": 100}}
FLOW_PLANS = {"flow5": {"sampler": "flow", "steps": 5}}
GOLDEN_SEED = 424_242


def describe(
    task: TrainingTask,
    name: str,
    kind: str,
    horizon: int,
    plans: Mapping[str, Mapping[str, Any]],
    encoder: Mapping[str, Any],
    network: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Description:
    """What a checkpoint of this family says of itself; see `policies.writing`."""
    return Description(name, kind, horizon, task.spec, task.contract, *task.bounds, plans, encoder, network, more)


def write(folder: Path, task: TrainingTask, description: Description, parts: Mapping[str, nn.Module]) -> None:
    """Any family's (`policies.writing.write`), with a golden sample from the simulator. Raises CheckpointError."""
    world = find(task.sim).make()
    world.reset(GOLDEN_SEED)
    images: dict[str, list[NDArray[np.uint8]]] = {camera.name: [] for camera in task.spec.cameras}
    joints: dict[str, list[float]] = {name: [] for name in task.sensors.names}
    centre = np.array([(each.low + each.high) / 2 for each in world.channels])
    for _ in range(task.spec.history):
        state = world.state()
        for camera in task.spec.cameras:
            images[camera.name].append(world.image(camera.name, camera.height, camera.width))
        for name, values in joints.items():
            values.append(state[name])
        for _ in range(task.lag):
            world.step(centre)
    world.close()
    if task.half:
        parts = {name: copy.deepcopy(part).half() for name, part in parts.items()}
    seen = {name: np.stack(frames) for name, frames in images.items()}
    writing.write(folder, description, parts, seen, {name: np.array(values) for name, values in joints.items()})


def origin(seed: int) -> dict[str, Any]:
    """The beginning of a record: with what it was made."""
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "seed": seed,
        "hardware": hardware(),
        "versions": versions(),
    }


def put_in_place(fresh: Path, out: Path) -> None:
    """A whole new folder takes the place of an earlier one."""
    if out.exists():
        shutil.rmtree(out)
    fresh.rename(out)


def write_record(folder: Path, record: dict[str, Any], curve: Curve) -> None:
    """`training.json` (command, seed, amounts, success) and `curve.png`, the loss of each stage, beside the weights."""
    text = json.dumps({**record, "curve": curve.rows}, indent=1) + "\n"
    (folder / "training.json").write_text(text, encoding="utf-8")
    stages = grouped_by(curve.rows, "stage")
    with canvas(folder / "curve.png", (3.2 * max(1, len(stages)), 2.8)) as figure:
        for place, ((stage,), rows) in enumerate(stages.items(), 1):
            axes = figure.add_subplot(1, len(stages), place)
            axes.plot([row["step"] for row in rows], [row["loss"] for row in rows])
            axes.set(title=stage, xlabel="step", ylabel="loss", yscale="log")
