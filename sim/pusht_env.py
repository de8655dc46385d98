"""gym-pusht's environment, headless, as `pusht.PushTWorld` wraps it. To import this is to need the extra `sim`."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import pymunk
from gym_pusht.envs.pusht import PushTEnv

from auras_ros.sim.pusht_things import Disc


class Env(PushTEnv):
    """With the image taken on demand instead of at every step."""

    def image(self, size_px: int, things: Sequence[Disc] = ()) -> NDArray[np.uint8]:
        """things: in the space only while it is drawn, so that no step of the physics knows them."""
        shapes = [_shape(self.space.static_body, each) for each in things]
        self.space.add(*shapes)
        try:
            return np.ascontiguousarray(self._get_img(self._draw(), width=size_px, height=size_px))
        finally:
            self.space.remove(*shapes)


def _shape(body: pymunk.Body, thing: Disc) -> pymunk.Shape:
    shape = pymunk.Circle(body, thing.radius, (thing.x, thing.y))
    shape.color, shape.sensor = (*thing.rgb, 255), True
    return shape


def release(env: Env) -> None:
    """Let go of the physics before the interpreter ends: freed later than its own module, it crashes."""
    for name in ("collision_handeler", "agent", "block", "_block_shapes", "space"):
        env.__dict__.pop(name, None)
