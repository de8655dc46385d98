"""gym-pusht's environment, headless, as `pusht.PushTWorld` wraps it. To import this is to need the extra `sim`."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

from gym_pusht.envs.pusht import PushTEnv


class Env(PushTEnv):
    """With the image taken on demand instead of at every step."""

    def image(self, size_px: int) -> NDArray[np.uint8]:
        return np.ascontiguousarray(self._get_img(self._draw(), width=size_px, height=size_px))


def release(env: Env) -> None:
    """Let go of the physics before the interpreter ends: freed later than its own module, it crashes."""
    for name in ("collision_handeler", "agent", "block", "_block_shapes", "space"):
        env.__dict__.pop(name, None)
