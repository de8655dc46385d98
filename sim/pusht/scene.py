"""A Push-T table as somebody set it: tee and pusher posed, coloured things laid on it, and its picture.

The picture is that of `world.PushTWorld`, drawn by the same code, so it is what a robot's camera topic carries; things
that are not on the published table are discs in the same space. Nothing moves here.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.pusht.env import Env, release
from auras_ros.sim.pusht.things import Disc
from auras_ros.sim.pusht.world import IMAGE_PX

TOUCH_S = 1e-6  # a step so short that nothing moves: the renderer marks contacts of the last step


class PosedTable:
    """Draws one scene after another."""

    def __init__(self) -> None:
        self._env = Env(obs_type="state")
        self._env.reset(seed=0)
        weakref.finalize(self, release, self._env)

    def picture(
        self,
        tee: NDArray[np.float64],
        pusher: NDArray[np.float64],
        things: Sequence[Disc] = (),
        size_px: int = IMAGE_PX,
    ) -> NDArray[np.uint8]:
        """The table from above, uint8 RGB [size_px, size_px, 3]. tee: pose [x, y, angle]; pusher: position [x, y]."""
        env, space = self._env, self._env.space
        env.agent.position, env.agent.velocity = tuple(pusher), (0, 0)
        env.block.angle, env.block.position = float(tee[2]), tuple(tee[:2])
        env.block.velocity, env.block.angular_velocity = (0, 0), 0
        space.reindex_shapes_for_body(env.block)
        space.reindex_shapes_for_body(env.agent)
        space.step(TOUCH_S)
        return env.image(size_px, things)
