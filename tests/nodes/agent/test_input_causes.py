"""Why the agent has no observation, in its diagnostics and in its log: the cause and the remedy, where a symptom stood.

Time and the ROS graph are the test's; a real robot's topics are in tests/nodes/test_robot_topics.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.observation import Observation, ObservationSpec, Preprocessor
from auras_ros.ros.image import image_message
from tests.nodes.agent.inputs_bench import MS, Bench

Make = Callable[..., Bench]
IMAGE, COMPRESSED, JOINTS = (f"sensor_msgs/msg/{name}" for name in ("Image", "CompressedImage", "JointState"))
REALSENSE = "/camera/camera/color/image_raw"


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[Bench] = []

    def begin(**settings: Any) -> Bench:
        made.append(Bench(monkeypatch, **settings))
        return made[-1]

    yield begin
    for each in made:
        each.inputs.close()


def publisher(name: str, kind: str, gid: bytes = b"") -> Any:
    return SimpleNamespace(node_name=name, node_namespace="/", topic_type=kind, endpoint_gid=gid or name.encode())


def plays(bench: Bench, seconds: float, image: Callable[[], None] | None, joints: Callable[[], None] | None) -> None:
    """Images and joint states at 10 Hz; frames latch, and diagnostics are made once a second."""
    for step in range(round(seconds * 10)):
        bench.passes(100)
        for give in filter(None, (image, joints)):
            give()
        bench.inputs.latch(bench.now_ns())
        if step % 10 == 9:
            bench.inputs.check()


# -- stamps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stamp_ns", "fault", "words"),
    [
        (lambda bench: 0, "top unstamped", "not stamped (header.stamp is 0): let its driver stamp"),
        (lambda bench: bench.mono_ms * MS, "top other_clock", "stamped 1000000 s behind this host's clock"),
        (lambda bench: (bench.wall_ms - 900) * MS, "top stale", "900 ms old by its stamp when it comes, limit 350 ms"),
        (lambda bench: (10**9 - 100) * MS, "top stale", "always with the same stamp"),
        (lambda bench: (bench.wall_ms + 37_000) * MS, "top missing", "or set `stamps: receipt`"),
    ],
    ids=["none", "uptime", "late", "not renewed", "TAI"],
)
def test_a_stamp_that_is_wrong_is_named_with_a_remedy(
    make: Make, stamp_ns: Callable[[Bench], int], fault: str, words: str
) -> None:
    """It was `stale: 1795897585545.9 ms old`, another number every second, beside `top age_ms: 13`."""
    bench = make()
    plays(bench, 5, lambda: bench.image(at_ns=stamp_ns(bench)), bench.joints)
    assert bench.inputs.fault == fault
    message = bench.inputs.check().message
    assert words in message
    plays(bench, 1, lambda: bench.image(at_ns=stamp_ns(bench)), bench.joints)
    if fault != "top stale" or "900" in words:
        assert bench.inputs.check().message == message, "no figure in it changes while nothing changes"
    assert len([text for text in bench.said if "no observation: top" in text]) <= 3


def test_joint_states_that_are_not_stamped_are_named_too(make: Make) -> None:
    bench = make()
    plays(bench, 3, bench.image, lambda: bench.joints(ahead_ms=-bench.wall_ms))
    assert bench.inputs.fault == "state unstamped"
    assert "state: unstamped: 'x' is not stamped (header.stamp is 0)" in bench.inputs.check().message


def test_a_driver_that_stops_stamping_is_named_and_not_taken_for_a_clock_that_went_back(make: Make) -> None:
    bench = make()
    plays(bench, 2, bench.image, bench.joints)
    plays(bench, 3, lambda: bench.image(at_ns=0), bench.joints)
    assert bench.inputs.check().message.endswith(
        "its newest message was refused: unstamped: not stamped (header.stamp is 0): let its driver stamp by this "
        "host's clock, or set `stamps: receipt`"
    )
    assert bench.epochs == 0


@pytest.mark.parametrize("stamp_ns", [0, 12 * 10**9], ids=["none", "uptime"])
def test_the_time_of_receipt_is_taken_where_it_is_asked_for(make: Make, stamp_ns: int) -> None:
    """With the stated latency as the age of an image, and none for joint states."""
    bench = make(stamps="receipt", receipt_latency_ms=40.0)
    plays(bench, 2, lambda: bench.image(at_ns=stamp_ns), lambda: bench.joints(ahead_ms=-bench.wall_ms))
    observation = bench.inputs.latch(bench.now_ns())
    assert isinstance(observation, Observation)
    assert bench.now_ns() - observation.origin_mono_ns == 40 * MS
    assert bench.wall_ms * MS - observation.origin_stamp_ns == 40 * MS
    assert observation.state_stamp_ns == bench.wall_ms * MS
    assert bench.inputs.check().message == "observations are received"
    plays(bench, 2, None, bench.joints)
    assert bench.inputs.fault == "top stale", "a camera that says nothing is still missed"


# -- topics -----------------------------------------------------------------------------------------------


def test_a_camera_of_another_name_is_found_and_the_parameter_is_said(make: Make) -> None:
    bench = make()
    bench.publishers[REALSENSE] = [publisher("camera", IMAGE)]
    plays(bench, 3, None, bench.joints)
    message = bench.inputs.check().message
    assert message == (
        "no observation: top: missing: nothing received yet; nobody publishes /camera/top/image_raw; images are on "
        f"{REALSENSE}: set camera_topics: [top:={REALSENSE}]"
    )
    assert bench.said[-1] == message


def test_a_camera_has_the_topic_that_the_parameter_says(make: Make) -> None:
    bench = make(camera_topics=(f"top:={REALSENSE}",), joint_states_topic="/arm/joint_states")
    assert set(bench.callbacks) == {REALSENSE, "/arm/joint_states"}
    assert bench.inputs.check().values["top topic"] == REALSENSE


@pytest.mark.parametrize(
    ("settings", "graph", "words"),
    [
        ({}, {REALSENSE + "/compressed": COMPRESSED}, "set compressed: true, and camera_topics"),
        ({"compressed": True}, {"/cam/image_raw": IMAGE}, "set compressed: false, and camera_topics"),
        (
            {"compressed": True},
            {REALSENSE + "/compressed": COMPRESSED},
            f"set camera_topics: [top:={REALSENSE}]",
        ),
        ({}, {"camera/top/image_raw": COMPRESSED}, f"as {COMPRESSED}, not as {IMAGE}: nothing can be received"),
        ({}, {"camera/top/image_raw": IMAGE}, "/camera publishes /camera/top/image_raw and is silent"),
        ({}, {}, "nobody publishes /camera/top/image_raw"),
    ],
)
def test_every_reason_why_no_image_comes(
    make: Make, settings: dict[str, Any], graph: dict[str, str], words: str
) -> None:
    bench = make(**settings)
    bench.publishers |= {topic: [publisher("camera", kind)] for topic, kind in graph.items()}
    bench.inputs.latch(bench.now_ns())
    assert words in bench.inputs.check().message


@pytest.mark.parametrize(
    ("topic", "kind", "words"),
    [
        (
            "/arm/joint_states",
            JOINTS,
            "nobody publishes /joint_states; joint states are on /arm/joint_states: set joint_",
        ),
        (
            "joint_states",
            "sensor_msgs/msg/Imu",
            f"/robot publishes /joint_states as sensor_msgs/msg/Imu, not as {JOINTS}",
        ),
    ],
)
def test_every_reason_why_no_joint_states_come(make: Make, topic: str, kind: str, words: str) -> None:
    bench = make()
    bench.publishers[topic] = [publisher("robot", kind)]
    plays(bench, 2, bench.image, None)
    assert words in bench.inputs.check().message


# -- joints -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("robot/x", "robot/y"), "joint_states name robot/x, robot/y, not x: set joint_prefix: robot/"),
        (("left_x",), "joint_states name left_x, not x: set joint_prefix: left_"),
        (("wheel", "arm"), "joint_states name wheel, arm, not x"),
    ],
)
def test_joints_of_other_names_are_named_with_the_prefix(make: Make, names: tuple[str, ...], words: str) -> None:
    bench = make()
    plays(bench, 2, bench.image, lambda: bench.joints(**dict.fromkeys(names, 1.0)))
    assert bench.inputs.check().message == f"no observation: state: missing: nothing received yet; {words}"


def test_the_prefix_is_what_stands_before_the_joints(make: Make) -> None:
    bench = make(joint_prefix="left_")
    positions = {"x": 9.0, "right_x": 8.0, "left_x": 1.5}
    plays(bench, 1, bench.image, lambda: bench.joints(**positions))
    observation = bench.inputs.latch(bench.now_ns())
    assert isinstance(observation, Observation)
    assert observation.position.tolist() == [1.5]
    plays(bench, 1, bench.image, lambda: bench.joints(x=9.0))
    assert bench.inputs.fault == "state stale", "a joint without the prefix is another robot's"


def test_a_prefix_that_is_too_much_is_told_to_be_removed(make: Make) -> None:
    bench = make(joint_prefix="left_")
    plays(bench, 2, bench.image, bench.joints)
    assert bench.inputs.check().message.endswith('joint_states name x, not left_x: set joint_prefix: ""')


def test_two_nodes_that_publish_a_joint_are_named_with_what_they_say(make: Make) -> None:
    """The policy was given both in turn, and the agent was OK."""
    bench = make()
    bench.publishers["joint_states"] = [publisher("driver", JOINTS), publisher("joint_state_publisher", JOINTS)]
    plays(bench, 2, bench.image, lambda: bench.joints(x=1.5))
    assert bench.inputs.check().message == "observations are received"

    def both() -> None:
        bench.joints(x=1.5)
        bench.joints(x=0.0, publisher=b"joint_state_publisher")

    plays(bench, 2, bench.image, both)
    report = bench.inputs.check()
    assert report.message == (
        "x is published by two nodes: /driver (1.5), /joint_state_publisher (0): stop all but one of them"
    )
    assert report.level.name == "WARN"
    assert sum("two nodes" in text for text in bench.said) == 1
    plays(bench, 3, bench.image, bench.joints)
    assert bench.inputs.check().message == "observations are received"


def test_two_nodes_that_publish_a_camera_are_named(make: Make) -> None:
    bench = make()
    bench.publishers["camera/top/image_raw"] = [publisher("camera", IMAGE), publisher("player", IMAGE)]
    plays(bench, 2, bench.image, bench.joints)
    assert bench.inputs.check().message.startswith("top: several nodes publish its images: /camera, /player: stop")


# -- sizes ------------------------------------------------------------------------------------------------


def test_images_of_another_size_are_resized_with_a_warning_once(make: Make) -> None:
    bench = make()
    picture = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)

    def image() -> None:
        bench.show(image_message(picture, stamp_ns=bench.wall_ms * MS, frame_id="top", encoding="rgb8"))

    plays(bench, 20, image, bench.joints)
    observation = bench.inputs.latch(bench.now_ns())
    assert isinstance(observation, Observation)
    spec = ObservationSpec.from_dict({**bench.spec.to_dict(), "cameras": [{"name": "top", "height": 4, "width": 6}]})
    expected = Preprocessor(spec, resizes=True)({"top": picture}, np.array([1.0]))
    np.testing.assert_array_equal(observation.images[0], expected.image)
    assert bench.inputs.check().values["top resized from"] == "8 x 12"
    [warning] = [text for text in bench.said if "images are" in text]
    assert warning.startswith("top: images are 8 x 12, the checkpoint's are 4 x 6: they are stretched to that.")
    assert warning.endswith("resize_images: false refuses them")


# -- what the log says ------------------------------------------------------------------------------------


@pytest.mark.parametrize("publishes", [True, False], ids=["silent", "gone"])
def test_ten_minutes_with_a_dead_camera_are_at_most_fifteen_lines(make: Make, publishes: bool) -> None:
    bench = make()
    topic = "camera/top/image_raw"
    bench.publishers[topic] = [publisher("camera", IMAGE)]
    plays(bench, 5, bench.image, bench.joints)
    bench.publishers[topic] = [publisher("camera", IMAGE)] if publishes else []
    begin = len(bench.said)
    plays(bench, 600, None, bench.joints)
    said = bench.said[begin:]
    assert 5 <= len(said) <= 15
    cause = "/camera publishes /camera/top/image_raw and is silent" if publishes else "nobody publishes /camera/top/im"
    assert sum(cause in text for text in said) >= len(said) - 2
    plays(bench, 90, bench.image, bench.joints)
    assert bench.said[-1].startswith("observations are back")


def test_a_camera_slower_than_its_limit_does_not_fill_the_log(make: Make) -> None:
    """It was a line when it was stale and one when it was back, twice a second."""
    bench = make()
    for _ in range(600):
        bench.image()
        plays(bench, 1, None, bench.joints)
    assert 2 <= len(bench.said) <= 20


def test_refused_images_are_a_line_a_minute(make: Make) -> None:
    bench = make()
    plays(bench, 600, lambda: bench.image(encoding="16UC1"), bench.joints)
    refused = [text for text in bench.said if text.startswith("top: encoding: bad_encoding")]
    assert 10 <= len(refused) <= 11
    assert "more such lines in the last 60 s" in refused[-1]
