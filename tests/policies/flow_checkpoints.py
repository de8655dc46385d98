"""Tiny checkpoints of the family `flow`: random weights, two cameras, three joints, three channels."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from auras_ros.checkpoints.manifest import FORMAT
from auras_ros.models.presets import PI0S, SMOLVLAS
from auras_ros.policies.checkpoint import build
from auras_ros.policies.writing import write_manifest
from tests.models import published

KINDS = ("pi0", "pi05", "smolvla")
PI0 = PI0S["pi0-tiny"]
CONFIGS: dict[str, Any] = {"pi0": PI0, "pi05": replace(PI0, adaptive=True), "smolvla": SMOLVLAS["smolvla-tiny"]}
IDS, LIMIT = [2, 77, 140, 9], 6
JOINTS = ("shoulder", "elbow", "wrist")
NUMBERS = [[300, *(310 + int(digit) for digit in str(max(bin_, 0)))] for bin_ in range(-1, 256)]


def network(kind: str) -> dict[str, Any]:
    config = CONFIGS[kind]
    own: dict[str, Any] = {
        "pi0": {},
        "pi05": {"numbers": NUMBERS, "after": [330, 331]},
        "smolvla": {"fold": 2, "self_attention_every": 2, "around": [[5, 6], [5]], "empty": 1},
    }[kind]
    sizes = {part: asdict(getattr(config, part)) for part in ("vision", "language", "expert")}
    numbers = {"state": config.state, "actions": config.actions}
    return {"model": kind, **sizes, **numbers, "prompt": IDS, "prompt_limit": LIMIT, **own}


def manifest(kind: str, **changes: Any) -> dict[str, Any]:
    side = CONFIGS[kind].vision.image_px
    camera = {"height": side, "width": side, "mean": [0.5] * 3, "std": [0.5] * 3}
    channel = {"unit": "rad", "kind": "absolute", "lower": -9.0, "upper": 9.0, "hold": "last"}
    made: dict[str, Any] = {
        "format": FORMAT,
        "name": f"tiny-{kind}",
        "type": "flow",
        "encoder": {},
        "network": network(kind),
        "horizon": CONFIGS[kind].horizon,
        "observation": {
            "cameras": [{"name": name, **camera} for name in ("top", "wrist")],
            "state": {"names": list(JOINTS), "normalization": {"kind": "min_max", "min": [-2.0] * 3, "max": [2.0] * 3}},
            "history": 1,
            "dt_ms": 50,
        },
        "action": {"dt_ms": 50, "channels": [{"name": joint, **channel} for joint in JOINTS]},
        "statistics": {"kind": "mean_std", "mean": [0.0, 1.0, -1.0], "std": [0.5, 1.0, 2.0]},
        "plans": {"euler": {"steps": 4}, "coarse": {"steps": 2}},
        "executed": [0, 4],
    }
    return {**made, **changes}


def observation(kind: str) -> tuple[dict[str, NDArray[np.uint8]], dict[str, NDArray[np.float64]]]:
    random, side = np.random.default_rng(0), CONFIGS[kind].vision.image_px
    images = {name: random.integers(0, 256, (1, side, side, 3), dtype=np.uint8) for name in ("top", "wrist")}
    return images, {joint: np.array([0.3 * i - 0.5]) for i, joint in enumerate(JOINTS)}


def write(folder: Path, kind: str, **changes: Any) -> None:
    described = manifest(kind, **changes)
    networks = build(described, "", Path("policy.json")).networks
    published.randomise(networks)
    tensors: dict[str, torch.Tensor] = networks.state_dict()
    write_manifest(folder, described, tensors, *observation(kind))
