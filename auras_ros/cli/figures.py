"""The status line of `auras run`: what the loop does now, taken only from its topics.

It only subscribes, in the supervisor's own thread, a few callbacks at a time; messages are not trusted. If subscribing
fails, that is printed once and the nodes run on without it. ROS is imported when it subscribes.
"""

from __future__ import annotations

import os
import sys
import time
from statistics import median
from typing import Any

SETTLE_S = 1.0  # wait until the processes have started
EVERY_S = {True: 5.0, False: 10.0}  # between two lines, on a terminal and in a log
CALLBACKS = 8  # most callbacks in one `poll`; of each topic the newest message is enough


class Figures:
    """Call `poll` often; it prints the line. Call `close` at the end."""

    def __init__(self, namespace: str = "") -> None:
        self._namespace, self._began_s = namespace, time.monotonic()
        self._every_s = EVERY_S[sys.stdout.isatty()]
        self._said_s = self._began_s
        self._node: Any = None
        self._callbacks: Any = None
        self._context: Any = None
        self._given_up = False
        self.told = Told()

    def poll(self) -> None:
        now_s = time.monotonic()
        if self._given_up or now_s - self._began_s < SETTLE_S:
            return
        try:
            if self._node is None:
                self._open()
            for _ in range(CALLBACKS):
                if not self._callbacks.turn(0.0):
                    raise RuntimeError("its executor is broken")
        except Exception as error:  # noqa: BLE001  (no error here may stop nodes that drive a robot)
            self._given_up = True
            print(f"no figures from now on: {error}", file=sys.stderr, flush=True)
            return
        if now_s - self._said_s >= self._every_s:
            print(f"{now_s - self._began_s:6.0f} s  {self.told.line(now_s - self._said_s)}", flush=True)
            self._said_s = now_s

    def _open(self) -> None:
        from auras_ros import ros
        from auras_ros.ros.callbacks import Callbacks
        from auras_ros.ros.msg import Float64MultiArray, String

        context = self._context = ros.Context()
        ros.init(args=[], context=context, signal_handler_options=ros.SignalHandlerOptions.NO)
        node = ros.Node(f"auras_run_{os.getpid()}", namespace=self._namespace or None, context=context)
        self._callbacks = Callbacks(node)
        newest = ros.QoSProfile(depth=1, reliability=ros.ReliabilityPolicy.BEST_EFFORT)
        node.create_subscription(Float64MultiArray, "action", self.told.action, newest)
        node.create_subscription(String, "actuator/state", self.told.actuator, newest)
        node.create_subscription(String, "pusht/status", self.told.table, ros.QoSProfile(depth=10))
        self._node = node

    def close(self) -> None:
        if self._context is None:
            return
        from auras_ros import ros

        if self._callbacks is not None:
            self._callbacks.close()
        if self._node is not None:
            self._node.destroy_node()
        ros.try_shutdown(context=self._context)


class Told:
    """Statistics of messages since the last line, and of episodes since the start. Malformed messages are ignored."""

    def __init__(self) -> None:
        self._state = ""
        self._accepted: int | None = None  # chunks, as the actuator counts them
        self._chunks = 0
        self._ages_ms: list[float] = []
        self._episode: tuple[int, bool] | None = None  # the last finished one
        self._episodes = self._successes = 0

    def action(self, message: Any) -> None:
        from auras_ros.nodes.common.messages import read_action

        try:
            _, label = read_action(message)
            if label.age_ns is not None:
                self._ages_ms.append(_number(label.age_ns) / 1e6)
        except ValueError:
            return  # a twist, or from another node: the line has no age then

    def actuator(self, message: Any) -> None:
        from auras_ros.nodes.common.messages import read_json

        try:
            said = read_json(message.data, "actuator/state")
            accepted = _number(said["counters"]["accepted"])
            state, reason = str(said["state"]), str(said.get("reason", ""))
        except (KeyError, TypeError, ValueError):
            return
        self._state = state if state == "armed" else f"{state} ({reason})"
        before, self._accepted = self._accepted, accepted
        if before is not None:
            self._chunks += accepted - before if accepted >= before else accepted  # the actuator was restarted

    def table(self, message: Any) -> None:
        from auras_ros.nodes.common.messages import read_json

        try:
            said = read_json(message.data, "pusht/status")
            episode, done, success = _number(said["episode"]), said["done"] is True, said["success"] is True
        except (KeyError, ValueError):
            return
        if done and self._episode != (episode, success):
            self._episode = (episode, success)
            self._episodes += 1
            self._successes += success

    def line(self, seconds: float) -> str:
        """The line; resets rate and age."""
        parts = [self._state or "no message of the actuator yet"]
        if self._episodes:
            parts.append(f"{self._successes} of {self._episodes} episodes succeeded")
        if self._state:
            parts.append(f"{self._chunks / seconds:.1f} chunks/s")
        if self._ages_ms:
            parts.append(f"actions from observations {median(self._ages_ms):.0f} ms old")
        self._chunks, self._ages_ms = 0, []
        return "  ".join(parts)


def _number(given: Any) -> int:
    """A count or a time of a message. Raises ValueError for anything else, and for one that is too large."""
    if type(given) is not int or not 0 <= given < 2**63:
        raise ValueError("not a whole number of at most 63 bits")
    return given
