"""Writes a trained Push-T policy as a checkpoint folder: manifest, weights, golden sample, and the record beside it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from auras_ros.action import Channel, ChannelKind, Contract, HoldPolicy
from auras_ros.observation import CameraSpec, ObservationSpec, StateSpec
from auras_ros.policies import writing
from auras_ros.policies.writing import Description
from auras_ros.report.picture import canvas
from auras_ros.report.result import hardware, versions
from auras_ros.report.table import grouped_by
from auras_ros.sim.pusht import CONTROL_DT_MS, IMAGE_PX, SIZE_PX, PushTWorld
from auras_ros.train.diffusion import PIXEL_MEAN, PIXEL_STD
from auras_ros.train.loops import Curve

AXES = ("agent_x", "agent_y")
MAX_RATE_PX_S = 4000.0
PLANS = {"quick": {"sampler": "ddim", "steps": 8}, "ddpm100": {"sampler": "ddpm", "steps": 100}}
GOLDEN_SEED = 424_242


def observation_spec() -> ObservationSpec:
    """What the Push-T policy sees: one camera, the agent's position, two instants."""
    camera = CameraSpec("top", IMAGE_PX, IMAGE_PX, mean=(PIXEL_MEAN,) * 3, std=(PIXEL_STD,) * 3)
    state = StateSpec(AXES, "min_max", (0.0, 0.0), (SIZE_PX, SIZE_PX))
    return ObservationSpec((camera,), state, history=2, dt_ms=CONTROL_DT_MS)


def contract() -> Contract:
    """What its actions mean: the pusher's target position, in pixels of the table."""
    channels = tuple(
        Channel(axis, "px", ChannelKind.ABSOLUTE, 0.0, SIZE_PX, "table", MAX_RATE_PX_S, HoldPolicy.LAST)
        for axis in AXES
    )
    return Contract(channels, CONTROL_DT_MS)


def describe(
    name: str,
    kind: str,
    horizon: int,
    plans: Mapping[str, Mapping[str, Any]],
    encoder: Mapping[str, Any],
    network: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Description:
    """What a Push-T checkpoint of this family says of itself; see `policies.writing`."""
    bounds = [0.0, 0.0], [SIZE_PX, SIZE_PX]
    return Description(name, kind, horizon, observation_spec(), contract(), *bounds, plans, encoder, network, more)


def write(folder: Path, description: Description, parts: Mapping[str, nn.Module]) -> None:
    """Any family's (`policies.writing.write`), with a golden sample from the simulator. Raises CheckpointError."""
    world = PushTWorld()
    world.reset(GOLDEN_SEED)
    frames, states = [], []
    for _ in range(2):
        frames.append(world.image())
        states.append(world.agent)
        world.step(np.array([SIZE_PX / 2, SIZE_PX / 2]))
    joints = dict(zip(AXES, np.stack(states).T, strict=True))
    writing.write(folder, description, parts, {"top": np.stack(frames)}, joints)


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
