"""Which library draws robosuite's pictures, and what is said where none can.

Guards: EGL's library without a driver, beside an OSMesa that nobody asks; MUJOCO_GL that is not obeyed, or not named
where it is the reason; a world without OpenGL that cannot be stepped.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("robosuite", reason="needs robosuite: make test-worlds")

import mujoco
import mujoco.egl

from auras_ros.environments import EGL, OSMESA
from auras_ros.sim.robosuite import opengl
from auras_ros.sim.robosuite.mujoco_renderer import MujocoRenderer

NO_DRIVER = {"__EGL_VENDOR_LIBRARY_FILENAMES": "/nowhere.json"}  # of libEGL, which has none of its own
WORKS = "from auras_ros.sim.robosuite.opengl import egl_works\nprint(egl_works())"
DRAWS = """
from auras_ros.sim.robosuite.lift import LiftWorld
import numpy as np, sys
world = LiftWorld()
world.reset(0)
print(world.step(np.zeros(7)).success)
print(world.image("agentview", 84, 84).std() > 5, "mujoco.egl" in sys.modules)
"""
CUBE = """
<mujoco><worldbody>
  <light pos="0 0 3"/><camera name="front" pos="0 -2 1" xyaxes="1 0 0 0 0.5 1"/>
  <geom type="box" size=".3 .3 .3" group="1"/>
</worldbody></mujoco>
"""


def ran(program: str, **more: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: robosuite and mujoco have set these variables in this one."""
    kept = {name: each for name, each in os.environ.items() if name not in (opengl.VARIABLE, "PYOPENGL_PLATFORM")}
    environment = kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | more
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=180)


def drawn() -> float:
    """The spread of the colours in a picture of a cube."""
    model = mujoco.MjModel.from_xml_string(CUBE)
    data, renderer = mujoco.MjData(model), MujocoRenderer(model, fast=True)
    mujoco.mj_forward(model, data)
    try:
        return float(renderer.draw(data, 0, 48, 48).std())
    finally:
        renderer.close()


def osmesa_loads() -> bool:
    try:
        ctypes.CDLL(OSMESA.library)
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("more", "works"), [({}, "True"), (NO_DRIVER, "False")], ids=["a driver", "none"])
def test_egl_is_asked_for_a_driver(more: dict[str, str], works: str) -> None:
    assert ran(WORKS, **more).stdout.strip() == works


@pytest.mark.parametrize("works", [True, False])
def test_osmesa_draws_where_egl_has_no_driver(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other library is EGL too, under the name of OSMesa's module; the one that must not be asked fails."""
    broken = SimpleNamespace(GLContext=None)
    for module, other in (("mujoco.egl", False), ("mujoco.osmesa", True)):
        monkeypatch.setitem(sys.modules, module, broken if works is other else mujoco.egl)
    monkeypatch.setattr(opengl, "OSMESA", EGL)
    monkeypatch.setattr(opengl, "PRESET", "")
    monkeypatch.setattr(opengl, "egl_works", lambda: works)
    assert drawn() > 5


@pytest.mark.skipif(not osmesa_loads(), reason=f"needs {OSMESA.library}: apt-get install {OSMESA.packages[0]}")
@pytest.mark.parametrize("more", [{opengl.VARIABLE: "osmesa"}, NO_DRIVER], ids=["asked for", "fallen back on"])
def test_osmesa_draws(more: dict[str, str]) -> None:
    done = ran(DRAWS, **more)
    assert done.stdout.split() == ["False", "True", "False"], done.stderr


def test_without_a_library_it_steps_and_names_the_variable() -> None:
    """Of a value that mujoco, imported with it, refuses."""
    done = ran(DRAWS, **{opengl.VARIABLE: "nonsense"})
    assert (done.stdout.strip(), done.returncode) == ("False", 1)
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("RuntimeError: no picture can be drawn with MUJOCO_GL=nonsense (none of egl, osmesa, ")


@pytest.mark.parametrize(
    ("preset", "said"),
    [
        ("glfw", r"no picture can be drawn with MUJOCO_GL=glfw \(no screen\)\. Unset it, .*apt-get install libegl1"),
        ("disable", r"no picture can be drawn with MUJOCO_GL=disable \(none of egl, osmesa, glfw\)\. Unset it, "),
        ("osmesa", r"no picture can be drawn with MUJOCO_GL=osmesa \(libNowhere\.so: cannot open"),
        ("", r"OpenGL without a screen is missing \(libNowhere\.so: .*apt-get install libegl1 .*, or libosmesa6"),
    ],
)
def test_what_fails_is_named_with_its_reason(preset: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_screen(*size: Any) -> None:
        raise OSError("no screen")

    monkeypatch.setitem(sys.modules, "mujoco.glfw", SimpleNamespace(GLContext=no_screen))
    monkeypatch.setattr(opengl, "OSMESA", SimpleNamespace(library="libNowhere.so", packages=OSMESA.packages))
    monkeypatch.setattr(opengl, "PRESET", preset)
    monkeypatch.setattr(opengl, "egl_works", lambda: False)
    with pytest.raises(RuntimeError, match=said):
        drawn()


def test_the_variable_is_as_it_was_after_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started later read it."""
    for before in ("osmesa", None):
        if before is None:
            monkeypatch.delenv(opengl.VARIABLE)
        else:
            monkeypatch.setenv(opengl.VARIABLE, before)
        with opengl.none_loaded():
            assert os.environ[opengl.VARIABLE] == "disable"
            os.environ[opengl.VARIABLE] = "egl"  # as robosuite does
        assert os.environ.get(opengl.VARIABLE) == before
