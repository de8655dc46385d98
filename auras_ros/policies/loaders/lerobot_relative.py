"""LeRobot's relative actions: the networks predict how far each joint is from where it was when they looked.

LeRobot adds the observed state to the actions in a step of the postprocessor. Here the channels are `delta_origin`: the
actuator adds the state at the chunk's origin, which is the same observation. Which channels are relative is decided by
the preprocessor's step, as in LeRobot. LeRobot pairs joints and actions by their place, we by their name, so both must
agree. This module changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from auras_ros.action import ChannelKind
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.policies.loaders.lerobot import LeRobotFolder
from auras_ros.policies.loaders.lerobot_files import ABSOLUTE_ACTIONS, RELATIVE_ACTIONS, ProcessorStep
from auras_ros.policies.loaders.robot import Robot

KEY = "use_relative_actions"
KEPT = (ChannelKind.ABSOLUTE, ChannelKind.GRIPPER)  # of channels that are not relative


def check_relative(folder: LeRobotFolder, robot: Robot) -> str:
    """Check that the robot's channels are what the folder's actions mean. Returns a line about them, empty if no action
    is relative. Raises CheckpointError."""
    uses = bool(folder.get(KEY, (None, False, True)))
    before, after = folder.step(RELATIVE_ACTIONS), folder.step(ABSOLUTE_ACTIONS)
    for name, step in ((RELATIVE_ACTIONS, before), (ABSOLUTE_ACTIONS, after)):
        if (step is not None and step.is_on) != uses:
            state = "missing" if step is None else "on" if step.is_on else "off"
            raise folder.refused(f"{KEY}: {uses}, but the processors' step '{name}' is {state}")
    if before is None or not uses:
        return ""
    mask = relative_mask(before, len(robot.contract.channels))
    _check_kinds(robot, mask)
    _check_joints(folder, robot, mask)
    names = [name for name, is_relative in zip(robot.contract.names, mask, strict=True) if is_relative]
    return f"relative actions: {', '.join(names) or 'none'}; the actuator adds the state at the chunk's origin"


def relative_mask(step: ProcessorStep, count: int) -> list[bool]:
    """Which of `count` actions are relative: all but those whose name contains one of `exclude_joints`, in any case.
    Without names all are. Raises CheckpointError."""
    excluded, names = step.config.get("exclude_joints") or [], step.config.get("action_names")
    for key, values in (("exclude_joints", excluded), ("action_names", names or [])):
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise CheckpointError(f"{step.processor}: step '{step.name}': {key}: {values!r} is not a list of names")
    words = [word.lower() for word in excluded if word]
    if names is None or not words:
        return [True] * count
    mask = [not any(word in name.lower() for word in words) for name in names[:count]]
    return mask + [True] * (count - len(mask))


def _check_kinds(robot: Robot, mask: Sequence[bool]) -> None:
    """Raises CheckpointError, naming all channels of another kind."""
    channels = list(zip(robot.contract.channels, mask, strict=True))
    wrong = [
        channel.name for channel, is_relative in channels if is_relative and channel.kind != ChannelKind.DELTA_ORIGIN
    ]
    if wrong:
        raise CheckpointError(
            f"{robot.path}: action: {_named(wrong)}: the checkpoint's actions are relative to the state "
            f"({KEY}); the kind must be 'delta_origin' (limits stay those of the set point)"
        )
    wrong = [channel.name for channel, is_relative in channels if not is_relative and channel.kind not in KEPT]
    if wrong:
        kinds = ", ".join(kind.value for kind in KEPT)
        raise CheckpointError(
            f"{robot.path}: action: {_named(wrong)}: relative_exclude_joints leaves these actions absolute; the kind "
            f"must be one of {kinds}"
        )


def _check_joints(folder: LeRobotFolder, robot: Robot, mask: Sequence[bool]) -> None:
    """Check that the joint at each relative action's place has its name. Raises CheckpointError."""
    joints = robot.state or ()
    for index, (name, is_relative) in enumerate(zip(robot.contract.names, mask, strict=True)):
        joint = joints[index] if index < len(joints) else None
        if is_relative and joint != name:
            told = "no joint" if joint is None else f"'{joint}'"
            raise CheckpointError(
                f"{robot.path}: channel {index}, '{name}', is relative to number {index} of the state, which is "
                f"{told}; {folder.file} needs the same name there"
            )


def _named(names: Sequence[str]) -> str:
    listed = ", ".join(f"'{name}'" for name in names)
    return f"channel {listed}" if len(names) == 1 else f"channels {listed}"
