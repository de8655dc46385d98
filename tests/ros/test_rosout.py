"""/rosout: what a node logs, with its place in the code, also for those who come later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds import logger as logging
from auras_ros.ros.dds.qos import qos_profile_rosout_default
from auras_ros.ros.msg import Log, String

SpinUntil = Callable[[Callable[[], Any]], None]


@pytest.fixture
def logs(node: ros.Node) -> list[Any]:
    heard: list[Any] = []
    node.create_subscription(Log, "/rosout", heard.append, qos_profile_rosout_default)
    return heard


def test_another_process_is_heard_also_late(node: ros.Node, spawn: Any, logs: list[Any], spin_until: SpinUntil) -> None:
    spawn("talker")
    say = node.create_publisher(String, "say", 10)
    spin_until(lambda: say.get_subscription_count() and logs)
    say.publish(String(data="é\nsecond line"))
    spin_until(lambda: len(logs) == 2)
    early, late = logs
    assert (early.name, early.level, early.msg) == ("test.talker", Log.WARN, "said before anybody listened")
    assert (late.level, late.msg) == (Log.ERROR, "é\\nsecond line"), "as it is printed"
    assert (early.function, early.line) == ("main", 14)
    assert early.file.endswith("talker.py")
    assert early.stamp.sec > 1_600_000_000


def test_children_of_the_node_are_heard_and_others_are_not(
    node: ros.Node, logs: list[Any], spin_until: SpinUntil
) -> None:
    ros.get_logger("somebody.else").info("not on /rosout")
    ros.get_logger("test.tester2").info("not on /rosout either")
    ros.get_logger("test.tester.part").info("from a part")
    ros.get_logger("test.tester").info("by name")
    spin_until(lambda: len(logs) == 2)
    assert [(log.name, log.msg) for log in logs] == [("test.tester.part", "from a part"), ("test.tester", "by name")]


def test_what_is_throttled_or_below_the_level_is_not_sent(
    node: ros.Node, logs: list[Any], spin_until: SpinUntil
) -> None:
    for _ in range(3):
        node.get_logger().info("often", throttle_duration_sec=1e6)
    node.get_logger().debug("quiet")
    node.get_logger().info("last")
    spin_until(lambda: logs and logs[-1].msg == "last")
    assert [log.msg for log in logs] == ["often", "last"]


def test_text_without_utf8_form_is_sent_all_the_same(node: ros.Node, logs: list[Any], spin_until: SpinUntil) -> None:
    node.get_logger().info("a foreign name \udcff")
    spin_until(lambda: logs)
    assert logs[0].msg == "a foreign name \\udcff"


def test_logging_goes_on_after_the_end(context: ros.Context, capfd: Any) -> None:
    """From any thread, after shutdown and after destroy_node: printed, never an error, nobody's sink."""
    node = ros.Node("short", context=context)
    other = ros.Node("long", context=context)
    node.destroy_node()
    node.get_logger().info("destroyed")
    ros.shutdown(context=context)
    thread = threading.Thread(target=lambda: other.get_logger().info("shut down"))
    thread.start()
    thread.join()
    printed = capfd.readouterr().err
    assert "[short]: destroyed" in printed
    assert "[long]: shut down" in printed
    assert other._rosout is not None
    other.destroy_node()
    assert {"short", "long"} & set(logging._sinks) == set()


def test_the_newest_node_of_a_name_has_the_sink(context: ros.Context) -> None:
    first = ros.Node("twin", context=context)
    second = ros.Node("twin", context=context)
    first.destroy_node()
    assert second._rosout is not None
    assert logging._sinks["twin"] is second._rosout._sink


@pytest.mark.parametrize("how", ["option", "argument"])
def test_rosout_can_be_switched_off(context: ros.Context, how: str) -> None:
    options: dict[str, Any] = {"enable_rosout": False} if how == "option" else {}
    arguments = [] if how == "option" else ["--ros-args", "--disable-rosout-logs"]
    quiet = ros.Node("quiet", context=context, cli_args=arguments, **options)
    assert "/rosout" not in [publisher.topic_name for publisher in quiet.publishers]
    assert "quiet" not in logging._sinks


def test_stderr_can_be_switched_off(domain: int, capfd: Any) -> None:
    for arguments, printed in (["--ros-args", "--disable-stdout-logs"], False), ([], True):
        context = ros.Context()
        ros.init(args=arguments, context=context, domain_id=domain)
        ros.get_logger("x").info("said")
        ros.shutdown(context=context)
        assert ("said" in capfd.readouterr().err) is printed
