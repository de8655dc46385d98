"""A parameter that is set on an armed actuator: refused with the reason, and not a command is different for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros.ros.msg import ParameterMsg, ParameterType, ParameterValue
from auras_ros.ros.srv import SetParameters
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import Child, Watch


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
    watch.arm()
    watch.armed()
    client = watch.node.create_client(SetParameters, "actuator/set_parameters")
    watch.until(client.service_is_ready, "the service")
    begin = len(watch.actions)
    for name, given in REFUSED:
        future = client.call_async(SetParameters.Request(parameters=[ParameterMsg(name=name, value=value(given))]))
        watch.until(future.done, "an answer")
        [result] = future.result().results
        assert not result.successful, name
        assert name in result.reason
    count = len(watch.actions)
    watch.until(lambda: len(watch.actions) > count + 50, "half a second of commands")
    stamps = [heard.label.mono_ns for heard in watch.actions[begin:]]
    periods = sorted(after - before for before, after in itertools.pairwise(stamps))
    assert {heard.label.state for heard in watch.actions[begin:]} == {"armed"}
    assert periods[len(periods) // 2] == pytest.approx(10e6, rel=0.2)
    assert child.process.poll() is None
