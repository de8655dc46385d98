"""Upper limits of the sizes in a manifest, in one place for every family and every loader.

A number in a file must not decide how long a robot's agent builds networks or how much memory it takes. A size larger
than any published one is refused by its key, before it is used. Whether a network fits into memory is not checked here.
Nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from auras_ros.number_checks import shown as shown

LAYERS, WIDTH, STEPS, HORIZON, HISTORY = 256, 65_536, 1000, 1024, 64
VOCABULARY, PROMPT = 1 << 20, 4096  # ids, and ids of one prompt

# Of a network's description; any other key is a width.
LIMITS = {
    **dict.fromkeys(("layers", "encoder_layers", "decoder_layers", "depth"), LAYERS),
    **dict.fromkeys(("vocabulary", "first", "bins"), VOCABULARY),
    "prompt_limit": PROMPT,
}
# Token ids, which the vocabulary bounds, and numbers that are not sizes.
OTHERS = {"prompt", "prompt_end", "numbers", "after", "around", "rope_theta", "rope_scaling"}
DEEPEST = 8


def most(key: str, value: object, limit: int) -> None:
    """Raises ValueError if the number is above the limit."""
    if isinstance(value, int | float) and value > limit:
        raise ValueError(f"{key}: {shown(value)} is more than {limit}, the most that is supported")


def check_sizes(owner: str, key: str, value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"{owner}: is nested deeper than {DEEPEST}")
    if key in OTHERS:
        return
    if isinstance(value, Mapping):
        for name, each in value.items():
            check_sizes(f"{owner}: {name}", str(name), each, depth + 1)
    elif isinstance(value, list | tuple):
        for each in value:
            check_sizes(owner, key, each, depth + 1)
    else:
        most(owner, value, LIMITS.get(key, WIDTH))
