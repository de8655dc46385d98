"""The six parameter services and /parameter_events, asked and heard from another process (what `ros2 param` does)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds.parameter_services import MOST
from auras_ros.ros.dds.qos import qos_profile_parameter_events
from auras_ros.ros.msg import ParameterDescriptor, ParameterEvent, ParameterMsg, ParameterValue
from auras_ros.ros.srv import (
    DescribeParameters,
    GetParameters,
    GetParameterTypes,
    ListParameters,
    SetParameters,
    SetParametersAtomically,
)

SpinUntil = Callable[[Callable[[], Any]], None]
Ask = Callable[..., Any]
Type = ros.Parameter.Type
STORE = "/test/store"


@pytest.fixture
def store(spawn: Any, call: Any) -> Ask:
    """Ask the store of the child process: store(GetParameters, 'get_parameters', names=[…])."""
    spawn("parameters")
    return lambda kind, name, **fields: call(kind, f"{STORE}/{name}", **fields)


def values(store: Ask, *names: str) -> list[Any]:
    got = store(GetParameters, "get_parameters", names=list(names)).values
    return [ros.Parameter.from_parameter_msg(ParameterMsg(name="x", value=value)).value for value in got]


def wanted(**parameters: Any) -> list[Any]:
    return [ros.Parameter(name, value=value).to_parameter_msg() for name, value in parameters.items()]


def test_get_describe_types_and_list(store: Ask) -> None:
    assert values(store, "count", "gain", "fixed", "flag", "arm.left.limits", "mask", "ids", "arm.left.joints") == [
        7, 0.5, "text", True, [1.0, 2.0], [True, False], [1, 2], ["a", "b"]
    ]  # fmt: skip
    names = ["count", "gain", "fixed", "free", "later", "raw"]
    count, gain, fixed, free, later, raw = store(DescribeParameters, "describe_parameters", names=names).descriptors
    assert (count.name, count.type, count.description) == ("count", 2, "how many")
    assert count.additional_constraints == "not thirteen"
    assert [(r.from_value, r.to_value, r.step) for r in count.integer_range] == [(0, 1000, 1)]
    assert [(r.from_value, r.to_value, r.step) for r in gain.floating_point_range] == [(0.0, 1.0, 0.25)]
    assert (fixed.read_only, fixed.type) == (True, 4)
    assert (free.dynamic_typing, free.type) == (True, 2)
    assert (later.type, raw.type) == (3, 5)
    types = store(GetParameterTypes, "get_parameter_types", names=[*names, "use_sim_time"]).types
    assert list(types) == [2, 3, 4, 2, 0, 5, 1]


def test_a_name_that_is_not_declared_empties_the_answer(store: Ask) -> None:
    """As rclpy; a parameter without a value too where its value is asked for."""
    for names in (["count", "absent"], ["count", "later"]):
        assert values(store, *names) == []
    assert store(DescribeParameters, "describe_parameters", names=["count", "absent"]).descriptors == []
    assert list(store(GetParameterTypes, "get_parameter_types", names=["count", "absent"]).types) == []


def test_more_names_than_anybody_has_are_looked_up_by_nobody(store: Ask) -> None:
    """Each takes time in which no other callback runs: thousands of them would make an actuator hold."""
    assert len(values(store, *["count"] * MOST)) == MOST
    assert values(store, *["count"] * (MOST + 1)) == []
    many = [ros.Parameter("count", value=8).to_parameter_msg()] * (MOST + 1)
    results = store(SetParameters, "set_parameters", parameters=many).results
    assert [each.successful for each in results] == [True] * MOST + [False]
    assert results[-1].reason == f"more than {MOST} parameters in one request"
    assert not store(SetParametersAtomically, "set_parameters_atomically", parameters=many).result.successful


@pytest.mark.parametrize(
    ("prefixes", "depth", "names", "groups"),
    [
        (["arm"], 0, ["arm.left.joints", "arm.left.limits", "arm.name"], ["arm.left", "arm"]),
        (["arm"], 1, ["arm.name"], ["arm"]),
        (["arm"], 2, ["arm.left.joints", "arm.left.limits", "arm.name"], ["arm.left", "arm"]),
        (["arm.left", "count"], 1, ["count", "arm.left.joints", "arm.left.limits"], ["arm.left"]),
        (["ar"], 0, [], []),
    ],
)
def test_list_by_prefix_and_depth(
    context: ros.Context, prefixes: list[str], depth: int, names: list[str], groups: list[str]
) -> None:
    node = ros.Node("store", context=context)
    for name in ("count", "arm.left.joints", "arm.left.limits", "arm.name"):
        node.declare_parameter(name, 1)
    result = node.list_parameters(prefixes, depth)
    assert (result.names, result.prefixes) == (names, groups)


def test_list_without_prefixes(store: Ask, context: ros.Context) -> None:
    everything = store(ListParameters, "list_parameters").result
    assert len(everything.names) == 13
    assert everything.prefixes == ["arm.left", "arm"]
    top = store(ListParameters, "list_parameters", depth=1).result
    assert "arm.name" not in top.names
    assert "count" in top.names
    with pytest.raises(ValueError, match="-1"):
        ros.Node("n", context=context).list_parameters([], -1)


def test_set_one_after_another(store: Ask) -> None:
    """Reliability row 'bad parameter': each refused one says why and keeps its value; the others are set."""
    parameters = wanted(count=1001, gain=0.75, fixed="new", absent=1, flag=3, free="now a text", later=1.5)
    results = store(SetParameters, "set_parameters", parameters=parameters).results
    assert [result.successful for result in results] == [False, True, False, False, False, True, True]
    for result, named in zip([results[0], *results[2:5]], ("0 … 1000", "read-only", "absent", "BOOL"), strict=True):
        assert named in result.reason
    after = values(store, "count", "gain", "fixed", "flag", "free", "later")
    assert after == [7, 0.75, "text", True, "now a text", 1.5]
    assert list(store(GetParameterTypes, "get_parameter_types", names=["free", "later"]).types) == [4, 3]


def test_set_atomically(store: Ask) -> None:
    name = "set_parameters_atomically"
    refused = store(SetParametersAtomically, name, parameters=wanted(flag=False, count=13)).result
    assert (refused.successful, refused.reason) == (False, "thirteen")
    undeclared = store(SetParametersAtomically, name, parameters=wanted(flag=False, absent=1)).result
    assert not undeclared.successful
    assert "absent" in undeclared.reason
    assert values(store, "flag", "count") == [True, 7]
    assert store(SetParametersAtomically, name, parameters=wanted(flag=False, count=12)).result.successful
    assert values(store, "flag", "count") == [False, 12]


def test_what_is_no_parameter_is_refused_and_the_node_goes_on(store: Ask) -> None:
    bad = [
        ParameterMsg(name="count", value=ParameterValue(type=200)),
        ParameterMsg(name="", value=ParameterValue(type=2)),
        ParameterMsg(name="count", value=ParameterValue(type=0)),
        ParameterMsg(name="count", value=ParameterValue(type=2, integer_value=666)),
    ]
    results = store(SetParameters, "set_parameters", parameters=bad).results
    assert [result.successful for result in results] == [False] * 4
    assert results[0].reason.startswith("parameter 'count': 200")
    assert results[3].reason == "a callback raised RuntimeError: a broken callback"
    assert not store(SetParametersAtomically, "set_parameters_atomically", parameters=bad).result.successful
    assert values(store, "count") == [7]


def test_changes_are_announced(node: ros.Node, store: Ask, spin_until: SpinUntil) -> None:
    events: list[Any] = []
    node.create_subscription(ParameterEvent, "/parameter_events", events.append, qos_profile_parameter_events)
    spin_until(lambda: node.count_publishers("/parameter_events") == 2)  # this node's own, and the child's
    store(SetParameters, "set_parameters", parameters=wanted(count=1, later=2.0, fixed="no", free=None))
    store(SetParametersAtomically, "set_parameters_atomically", parameters=wanted(count=2, flag=False))

    def told() -> list[Any]:
        return [
            [[p.name for p in getattr(e, f"{kind}_parameters")] for kind in ("new", "changed", "deleted")]
            for e in events if e.node == STORE
        ]  # fmt: skip

    spin_until(lambda: len(told()) >= 4)
    assert told() == [
        [[], ["count"], []], [["later"], [], []], [[], [], ["free"]], [[], ["count", "flag"], []]
    ]  # fmt: skip
    assert events[0].stamp.sec > 0
    assert [e.changed_parameters[0].value.integer_value for e in events if e.changed_parameters] == [1, 2]


def test_declarations_are_announced(context: ros.Context, executor: Any, node: ros.Node, spin_until: SpinUntil) -> None:
    events: list[Any] = []
    node.create_subscription(ParameterEvent, "/parameter_events", events.append, qos_profile_parameter_events)
    other = ros.Node("other", context=context, namespace="/test")
    other.declare_parameter("a", 1, ParameterDescriptor(dynamic_typing=True))
    other.declare_parameter("b", Type.DOUBLE)
    other.set_parameters([ros.Parameter("b", value=1.0)])
    other.set_parameters([ros.Parameter("a")])  # without a value: deleted
    spin_until(lambda: sum(event.node == "/test/other" for event in events) == 5)
    mine = [event for event in events if event.node == "/test/other"]
    assert [[p.name for p in event.new_parameters] for event in mine] == [["use_sim_time"], ["a"], ["b"], ["b"], []]
    assert [p.name for p in mine[-1].deleted_parameters] == ["a"]
    ros.try_shutdown(context=context)
    other.declare_parameter("after", 1)  # for nobody, and no error


def test_undeclared_parameters_where_they_are_allowed(context: ros.Context) -> None:
    node = ros.Node("n", context=context, allow_undeclared_parameters=True)
    assert node.get_parameter("x").value is None
    assert (node.get_parameter_type("x"), node.describe_parameter("x").name) == (0, "x")
    assert node.set_parameters([ros.Parameter("x", value=1)])[0].successful
    assert (node.get_parameter("x").value, node.describe_parameter("x").dynamic_typing) == (1, True)
    assert node.set_parameters([ros.Parameter("x")])[0].successful  # without a value: deleted
    assert not node.has_parameter("x")


def test_a_static_parameter_cannot_lose_its_value(context: ros.Context) -> None:
    node = ros.Node("n", context=context)
    node.declare_parameter("a", [1.0])
    assert not node.set_parameters([ros.Parameter("a")])[0].successful
    assert node.set_parameters([ros.Parameter("a", value=[])])[0].successful
    assert node.get_parameter_type("a") == Type.DOUBLE_ARRAY.value  # an empty list keeps the declared type
    assert node.get_parameter_or("absent", ros.Parameter("d", value=3)).value == 3
    node.declare_parameter("unset", Type.INTEGER)
    assert node.get_parameter_or("unset", ros.Parameter("d", value=3)).value == 3


def test_declarations_that_rclpy_refuses_are_refused(context: ros.Context) -> None:
    node = ros.Node("n", context=context)
    with pytest.raises(ValueError, match="lacking: needs a default"):
        node.declare_parameter("lacking", None, ParameterDescriptor(description="static, and without a type"))
    with pytest.raises(ValueError, match="both"):
        node.declare_parameter("both", Type.DOUBLE, ParameterDescriptor(dynamic_typing=True))
    assert not node.has_parameter("lacking")
    assert not node.has_parameter("both")


def test_a_node_may_do_without_the_services(context: ros.Context) -> None:
    assert list(ros.Node("n", context=context, start_parameter_services=False).services) == []
    assert len(list(ros.Node("m", context=context).services)) == 6
