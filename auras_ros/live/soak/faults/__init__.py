"""The faults, one function each: break, wait for what was promised, mend. Arming again is the loop's."""

from __future__ import annotations

from auras_ros.live.soak.faults.buttons import button_gone, second_button
from auras_ros.live.soak.faults.kinds import HOLD_MS, NAMED_MS, SILENT_MS, InjectedFault, Times
from auras_ros.live.soak.faults.loaded import agent_killed_under_load, load
from auras_ros.live.soak.faults.messages import (
    garbage,
    image_corrupt,
    image_wrong,
    joint_states_of_others,
    joint_states_stamped,
    log_closed,
    log_unread,
    noise,
    prompt_garbage,
    prompt_huge,
    stamp_ahead,
)
from auras_ros.live.soak.faults.others import (
    SILENCE_MS,
    arm_on_start_used,
    joint_states_in_parts,
    log_full,
    second_actuator,
)
from auras_ros.live.soak.faults.peers import (
    agent_deactivated,
    bad_parameter,
    clock_set_back,
    publishers_at_arming,
    qos_mismatch,
    robot_moved,
    second_publisher,
)
from auras_ros.live.soak.faults.presses import stop_pressed
from auras_ros.live.soak.faults.processes import (
    actuator_killed,
    actuator_respawned,
    actuator_stopped,
    agent_killed,
    agent_stopped,
    camera_repeats,
    camera_stalled,
    overrun,
    simulator_killed,
)
from auras_ros.live.soak.faults.rivals import late_node, second_agent, second_camera
from auras_ros.ros import BACKEND

__all__ = ["HOLD_MS", "NAMED_MS", "SILENT_MS", "InjectedFault", "Times", "faults"]


def faults(max_age_ms: float, rate_hz: float) -> dict[str, InjectedFault]:
    """By name. A camera that is silent ends in a hold when the newest chunk's actions are too old."""
    two_ticks_ms = 2 * 1000.0 / rate_hz
    known = {
        "agent_killed": InjectedFault(agent_killed, "hold", HOLD_MS, every=4),  # memory shows in long lives alone
        "agent_stopped": InjectedFault(agent_stopped, "hold", HOLD_MS),
        "agent_deactivated": InjectedFault(agent_deactivated, "last hold", None),
        "stop_pressed": InjectedFault(stop_pressed, "hold", HOLD_MS),
        "second_button": InjectedFault(second_button, "hold", HOLD_MS),
        "button_gone": InjectedFault(button_gone, "hold", HOLD_MS),
        "camera_stalled": InjectedFault(camera_stalled, "hold", max_age_ms + two_ticks_ms),
        "camera_repeats": InjectedFault(camera_repeats, "hold", max_age_ms + two_ticks_ms),
        "overrun": InjectedFault(overrun, "new chunk after it", None),
        "actuator_killed": InjectedFault(actuator_killed, "last chunk", SILENT_MS, every=4),
        "actuator_respawned": InjectedFault(actuator_respawned, "last chunk", SILENT_MS, every=4),
        "arm_on_start_used": InjectedFault(arm_on_start_used, "driven if asked", None, every=2),
        "actuator_stopped": InjectedFault(actuator_stopped, "last chunk", SILENT_MS),
        "second_actuator": InjectedFault(second_actuator, "disarmed", NAMED_MS, every=2),
        "second_agent": InjectedFault(second_agent, "refused", None),
        "second_camera": InjectedFault(second_camera, "driven after it", None),
        "second_publisher": InjectedFault(second_publisher, "named", NAMED_MS),
        "publishers_at_arming": InjectedFault(publishers_at_arming, "disarmed", NAMED_MS),
        "late_node": InjectedFault(late_node, "found", NAMED_MS),
        "bad_parameter": InjectedFault(bad_parameter, "refused", None),
        "qos_mismatch": InjectedFault(qos_mismatch, "named", NAMED_MS),
        "clock_set_back": InjectedFault(clock_set_back, "disarmed", HOLD_MS),
        "robot_moved": InjectedFault(robot_moved, "driven last", HOLD_MS),
        "simulator_killed": InjectedFault(simulator_killed, "hold", SILENCE_MS + two_ticks_ms, every=4),
        "garbage": InjectedFault(garbage, "driven after it", None),
        "noise": InjectedFault(noise, "named", None),
        "image_corrupt": InjectedFault(image_corrupt, "named", None),
        "image_wrong": InjectedFault(image_wrong, "named", None),
        "stamp_ahead": InjectedFault(stamp_ahead, "named", None),
        "joint_states_of_others": InjectedFault(joint_states_of_others, "named", None),
        "joint_states_stamped": InjectedFault(joint_states_stamped, "named", None),
        "joint_states_in_parts": InjectedFault(joint_states_in_parts, "hold", SILENCE_MS + two_ticks_ms, every=2),
        "log_unread": InjectedFault(log_unread, "stopped if asked", HOLD_MS),
        "log_closed": InjectedFault(log_closed, "stopped if asked", HOLD_MS),
        "log_full": InjectedFault(log_full, "driven", None, every=2),
        "load": InjectedFault(load, "driven after it", None),
        "agent_killed_under_load": InjectedFault(agent_killed_under_load, "hold", None, every=4),
        "prompt_huge": InjectedFault(prompt_huge, "refused", None),
        "prompt_garbage": InjectedFault(prompt_garbage, "refused", None),
    }
    if BACKEND != "dds":  # how rclpy's readers take payloads that are no message is rclpy's own
        del known["noise"]
    return known
