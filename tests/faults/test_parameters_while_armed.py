"""A parameter that is set on an armed actuator: refused with the reason, and not a command is different for it."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros.ros.msg import ParameterMsg, ParameterType, ParameterValue
from auras_ros.ros.srv import SetParameters
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import Child, Watch

TRIES = 3


def value(given: Any) -> ParameterValue:
    kinds = {float: ("DOUBLE", "double_value"), str: ("STRING", "string_value"), bool: ("BOOL", "bool_value")}
    kind, name = kinds[type(given)]
    return ParameterValue(type=getattr(ParameterType, f"PARAMETER_{kind}"), **{name: given})


REFUSED = [("rate_hz", 1000.0), ("rate_hz", "fast"), ("max_chunk_age_ms", 60000.0), ("arm_on_start", True), ("no", 1.0)]


def test_each_is_refused_and_changes_nothing(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    child = actuator()
    fake.live()
    fake.drive(ramp())
    client = watch.node.create_client(SetParameters, "actuator/set_parameters")
    watch.until(client.service_is_ready, "the service")
    for _ in range(TRIES):
        watch.arm()
        watch.armed()
        begin, stalls = len(watch.actions), watch.states[-1]["stalls"]
        usual_ns = period_ns(watch, stalls)
        for name, given in REFUSED:
            future = client.call_async(SetParameters.Request(parameters=[ParameterMsg(name=name, value=value(given))]))
            watch.until(future.done, "an answer")
            [result] = future.result().results
            assert not result.successful, name
            assert name in result.reason or "undeclared parameter" in result.reason  # rclpy does not say which one
        after_ns = period_ns(watch, stalls)
        states = {heard.label.state for heard in watch.actions[begin:]}
        assert child.process.poll() is None
        assert states <= {"armed", "holding"}  # it holds where a busy machine kept what it hears from it
        if usual_ns and after_ns:
            assert usual_ns / 2 < after_ns < usual_ns * 2
            if states == {"armed"}:
                break
    else:
        pytest.fail(f"{TRIES} times it did not stay armed: {states}, {watch.states[-1]['reason']}")


def period_ns(watch: Watch, stalls: int) -> float:
    """The median of half a second of commands; 0 where the actuator stood still, and so disarmed, since `stalls`."""
    count = len(watch.actions)
    watch.until(lambda: len(watch.actions) > count + 50 or watch.states[-1]["stalls"] > stalls, "commands")
    if watch.states[-1]["stalls"] > stalls:
        return 0.0
    stamps = [heard.label.mono_ns for heard in watch.actions[count:]]
    return statistics.median(after - before for before, after in itertools.pairwise(stamps))
