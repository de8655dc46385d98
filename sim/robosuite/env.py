"""robosuite's environments, headless, as `world` wraps them. To import this is to need robosuite.

Physics and pictures are apart: a picture is drawn when somebody looks, never in a step, and nothing of OpenGL is opened
before.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import robosuite
from numpy.typing import NDArray
from robosuite.controllers import load_composite_controller_config
from robosuite.environments.manipulation.lift import Lift
from robosuite.utils.transform_utils import mat2quat, quat2axisangle

from auras_ros.sim.robosuite.mujoco_renderer import MujocoRenderer

TABLE = "table"
TABLE_KG = 1e6  # so heavy that nothing which touches it slows it down


class LiftOnMovingTable(Lift):
    """robosuite's Lift with a table that slides along an axis, which is set for each episode."""

    def edit_model_xml(self, xml_str: str) -> str:
        root = ElementTree.fromstring(super().edit_model_xml(xml_str))
        (table,) = root.iterfind(f"worldbody/body[@name='{TABLE}']")
        mass = {"pos": "0 0 0", "mass": str(TABLE_KG), "diaginertia": f"{TABLE_KG} {TABLE_KG} {TABLE_KG}"}
        table.insert(0, ElementTree.Element("joint", {"name": TABLE, "type": "slide", "axis": "1 0 0"}))
        table.insert(0, ElementTree.Element("inertial", mass))
        touching = {"body1": TABLE, "body2": "fixed_mount0_pedestal"}  # the robot's stand; both stood still before
        ElementTree.SubElement(ElementTree.SubElement(root, "contact"), "exclude", touching)
        return ElementTree.tostring(root, encoding="unicode")


class Simulation:
    """One environment of robosuite and what is drawn of it. env: robosuite's own, also for what only a task knows."""

    def __init__(self, env: Any) -> None:
        self.env = env
        # Its observations of the last reset or step. They are not asked for again: some are computed from others of
        # the time before, and would depend on how often somebody looked.
        self.readings: Mapping[str, Any] = {}
        self._renderer: MujocoRenderer | None = None
        known = self.env._observables.items()
        self.objects = tuple(
            name for name, one in known if one.modality == "object" and one.is_enabled() and one.is_active()
        )

    def reset(self, seed: int) -> None:
        self._seed(seed)
        self.readings = self.env.reset()

    def _seed(self, seed: int) -> None:
        """Everything that robosuite draws comes from one generator, which its parts share: it is set, not replaced."""
        self.env.rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    def step(self, action: NDArray[np.float64]) -> tuple[float, bool]:
        """One control period. Returns reward and success."""
        self.readings, reward, _, _ = self.env.step(action)
        return float(reward), bool(self.env._check_success())

    def gripper_pose(self, robot: int) -> Sequence[float]:
        """Position and rotation vector of what absolute actions move, m and rad, in the world's frame."""
        data, site = self.env.sim.data, self.env.robots[robot].eef_site_id["right"]
        turn = quat2axisangle(mat2quat(data.site_xmat[site].reshape(3, 3)))
        return [*data.site_xpos[site].tolist(), *turn.tolist()]

    def image(self, camera: str, height: int, width: int, fast: bool) -> NDArray[np.uint8]:
        """What this camera sees, upright. Raises RuntimeError where there is no OpenGL."""
        sim = self.env.sim
        if self._renderer is None:
            self._renderer = MujocoRenderer(sim.model._model, fast)
            weakref.finalize(self, self._renderer.close).atexit = False  # it is closed then anyway
        return self._renderer.draw(sim.data._data, sim.model.camera_name2id(camera), height, width)

    def close(self) -> None:
        if self._renderer is not None:
            self._renderer.close()
        self.env.close()


def make(environment: str, robots: int, absolute: bool, shaped: bool) -> Any:
    """robosuite's environment. absolute: actions are poses in the world's frame. shaped: it has a reward on the way for
    this task."""
    return robosuite.make(
        environment,
        robots=["Panda"] * robots,
        controller_configs=[_controller(absolute) for _ in range(robots)],
        has_renderer=False,
        has_offscreen_renderer=False,
        use_camera_obs=False,
        reward_shaping=shaped,
        control_freq=20,
        horizon=2**31,
        ignore_done=True,
        hard_reset=False,
        seed=0,
    )


def _controller(absolute: bool) -> dict[str, Any]:
    """robosuite's own for this robot, in the frame that it had when robomimic's datasets were made: by default it is
    now that of each robot's base."""
    config: dict[str, Any] = load_composite_controller_config(robot="Panda")
    config["body_parts"]["right"] |= {"input_ref_frame": "world", "input_type": "absolute" if absolute else "delta"}
    return config
