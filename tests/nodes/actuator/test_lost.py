"""The actuator dies: the agent falls silent within 300 ms and says why, and whoever takes actions is told."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from auras_ros.ros import Duration, LivelinessPolicy, QoSProfile, SubscriptionEventCallbacks
from tests.nodes.stand_ins import FakeAgent, Robot, ramp
from tests.nodes.wire import MS, Child, Children, Watch

SILENT_WITHIN_MS = 300  # the best of a few, for a machine that is busy
LATE_MS = 1500  # no one is later
TRIES = 3


def published_ns(watch: Watch) -> list[int]:
    """When the agent published each chunk, by its own words."""
    values = [{pair.key: pair.value for pair in array.status[0].values} for array in watch.provenance]
    return [int(fields["published_ns"]) for fields in values]


def test_nobody_is_driven_without_a_watchdog(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    actuator_now = actuator(arm_on_start=True)
    agent = children.node("agent", {"checkpoint": checkpoint, "camera_age_limit_ms": 2000.0})
    watch.hear_agent()
    for _ in range(TRIES):
        watch.armed()
        watch.until(lambda: watch.beats and watch.beats[-1]["state"] == "running", "the agent says that it runs")
        killed_ns = actuator_now.send(signal.SIGKILL)
        actuator_now.wait()
        ended_ns, count = time.monotonic_ns(), len(watch.beats)
        lost = lambda n=count: [beat for beat in watch.beats[n:] if beat["state"] == "actuator lost"]  # noqa: E731
        watch.until(lost, "the agent says so")
        frame = lost()[0]["frame"]
        assert max(each.label.mono_ns for each in watch.sentinel()) <= ended_ns
        watch.until(lambda lost=lost: len(lost()) > 20, "more heartbeats")
        assert watch.beats[-1]["frame"] <= frame + 1  # the one that was under way
        last_ns = max(published_ns(watch))
        back_ns = time.monotonic_ns()
        actuator_now = actuator(arm_on_start=True)
        watch.until(lambda back_ns=back_ns: published_ns(watch)[-1] > back_ns, "chunks again")
        watch.armed()
        assert [at for at in published_ns(watch) if last_ns < at < back_ns] == []
        after_ms = (last_ns - killed_ns) / MS
        assert after_ms <= LATE_MS
        if after_ms <= SILENT_WITHIN_MS:
            break
    assert after_ms <= SILENT_WITHIN_MS
    assert "actuator 'actuator' is silent" in agent.output


def test_one_that_was_stopped_goes_on_with_what_is_fresh_alone(
    actuator: Callable[..., Child], fake: FakeAgent, watch: Watch, robot: Robot
) -> None:
    """SIGSTOP for longer than a horizon: somebody else may drive meanwhile, so that it is silent until somebody arms.
    The active chunk has passed and must not be caught up with."""
    child = actuator(patient=False, max_chunk_age_ms=600.0)
    fake.live()
    fake.drive(ramp())
    watch.arm()
    watch.armed()
    stopped_ns = child.send(signal.SIGSTOP)
    until_ns = stopped_ns + 2000 * MS
    watch.until(lambda: time.monotonic_ns() > until_ns, "two seconds")
    first = fake.request  # chunks made until now have passed, or nearly
    resumed_ns = child.send(signal.SIGCONT)
    said = watch.state_where(lambda state: state["mono_ns"] > resumed_ns + 100 * MS, "a state")
    assert said["state"] == "disarmed"
    assert said["stalls"] == 1
    assert "stood still" in said["reason"]
    assert watch.actions[-1].label.mono_ns < resumed_ns, "not even a last command"
    watch.arm()
    watch.armed()
    after = [heard.label for heard in watch.actions if heard.label.mono_ns > resumed_ns]
    assert all(label.age_ns is None or label.age_ns <= 600 * MS for label in after)
    assert all(label.request is None or label.request >= first - 10 for label in after)
    state = watch.state_where(lambda state: state["mono_ns"] > resumed_ns, "a state")
    assert state["skipped_ticks"] >= 150  # counted, and not made up
    assert len([label for label in after if label.mono_ns < resumed_ns + 100 * MS]) <= 20


def test_subscribers_that_asked_to_be_told_are_told(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    """The publisher offers both: whoever asks for a deadline of 100 ms or for a lease of 300 ms still matches."""
    missed: list[int] = []
    alive: list[int] = []
    watch.listen(
        "action",
        QoSProfile(depth=1, deadline=Duration(nanoseconds=100 * MS)),
        SubscriptionEventCallbacks(deadline=lambda info: missed.append(time.monotonic_ns())),
    )
    lease = Duration(nanoseconds=300 * MS)
    watch.listen(
        "action",
        QoSProfile(depth=1, liveliness=LivelinessPolicy.AUTOMATIC, liveliness_lease_duration=lease),
        SubscriptionEventCallbacks(liveliness=lambda info: alive.append(info.alive_count)),
    )
    child = actuator(arm_on_start=True)
    children.fake_agent("fake", checkpoint)
    watch.armed()
    watch.until(lambda: alive and alive[-1] == 1, "the publisher seen alive")
    killed_ns = child.send(signal.SIGKILL)
    watch.until(lambda: missed and missed[-1] > killed_ns, "a deadline event")
    watch.until(lambda: alive[-1] == 0, "a liveliness event")
