"""The result of a translator: our manifest, our tensors, and the source of each tensor, for errors.

This module knows no foreign format, and never touches a tensor's values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.dtype import runtime_dtype, stored_dtype
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.tensors import check_shapes, fill
from auras_ros.policies.checkpoint import Checkpoint, build
from auras_ros.policies.loaders.ranges import check_ranges


@dataclass(frozen=True)
class Translated:
    """A checkpoint in our terms."""

    # policy.json's keys without `weights`.
    manifest: dict[str, Any]
    # By our names, maybe a mapping that reads on demand; each is read once, in the mapping's order.
    tensors: Mapping[str, Tensor]
    # Our name -> "file: tensor 'name'".
    origin: Mapping[str, str] = field(default_factory=dict)
    # Names of the files that were read, of a source that is a folder.
    files: frozenset[str] = frozenset()
    # Sentences about what was taken and why, for a person who converts it.
    notes: tuple[str, ...] = ()

    def checkpoint(self, digest: str, source: Path, dtype: str = "float32", device: str = "cpu") -> Checkpoint:
        """The policy with these weights; it has no golden sample. dtype, device: see `dtype.runtime_dtype`. Raises
        CheckpointError, naming the source."""
        check_shapes(wanted(self.manifest, source), self.tensors, source, self.origin)  # before memory is spent
        stored = stored_dtype(self.tensors)
        made = build(self.manifest, digest, source, runtime_dtype(dtype, device, stored), stored)
        check_ranges(made, source)
        fill(made.networks, self.tensors, source, self.origin)
        return replace(made, asked=dtype)


def wanted(manifest: Mapping[str, Any], source: Path) -> dict[str, Tensor]:
    """All tensors of this manifest's networks, without their memory. Raises CheckpointError."""
    with torch.device("meta"):
        return build(manifest, "", source).networks.state_dict()


def renamed(
    names: Collection[str],
    tensors: Mapping[str, Tensor],
    file: Path,
    source_of: Callable[[str], str],
    ignored: Callable[[str], bool] = lambda name: False,
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """(tensors, origin) of a Translated: each of our `names` from the tensor in `file` that `source_of` names.

    ignored: which of the source's tensors inference does not need. Raises CheckpointError for a tensor of the source
    that is missing, or left over.
    """
    sources = {name: source_of(name) for name in names}
    origin = {name: f"{file}: tensor '{source}'" for name, source in sources.items()}
    for name, source in sources.items():
        if source not in tensors:
            raise CheckpointError(f"{origin[name]} is missing")
    used = set(sources.values())
    for source in tensors:
        if source not in used and not ignored(source):
            raise CheckpointError(f"{file}: tensor '{source}' belongs to no part of this policy")
    return {name: tensors[source] for name, source in sources.items()}, origin
