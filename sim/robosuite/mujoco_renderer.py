"""Draws the cameras of a MuJoCo model, without a screen. Its physics never waits for it."""

from __future__ import annotations

import atexit
import importlib
import os
import weakref
from functools import cache
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from auras_ros.sim.robosuite import opengl

MAX_GEOMS = 10_000
os.environ.setdefault("LP_NUM_THREADS", "1")  # of Mesa, which draws without a GPU; more help no small picture


class MujocoRenderer:
    """Of one model. It belongs to the thread that made it."""

    def __init__(self, model: Any, fast: bool) -> None:
        """fast: without multisampling, shadows and reflections. Raises RuntimeError where there is no OpenGL."""
        if fast:
            model.vis.quality.offsamples = 0  # read when the context is made
        try:
            # Not mujoco.gl_context, which has chosen when it was imported.
            self._gl = importlib.import_module(f"mujoco.{opengl.library()}").GLContext(1, 1)
            self._gl.make_current()
            self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150)
        except Exception as error:  # each library has its own
            raise RuntimeError(opengl.failure(error)) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._model, self._scene = model, mujoco.MjvScene(model, maxgeom=MAX_GEOMS)
        if fast:
            for flag in (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION):
                self._scene.flags[flag] = 0
        self._camera, self._pert, self._shown = mujoco.MjvCamera(), mujoco.MjvPerturb(), mujoco.MjvOption()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._shown.geomgroup[0] = 0  # shapes for collisions
        _OPEN.add(self)
        _close_at_exit()

    def draw(self, data: Any, camera: int, height: int, width: int) -> NDArray[np.uint8]:
        """What a camera sees, RGB [height, width, 3], upright."""
        self._gl.make_current()
        context, size = self._context, mujoco.MjrRect(0, 0, width, height)
        if width > context.offWidth or height > context.offHeight:
            mujoco.mjr_resizeOffscreen(max(width, context.offWidth), max(height, context.offHeight), context)
        self._camera.fixedcamid = camera
        everything = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(self._model, data, self._shown, self._pert, self._camera, everything, self._scene)
        mujoco.mjr_render(size, self._scene, context)
        picture = np.empty((height, width, 3), np.uint8)
        mujoco.mjr_readPixels(picture, None, size, context)
        return np.ascontiguousarray(picture[::-1])  # OpenGL's first row is the lowest

    def close(self) -> None:
        """A second time does nothing."""
        self._context.free()
        self._gl.free()


_OPEN: weakref.WeakSet[MujocoRenderer] = weakref.WeakSet()


@cache
def _close_at_exit() -> None:
    """To be called after the first context was made: mujoco then ends EGL at exit, and what is registered later runs
    before that."""
    atexit.register(_close_all)


def _close_all() -> None:
    for each in list(_OPEN):
        each.close()
