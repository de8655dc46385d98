"""Joints by the names that a robot gives them, which may have a prefix that the checkpoint's do not have."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from auras_ros.nodes.common.topic_causes import shown


def own_joints(
    names: Sequence[str], positions: NDArray[np.float64], prefix: str
) -> tuple[list[str], NDArray[np.float64]]:
    """The joints of a message whose names begin with the prefix, without it, and their positions. A message that has
    not as many positions as names keeps all names: whoever takes it judges that."""
    if not prefix:
        return list(names), positions
    if len(names) != len(positions):
        others = "not ours: "  # never the name of a joint of the checkpoint
        return [name[len(prefix) :] if name.startswith(prefix) else others + name for name in names], positions
    kept = [index for index, name in enumerate(names) if name.startswith(prefix)]
    return [names[index][len(prefix) :] for index in kept], positions[kept]


def naming_hint(wanted: Sequence[str], heard: Collection[str], prefix: str) -> str:
    """What is wrong with the names in joint_states, where they lack joints of the checkpoint, and the remedy. wanted:
    the checkpoint's; heard: as they were published; prefix: joint_prefix."""
    full_names = [prefix + name for name in wanted]
    text = f"joint_states name {shown(heard)}, not {shown(full_names)}"
    other = next((each for each in _prefixes(wanted[0], heard) if each != prefix and _fits(each, wanted, heard)), None)
    return f"{text}: {_remedy(other)}" if other is not None else text


def _prefixes(joint: str, heard: Collection[str]) -> list[str]:
    return sorted(name[: -len(joint)] for name in heard if name.endswith(joint))


def _fits(prefix: str, wanted: Sequence[str], heard: Collection[str]) -> bool:
    return all(prefix + name in heard for name in wanted)


def _remedy(prefix: str) -> str:
    return f"set joint_prefix: {prefix[:80]}" if prefix else 'set joint_prefix: ""'
