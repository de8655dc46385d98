"""From a checkpoint's folder to an executor that is ready for its first frame."""

from __future__ import annotations

from pathlib import Path

import torch

from auras_ros.clock import Clock
from auras_ros.pipeline.seq import Identity, Sequential
from auras_ros.policies.checkpoint import load
from auras_ros.policies.tensors import CheckpointError

__all__ = ["CheckpointError", "load_sequential"]


def load_sequential(
    folder: Path, plan: str, seed: int, clock: Clock, identity: Identity, threads: int = 1
) -> Sequential:
    """Load, check (golden sample included) and warm up. Raises CheckpointError, naming what is wrong."""
    torch.set_num_threads(threads)
    sequential = Sequential(load(folder), plan, seed, clock, identity)
    sequential.warm_up()
    return sequential
