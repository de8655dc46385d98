"""Names of topics: those of cameras, remapping rules, and what a name becomes in a node."""

from __future__ import annotations

import pytest

from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.parameters import ParameterError, unknown
from auras_ros.topic_names import RemapRule, absolute_name, image_topic, read_camera_topics, read_remaps, remapped

REALSENSE = "/camera/camera/color/image_raw"


@pytest.mark.parametrize(
    ("camera", "compressed", "topic"),
    [
        ("front", False, REALSENSE),
        ("front", True, f"{REALSENSE}/compressed"),
        ("wrist", False, "camera/wrist/image_raw"),
        ("wrist", True, "camera/wrist/image_raw/compressed"),
        ("jpeg", True, "/axis/image_raw/compressed"),
    ],
)
def test_a_camera_has_its_own_topic_or_the_usual_one(camera: str, compressed: bool, topic: str) -> None:
    topics = read_camera_topics("agent", (f"front:={REALSENSE}", "jpeg:=/axis/image_raw/compressed"))
    assert image_topic(camera, topics, compressed=compressed) == topic


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (("front",), "expected camera:=topic as front:=/camera/camera/color/image_raw, got 'front'"),
        ((":=/cam",), "expected camera:=topic"),
        ((7,), "expected camera:=topic"),
        (("front:=/cam//raw",), "'/cam//raw' is not a topic name"),
        (("front:=",), "'' is not a topic name"),
        (("front:=/a", "front:=/b"), "'front' is there twice"),
    ],
)
def test_a_list_that_names_no_topics_is_refused(pairs: tuple[object, ...], words: str) -> None:
    with pytest.raises(ParameterError, match="agent: camera_topics: ") as refused:
        read_camera_topics("agent", pairs)
    assert words in str(refused.value)


def test_the_settings_of_both_nodes_check_their_inputs() -> None:
    AgentSettings(camera_topics=(f"front:={REALSENSE}",)).check()
    for settings, words in (
        (AgentSettings(camera_topics=("front",)), "agent: camera_topics"),
        (AgentSettings(joint_states_topic="joint states"), "agent: joint_states_topic"),
        (AgentSettings(joint_prefix="left arm "), "agent: joint_prefix"),
        (AgentSettings(stamps="arrival"), "stamps: must be header or receipt, got 'arrival'"),
        (AgentSettings(stamps="receipt"), "receipt needs receipt_latency_ms"),
        (AgentSettings(receipt_latency_ms=5.0), "receipt_latency_ms: only with `stamps: receipt`"),
        (VlmSettings(cameras="top", camera_topics=("front:=/cam",)), "'front' is none of the cameras (top)"),
        (VlmSettings(stamps="receipt"), "vlm: stamps: receipt needs"),
    ):
        with pytest.raises(ParameterError) as refused:
            settings.check()
        assert words in str(refused.value)


def test_a_map_in_place_of_the_list_is_told_the_list() -> None:
    text = unknown(AgentSettings, "camera_topics.front")
    assert text == "no parameter 'camera_topics.front'; camera_topics is a list: [front:=...]"


def test_rules_are_read_and_written_as_ros_2_does() -> None:
    [rule, own] = read_remaps([f"camera/front/image_raw:={REALSENSE}", "agent:joint_states:=/robot/joint_states"])
    assert (rule.node, rule.source, rule.target) == ("", "camera/front/image_raw", REALSENSE)
    assert own == RemapRule("agent", "joint_states", "/robot/joint_states")
    assert own.arguments() == ["-r", "agent:joint_states:=/robot/joint_states"]
    assert rule.arguments() == ["-r", f"camera/front/image_raw:={REALSENSE}"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("joint_states", "expected from:=to"),
        ("joint_states:=", "expected from:=to"),
        (":=/joints", "expected from:=to"),
        ("a b:=/joints", "expected from:=to"),
        ("joint_states:=/robot joints", "expected from:=to"),
        ("my robot:joint_states:=/joints", "expected from:=to"),
        ("__ns:=/left", "--namespace"),
        ("agent:__node:=other", "sections are found by them"),
        (3, "expected from:=to"),
    ],
)
def test_a_text_that_is_no_rule_is_refused(text: object, words: str) -> None:
    with pytest.raises(ParameterError, match=r"^remap: ") as refused:
        RemapRule.read(text)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "absolute"),
    [
        ("joint_states", "/left/joint_states"),
        ("~/state", "/left/actuator/state"),
        ("/joint_states", "/joint_states"),
        ("{node}/state", "/left/actuator/state"),
        ("/{ns}/state", "/left/state"),
    ],
)
def test_a_name_becomes_absolute(name: str, absolute: str) -> None:
    assert absolute_name(name, "/left", "actuator") == absolute
    assert absolute_name("joint_states", "", "actuator") == "/joint_states"


def test_the_first_rule_that_fits_a_name_remaps_it() -> None:
    rules = read_remaps(["agent:joint_states:=/a", "joint_states:=/b", "/left/joint_states:=/c", "~/state:=/state"])
    assert remapped("/left/joint_states", rules, "/left", "agent") == ("/a",)
    assert remapped("/left/joint_states", rules, "/left", "actuator") == ("/b",)
    assert remapped("/joint_states", rules, "/left", "actuator") == ("/joint_states",)
    assert remapped("/left/actuator/state", rules, "/left", "actuator") == ("/state",)


def test_the_targets_of_a_name_with_any_characters_come_beside_it() -> None:
    rules = read_remaps([f"camera/front/image_raw:={REALSENSE}", "joint_states:=/b"])
    assert remapped("/camera/*/image_raw", rules, "", "agent") == ("/camera/*/image_raw", REALSENSE)
