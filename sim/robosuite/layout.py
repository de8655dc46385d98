"""What is known of robosuite's worlds without robosuite: cameras, action channels, and how readings are named."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, radians, sqrt, tan

from auras_ros.sim.world import ActionChannel, WorldCamera

IMAGE_PX = 84  # robomimic's datasets
FIELD_OF_VIEW = {"eye_in_hand": 75.0}  # vertical, degrees; of every other camera:
OTHER_FIELD_OF_VIEW = 45.0
ENDINGS = {"pos": "xyz", "quat": "xyzw"}  # of the numbers in a reading with such a name
AXES = ("x", "y", "z")
DELTA_M, DELTA_RAD = 0.05, 0.5  # what an increment of 1 moves the goal by
# Of a pose in the world's frame. A rotation vector may be longer than half a turn: the gripper looks down, where the
# shortest one changes its sign.
WORKSPACE_M, HEIGHT_M, TURN_RAD = 1.5, (0.5, 2.0), 2 * pi
POINTS_DOWN_RAD = (pi / sqrt(2), pi / sqrt(2), 0.0)  # rotation vector of a gripper that does, as at an episode's start


def robot_names(robots: int) -> tuple[str, ...]:
    """As in robosuite's readings."""
    return tuple(f"robot{number}" for number in range(robots))


def cameras_of(names: Sequence[str], px: int = IMAGE_PX) -> tuple[WorldCamera, ...]:
    """These cameras, square. A pixel's centre has whole coordinates, as in ROS."""
    return tuple(WorldCamera(name, px, px, _intrinsics(name, px)) for name in names)


def _intrinsics(name: str, px: int) -> tuple[float, float, float, float]:
    view = next((angle for part, angle in FIELD_OF_VIEW.items() if part in name), OTHER_FIELD_OF_VIEW)
    focal, centre = px / (2 * tan(radians(view) / 2)), (px - 1) / 2
    return (focal, focal, centre, centre)


def channels_of(robots: int, absolute: bool = False, turns: bool = True) -> tuple[ActionChannel, ...]:
    """Seven for each robot: its gripper's position, its rotation, and how far it is closed; without `turns` four, none
    of rotation. With more than one robot a name begins with the robot's."""
    arm = _absolute_channels if absolute else _delta_channels
    made = list[ActionChannel]()
    for name in robot_names(robots):
        robot = f"{name}_" if robots > 1 else ""
        moves, rotations = arm(robot)
        made += [*moves, *(rotations if turns else ()), _gripper(robot)]
    return tuple(made)


def _delta_channels(robot: str) -> tuple[list[ActionChannel], list[ActionChannel]]:
    """Of position and of rotation."""
    moves = [ActionChannel(f"{robot}d{axis}", f"x {DELTA_M} m", -1.0, 1.0) for axis in AXES]
    return moves, [ActionChannel(f"{robot}dr{axis}", f"x {DELTA_RAD} rad", -1.0, 1.0) for axis in AXES]


def _absolute_channels(robot: str) -> tuple[list[ActionChannel], list[ActionChannel]]:
    level = [ActionChannel(f"{robot}{axis}", "m", -WORKSPACE_M, WORKSPACE_M) for axis in "xy"]
    rotations = [ActionChannel(f"{robot}r{axis}", "rad", -TURN_RAD, TURN_RAD) for axis in AXES]
    return [*level, ActionChannel(f"{robot}z", "m", *HEIGHT_M)], rotations


def _gripper(robot: str) -> ActionChannel:
    return ActionChannel(f"{robot}gripper", "(open to closed)", -1.0, 1.0)


def flattened(name: str, values: Sequence[float]) -> dict[str, float]:
    """The numbers of one reading, each under its name: robot0_eef_pos_x, robot0_joint_pos_0. A single number has the
    reading's."""
    if len(values) == 1:
        return {name: values[0]}
    letters = ENDINGS.get(name.rpartition("_")[2], "")
    endings = letters if len(letters) == len(values) else [str(number) for number in range(len(values))]
    return {f"{name}_{ending}": value for ending, value in zip(endings, values, strict=True)}


POSE = (("_pos", 3), ("_quat", 4))
TWO_POSES = (("_to_robot0_eef_pos", 3), ("_to_robot0_eef_quat", 4), *POSE)  # before the gripper, and in the world


def _of(things: Sequence[str], parts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple((f"{thing}{part}", size) for thing in things for part, size in parts)


OBJECTS = {  # an environment's readings in robomimic's key `object`, and how many numbers each has; of robosuite 1.5
    "Lift": (*_of(["cube"], POSE), ("gripper_to_cube_pos", 3)),
    "PickPlaceCan": _of(["Can"], TWO_POSES),
    "NutAssemblySquare": _of(["SquareNut"], TWO_POSES),
    "ToolHang": (*_of(["base", "frame", "tool"], TWO_POSES), ("frame_is_assembled", 1), ("tool_on_frame", 1)),
    "TwoArmTransport": (
        *_of(["payload", "trash", "lid_handle"], POSE),
        *_of(["target_bin", "trash_bin"], POSE[:1]),
        *_of(["payload_in_target_bin", "trash_in_trash_bin"], [("", 1)]),
        *_of(["gripper0_to_payload", "gripper0_to_lid_handle", "gripper1_to_payload", "gripper1_to_trash"], [("", 3)]),
    ),
}
