"""The status line of `auras run`: what the loop does now, taken only from its topics.

It only subscribes, in the supervisor's own thread, a few callbacks at a time; messages are not trusted. If subscribing
fails, that is printed once and the nodes run on without it. ROS is imported when it subscribes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

from auras_ros.nodes.common.config import NodeConfig
from auras_ros.topic_names import RemapRule, absolute_name, remapped

SETTLE_S = 1.0  # wait until the processes have started
EVERY_S = {True: 5.0, False: 10.0}  # between two lines, on a terminal and in a log
CALLBACKS = 8  # most callbacks each time; of each topic the newest message is enough


@dataclass(frozen=True)
class LoopTopics:
    """Where the actuator's topics are. action: empty if the commands are no arrays, which alone have ages."""

    action: str = "action"
    state: str = "actuator/state"

    @classmethod
    def of(cls, config: NodeConfig, namespace: str, remaps: Sequence[RemapRule]) -> LoopTopics:
        """Those of a config's actuator. Raises ParameterError."""
        settings = config.settings("actuator")

        def used(name: str) -> str:
            return remapped(absolute_name(name, namespace, "actuator"), remaps, namespace, "actuator")[0]

        return cls(used(settings.action_topic) if settings.command == "array" else "", used("~/state"))


def status_lines(world: str, namespace: str = "", topics: LoopTopics | None = None) -> Generator[None, None, None]:
    """Advance it often; it prints the line now and then. Close it at the end. world: the name of its bridge's node."""
    try:
        yield from _subscribed(world, namespace, topics or LoopTopics())
    except Exception as error:  # noqa: BLE001  (no error here may stop nodes that drive a robot)
        print(f"no figures from now on: {error}", file=sys.stderr, flush=True)
    while True:
        yield


def _subscribed(world: str, namespace: str, topics: LoopTopics) -> Generator[None, None, None]:
    began_s = printed_s = time.monotonic()
    while time.monotonic() - began_s < SETTLE_S:
        yield
    from auras_ros import ros
    from auras_ros.live.loop import own_node
    from auras_ros.ros.callbacks import Callbacks
    from auras_ros.ros.msg import Float64MultiArray, String

    every_s, statistics = EVERY_S[sys.stdout.isatty()], LoopStatistics()
    with own_node(f"auras_run_{os.getpid()}", namespace or None) as node, closing(Callbacks(node)) as callbacks:
        newest = ros.QoSProfile(depth=1, reliability=ros.ReliabilityPolicy.BEST_EFFORT)
        if topics.action:  # one of another type would receive nothing, and be reported as such
            node.create_subscription(Float64MultiArray, topics.action, statistics.action, newest)
        node.create_subscription(String, topics.state, statistics.actuator, newest)
        node.create_subscription(String, f"{world}/status", statistics.world, ros.QoSProfile(depth=10))
        while True:
            for _ in range(CALLBACKS):
                if not callbacks.spin_once(0.0):
                    raise RuntimeError("its executor is broken")
            now_s = time.monotonic()
            if now_s - printed_s >= every_s:
                print(f"{now_s - began_s:6.0f} s  {statistics.line(now_s - printed_s)}", flush=True)
                printed_s = now_s
            yield


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
        from auras_ros.nodes.common.texts import read_json
        from auras_ros.output import escaped

        with suppress(KeyError, TypeError, ValueError):
            fields = read_json(message.data, "actuator/state")
            accepted = _number(fields["counters"]["accepted"])
            state, reason = escaped(str(fields["state"])), escaped(str(fields.get("reason", "")))
            self._state = state if state == "armed" else f"{state} ({reason})"
            before, self._accepted = self._accepted, accepted
            if before is not None:
                self._chunks += accepted - before if accepted >= before else accepted  # the actuator was restarted

    def world(self, message: Any) -> None:
        from auras_ros.nodes.common.texts import read_json

        with suppress(KeyError, ValueError):
            fields = read_json(message.data, "status")
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
        if self._state == "armed" or self._chunks:  # otherwise the actuator refuses them: the agent may well make some
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
