"""Which library draws without a screen: EGL, or OSMesa where it is missing. To be imported before mujoco and robosuite:
the one reads it, the other sets it."""

from __future__ import annotations

import ctypes.util
import os

NONE = "disable"
GL = os.environ.setdefault(
    "MUJOCO_GL", "egl" if ctypes.util.find_library("EGL") else "osmesa" if ctypes.util.find_library("OSMesa") else NONE
)
os.environ.setdefault("LP_NUM_THREADS", "1")  # of Mesa, which draws without a GPU; more help no small picture
