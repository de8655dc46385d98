"""Which library draws without a screen: the one that MUJOCO_GL names, else EGL, or OSMesa where EGL has no driver.

To be imported before robosuite, which sets that variable. It is read here, and nothing is loaded.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

from auras_ros.environments import EGL, OSMESA

VARIABLE = "MUJOCO_GL"
CHOICES = ("egl", "osmesa", "glfw")  # the last one needs a screen
EGL_PLATFORM_DEVICE_EXT, MOST_DEVICES = 0x313F, 10

PRESET = os.environ.get(VARIABLE, "").strip().lower()


@contextmanager
def none_loaded() -> Iterator[None]:
    """mujoco loads none when it is imported in this block: a world can be stepped where none works."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "disable"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def library() -> str:
    """The one to draw with, by the name of mujoco's module. Raises ValueError if MUJOCO_GL names none, OSError where
    OSMesa is needed and missing."""
    if PRESET and PRESET not in CHOICES:
        raise ValueError(f"none of {', '.join(CHOICES)}")
    found = PRESET or ("egl" if egl_works() else "osmesa")
    if found == "osmesa":
        ctypes.CDLL(OSMESA.library)  # PyOpenGL does not say what is missing
    return found


def egl_works() -> bool:
    """Whether EGL has a device with a driver. It is loaded for this question alone: once mujoco has loaded it, mujoco
    takes the functions of OpenGL from EGL, and OSMesa cannot be used in this process any more."""
    try:
        egl = ctypes.CDLL(EGL.library, mode=ctypes.RTLD_LOCAL)
    except OSError:
        return False
    pointer, count = ctypes.c_void_p, ctypes.c_int
    egl.eglGetProcAddress.restype = pointer
    query, get = (egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT"))
    if not query or not get:
        return False
    devices, found = (pointer * MOST_DEVICES)(), count()
    ctypes.CFUNCTYPE(ctypes.c_uint, count, pointer, pointer)(query)(MOST_DEVICES, devices, ctypes.byref(found))
    display_of = ctypes.CFUNCTYPE(pointer, ctypes.c_uint, pointer, pointer)(get)
    displays = (display_of(EGL_PLATFORM_DEVICE_EXT, each, None) for each in devices[: found.value])
    return any(each and egl.eglInitialize(pointer(each), None, None) for each in displays)


def failure(reason: Exception) -> str:
    """What to do where no picture can be drawn."""
    install = f"apt-get install {' '.join(EGL.packages)}, or {' '.join(OSMESA.packages)}"
    if PRESET:
        told = f"no picture can be drawn with {VARIABLE}={PRESET} ({reason}). Unset it, and EGL or OSMesa draws"
        return f"{told}; on Debian: {install}"
    return f"no picture can be drawn: OpenGL without a screen is missing ({reason}). On Debian: {install}"
