"""A lifecycle node in the agent's place: it takes every transition, and is there at once."""

from __future__ import annotations

import sys

from auras_ros import ros

if __name__ == "__main__":
    ros.init(args=sys.argv)
    ros.spin(ros.LifecycleNode("lifecycle_agent"))
