"""The status line of `auras run`: what the loop does now, taken only from its topics.

It only subscribes, in the supervisor's own thread, a few callbacks at a time; messages are not trusted. If subscribing
fails, that is printed once and the nodes run on without it. ROS is imported when it subscribes.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, closing, suppress
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auras_ros.ros.callbacks import Callbacks

SETTLE_S = 1.0  # wait until the processes have started
EVERY_S = {True: 5.0, False: 10.0}  # between two lines, on a terminal and in a log
CALLBACKS = 8  # most callbacks in one `poll`; of each topic the newest message is enough


class StatusLine:
    """Call `poll` often; it prints the line. Call `close` at the end."""

    def __init__(self, namespace: str = "") -> None:
        self._namespace, self._began_s = namespace, time.monotonic()
        self._every_s = EVERY_S[sys.stdout.isatty()]
        self._printed_s = self._began_s
        self._resources = ExitStack()
        self._callbacks: Callbacks | None = None  # once it has subscribed
        self._given_up = False
        self._statistics = LoopStatistics()

    def poll(self) -> None:
        now_s = time.monotonic()
        if self._given_up or now_s - self._began_s < SETTLE_S:
            return
        try:
            if self._callbacks is None:
                self._callbacks = self._subscribe()
            for _ in range(CALLBACKS):
                if not self._callbacks.turn(0.0):
                    raise RuntimeError("its executor is broken")
        except Exception as error:  # noqa: BLE001  (no error here may stop nodes that drive a robot)
            self._given_up = True
            print(f"no figures from now on: {error}", file=sys.stderr, flush=True)
            return
        if now_s - self._printed_s >= self._every_s:
            print(f"{now_s - self._began_s:6.0f} s  {self._statistics.line(now_s - self._printed_s)}", flush=True)
            self._printed_s = now_s

    def _subscribe(self) -> Callbacks:
        from auras_ros import ros
        from auras_ros.live.loop import own_node
        from auras_ros.ros.callbacks import Callbacks
        from auras_ros.ros.msg import Float64MultiArray, String

        node = self._resources.enter_context(own_node(f"auras_run_{os.getpid()}", self._namespace or None))
        callbacks = self._resources.enter_context(closing(Callbacks(node)))
        newest = ros.QoSProfile(depth=1, reliability=ros.ReliabilityPolicy.BEST_EFFORT)
        node.create_subscription(Float64MultiArray, "action", self._statistics.action, newest)
        node.create_subscription(String, "actuator/state", self._statistics.actuator, newest)
        node.create_subscription(String, "pusht/status", self._statistics.table, ros.QoSProfile(depth=10))
        return callbacks

    def close(self) -> None:
        self._resources.close()


class LoopStatistics:
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

        with suppress(ValueError):  # a twist, or from another node: the line has no age then
            _, label = read_action(message)
            if label.age_ns is not None:
                self._ages_ms.append(_number(label.age_ns) / 1e6)

    def actuator(self, message: Any) -> None:
        from auras_ros.nodes.common.messages import read_json

        with suppress(KeyError, TypeError, ValueError):
            fields = read_json(message.data, "actuator/state")
            accepted = _number(fields["counters"]["accepted"])
            state, reason = str(fields["state"]), str(fields.get("reason", ""))
            self._state = state if state == "armed" else f"{state} ({reason})"
            before, self._accepted = self._accepted, accepted
            if before is not None:
                self._chunks += accepted - before if accepted >= before else accepted  # the actuator was restarted

    def table(self, message: Any) -> None:
        from auras_ros.nodes.common.messages import read_json

        with suppress(KeyError, ValueError):
            fields = read_json(message.data, "pusht/status")
            episode, success = _number(fields["episode"]), fields["success"] is True
            if fields["done"] is True and self._episode != (episode, success):
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
