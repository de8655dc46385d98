"""The topics that faults publish on, and the quality of service of the soak's own publishers and subscriptions."""

from __future__ import annotations

from typing import Any

from auras_ros.nodes.common import qos
from auras_ros.nodes.common.qos import LATCHED, RELIABLE
from auras_ros.ros import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from auras_ros.ros.msg import Bool, Float64MultiArray, Image, JointState, String

EVERY = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
ACTION = "action"
Topic = tuple[Any, str, QoSProfile]  # type, name and quality of service
ACTIONS = Float64MultiArray, ACTION, QoSProfile(depth=1)
CHUNKS = Float64MultiArray, "agent/chunk", RELIABLE
HEARTBEAT = String, "agent/heartbeat", RELIABLE
BUTTON = Bool, "emergency_stop", LATCHED
PROMPT = String, "prompt", LATCHED
IMAGES = Image, "camera/top/image_raw", qos.IMAGES
STATES = JointState, "joint_states", qos_profile_sensor_data
STATE_LISTENERS = 2  # agent and actuator
JOINTS = ("agent_x", "agent_y")  # of the table that is played
