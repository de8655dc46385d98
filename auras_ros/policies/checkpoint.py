"""A policy on disk: `policy.json` (networks, observation, contract, statistics, plans), safetensors, golden sample.

Everything the runtime must know to run the policy as it was trained is in the folder; nothing is guessed, and what
does not fit is refused by name. Loading never executes anything from the folder.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from auras_ros.action import Contract, ContractError
from auras_ros.observation import ObservationSpec, SpecError
from auras_ros.policies import golden
from auras_ros.policies.diffusion import Architecture
from auras_ros.policies.families import Family, LoadedPolicy, Trained, find
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.tensors import CheckpointError, fill, read_tensors, sha256

FORMAT = "auras-policy/1"
MANIFEST, WEIGHTS, GOLDEN = "policy.json", "model.safetensors", "golden.safetensors"
GOLDEN_TOLERANCE = 1e-4  # of each channel's range
KEYS = {
    "format",
    "name",
    "type",
    "encoder",
    "network",
    "horizon",
    "observation",
    "action",
    "statistics",
    "plans",
    "weights",
}
OPTIONAL = {"prediction", "training_steps"}  # what the networks were trained for; the first checkpoints say neither


@dataclass(frozen=True)
class Checkpoint:
    """A loaded folder. `plans`: name -> what its family calls for (`policies.families`); the first is the default."""

    name: str
    family: Family
    spec: ObservationSpec
    contract: Contract
    plans: Mapping[str, Mapping[str, Any]]
    digest: str
    networks: nn.ModuleDict
    trained: Trained

    def policy(self, plan: str) -> LoadedPolicy:
        """The policy under one of its plans; all plans share the weights. Raises CheckpointError."""
        if plan not in self.plans:
            raise CheckpointError(f"checkpoint '{self.name}' has no plan '{plan}'; there is {', '.join(self.plans)}")
        try:
            settings = self.plans[plan]
            if not isinstance(settings, Mapping):
                raise TypeError(f"{settings!r} is not an object")
            policy = self.family.policy(self.networks, self.trained, settings)
            policy.eval()
            return policy
        except KeyError as error:
            raise CheckpointError(f"checkpoint '{self.name}', plan '{plan}': {error} is missing") from error
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"checkpoint '{self.name}', plan '{plan}': {error}") from error

    @property
    def horizon(self) -> int:
        """Actions of one chunk."""
        return self.trained.architecture.horizon

    def tolerance(self) -> NDArray[np.float64]:
        """How far a golden replay may be off, [channels] in physical units."""
        return GOLDEN_TOLERANCE * (self.trained.upper - self.trained.lower).numpy()


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint and replay its golden sample under every plan. Raises CheckpointError, naming the thing."""
    manifest = read_manifest(folder)
    weights = folder / WEIGHTS
    tensors = read_tensors(weights)
    digest = sha256(weights)
    if manifest["weights"] != {"file": WEIGHTS, "sha256": digest}:
        raise CheckpointError(f"{weights}: is not the file that {MANIFEST} was written for (sha256 {digest})")
    checkpoint = build(manifest, digest, folder / MANIFEST)
    fill(checkpoint.networks, tensors, weights)
    sample = GoldenSample.load(folder / GOLDEN)
    for plan in checkpoint.plans:
        golden.check(
            checkpoint.policy(plan), plan, checkpoint.spec, checkpoint.contract.names, sample, checkpoint.tolerance()
        )
    return checkpoint


def read_manifest(folder: Path) -> dict[str, Any]:
    """`policy.json` as checked JSON. Raises CheckpointError."""
    path = folder / MANIFEST
    if not path.is_file():
        pickles = [p.name for p in folder.glob("*") if p.suffix in (".ckpt", ".pt", ".pth", ".pkl")]
        hint = f"; {pickles[0]} is a pickle and is refused" if pickles else ""
        raise CheckpointError(f"{path}: file not found{hint}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format is not '{FORMAT}'")
    for key in sorted(KEYS ^ (manifest.keys() - OPTIONAL)):
        raise CheckpointError(f"{path}: key '{key}' is {'missing' if key in KEYS else 'unknown'}")
    return manifest


def build(manifest: Mapping[str, Any], digest: str, path: Path) -> Checkpoint:
    """The networks of a manifest, with weights still random. Raises CheckpointError."""
    try:
        spec, contract = ObservationSpec.from_dict(manifest["observation"]), Contract.from_dict(manifest["action"])
    except (SpecError, ContractError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    try:
        family = find(manifest["type"])
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    lower, upper = (_statistics(manifest, key, len(contract.names), path) for key in ("lower", "upper"))
    for name, low, high in zip(contract.names, lower, upper, strict=True):
        if low >= high:
            raise CheckpointError(f"{path}: statistics of '{name}': lower {low} is not below upper {high}")
    if not isinstance(manifest["plans"], dict) or not manifest["plans"]:
        raise CheckpointError(f"{path}: plans: expected at least one")
    states = 0 if spec.state is None else len(spec.state.names)
    cameras, actions, horizon = len(spec.cameras), len(contract.names), manifest["horizon"]
    shape = Architecture(manifest["name"], cameras, spec.image_size, spec.history, states, horizon, actions)
    try:
        networks = family.networks(manifest["encoder"], manifest["network"], shape)
    except (TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{path}: encoder or network: {error}") from error
    bounds = torch.tensor(lower, dtype=torch.float64), torch.tensor(upper, dtype=torch.float64)
    trained = Trained(shape, *bounds, **{key: manifest[key] for key in sorted(OPTIONAL & manifest.keys())})
    networks.eval().requires_grad_(False)
    return Checkpoint(manifest["name"], family, spec, contract, manifest["plans"], digest, networks, trained)


def _statistics(manifest: Mapping[str, Any], key: str, count: int, path: Path) -> list[float]:
    statistics = manifest["statistics"]
    if not isinstance(statistics, dict) or statistics.keys() != {"kind", "lower", "upper"}:
        raise CheckpointError(f"{path}: statistics: expected kind, lower and upper, got {statistics!r}")
    if statistics["kind"] != "min_max":
        raise CheckpointError(f"{path}: statistics: kind '{statistics['kind']}' is not known; there is min_max")
    values = statistics[key]
    if not isinstance(values, list) or len(values) != count or not all(_is_finite(value) for value in values):
        raise CheckpointError(f"{path}: statistics: {key}: expected {count} finite numbers, got {values!r}")
    return [float(value) for value in values]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
