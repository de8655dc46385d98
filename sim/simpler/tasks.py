"""SimplerEnv's tasks, as its environments publish them: robot, camera, rates, what their statistics say of an episode.

Plain data: nothing here imports a simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from auras_ros.sim.world import WorldCamera


@dataclass(frozen=True)
class SimplerRobot:
    """camera: of the policies; uid: its name in SimplerEnv. finger: the joint whose position is `closed` to `opened`.
    hold_steps: for how many control steps the evaluation of OpenVLA holds a change of the gripper; 0: it has set
    points."""

    name: str
    control_dt_ms: int
    camera: WorldCamera
    uid: str
    finger: str
    closed: float
    opened: float
    hold_steps: int


# 3 Hz, in whole milliseconds.
GOOGLE = SimplerRobot(
    "google_robot_static",
    333,
    WorldCamera("overhead", 640, 512, (425.0, 425.0, 320.0, 256.0)),
    "overhead_camera",
    "joint_finger_right",
    closed=1.3,
    opened=0.0,
    hold_steps=15,
)
# 5 Hz. Its tasks have cameras of different calibration.
WIDOWX = SimplerRobot(
    "widowx", 200, WorldCamera("third_view", 640, 480), "3rd_view_camera", "left_finger", 0.015, 0.037, hold_steps=0
)


@dataclass(frozen=True)
class SimplerGoal:
    """A sub-goal: a number of `info["episode_stats"]` as a share, 0 at `none` and 1 at `full`."""

    name: str
    stat: str
    none: float = 0.0
    full: float = 1.0

    def share(self, stats: Mapping[str, Any]) -> float:
        """0 to 1. Raises ValueError if the episode has no such number."""
        if self.stat not in stats:
            raise ValueError(f"simpler: episode_stats has no '{self.stat}': {', '.join(stats) or 'empty'}")
        share = (float(stats[self.stat]) - self.none) / (self.full - self.none)  # text too, see `SimplerWorld.step`
        return min(1.0, max(0.0, share))


@dataclass(frozen=True)
class SimplerTask:
    """kind: of the tasks with the same variants and the same grid of starts."""

    robot: SimplerRobot
    kind: str
    goals: tuple[SimplerGoal, ...]


def _goals(*names: str) -> tuple[SimplerGoal, ...]:
    return tuple(SimplerGoal(name, name) for name in names)


# Lifted by more than 2 cm in five control steps is a success, whatever comes later.
LIFT = (*_goals("grasped", "consec_grasp"), SimplerGoal("lifted", "n_lift_significant", full=5.0))
NEAR = _goals("all_obj_keep_height", "moved_correct_obj", "moved_wrong_obj", "near_tgt_obj", "is_closest_to_tgt")
OPEN, CLOSE = (SimplerGoal("opened", "qpos", 0.0, 0.15),), (SimplerGoal("closed", "qpos", 0.2, 0.05),)
PLACE = _goals("is_drawer_open", "has_contact")
PUT = _goals("moved_correct_obj", "moved_wrong_obj", "is_src_obj_grasped", "consecutive_grasp", "src_on_target")


def _google(kind: str, goals: tuple[SimplerGoal, ...], *names: str) -> dict[str, SimplerTask]:
    return {f"google_robot_{name}": SimplerTask(GOOGLE, kind, goals) for name in names}


def _drawers(kind: str, goals: tuple[SimplerGoal, ...], name: str) -> dict[str, SimplerTask]:
    return _google(kind, goals, *(f"{name}_{which}drawer" for which in ("", "top_", "middle_", "bottom_")))


TASKS: Mapping[str, SimplerTask] = {
    **_google(
        "can", LIFT, "pick_coke_can", "pick_horizontal_coke_can", "pick_vertical_coke_can", "pick_standing_coke_can"
    ),
    **_google("object", LIFT, "pick_object"),
    **_google("near", NEAR, "move_near", "move_near_v0", "move_near_v1"),
    **_drawers("drawer", OPEN, "open"),
    **_drawers("drawer", CLOSE, "close"),
    **_drawers("place", PLACE, "place_in_closed"),
    **_google("place", PLACE, "place_apple_in_closed_top_drawer"),
    **{
        f"widowx_{name}": SimplerTask(WIDOWX, "bridge", PUT)
        for name in ("spoon_on_towel", "carrot_on_plate", "stack_cube", "put_eggplant_in_basket")
    },
}
