"""A policy on disk: `policy.json` (networks, observation, contract, statistics, plans), safetensors, golden sample.

The folder holds everything that the runtime needs to run the policy as it was trained. Nothing is guessed, and what
does not fit is refused by name. Loading never executes anything from the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from auras_ros.action import Contract
from auras_ros.checkpoints.dtype import HALF, runtime_dtype, stored_dtype, weights_in
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.limits import HISTORY, HORIZON, STEPS, check_sizes, most
from auras_ros.checkpoints.manifest import MANIFEST, OPTIONAL, read_policy
from auras_ros.checkpoints.tensors import fill, pickle_hint, read_tensors, sha256
from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.observation import ObservationSpec, SpecError
from auras_ros.observation.checks import numbers
from auras_ros.policies import golden
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.families import FLOAT32_ALONE, find
from auras_ros.policies.family import Family, LoadedPolicy, Trained
from auras_ros.policies.golden import GoldenSample
from auras_ros.policies.prompt import Language, language_of

WEIGHTS, GOLDEN = "model.safetensors", "golden.safetensors"
GOLDEN_TOLERANCE = {  # of each channel's range; half precision has 11 (float16) and 8 binary digits
    torch.float64: 1e-4,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
ROUNDINGS = 4  # of an action in float64
STATISTICS = {"min_max": ("lower", "upper"), "mean_std": ("mean", "std")}


@dataclass(frozen=True)
class Checkpoint:
    """A loaded folder. `plans`: name -> its family's settings (`policies.families`); the first is the default.

    verified: its golden sample was replayed under every plan; other libraries have none. language: of a policy that
    takes a prompt. dtype: type of the networks' weights; stored: of most numbers in the file; asked: the requested
    type, by name, also for a move to another device.
    """

    name: str
    family: Family
    spec: ObservationSpec
    contract: Contract
    plans: Mapping[str, Mapping[str, Any]]
    digest: str
    networks: nn.ModuleDict
    trained: Trained
    verified: bool = False
    language: Language | None = None
    dtype: torch.dtype = torch.float32
    stored: torch.dtype = torch.float32
    asked: str = "float32"

    @property
    def first_plan(self) -> str:
        """The plan that is used if none is named."""
        return next(iter(self.plans))

    def policy(self, plan: str) -> LoadedPolicy:
        """The policy under one of its plans, the first if none is named; all plans share the weights. A denoising
        policy also has ddimN: its first plan with DDIM and N steps. Raises CheckpointError."""
        plan = plan or self.first_plan
        settings = self.plans.get(plan)
        first, steps = self.plans[self.first_plan], re.fullmatch(r"ddim([1-9]\d{0,3})", plan)
        if settings is None and steps and "sampler" in first:
            settings = {**first, "sampler": "ddim", "steps": int(steps[1])}
        if settings is None:
            raise CheckpointError(f"checkpoint '{self.name}' has no plan '{plan}'; its plans: {', '.join(self.plans)}")
        with refusing(f"checkpoint '{self.name}', plan '{plan}'", TypeError, ValueError):
            if not isinstance(settings, Mapping):
                raise TypeError(f"{settings!r} is not an object")
            try:
                policy = self.family.policy(self.networks, self.trained, settings)
            except KeyError as error:
                raise ValueError(f"{error} is missing") from error
        policy.eval()
        return policy

    @property
    def horizon(self) -> int:
        """Actions of one chunk."""
        chunk = self.trained.chunk
        return int(chunk.stop - chunk.start)

    def tolerance(self) -> NDArray[np.float64]:
        """How far a golden replay may differ, [channels] in physical units: a share of upper - lower, which is two
        standard deviations if the statistics are mean and std, and the rounding of the actions themselves, which is all
        there is of a channel that never moved."""
        lower, upper = self.trained.lower.numpy(), self.trained.upper.numpy()
        rounding = ROUNDINGS * np.spacing(np.maximum(np.abs(lower), np.abs(upper)))
        tolerance: NDArray[np.float64] = GOLDEN_TOLERANCE[self.dtype] * (upper - lower) + rounding
        return tolerance


def load(folder: Path, dtype: str = "float32", device: str = "cpu") -> Checkpoint:
    """Read a checkpoint and replay its golden sample under every plan. dtype, device: see `dtype.runtime_dtype`. Raises
    CheckpointError, naming what is wrong."""
    manifest = read_manifest(folder)
    weights = folder / WEIGHTS
    tensors = read_tensors(weights)
    digest = sha256(weights)
    if manifest["weights"] != {"file": WEIGHTS, "sha256": digest}:
        raise CheckpointError(f"{weights}: is not the file that {MANIFEST} was written for (sha256 {digest})")
    stored = torch.float32 if manifest["type"] in FLOAT32_ALONE else stored_dtype(tensors)
    checkpoint = build(manifest, digest, folder / MANIFEST, runtime_dtype(dtype, device, stored), stored)
    fill(checkpoint.networks, tensors, weights)
    sample = GoldenSample.load(folder / GOLDEN)
    with refusing(folder, ValueError, RuntimeError):  # of a policy that another library plays
        for plan in checkpoint.plans:
            golden.check(
                checkpoint.policy(plan), plan, checkpoint.spec, checkpoint.contract.names, sample,
                checkpoint.tolerance(), exact=checkpoint.dtype not in HALF,
            )  # fmt: skip
    try:
        if checkpoint.language is not None:
            checkpoint.language.check()
    except PromptError as error:
        raise CheckpointError(str(error)) from error
    return replace(checkpoint, verified=True, asked=dtype)


def read_manifest(folder: Path) -> dict[str, Any]:
    """`policy.json` as checked JSON. Raises CheckpointError."""
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{path}: file not found{pickle_hint(folder)}")
    return read_policy(path)


def build(
    manifest: Mapping[str, Any],
    digest: str,
    path: Path,
    dtype: torch.dtype = torch.float32,
    stored: torch.dtype = torch.float32,
) -> Checkpoint:
    """The networks of a manifest, in this type, with random weights. Raises CheckpointError."""
    with refusing(path, ValueError):
        check_limits(manifest)
        spec, contract = ObservationSpec.from_dict(manifest["observation"]), Contract.from_dict(manifest["action"])
        family = find(manifest["type"])
    if manifest["type"] in FLOAT32_ALONE and dtype != torch.float32:
        raise CheckpointError(f"{path}: dtype: type '{manifest['type']}' runs in float32 only")
    lower, upper = _bounds(manifest["statistics"], contract.names, path)
    if not isinstance(manifest["plans"], dict) or not manifest["plans"]:
        raise CheckpointError(f"{path}: plans: expected at least one")
    states = 0 if spec.state is None else len(spec.state.names)
    cameras, actions, horizon = len(spec.cameras), len(contract.names), manifest["horizon"]
    shape = Architecture(
        manifest["name"], cameras, spec.image_size, spec.history, states, horizon, actions, spec.channels
    )
    with refusing(f"{path}: encoder or network", TypeError, ValueError, RuntimeError):
        with weights_in(dtype):
            networks = family.networks(manifest["encoder"], manifest["network"], shape)
        language = language_of(manifest["network"], path.parent if path.name == MANIFEST else path)
    optional = {key: manifest[key] for key in sorted(OPTIONAL & manifest.keys())}
    executed = _executed(optional.pop("executed"), horizon, path) if "executed" in optional else None
    trained = Trained(shape, lower, upper, manifest["statistics"]["kind"], executed, optional)
    networks.eval().requires_grad_(False)
    return Checkpoint(
        manifest["name"], family, spec, contract, manifest["plans"], digest, networks, trained, language=language,
        dtype=dtype, stored=stored,
    )  # fmt: skip


def _bounds(statistics: Any, names: Sequence[str], path: Path) -> tuple[Tensor, Tensor]:
    """What -1 and 1 of the networks mean, float64 [channels]. Raises CheckpointError."""
    kind = statistics.get("kind", "min_max") if isinstance(statistics, dict) else "min_max"
    if not isinstance(kind, str) or kind not in STATISTICS:
        raise CheckpointError(f"{path}: statistics: kind {kind!r} is not known; known: {', '.join(STATISTICS)}")
    keys = STATISTICS[kind]
    if not isinstance(statistics, dict) or statistics.keys() != {"kind", *keys}:
        raise CheckpointError(f"{path}: statistics: expected kind, {keys[0]} and {keys[1]}, got {statistics!r}")
    with refusing(path, SpecError):
        read = [numbers("statistics", key, statistics[key], len(names)) for key in keys]
    # On the CPU, even if networks are built on meta.
    first, second = (torch.tensor(values, dtype=torch.float64, device="cpu") for values in read)
    for name, one, other in zip(names, first.tolist(), second.tolist(), strict=True):
        if kind == "min_max" and one >= other:
            raise CheckpointError(f"{path}: statistics of '{name}': lower {one} is not below upper {other}")
        if kind == "mean_std" and other < 0:  # zero: the action is always the mean
            raise CheckpointError(f"{path}: statistics of '{name}': std {other} is below zero")
    return (first, second) if kind == "min_max" else (first - second, first + second)


def _executed(values: Any, horizon: Any, path: Path) -> tuple[int, int]:
    if isinstance(values, list) and len(values) == 2 and all(type(value) is int for value in values):
        first, count = values
        if type(horizon) is int and first >= 0 and count >= 1 and first + count <= horizon:
            return first, count
    raise CheckpointError(f"{path}: executed: {values!r} is not [first, count] within the horizon, {horizon!r}")


def check_limits(manifest: Mapping[str, Any]) -> None:
    """Check the sizes of manifest and plans; families refuse values that are not numbers. Raises ValueError by key."""
    most("horizon", manifest["horizon"], HORIZON)
    observation = manifest["observation"]
    if isinstance(observation, Mapping):
        most("observation: history", observation.get("history"), HISTORY)
    for part in ("encoder", "network"):
        check_sizes(part, "", manifest[part], 0)
    plans = manifest["plans"]
    for name, plan in plans.items() if isinstance(plans, Mapping) else ():
        if isinstance(plan, Mapping):
            most(f"plans: {name}: steps", plan.get("steps"), STEPS)
