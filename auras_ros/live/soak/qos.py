"""The quality of service that the soak's own publishers and subscriptions have."""

from __future__ import annotations

from auras_ros.ros import DurabilityPolicy, QoSProfile, ReliabilityPolicy

EVERY = QoSProfile(depth=1000, reliability=ReliabilityPolicy.RELIABLE)
RELIABLE = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
LATCHED = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE, durability=DurabilityPolicy.TRANSIENT_LOCAL)
CAMERA = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
