"""The arming rules, one by one and in their order: what each refuses, and that nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.actuator.agent_watch import AgentWatch
from auras_ros.nodes.actuator.arming import RULES, Situation, arming_refusal
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.common.texts import MessageError

MS = 1_000_000
OWN, OTHER = "ab" * 32, "cd" * 32  # digests of checkpoints
STRICT = ActuatorSettings(require_emergency_stop=True, require_robot_description=True)
GOOD = Situation(
    agent_age_ns=20 * MS,
    lifecycle="active",
    joints_age_ns=10 * MS,
    others=(),
    described=True,
    ros_time_ns=5,
)

# In the order of the rules: each fault, and a word of its reason.
FAULTS = [
    ({"pressed": "/button"}, "pressed by /button"),
    ({"stop_deaf": "/button"}, "the emergency stop of /button cannot be received"),
    ({"stop_unheard": "/button"}, "the emergency stop of /button was found a moment ago"),
    ({"stop_missing": "nobody publishes emergency_stop"}, "require_emergency_stop"),
    ({"stop_latched": "emergency stop pressed"}, "call the service ~/release_stop"),
    ({"others": ("/other on action",)}, "conflict: /other on action"),
    ({"ros_time_ns": 0}, "/clock"),
    ({"limits_pending": True}, "about to be taken"),
    ({"described": False}, "require_robot_description"),
    ({"unlimited": "elbow"}, "no limits for elbow"),
    ({"joints_age_ns": None}, "no joint_states within 500 ms"),
    ({"joints_age_ns": 501 * MS}, "no joint_states within 500 ms"),
    ({"unknown": "elbow"}, "no position of elbow"),
    ({"agent_age_ns": None}, "silent"),
    ({"agent_age_ns": 101 * MS}, "silent"),
    ({"lifecycle": "inactive"}, "is inactive: activate it first"),
    ({"lifecycle": ""}, "of no known state"),
    ({"other_checkpoint": "runs another checkpoint"}, "agent 'agent' runs another checkpoint"),
    ({"others": None}, "just started"),
]


def test_nothing_objects_when_all_is_well() -> None:
    assert arming_refusal(GOOD, STRICT) == ""
    assert len(RULES) == 8


@pytest.mark.parametrize(("fault", "word"), FAULTS, ids=str)
def test_each_fault_alone_refuses_and_is_named(fault: dict[str, object], word: str) -> None:
    assert word in arming_refusal(replace(GOOD, **fault), STRICT)  # type: ignore[arg-type]


@given(st.sets(st.integers(0, len(FAULTS) - 1), min_size=1))
def test_of_several_faults_the_first_rule_speaks(which: set[int]) -> None:
    at = GOOD
    for index in sorted(which, reverse=True):
        at = replace(at, **FAULTS[index][0])  # type: ignore[arg-type]
    words = {word for index, (_, word) in enumerate(FAULTS) if index in which}
    rule = next(rule for rule in RULES if rule(at, STRICT))
    assert arming_refusal(at, STRICT) == rule(at, STRICT)
    assert any(word in arming_refusal(at, STRICT) for word in words)
    assert not any(earlier(at, STRICT) for earlier in RULES[: RULES.index(rule)])


@pytest.mark.parametrize(
    ("fault", "relaxed"),
    [
        ({"described": False}, ActuatorSettings()),
        ({"unlimited": "elbow"}, ActuatorSettings()),
        ({"joints_age_ns": None}, ActuatorSettings(measured_start=False)),
        ({"ros_time_ns": None}, ActuatorSettings()),
        ({"agent_age_ns": 101 * MS}, ActuatorSettings(agent_timeout_ms=200.0)),
    ],
    ids=str,
)
def test_what_is_not_required_does_not_refuse(fault: dict[str, object], relaxed: ActuatorSettings) -> None:
    assert arming_refusal(replace(GOOD, **fault), relaxed) == ""  # type: ignore[arg-type]


# -- the agent's life -------------------------------------------------------------------------------------


def beat(session: str = "a", lifecycle: str = "active", checkpoint: str = OWN) -> dict[str, object]:
    return {"session": session, "lifecycle": lifecycle, "state": "running", "checkpoint": checkpoint}


def test_silence_is_counted_from_the_followed_session_alone() -> None:
    watch = AgentWatch(100.0, OWN)
    assert watch.lost(0)
    watch.on_heartbeat(beat("a"), "a", 0)
    watch.on_heartbeat(beat("b"), "a", 90 * MS)
    assert not watch.lost(100 * MS)
    assert watch.lost(101 * MS)
    assert watch.age_ns(101 * MS) == 11 * MS  # somebody is there


def test_before_the_first_chunk_anybody_counts() -> None:
    watch = AgentWatch(100.0, OWN)
    watch.on_heartbeat(beat("a"), None, 0)
    watch.on_heartbeat(beat("b"), None, 90 * MS)
    assert not watch.lost(150 * MS)


def test_arming_follows_the_newest_heartbeat() -> None:
    watch = AgentWatch(100.0, OWN)
    watch.on_heartbeat(beat("b"), "a", 50 * MS)
    assert watch.lost(60 * MS)
    watch.follow()
    assert not watch.lost(60 * MS)


@pytest.mark.parametrize("lifecycle", ["inactive", "deactivating", "errorprocessing", "finalized", ""])
def test_only_the_followed_session_can_say_that_it_is_not_active(lifecycle: str) -> None:
    watch = AgentWatch(100.0, OWN)
    assert not watch.on_heartbeat(beat("b", lifecycle), "a", 0)
    assert watch.on_heartbeat(beat("a", lifecycle), "a", 0)
    assert watch.on_heartbeat(beat("a", lifecycle), None, 0)
    assert not watch.on_heartbeat(beat("a"), "a", 0)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"lifecycle": "active"}, "session"), ({"session": "a", "lifecycle": ["active"]}, "lifecycle"),
     ({"session": "a", "state": "x" * 201}, "state"), ({"session": "a", "pause": True}, "pause"),
     ({"session": "a" * 65}, "session"), ({"session": "a", "checkpoint": "a" * 65}, "checkpoint"),
     ({"session": "a", "checkpoint": "/etc"}, "checkpoint"), ({"session": "a", "checkpoint": 1}, "checkpoint")],
)  # fmt: skip
def test_a_heartbeat_that_is_none_is_refused_and_its_field_named(wrong: dict[str, object], field: str) -> None:
    watch = AgentWatch(100.0, OWN)
    with pytest.raises(MessageError, match=f"heartbeat: {field}: "):
        watch.on_heartbeat(wrong, None, 0)
    assert watch.beat_ns is None


def test_only_the_actuators_checkpoint_may_drive() -> None:
    watch = AgentWatch(100.0, OWN)
    assert watch.on_heartbeat(beat("a"), "a", 0) == ""
    assert watch.other_checkpoint == ""
    assert watch.on_heartbeat(beat("b", checkpoint=OTHER), "a", 0) == "", "another session's does not matter"
    assert watch.other_checkpoint == (
        "runs another checkpoint (digest cdcdcdcdcdcd) than the actuator (digest abababababab): give both the same"
    )
    assert watch.on_heartbeat(beat("a", checkpoint=OTHER), "a", 0) == f"the agent {watch.other_checkpoint}"
    assert watch.on_heartbeat(beat("a", checkpoint=OTHER), None, 0) == f"the agent {watch.other_checkpoint}"


def test_an_agent_that_reports_no_checkpoint_may_not_drive() -> None:
    """One of an earlier version, whose heartbeat has no such field."""
    watch = AgentWatch(100.0, OWN)
    older = {"session": "a", "lifecycle": "active", "state": "running"}
    said = "does not report its checkpoint's digest: it is older than this actuator, or another program"
    assert watch.on_heartbeat(older, "a", 0) == f"the agent {said}"
    assert watch.other_checkpoint == said


def test_the_followed_session_alone_asks_for_a_pause() -> None:
    watch = AgentWatch(100.0, OWN)
    watch.on_heartbeat(beat("a") | {"pause": "'way' says 'yes'"}, "a", 0)
    assert watch.pause == "'way' says 'yes'"
    watch.on_heartbeat(beat("b"), "a", 0)
    assert watch.pause == "'way' says 'yes'"
    watch.follow()  # armed anew: the newest heartbeat counts
    assert watch.pause == ""
    watch.on_heartbeat(beat("a") | {"pause": "again"}, "b", 0)
    assert watch.pause == ""
