"""Writes a checkpoint folder that `checkpoint.load` reads: manifest, weights, and the golden sample of every plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from auras_ros.action import Contract
from auras_ros.observation import ObservationSpec
from auras_ros.policies import checkpoint, golden
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.tensors import fill, read_tensors, sha256


@dataclass(frozen=True)
class Description:
    """What a checkpoint says of itself. `type`, `encoder`, `network` and `plans` are the family's (`families`).

    lower, upper: the range of each channel's actions in physical units, that -1 and 1 of the networks mean.
    """

    name: str
    type: str
    horizon: int
    spec: ObservationSpec
    contract: Contract
    lower: Sequence[float]
    upper: Sequence[float]
    plans: Mapping[str, Mapping[str, Any]]
    encoder: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)


def write(
    folder: Path,
    description: Description,
    parts: Mapping[str, nn.Module],
    images: Mapping[str, NDArray[np.uint8]],
    state: Mapping[str, NDArray[np.float64]],
) -> None:
    """Write everything, then load it to be sure. Raises CheckpointError, naming what does not fit.

    parts: the networks by the names that the family gives them. images, state: the golden sample's observation, camera
    -> uint8 RGB [history, h, w, 3], joint -> float64 [history] in physical units; one that the policy has an opinion
    on, taken from the robot or its simulator.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"{part}.{key}": t.contiguous() for part, m in parts.items() for key, t in m.state_dict().items()}
    weights = folder / checkpoint.WEIGHTS
    save_file(tensors, weights)
    weights.chmod(0o644)  # the library writes for the owner alone
    digest = sha256(weights)
    manifest = {
        "format": checkpoint.FORMAT,
        "name": description.name,
        "type": description.type,
        "encoder": description.encoder,
        "network": description.network,
        "horizon": description.horizon,
        "observation": description.spec.to_dict(),
        "action": description.contract.to_dict(),
        "statistics": {"kind": "min_max", "lower": list(description.lower), "upper": list(description.upper)},
        "plans": description.plans,
        "weights": {"file": checkpoint.WEIGHTS, "sha256": digest},
    }
    (folder / checkpoint.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    loaded = checkpoint.build(manifest, digest, folder / checkpoint.MANIFEST)
    fill(loaded.networks, read_tensors(weights), weights)
    sample = GoldenSample(dict(images), dict(state), {})
    for plan in description.plans:
        actions = golden.replay(loaded.policy(plan), loaded.spec, sample)
        sample = sample.with_actions(plan, description.contract.names, actions)
    sample.save(folder / checkpoint.GOLDEN)
    checkpoint.load(folder)
