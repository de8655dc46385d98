"""A golden observation whose tokens win clearly: another machine's rounding must not choose another token.

A token is the best of many scores. If two are almost equal, the order of a sum decides, and a golden sample made there
would refuse a good checkpoint on another machine. So an observation is accepted only if every token wins by `MARGIN`;
similar ones are tried until one does. Policies that choose no tokens accept any observation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.observation import ObservationSpec
from auras_ros.policies.golden import GoldenSample, observed
from auras_ros.policies.policy import Policy, TokenPolicy

MARGIN = 1e-3  # standard deviations of a position's scores; float32 moves them by about 1e-6 (12 layers)
TRIES = 64
GREY_LEVELS = 32  # the largest change of a pixel
SHARE = 0.05  # the largest change of a joint's position, as a share of its size plus one unit


def clear_sample(
    policies: Iterable[Policy], spec: ObservationSpec, sample: GoldenSample
) -> tuple[GoldenSample, float | None]:
    """The sample, or a similar one (seeded noise on images and state), on which every token of every policy wins; and
    the smallest margin, None without tokens. Raises CheckpointError if none of `TRIES` is found."""
    choosing = [policy for policy in policies if isinstance(policy, TokenPolicy)]
    if not choosing:
        return sample, None
    best = -1.0
    for number in range(TRIES):
        tried = _like(sample, number)
        margin = min(smallest_margin(policy, spec, tried) for policy in choosing)
        if margin >= MARGIN:
            return tried, margin
        best = max(best, margin)
    raise CheckpointError(
        f"golden sample: in {TRIES} observations like this one a token wins by {best:.1e} standard deviations at most, "
        f"expected {MARGIN:.0e}: another machine's rounding could choose another; take another observation"
    )


def smallest_margin(policy: TokenPolicy, spec: ObservationSpec, sample: GoldenSample) -> float:
    """The smallest of all tokens that this policy gives for the sample's observation; -1 if it is not finite."""
    found = float(policy.margins(policy.perceive(*observed(spec, sample))).min())
    return found if np.isfinite(found) else -1.0


def _like(sample: GoldenSample, number: int) -> GoldenSample:
    """The same observation with noise that grows with `number`; 0 is the sample itself."""
    random, share = np.random.default_rng(number), number / (TRIES - 1)

    def noisy(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        levels = int(np.ceil(share * GREY_LEVELS))
        changed = image.astype(np.int64) + random.integers(-levels, levels + 1, image.shape)
        return changed.clip(0, 255).astype(np.uint8)

    def moved(positions: NDArray[np.float64]) -> NDArray[np.float64]:
        size = np.abs(positions).max(initial=0.0) + 1
        return np.asarray(positions + share * SHARE * size * random.uniform(-1, 1, positions.shape))

    images = {name: noisy(image) for name, image in sample.images.items()}
    state = {name: moved(positions) for name, positions in sample.state.items()}
    return replace(sample, images=images, state=state)
