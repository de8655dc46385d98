"""gym-pusht's environment, headless, as `world.PushTWorld` wraps it. To import this is to need the extra `sim`."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

import pymunk
from gym_pusht.envs.pusht import PushTEnv, pymunk_to_shapely

from auras_ros.sim.pusht.things import Disc


class Env(PushTEnv):
    """With the image taken on demand instead of at every step, and a coverage that is the same in every process."""

    def _get_coverage(self) -> float:
        """gym-pusht's, but for its order of the tee's two shapes, which is that of a set: by their addresses in memory,
        on which the last digit of a sum of areas would depend."""
        goal = pymunk_to_shapely(self.get_goal_pose_body(self.goal_pose), self._block_shapes)
        block = pymunk_to_shapely(self.block, self._block_shapes)
        return float(goal.intersection(block).area / goal.area)

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
