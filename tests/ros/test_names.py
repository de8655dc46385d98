"""Names follow the rules of ROS 2."""

from __future__ import annotations

import pytest

from auras_ros.ros.dds import names
from auras_ros.ros.dds.names import InvalidNameError, Remap


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("chunk", "/", "/chunk"), ("chunk", "/robot", "/robot/chunk"), ("/chunk", "/robot", "/chunk"),
        ("~/chunk", "/robot", "/robot/agent/chunk"), ("~", "/robot", "/robot/agent"), ("~/a/b", "/", "/agent/a/b"),
        ("camera/top/image_raw", "/a/b", "/a/b/camera/top/image_raw"), ("{node}/x", "/r", "/r/agent/x"),
        ("/{ns}/x", "/r", "/r/x"), ("_hidden", "/", "/_hidden"),
    ],
)  # fmt: skip
def test_expansion(name: str, namespace: str, expected: str) -> None:
    assert names.expand(name, namespace, "agent") == expected


@pytest.mark.parametrize(
    "name",
    ["", "a//b", "/a/", "a/", "1a", "a/2b", "~a", "a~", "a b", "a-b", "é", "{other}", "/", "a/~/b", "a.b", "a\n"],
)
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        names.expand(name, "/", "agent")


@pytest.mark.parametrize("name", ["", "a/b", "2nd", "a-b", "a b", "~", "a" * 256])
def test_invalid_node_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError, match="node name"):
        names.check_node_name(name)


@pytest.mark.parametrize(("given", "expected"), [(None, "/"), ("", "/"), ("/", "/"), ("a", "/a"), ("/a/b", "/a/b")])
def test_namespaces_are_made_absolute(given: str | None, expected: str) -> None:
    assert names.normalize_namespace(given) == expected


@pytest.mark.parametrize("given", ["/a/", "a//b", "/1", "a b"])
def test_invalid_namespaces_are_refused(given: str) -> None:
    with pytest.raises(InvalidNameError, match="namespace"):
        names.normalize_namespace(given)


def test_the_first_rule_that_applies_wins() -> None:
    rules = [Remap("other", "image", "wrong"), Remap(None, "image", "/cam/rgb"), Remap(None, "image", "late")]
    assert names.remap("/r/image", rules, "/r", "agent") == "/cam/rgb"
    assert names.remap("/r/image", rules, "/r", "other") == "/r/wrong"
    assert names.remap("/image", rules, "/r", "agent") == "/image"


def test_rules_may_name_private_and_kind() -> None:
    rules = [
        Remap(None, "~/arm", "arm_all"),
        Remap(None, "rosservice://state", "x"),
        Remap(None, "rostopic://state", "y"),
    ]
    assert names.remap("/r/agent/arm", rules, "/r", "agent", "service") == "/r/arm_all"
    assert names.remap("/r/state", rules, "/r", "agent", "topic") == "/r/y"
    assert names.remap("/r/state", rules, "/r", "agent", "service") == "/r/x"


def test_node_and_namespace_are_remapped() -> None:
    rules = [Remap("b", "__node", "wrong"), Remap(None, "__node", "first"), Remap(None, "__node", "second"),
             Remap("a", "__ns", "/robot")]  # fmt: skip
    assert names.remap_node("a", "/", rules) == ("first", "/robot")


def test_names_on_dds() -> None:
    assert names.dds_topic("/camera/image_raw") == "rt/camera/image_raw"
    assert names.dds_service("/a/arm") == ("rq/a/armRequest", "rr/a/armReply")
    assert names.dds_type("sensor_msgs/msg/Image") == "sensor_msgs::msg::dds_::Image_"
