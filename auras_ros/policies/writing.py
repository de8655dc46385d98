"""Writes a checkpoint folder that `checkpoint.load` reads: manifest, weights, and the golden sample of every plan."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from auras_ros.action import Contract
from auras_ros.checkpoints.errors import refusing
from auras_ros.checkpoints.manifest import FORMAT, MANIFEST
from auras_ros.checkpoints.tensors import fill, naming, read_tensors, sha256
from auras_ros.checkpoints.tokenizer import TOKENIZER
from auras_ros.observation import ObservationSpec
from auras_ros.policies import checkpoint, golden
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.margin import clear_sample


@dataclass(frozen=True)
class Description:
    """What a checkpoint says of itself. The family defines `type`, `encoder`, `network` and `plans` (`families`).

    lower, upper: the range of each channel's actions in physical units that -1 and 1 of the networks mean; mean - std
    and mean + std if actions were normalised by mean and std. more: the manifest's optional keys.
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
    more: Mapping[str, Any] = field(default_factory=dict)

    def manifest(self) -> dict[str, Any]:
        """policy.json without `weights`."""
        return {
            "format": FORMAT,
            **{key: getattr(self, key) for key in ("name", "type", "encoder", "network", "horizon")},
            "observation": self.spec.to_dict(),
            "action": self.contract.to_dict(),
            "statistics": {"kind": "min_max", "lower": list(self.lower), "upper": list(self.upper)},
            "plans": self.plans,
            **self.more,
        }


def write(
    folder: Path,
    description: Description,
    parts: Mapping[str, nn.Module],
    images: Mapping[str, NDArray[np.uint8]],
    state: Mapping[str, NDArray[np.float64]],
    tokenizer: Path | None = None,
) -> float | None:
    """Write everything, then load it as a check. Raises CheckpointError, naming what does not fit.

    parts: the networks by the family's names. images, state: the golden sample's observation, camera -> uint8 RGB
    [history, h, w, 3], joint -> float64 [history] in physical units; take it from the robot or its simulator, so that
    the policy's output is meaningful. tokenizer: a tokenizer.json to copy. For a policy that writes tokens, the
    observation may be changed a little, and the result is the margin by which its tokens win (`policies.margin`).
    """
    tensors = {f"{part}.{key}": t for part, m in parts.items() for key, t in m.state_dict().items()}
    return write_manifest(folder, description.manifest(), tensors, images, state, tokenizer)


def write_manifest(
    folder: Path,
    described: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    images: Mapping[str, NDArray[np.uint8]],
    state: Mapping[str, NDArray[np.float64]],
    tokenizer: Path | None = None,
) -> float | None:
    """Like `write`, from a manifest without `weights` and the tensors by our names. Raises CheckpointError, or OSError,
    naming the file that cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        with naming(folder / TOKENIZER):
            shutil.copyfile(tokenizer, folder / TOKENIZER)
    weights = folder / checkpoint.WEIGHTS
    with naming(weights):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, weights)
    weights.chmod(0o644)  # the library writes it for the owner only
    digest = sha256(weights)
    manifest = {**described, "weights": {"file": checkpoint.WEIGHTS, "sha256": digest}}
    with naming(folder / MANIFEST):
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    loaded = checkpoint.build(manifest, digest, folder / MANIFEST)
    fill(loaded.networks, read_tensors(weights), weights)
    policies = [loaded.policy(plan) for plan in loaded.plans]
    sample, margin = clear_sample(policies, loaded.spec, GoldenSample(dict(images), dict(state), {}))
    for plan, policy in zip(loaded.plans, policies, strict=True):
        with refusing(folder, ValueError, RuntimeError):  # of a policy that another library plays
            actions = golden.replay(policy, loaded.spec, sample)
        sample = sample.with_actions(plan, loaded.contract.names, actions)
    sample.save(folder / checkpoint.GOLDEN)
    checkpoint.load(folder)
    return margin
