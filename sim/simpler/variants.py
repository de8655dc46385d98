"""SimplerEnv's two evaluations: what an environment is made with, and what each seed's episode starts from.

Visual matching is one set-up of each task (`prepackaged_config`); variant aggregation is the published list of other
scenes, lights, cameras, textures and distractors, which its scripts pass to the environments one by one and average.
Plain data, by the names that SimplerEnv has for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from auras_ros.sim.rotations import quaternion
from auras_ros.sim.simpler.tasks import SimplerTask

Values = Mapping[str, Any]
CONTROL_MODE = (
    "arm_pd_ee_delta_pose_align_interpolate_by_planner_gripper_pd_joint_target_delta_pos_interpolate_by_planner"
)
EPISODES = {"near": 60, "bridge": 24}  # predetermined starts
TURNED_AROUND = (0.0, 0.0, 0.0, 1.0)  # how the Google robot stands before its table, [w, x, y, z]


@dataclass(frozen=True)
class SimplerVariant:
    """env: the environment's id; empty: the task's own. values: what it is made with."""

    env: str = ""
    values: Values = field(default_factory=dict)


def _scene(name: str, env: str = "", **values: Any) -> SimplerVariant:
    return SimplerVariant(env, {"scene_name": name, **values})


def _on_the_table(
    env: str, distractors: Mapping[str, SimplerVariant], cameras: tuple[str, str]
) -> dict[str, SimplerVariant]:
    """The variants of tasks on the Google robot's table."""
    table, baked = "google_pick_coke_can_1_v4", "Baked_sc1_staging_objaverse_cabinet"
    return {
        "base": _scene(table, env),
        "table1": _scene(f"{baked}1_h870", env),
        "table2": _scene(f"{baked}2_h870", env),
        "background1": _scene(f"{table}_alt_background", env),
        "background2": _scene(f"{table}_alt_background_2", env),
        "darker": _scene(table, env, slightly_darker_lighting=True),
        "brighter": _scene(table, env, slightly_brighter_lighting=True),
        **distractors,
        "camera1": _scene(table, cameras[0]),
        "camera2": _scene(table, cameras[1]),
    }


def _at_the_drawers(**values: Any) -> dict[str, SimplerVariant]:
    flat = "frl_apartment_stage_simple"
    return {
        "base": _scene(flat, **values),
        "background1": _scene("modern_bedroom_no_roof", **values),
        "background2": _scene("modern_office_no_roof", **values),
        "darker": _scene(flat, light_mode="darker", **values),
        "brighter": _scene(flat, light_mode="brighter", **values),
        "cabinet2": _scene(flat, station_name="mk_station2", **values),
        "cabinet3": _scene(flat, station_name="mk_station3", **values),
    }


_CAN, _NEAR, _TABLE = "GraspSingleOpenedCokeCan", "MoveNear", "google_pick_coke_can_1_v4"
_MANY = f"{_CAN}DistractorInScene-v0"
VARIANTS: Mapping[str, Mapping[str, SimplerVariant]] = {  # kind of task -> variant
    "can": _on_the_table(
        "",
        {"distractors": _scene(_TABLE, _MANY), "distractors2": _scene(_TABLE, _MANY, distractor_config="more")},
        (f"{_CAN}AltGoogleCameraInScene-v0", f"{_CAN}AltGoogleCamera2InScene-v0"),
    ),
    "near": _on_the_table(
        "MoveNearGoogleInScene-v0",
        {"undisturbed": _scene(_TABLE, "MoveNearGoogleInScene-v0", no_distractor=True)},
        (f"{_NEAR}AltGoogleCameraInScene-v0", f"{_NEAR}AltGoogleCamera2InScene-v0"),
    ),
    "drawer": _at_the_drawers(),
    "place": _at_the_drawers(model_ids="apple"),
}


def build_values(task: SimplerTask, variant: SimplerVariant) -> dict[str, Any]:
    """What a variant's environment is made with, beside `shader_dir`."""
    return {
        "prepackaged_config": False,
        "obs_mode": "rgbd",
        "robot": task.robot.name,
        "sim_freq": 513,
        "control_mode": CONTROL_MODE,
        "control_freq": 3,
        "camera_cfgs": {"add_segmentation": True},
        "rgb_overlay_path": None,
        **variant.values,
    }


def reset_values(task: SimplerTask, variant: bool, seed: int) -> dict[str, Any]:
    """The options of the environment's reset: which start of the published ones a seed stands for. A start that the
    environment draws itself, from the same seed, is not in here."""
    made: dict[str, Any] = {"reconfigure": True}  # whatever was played before
    if task.kind in EPISODES:
        made["obj_init_options"] = {"episode_id": seed % EPISODES[task.kind]}
    elif variant:
        robot_x, robot_y, object_x, object_y = GRIDS[task.kind][seed % len(GRIDS[task.kind])]
        made["robot_init_options"] = _robot(robot_x, robot_y)
        made["obj_init_options"] = {"init_xy": np.array([object_x, object_y])}
    if variant and task.kind == "near":
        made["robot_init_options"] = _robot(0.35, 0.21, yaw=-0.09)
    return made


def _robot(x: float, y: float, yaw: float = 0.0) -> dict[str, Any]:
    w, _, _, z = quaternion(0.0, 0.0, yaw)
    return {"init_xy": np.array([x, y]), "init_rot_quat": np.array([-z, 0.0, 0.0, w]) if yaw else TURNED_AROUND}


def _grid(*spans: tuple[float, float, int]) -> list[tuple[float, ...]]:
    return list(product(*(np.linspace(low, high, count).tolist() for low, high, count in spans)))


# Where the robot and its object start: x and y of both, m. The last changes fastest.
GRIDS: Mapping[str, list[tuple[float, ...]]] = {
    "can": _grid((0.35, 0.35, 1), (0.20, 0.20, 1), (-0.35, -0.12, 5), (-0.02, 0.42, 5)),
    "drawer": _grid((0.65, 0.85, 3), (-0.2, 0.2, 3), (0.0, 0.0, 1), (0.0, 0.0, 1)),
    "place": _grid((0.65, 0.65, 1), (-0.2, 0.2, 3), (-0.08, -0.02, 3), (-0.02, 0.08, 3)),
}
