"""The controllers' side of the wire: doubles that accept what ros2_control's controllers in Jazzy accept, refuse what
they refuse, and do what they do when nothing comes any more. The rules are theirs (docs/controllers.md), not ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from auras_ros.checkpoints.manifest import FORMAT, KEYS, MANIFEST
from auras_ros.ros import Node, QoSProfile
from auras_ros.ros.msg import Float64MultiArray, JointTrajectory, TwistStamped

SYSTEM_DEFAULT = QoSProfile(depth=100)  # deep, so that the double misses nothing that it judges
NS = 1_000_000_000


def stamp(value: Any) -> int:
    """A Time or Duration message in ns."""
    return int(value.sec) * NS + int(value.nanosec)


class TrajectoryController:
    """joint_trajectory_controller's topic interface, with its defaults (no partial goals, no nonzero end velocity)."""

    def __init__(self, node: Node, joints: Sequence[str], topic: str = "joint_trajectory") -> None:
        self.joints, self.accepted, self.refused = list(joints), list[JointTrajectory](), list[str]()
        self._node = node
        node.create_subscription(JointTrajectory, topic, self._on_trajectory, SYSTEM_DEFAULT)

    def _on_trajectory(self, message: JointTrajectory) -> None:
        why = self.objection(message, self._node.get_clock().now().nanoseconds)
        if why:
            self.refused.append(why)
            return
        self.accepted.append(message)

    @property
    def horizons(self) -> list[JointTrajectory]:
        """Those of chunks; one point alone is a place to stay at."""
        return [message for message in self.accepted if len(message.points) > 1]

    def objection(self, message: JointTrajectory, now_ns: int) -> str:
        """Why the controller would not take it; empty if it would."""
        if len(message.joint_names) != len(self.joints) or set(message.joint_names) != set(self.joints):
            return f"joints {list(message.joint_names)}"
        if not message.points:
            return "no points"
        if any(abs(velocity) > np.finfo(np.float32).eps for velocity in message.points[-1].velocities):
            return "nonzero velocity at the end"
        start_ns = stamp(message.header.stamp)
        times_ns = [stamp(point.time_from_start) for point in message.points]
        if start_ns and start_ns + times_ns[-1] < now_ns:
            return "ends in the past"
        if times_ns[0] < 0 or any(b <= a for a, b in pairwise(times_ns)):
            return f"times {times_ns}"
        for index, point in enumerate(message.points):
            if len(point.positions) != len(self.joints):
                return f"point {index}: {len(point.positions)} positions"
            if any(len(each) not in (0, len(self.joints)) for each in (point.velocities, point.accelerations)):
                return f"point {index}: sizes"
            if len(point.effort):
                return f"point {index}: effort"
        return ""


class OnTime(TrajectoryController):
    """Judges each trajectory as of its sending: a test computes between two looks, a real controller does not."""

    def objection(self, message: JointTrajectory, now_ns: int) -> str:
        return super().objection(message, stamp(message.header.stamp))


def positions(message: JointTrajectory, joints: Sequence[str]) -> NDArray[np.float64]:
    """[points, joints] in the controller's own order."""
    order = [list(message.joint_names).index(joint) for joint in joints]
    return np.array([point.positions for point in message.points])[:, order]


class ForwardController:
    """forward_command_controller: what has the right number of values is written to the interfaces, in this order."""

    def __init__(self, node: Node, interfaces: Sequence[str], topic: str) -> None:
        self.interfaces, self.written, self.ignored = tuple(interfaces), list[dict[str, float]](), 0
        node.create_subscription(Float64MultiArray, topic, self._on_command, SYSTEM_DEFAULT)

    def _on_command(self, message: Float64MultiArray) -> None:
        if len(message.data) != len(self.interfaces):
            self.ignored += 1
            return
        self.written.append(dict(zip(self.interfaces, message.data.tolist(), strict=True)))


class MobileBase:
    """diff_drive_controller: drives by x and z of the newest twist until its stamp is older than `cmd_vel_timeout`."""

    def __init__(self, node: Node, topic: str, timeout_s: float = 0.5) -> None:
        self.twists: list[TwistStamped] = []
        self._node, self._timeout_ns = node, round(timeout_s * NS)
        node.create_subscription(TwistStamped, topic, self.twists.append, SYSTEM_DEFAULT)

    @property
    def speed(self) -> tuple[float, float]:
        """(m/s, rad/s) that it drives now."""
        if not self.twists:
            return 0.0, 0.0
        newest = self.twists[-1]
        if self._node.get_clock().now().nanoseconds - stamp(newest.header.stamp) > self._timeout_ns:
            return 0.0, 0.0
        return newest.twist.linear.x, newest.twist.angular.z


def channel(name: str, kind: str = "absolute", **changes: Any) -> dict[str, Any]:
    """A channel of an arm (rad) or a base (m/s), as it stands in policy.json."""
    velocity = kind == "velocity"
    fields = {"name": name, "unit": "m/s" if velocity else "rad", "kind": kind, "lower": -3.0, "upper": 3.0}
    fields |= {"max_rate": 4.0, "hold": "zero" if velocity else "last", "frame": "base_link" if velocity else ""}
    return fields | changes


def contract_folder(folder: Path, channels: Sequence[dict[str, Any]], dt_ms: float = 50.0) -> str:
    """A checkpoint as far as the actuator reads one: its action contract."""
    folder.mkdir(parents=True, exist_ok=True)
    made = dict.fromkeys(KEYS) | {"format": FORMAT, "action": {"dt_ms": dt_ms, "channels": list(channels)}}
    (folder / MANIFEST).write_text(json.dumps(made))
    return str(folder)
