"""What the witness makes of what it hears: actuators that die and come again, logs, diagnostics, noise."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.live.soak.judge import Judge, ReceivedAction
from auras_ros.live.soak.noise import NOISY, Input, inputs, payload
from auras_ros.live.soak.witness import JUST_NOW_NS, Witness
from auras_ros.nodes.common.diagnostics import DiagnosticReport, Diagnostics, Level
from auras_ros.ros import Node, SingleThreadedExecutor, init, try_shutdown
from auras_ros.ros.bounded import PayloadLimits, bounded, read_message
from auras_ros.ros.msg import String
from tests.live.soak.stage import BOUNDS
from tests.nodes.wire import PATIENCE_S, own_domain


class Pair:
    """The witness, and a node that is called after one of ours."""

    def __init__(self) -> None:
        self.witness, self.other = Witness(Judge(BOUNDS)), Node("agent")
        self.executor = SingleThreadedExecutor()
        for node in (self.witness, self.other):
            self.executor.add_node(node)

    def until(self, condition: Callable[[], Any]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end_s
            self.executor.spin_once(timeout_sec=0.02)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with own_domain():
        init(args=[])
        made = Pair()
        yield made
        made.executor.shutdown()
        for node in (made.witness, made.other):
            node.destroy_node()
        try_shutdown()


def test_ticks_that_a_dead_actuator_has_missed_are_not_forgotten(pair: Pair) -> None:
    witness = pair.witness
    for tick, skipped in ((100, 3), (200, 5), (7, 0), (9, 1)):  # the third is of another life
        fields = {"state": "armed", "mono_ns": 1, "skipped_ticks": skipped, "conflict": [], "tick": tick}
        witness._on_state(String(data=json.dumps(fields)))
    assert witness.skipped == 6


def test_the_last_command_of_a_dead_actuator_drives_nothing(pair: Pair) -> None:
    clock: Any = SimpleNamespace(now_ns=lambda: 10**12)
    pair.witness._monotonic = clock
    for age_ns, driving in ((0, True), (JUST_NOW_NS - 1, True), (JUST_NOW_NS, False)):
        pair.witness.judge.action(ReceivedAction(clock.now_ns() - age_ns, "armed", 1, None, np.array([0.5])))
        assert pair.witness.driving == driving


def test_logs_and_diagnostics_are_found_by_node_and_task(pair: Pair) -> None:
    said, begin_ns = pair.witness.logs, time.monotonic_ns()
    diagnostics = Diagnostics(pair.other, "", period_s=0.05)
    report = DiagnosticReport(Level.WARN, "the newest was refused", {"refused": 7, "prompt": "x"})
    diagnostics.add("prompt", lambda: report)

    def told() -> bool:
        pair.other.get_logger().warning("refused: prompt: too long")
        return said.line_ns("agent", "refused: prompt", begin_ns) is not None and said.count("agent: prompt", "refused")

    pair.until(told)
    heard_ns = said.line_ns("agent", "refused: prompt", begin_ns)
    assert heard_ns is not None
    assert heard_ns > begin_ns
    for node, words, since_ns in (("actuator", "refused", begin_ns), ("agent", "taken", begin_ns),
                                  ("agent", "refused", time.monotonic_ns())):  # fmt: skip
        assert said.line_ns(node, words, since_ns) is None
    status = said.status("agent: prompt")
    assert (status.message, said.count("agent: prompt", "refused")) == ("the newest was refused", 7)
    assert (said.count("agent: prompt", "prompt"), said.count("agent: nothing", "x")) == (0, 0)


def test_noise_is_published_as_it_is_and_its_topics_are_found_by_the_graph(pair: Pair) -> None:
    heard: list[Any] = []
    begin_ns = time.monotonic_ns()
    say = pair.other.get_logger().warning
    limits = PayloadLimits(1 << 20)
    take = bounded("/prompt", partial(read_message, kind=String), heard.append, limits, lambda error: say(str(error)))
    pair.other.create_subscription(String, "prompt", take, NOISY, raw=True)
    pair.until(lambda: [each.topic for each in inputs(pair.witness)] == ["/prompt"])
    [found] = inputs(pair.witness)
    assert found == Input("/prompt", "std_msgs/msg/String", ("agent",))
    noise = pair.witness.create_publisher(String, found.topic, NOISY)
    pair.until(noise.get_subscription_count)
    noise.publish(payload(random.Random(0)))
    pair.until(lambda: pair.witness.logs.line_ns("agent", "bytes on /prompt: ", begin_ns))
    pair.witness.destroy_publisher(noise)
    good = pair.witness.create_publisher(String, "prompt", NOISY)
    good.publish(String(data="good"))
    pair.until(lambda: heard)
    assert [message.data for message in heard] == ["good"]
