"""The faults, one function each: break, wait for what was promised, mend. Arming again is the loop's."""

from __future__ import annotations

from auras_ros.ros import BACKEND
from auras_ros.soak.faults.kinds import HOLD_MS, NAMED_MS, SILENT_MS, Fault, Times
from auras_ros.soak.faults.loaded import agent_killed_under_load, load
from auras_ros.soak.faults.messages import (
    garbage,
    image_corrupt,
    image_wrong,
    joint_states_of_others,
    log_unread,
    noise,
    prompt_garbage,
    prompt_huge,
    stamp_ahead,
)
from auras_ros.soak.faults.peers import (
    agent_deactivated,
    clock_set_back,
    qos_mismatch,
    robot_moved,
    second_publisher,
)
from auras_ros.soak.faults.presses import stop_pressed
from auras_ros.soak.faults.processes import (
    actuator_killed,
    actuator_stopped,
    agent_killed,
    agent_stopped,
    camera_stalled,
    overrun,
)

__all__ = ["HOLD_MS", "NAMED_MS", "SILENT_MS", "Fault", "Times", "faults"]


def faults(max_age_ms: float, rate_hz: float) -> dict[str, Fault]:
    """By name. A camera that is silent ends in a hold when the newest chunk's actions are too old."""
    known = {
        "agent_killed": Fault(agent_killed, "hold", HOLD_MS, every=4),  # memory shows in long lives alone
        "agent_stopped": Fault(agent_stopped, "hold", HOLD_MS),
        "agent_deactivated": Fault(agent_deactivated, "last hold", None),
        "stop_pressed": Fault(stop_pressed, "hold", HOLD_MS),
        "camera_stalled": Fault(camera_stalled, "hold", max_age_ms + 2 * 1000.0 / rate_hz),
        "overrun": Fault(overrun, "new chunk after it", None),
        "actuator_killed": Fault(actuator_killed, "last chunk", SILENT_MS, every=4),
        "actuator_stopped": Fault(actuator_stopped, "last chunk", SILENT_MS),
        "second_publisher": Fault(second_publisher, "named", NAMED_MS),
        "qos_mismatch": Fault(qos_mismatch, "named", NAMED_MS),
        "clock_set_back": Fault(clock_set_back, "disarmed", HOLD_MS),
        "robot_moved": Fault(robot_moved, "driven last", HOLD_MS),
        "garbage": Fault(garbage, "driven after it", None),
        "noise": Fault(noise, "named", None),
        "image_corrupt": Fault(image_corrupt, "named", None),
        "image_wrong": Fault(image_wrong, "named", None),
        "stamp_ahead": Fault(stamp_ahead, "named", None),
        "joint_states_of_others": Fault(joint_states_of_others, "named", None),
        "log_unread": Fault(log_unread, "driven after it", None),
        "load": Fault(load, "driven after it", None),
        "agent_killed_under_load": Fault(agent_killed_under_load, "hold", None, every=4),
        "prompt_huge": Fault(prompt_huge, "refused", None),
        "prompt_garbage": Fault(prompt_garbage, "refused", None),
    }
    if BACKEND != "dds":  # how rclpy's readers take payloads that are no message is rclpy's own
        del known["noise"]
    return known
