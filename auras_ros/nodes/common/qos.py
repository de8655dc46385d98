"""The QoS profiles of the nodes' topics: only the newest message counts, but every question and every answer."""

from __future__ import annotations

from auras_ros.ros import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import IMAGES

__all__ = ["ANSWERS", "BEST_EFFORT", "IMAGES", "LATCHED", "RELIABLE"]

RELIABLE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
BEST_EFFORT = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
ANSWERS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
