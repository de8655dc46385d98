"""A short episode as one number."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from auras_ros.sim.world import World

STEPS = 12


def digest(world: World, seeds: Sequence[int]) -> str:
    """Of everything that a world tells in random episodes of these seeds, pictures included."""
    told = hashlib.sha256()
    for seed in seeds:
        world.reset(seed)
        chance = np.random.default_rng(seed)
        for _ in range(STEPS):
            low, high = ([getattr(each, bound) for each in world.channels] for bound in ("low", "high"))
            result = world.step(chance.uniform(low, high))
            numbers = [dict(world.state()), result.reward, result.success, dict(result.sub_goals)]
            told.update(json.dumps(numbers, sort_keys=True).encode())
        for camera in world.cameras:
            told.update(world.image(camera.name, camera.height, camera.width).tobytes())
    return told.hexdigest()
