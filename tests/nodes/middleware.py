"""How the ROS under test differs from our own layer. A test names the difference and runs; it does not skip.

rclpy 7.1 (Jazzy) does not say whose a message is, so a False releases nothing there: IDENTIFIES_PUBLISHERS."""

from __future__ import annotations

from typing import Any

from auras_ros.ros.identity import IDENTIFIES_PUBLISHERS
from auras_ros.ros.msg import Bool
from tests.nodes.wire import Watch

__all__ = ["IDENTIFIES_PUBLISHERS", "presser", "release"]


def presser(name: str) -> str:
    """What the actuator calls a publisher that presses the emergency stop."""
    return name if IDENTIFIES_PUBLISHERS else "an unknown publisher"


def release(watch: Watch, button: Any) -> None:
    """Release a button, and wait until the actuator has heard it. Without identities a person has to say so too."""
    button.publish(Bool(data=False))
    if not IDENTIFIES_PUBLISHERS:
        released, reason = watch.call("actuator/release_stop")
        assert released, reason
    watch.state_where(lambda state: state["emergency_stop"] is False, "the release is heard")
