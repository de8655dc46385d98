"""Whatever comes as a chunk or a heartbeat: nothing beyond the limits is published, and a good chunk drives again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from auras_ros.action import Contract
from auras_ros.nodes.common.messages import json_message
from auras_ros.ros import Context, Node, init, try_shutdown
from auras_ros.ros.msg import Float64MultiArray, MultiArrayDimension, String
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import MS, Child, Heard, Watch, undisturbed

RATE_HZ = 100.0
HOLD_TICKS = 2
DELIVERY_MS = 100  # from the test to the actuator, at best
LATE_MS = 1000  # and on a busy machine; without the refusal the chunk before is driven for 1.6 s
DIGITS = "9" * 5000  # beyond what Python turns into an int


@pytest.fixture
def driven(actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot) -> FakeAgent:
    """An armed actuator, driven by the test."""
    actuator(rate_hz=RATE_HZ, blend_ms=0.0, max_chunk_age_ms=4000.0)
    fake.live()
    watch.arm()
    resumes(fake, watch)
    return fake


def resumes(fake: FakeAgent, watch: Watch, values: Any = None) -> None:
    """A good chunk is driven: the sentinel after whatever was sent before."""
    request = fake.chunk(ramp() if values is None else values)
    watch.until(lambda: watch.actions and watch.actions[-1].label.request == request, "the good chunk's actions")


def alive(watch: Watch) -> None:
    """The actuator's executor went on after what was sent until now."""
    now_ns = time.monotonic_ns()
    watch.state_where(lambda state: state["mono_ns"] > now_ns, "a state after the fault")


def safe(actions: list[Heard], contract: Contract) -> None:
    """Finite, within the limits, and no faster than the rates."""
    values = np.stack([heard.values for heard in actions])
    assert np.isfinite(values).all()
    for column, channel in enumerate(contract.channels):
        assert values[:, column].min() >= channel.lower
        assert values[:, column].max() <= channel.upper
        ticks = np.diff([heard.label.tick for heard in actions])
        steps = np.abs(np.diff(values[:, column]))
        assert channel.max_rate is not None
        assert (steps <= channel.max_rate / RATE_HZ * ticks + 1e-9).all()


def broken(value: float, step: int = 9) -> Any:
    values = ramp()
    values[step, 1] = value
    return values


def test_a_chunk_with_one_bad_value_is_refused_whole_and_held_at_once(
    driven: FakeAgent, watch: Watch, contract: Contract
) -> None:
    cases = [(np.nan, "non_finite"), (np.inf, "non_finite"), (-np.inf, "non_finite"), (600.0, "over_limit")]
    after_ms: list[float] = []
    for value, reason in [*cases, (-99.0, "over_limit")]:
        refused, sent_ns = watch.count(reason), time.monotonic_ns()
        driven.chunk(broken(value))
        hold = watch.first("holding", sent_ns)
        after_ms.append((hold.label.mono_ns - sent_ns) / MS)
        before = [heard for heard in watch.actions if heard.label.tick < hold.label.tick][-1]
        np.testing.assert_array_equal(hold.values, before.values)
        watch.until(lambda n=refused, why=reason: watch.count(why) == n + 1, f"{value} counted as {reason}")
        assert "agent_y" in watch.states[-1]["reason"]
        resumes(driven, watch)
    assert min(after_ms) <= HOLD_TICKS * 1e3 / RATE_HZ + DELIVERY_MS, after_ms
    assert max(after_ms) <= LATE_MS, after_ms
    safe(watch.sentinel(), contract)


def wrong_shapes(fake: FakeAgent) -> dict[str, Float64MultiArray]:
    """Chunks that are not of the form, by what is wrong."""

    def changed(change: Callable[[Any], object]) -> Float64MultiArray:
        message = fake.message(ramp())
        change(message)
        return message

    def label(text: str) -> Callable[[Any], object]:
        return lambda m: setattr(m.layout.dim[2], "label", text)

    good = fake.message(ramp()).layout.dim[2].label
    huge = ramp(0.0, 0.0, 1)
    return {
        "no dimensions": Float64MultiArray(),
        "four dimensions": changed(lambda m: m.layout.dim.append(MultiArrayDimension(label="more", size=1, stride=1))),
        "less data than the layout says": changed(lambda m: setattr(m, "data", m.data[:-1])),
        "a horizon of 2**32 - 1": changed(lambda m: setattr(m.layout.dim[0], "size", 2**32 - 1)),
        "one channel": changed(lambda m: setattr(m.layout.dim[1], "size", 1)),
        "another first label": changed(lambda m: setattr(m.layout.dim[0], "label", "time")),
        "channels swapped": changed(lambda m: setattr(m.layout.dim[1], "label", "agent_y,agent_x")),
        "garbage for JSON": changed(label('{"origin_mono_ns": ')),
        "JSON that is no object": changed(label("[1, 2]")),
        "JSON without an origin": changed(label("{}")),
        "an unknown key": changed(label('{"trust_me": true, ' + good[1:])),
        "an origin that is NaN": changed(label('{"origin_stamp_ns": 0, "origin_mono_ns": NaN}')),
        "a number of 5000 digits": changed(label('{"origin_stamp_ns": 0, "origin_mono_ns": ' + DIGITS + "}")),
        "JSON nested 20000 deep": changed(label("[" * 20000)),
        "an origin nested 900 deep": changed(
            label('{"origin_mono_ns": 0, "origin_stamp_ns": ' + "[" * 900 + "]" * 900 + "}")
        ),
        "half a character": changed(label('{"origin_mono_ns": 0, "origin_stamp_ns": 0, "prompt": "\\ud800"}')),
        "a label of 10 MB": changed(label("x" * 10_000_000)),
        "10 MB of values": changed(lambda m: setattr(m, "data", np.repeat(huge, 625_000))),
        "10 MB of values, laid out": fake.message(np.repeat(huge, 625_000, axis=0)),
    }


def test_a_chunk_that_is_not_of_the_form_is_refused_and_the_active_one_goes_on(
    driven: FakeAgent, watch: Watch, contract: Contract
) -> None:
    for what, message in wrong_shapes(driven).items():
        watch.state_where(lambda _: True, f"a state before {what}")
        refused = watch.states[-1]["unreadable"]
        resumes(driven, watch)
        driven.chunk_topic.publish(message)
        said = watch.state_where(lambda state, n=refused: state["unreadable"] == n + 1, f"refused: {what}")
        assert undisturbed(said), what
    resumes(driven, watch)
    safe(watch.sentinel(), contract)


def test_late_foreign_and_repeated_chunks_are_counted_by_reason(
    driven: FakeAgent, watch: Watch, contract: Contract
) -> None:
    driven_ns = time.monotonic_ns()
    resumes(driven, watch)  # of an origin after that
    cases: dict[str, dict[str, Any]] = {
        "too_old": {"origin_mono_ns": driven_ns - 5_000 * MS, "epoch": 1},
        "future_origin": {"origin_mono_ns": driven_ns + 3_600_000 * MS},
        "out_of_order": {"origin_mono_ns": driven_ns - MS},
        "other_session": {"session": "somebody else"},
        "other_host": {"host": "another machine"},
    }
    for reason, provenance in cases.items():
        driven.chunk(np.full((16, 2), 500.0), **provenance)
        watch.until(lambda reason=reason: watch.count(reason) == 1, reason)
    resumes(driven, watch)
    heard = watch.sentinel()
    assert max(each.values.max() for each in heard) < 400.0  # none of theirs was driven
    safe(heard, contract)


def test_garbage_heartbeats_are_refused_and_are_no_sign_of_life(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    child = actuator()
    texts = ["", "nonsense", "[]", "{}", '{"session": ' + DIGITS + "}", "[" * 20000, "x" * 70_000]
    texts += ['{"session": "s", "checkpoint": "../../etc"}', '{"session": "s", "checkpoint": "' + "a" * 65 + '"}']
    texts += ['{"session": "s", "lifecycle": "\\ud800"}', '{"session": ' + "[" * 900 + "]" * 900 + "}"]
    watch.until(lambda: watch.states and fake.beat_topic.get_subscription_count(), "the actuator listens")
    say = lambda message: fake.beat_topic.publish(message) is None  # noqa: E731  (one may be lost: best effort)
    for text in texts:
        refused = watch.states[-1]["unreadable"]
        watch.until(
            lambda text=text, n=refused: say(String(data=text)) and watch.states[-1]["unreadable"] > n,
            f"refused: {text[:20]}",
        )
    watch.until(lambda: "silent" in watch.call("actuator/arm")[1], "the agent is what is missed")
    assert watch.call("actuator/arm") == (False, "agent 'agent' is silent: start it first")
    good = json_message({"session": "good", "lifecycle": "active", "checkpoint": fake.digest})
    watch.until(lambda: say(good) and watch.call("actuator/arm")[0], "armed after a good heartbeat")
    assert child.process.poll() is None


def test_payloads_that_are_no_message_at_all_are_counted(driven: FakeAgent, watch: Watch, contract: Contract) -> None:
    """Each one, and nothing is converted of them: rclpy would take some for empty messages."""
    noise = np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)
    header = bytes([0, 1, 0, 0])
    garbage = [header + bytes(4), header + noise.tobytes(), header + b"\xff" * 64, header + bytes(range(256))]
    for topic in (driven.chunk_topic, driven.beat_topic):
        for payload in garbage:
            refused = watch.states[-1]["unreadable"]

            def counted(topic: Any = topic, payload: bytes = payload, refused: int = refused) -> bool:
                topic.publish(payload)  # once more each time: heartbeats are best effort
                return bool(watch.states[-1]["unreadable"] > refused)

            watch.until(counted, f"{len(payload)} bytes are counted as unreadable")
    resumes(driven, watch)
    safe(watch.sentinel(), contract)


def test_a_jump_is_slowed_down_to_the_rate_limit(driven: FakeAgent, watch: Watch, contract: Contract) -> None:
    resumes(driven, watch, np.full((16, 2), 30.0))
    watch.until(lambda: watch.actions[-1].values[0] == 30.0, "the start")
    begin = len(watch.actions)
    resumes(driven, watch, np.full((16, 2), 480.0))
    watch.until(lambda: watch.actions[-1].values[0] == 480.0, "the end")
    jump = watch.actions[begin - 1 :]
    assert len({heard.values[0] for heard in jump}) >= 450 / 40  # 4000 px/s at 100 Hz
    safe(watch.sentinel(), contract)


def test_a_foreign_type_on_the_chunk_topic_is_not_taken(driven: FakeAgent, watch: Watch, contract: Contract) -> None:
    another_process = Context()  # Fast DDS refuses a second type of one topic in one participant
    init(args=[], context=another_process)
    try:
        foreign = Node("foreign", context=another_process).create_publisher(String, "agent/chunk", 1)
        watch.until(lambda: len(watch.node.get_publishers_info_by_topic("agent/chunk")) == 2, "it is discovered")
        for _ in range(3):
            foreign.publish(String(data=json.dumps({"data": [9e9, 9e9]})))
            alive(watch)
    finally:
        try_shutdown(context=another_process)
    resumes(driven, watch)
    assert watch.states[-1]["unreadable"] == 0
    safe(watch.sentinel(), contract)
