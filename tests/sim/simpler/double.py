"""A recording double of SimplerEnv, made from its public interface: no simulator, no pictures of anything.

`install` puts modules of its names in place, and `modules` are what a process of its own has for SimplerEnv
(`test_environment.py`). It refuses what the real one refuses, and beyond that what the real one
would let pass without sense: a step after the end, or before a reset. What it is told is in `Double.calls`. Its robot
does as little as a test can follow: the tool moves by each action's increments, the gripper as it is told.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.sim.rotations import quaternion

# Task -> the environment's id and its arguments, as published (commit 4ab7178).
ENVIRONMENT_MAP: dict[str, tuple[str, dict[str, Any]]] = {
    "google_robot_pick_coke_can": ("GraspSingleOpenedCokeCanInScene-v0", {}),
    "google_robot_pick_horizontal_coke_can": ("GraspSingleOpenedCokeCanInScene-v0", {"lr_switch": True}),
    "google_robot_pick_vertical_coke_can": ("GraspSingleOpenedCokeCanInScene-v0", {"laid_vertically": True}),
    "google_robot_pick_standing_coke_can": ("GraspSingleOpenedCokeCanInScene-v0", {"upright": True}),
    "google_robot_pick_object": ("GraspSingleRandomObjectInScene-v0", {}),
    "google_robot_move_near": ("MoveNearGoogleBakedTexInScene-v1", {}),
    "google_robot_move_near_v0": ("MoveNearGoogleBakedTexInScene-v0", {}),
    "google_robot_move_near_v1": ("MoveNearGoogleBakedTexInScene-v1", {}),
    "google_robot_open_drawer": ("OpenDrawerCustomInScene-v0", {}),
    "google_robot_open_top_drawer": ("OpenTopDrawerCustomInScene-v0", {}),
    "google_robot_open_middle_drawer": ("OpenMiddleDrawerCustomInScene-v0", {}),
    "google_robot_open_bottom_drawer": ("OpenBottomDrawerCustomInScene-v0", {}),
    "google_robot_close_drawer": ("CloseDrawerCustomInScene-v0", {}),
    "google_robot_close_top_drawer": ("CloseTopDrawerCustomInScene-v0", {}),
    "google_robot_close_middle_drawer": ("CloseMiddleDrawerCustomInScene-v0", {}),
    "google_robot_close_bottom_drawer": ("CloseBottomDrawerCustomInScene-v0", {}),
    "google_robot_place_in_closed_drawer": ("PlaceIntoClosedDrawerCustomInScene-v0", {}),
    "google_robot_place_in_closed_top_drawer": ("PlaceIntoClosedTopDrawerCustomInScene-v0", {}),
    "google_robot_place_in_closed_middle_drawer": ("PlaceIntoClosedMiddleDrawerCustomInScene-v0", {}),
    "google_robot_place_in_closed_bottom_drawer": ("PlaceIntoClosedBottomDrawerCustomInScene-v0", {}),
    "google_robot_place_apple_in_closed_top_drawer": (
        "PlaceIntoClosedTopDrawerCustomInScene-v0",
        {"model_ids": "baked_apple_v2"},
    ),
    "widowx_spoon_on_towel": ("PutSpoonOnTableClothInScene-v0", {}),
    "widowx_carrot_on_plate": ("PutCarrotOnPlateInScene-v0", {}),
    "widowx_stack_cube": ("StackGreenCubeOnYellowCubeBakedTexInScene-v0", {}),
    "widowx_put_eggplant_in_basket": ("PutEggplantInBasketScene-v0", {}),
}
LIMITS = {"Grasp": 80, "MoveNear": 80, "Open": 113, "Close": 113, "Place": 200, "PutEggplant": 120, "": 60}
GOOGLE_JOINTS = [
    *("joint_torso", "joint_shoulder", "joint_bicep", "joint_elbow", "joint_forearm", "joint_wrist", "joint_gripper"),
    *("joint_finger_right", "joint_finger_left", "joint_head_pan", "joint_head_tilt"),
]
WIDOWX_JOINTS = [
    "waist",
    "shoulder",
    "elbow",
    "forearm_roll",
    "wrist_angle",
    "wrist_rotate",
    "left_finger",
    "right_finger",
]
BASE = (0.35, 0.2, 0.08, 0.0, 0.0, 0.0, 1.0)  # turned around, as the Google robot stands
FORCED = 100  # control steps after which the second sub-task begins by itself


@dataclass
class Double:
    """calls: (what, arguments) in order. successes: control steps in which the task is done. stats: what the episode's
    statistics are to say, beside what they begin with."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    successes: set[int] = field(default_factory=set)
    stats: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None

    def of(self, what: str) -> list[Any]:
        """The arguments of these calls."""
        return [told for name, told in self.calls if name == what]


class Env:
    """An environment inside its wrappers: `unwrapped` has what Gymnasium's own wrappers do not forward."""

    def __init__(self, double: Double, env_id: str, values: dict[str, Any]) -> None:
        known = {*SHARED, *(name for start, names in OWN.items() if env_id.startswith(start) for name in names)}
        for name in values:
            if name not in known:
                raise TypeError(f"{env_id}: __init__() got an unexpected keyword argument '{name}'")
        self._double, self._id = double, env_id
        self.google = not env_id.startswith(("Put", "Stack"))
        self._limit = double.limit or next(limit for start, limit in LIMITS.items() if env_id.startswith(start))
        self._joints = GOOGLE_JOINTS if self.google else WIDOWX_JOINTS
        self._steps: int | None = None
        joints = [SimpleNamespace(name=name) for name in self._joints]
        robot = SimpleNamespace(get_active_joints=lambda: joints)
        self.unwrapped = SimpleNamespace(
            robot_uid="google_robot_static" if self.google else "widowx",
            agent=SimpleNamespace(robot=robot),
            get_language_instruction=self._instruction,
            is_final_subtask=self._is_final,
            advance_to_next_subtask=self._advance,
        )

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._double.calls.append(("reset", (seed, options)))
        random = np.random.default_rng(seed)
        self._at, self._turn = random.uniform(-0.1, 0.1, 3), quaternion(0.0, 0.0, 0.5)
        self._which = str(random.choice(["top", "middle", "bottom"]))
        self._opened, self._steps, self._sub_task, self._over = 1.0, 0, 0, False
        self._stats = OrderedDict(first_stats(self._id))
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self._steps is not None, "step before reset"
        assert not self._over, "step after the end of the episode"
        assert isinstance(action, np.ndarray), type(action)
        assert action.shape == (7,), action.shape
        assert np.isfinite(action).all(), action
        self._double.calls.append(("step", action.copy()))
        if self._id.startswith("Place") and self._steps >= FORCED:
            self._sub_task = 1
        self._at = self._at + action[:3]
        self._opened = float(np.clip(self._opened - action[6] if self.google else (action[6] + 1) / 2, 0.0, 1.0))
        self._steps += 1
        self._stats.update(self._double.stats)
        success = self._steps in self._double.successes
        truncated = self._steps >= self._limit
        self._over = truncated
        info = {"elapsed_steps": self._steps, "success": success, "episode_stats": self._stats}
        return self._observation(), float(success), success, truncated, info

    def close(self) -> None:
        self._double.calls.append(("close", self._id))

    def _observation(self) -> dict[str, Any]:
        camera, height = ("overhead_camera", 512) if self.google else ("3rd_view_camera", 480)
        picture = np.zeros((height, 640, 3), np.uint8)
        row, column = (np.clip(self._at[:2] + 0.5, 0.0, 0.9) * (height, 640)).astype(int)
        picture[row : row + 40, column : column + 40] = (255, 128, 0)
        fingers = 1.3 * (1 - self._opened) if self.google else 0.015 + 0.022 * self._opened
        qpos = [fingers if "finger" in name else 0.1 * place for place, name in enumerate(self._joints)]
        tool = [BASE[0] - self._at[0], BASE[1] - self._at[1], BASE[2] + self._at[2]]  # in the base's frame it is at _at
        w, x, y, z = self._turn
        turned = [-z, -y, x, w]  # the base's quaternion times this one
        return {
            "agent": {"qpos": np.array(qpos), "qvel": np.zeros(len(qpos)), "base_pose": np.array(BASE)},
            "extra": {"tcp_pose": np.array([*tool, *turned])},
            "image": {camera: {"rgb": picture}, "base_camera": {"rgb": np.zeros((128, 128, 3), np.uint8)}},
        }

    def _instruction(self) -> str:
        if self._id.startswith("Place"):
            return f"place apple into {self._which} drawer" if self._sub_task else f"open {self._which} drawer"
        words = {"Grasp": "pick coke can", "MoveNear": "move apple near sponge", "Open": f"open {self._which} drawer"}
        words |= {"Close": f"close {self._which} drawer", "PutCarrot": "put carrot on plate"}
        return next((text for start, text in words.items() if self._id.startswith(start)), "stack the green block")

    def _is_final(self) -> bool:
        return not self._id.startswith("Place") or self._sub_task == 1

    def _advance(self) -> None:
        if self._is_final():
            raise NotImplementedError("there is no sub-task left")
        self._double.calls.append(("advance", self._steps))
        self._sub_task = 1


SHARED = {
    *(
        "obs_mode",
        "prepackaged_config",
        "robot",
        "sim_freq",
        "control_freq",
        "control_mode",
        "scene_name",
        "camera_cfgs",
    ),
    *("rgb_overlay_path", "rgb_overlay_cameras", "shader_dir", "render_config", "model_ids", "max_episode_steps"),
}
OWN = {
    "Grasp": ("lr_switch", "laid_vertically", "upright", "slightly_darker_lighting", "slightly_brighter_lighting"),
    "GraspSingleOpenedCokeCanDistractor": ("distractor_config",),
    "MoveNear": ("slightly_darker_lighting", "slightly_brighter_lighting", "no_distractor"),
    "Open": ("light_mode", "station_name"),
    "Close": ("light_mode", "station_name"),
    "Place": ("light_mode", "station_name", "force_advance_subtask_time_steps"),
}


def first_stats(env_id: str) -> dict[str, Any]:
    """With which an episode begins."""
    if env_id.startswith("Grasp"):
        return {"n_lift_significant": 0, "consec_grasp": False, "grasped": False}
    if env_id.startswith("MoveNear"):
        names = ("all_obj_keep_height", "moved_correct_obj", "moved_wrong_obj", "near_tgt_obj", "is_closest_to_tgt")
        return dict.fromkeys(names, False)
    if env_id.startswith("Place"):
        return {"qpos": 0.0, "is_drawer_open": False, "has_contact": 0}
    if env_id.startswith(("Open", "Close")):
        return {"qpos": "0.200" if env_id.startswith("Close") else "0.000"}
    names = ("moved_correct_obj", "moved_wrong_obj", "is_src_obj_grasped", "consecutive_grasp", "src_on_target")
    return dict.fromkeys(names, False)


def install(monkeypatch: pytest.MonkeyPatch) -> Double:
    """For one test, whose worlds of SimplerEnv run in this process."""
    from auras_ros.sim.worlds import SIMS  # a world's process has not what this imports

    double = Double()
    for name, module in modules(double).items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(SIMS, "simpler", replace(SIMS["simpler"], environment=None))  # type: ignore[index]
    return double


def modules(double: Double) -> dict[str, ModuleType]:
    """The modules of SimplerEnv that are used, by name."""
    table = {task: (env_id, dict(values)) for task, (env_id, values) in ENVIRONMENT_MAP.items()}

    def made(env_id: str, **values: Any) -> Env:
        double.calls.append(("made", (env_id, dict(values))))
        return Env(double, env_id, values)

    def make(task_name: str, **kwargs: Any) -> Env:
        assert task_name in table, f"Task {task_name} is not supported"
        env_id, values = table[task_name]
        values.update({"obs_mode": "rgbd", "prepackaged_config": True, **kwargs})  # and keeps them, as the real one
        return made(env_id, **values)

    def image(env: Any, obs: Any, camera_name: str | None = None) -> Any:
        if camera_name is None:
            camera_name = "overhead_camera" if "google_robot" in env.robot_uid else "3rd_view_camera"
        return obs["image"][camera_name]["rgb"]

    contents = {
        "simpler_env": {"make": make, "ENVIRONMENTS": list(table), "ENVIRONMENT_MAP": table},
        "simpler_env.utils": {},
        "simpler_env.utils.env": {},
        "simpler_env.utils.env.env_builder": {"build_maniskill2_env": made},
        "simpler_env.utils.env.observation_utils": {"get_image_from_maniskill2_obs_dict": image},
    }
    made_modules = {name: ModuleType(name) for name in contents}
    for name, values in contents.items():
        vars(made_modules[name]).update(values)
    return made_modules
