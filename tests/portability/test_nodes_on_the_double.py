"""The real nodes' real `main`s, unchanged, on a double of rclpy that takes nothing which rclpy would not take.

Guards: a call, a keyword, a QoS value, a message field or an attribute that only our own layer has.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

LATCHED = ["RELIABLE", "TRANSIENT_LOCAL", 1]
RELIABLE = ["RELIABLE", "VOLATILE", 1]
NEWEST = ["BEST_EFFORT", "VOLATILE", 1]
SENSOR = ["BEST_EFFORT", "VOLATILE", 5]
EVERY_BEAT = ["BEST_EFFORT", "VOLATILE", 50]
QUEUE = ["RELIABLE", "TRANSIENT_LOCAL", 1000]
LIFECYCLE = {
    "/agent/change_state": "ChangeState",
    "/agent/get_state": "GetState",
    "/agent/get_available_states": "GetAvailableStates",
    "/agent/get_available_transitions": "GetAvailableTransitions",
    "/agent/get_transition_graph": "GetAvailableTransitions",
}
Drive = Callable[..., dict[str, Any]]


def has(outcome: dict[str, Any], kind: str, *lines: list[Any]) -> None:
    """These were made, whatever else was."""
    assert [line for line in lines if line not in outcome[kind]] == [], outcome[kind]


def test_the_actuator(drive: Drive, checkpoint: str) -> None:
    outcome = drive("actuator", checkpoint=checkpoint, joint_trajectory=True, agent_timeout_ms=1000.0)
    assert outcome["refused"] == []
    has(
        outcome,
        "publishers",
        ["/action", "Float64MultiArray", *RELIABLE],
        ["/actuator/state", "String", *LATCHED],
        ["/joint_trajectory", "JointTrajectory", *RELIABLE],
        ["/diagnostics", "DiagnosticArray", *RELIABLE],
    )
    has(
        outcome,
        "subscriptions",
        ["/agent/chunk", "Float64MultiArray", *RELIABLE],
        ["/agent/heartbeat", "String", *EVERY_BEAT],
        ["/joint_states", "JointState", *SENSOR],
        ["/emergency_stop", "Bool", *QUEUE],
        ["/robot_description", "String", *LATCHED],
    )
    assert {"/actuator/arm", "/actuator/disarm", "/actuator/stop", "/actuator/release_stop"} <= {
        name for name, _ in outcome["services"]
    }
    facts = outcome["facts"]
    assert {"rate_hz", "max_chunk_age_ms", "clip_tolerance", "use_sim_time"} <= set(facts["parameters"])
    assert facts["set"] == [False, "Trying to set a read-only parameter: rate_hz."]
    assert facts["arm alone"][0] is False
    values, names = facts["action"]
    assert len(values) == 2 and names == "agent_x,agent_y"  # noqa: PT018  (one action)
    assert facts["stop"] and facts["disarm"]  # noqa: PT018
    assert "an unknown publisher" in facts["not released"]
    assert facts["jump"] == "disarmed"
    assert facts["incompatible"] == ["agent/chunk incompatible RELIABILITY"]
    assert outcome["sent"]["/joint_trajectory"] >= 2, "a horizon, and the point that ends it"


def test_the_agent(drive: Drive, checkpoint: str) -> None:
    outcome = drive("agent", checkpoint=checkpoint)
    assert outcome["refused"] == []
    has(
        outcome,
        "publishers",
        ["/agent/chunk", "Float64MultiArray", *RELIABLE],
        ["/agent/heartbeat", "String", *NEWEST],
        ["/provenance", "DiagnosticArray", *RELIABLE],
        ["/diagnostics", "DiagnosticArray", *RELIABLE],
    )
    has(
        outcome,
        "subscriptions",
        ["/camera/top/image_raw", "Image", *NEWEST],
        ["/joint_states", "JointState", *SENSOR],
        ["/actuator/state", "String", *LATCHED],
        ["/prompt", "String", *LATCHED],
    )
    has(outcome, "services", ["/agent/reset", "Trigger"], *([name, kind] for name, kind in LIFECYCLE.items()))
    facts = outcome["facts"]
    assert facts["illegal"] == [False, False, False], "answered, and the process goes on"
    assert facts["states"] == ["unconfigured", "inactive", "active", "inactive", "unconfigured"]
    assert {"checkpoint", "plan", "seed", "autostart"} <= set(facts["parameters"])
    assert facts["set"][0] is False
    assert "out of range" in facts["set"][1]
    assert {"frame", "lifecycle", "session", "state"} <= set(facts["heartbeat"])
    assert facts["chunk"] == [["horizon", 16, 32], ["agent_x,agent_y", 2, 2]]
    assert facts["reset"] is True
    assert facts["incompatible"] == ["camera/top/image_raw incompatible RELIABILITY"]


def test_the_vlm(drive: Drive, vlm_folder: Path) -> None:
    outcome = drive("vlm", checkpoint=str(vlm_folder), cameras="top", camera_age_limit_ms=60000.0)
    assert outcome["refused"] == []
    has(outcome, "publishers", ["/answer", "String", "RELIABLE", "VOLATILE", 10], ["/vlm/heartbeat", "String", *NEWEST])
    has(outcome, "publishers", ["/answer/stream", "String", "RELIABLE", "VOLATILE", 1000])
    has(outcome, "subscriptions", ["/camera/top/image_raw", "Image", *NEWEST])
    has(outcome, "subscriptions", ["/question", "String", "RELIABLE", "VOLATILE", 10])
    facts = outcome["facts"]
    assert facts["changed"] == [False, True, True, True, True]
    assert {"checkpoint", "cameras", "standing", "kv_mib", "autostart"} <= set(facts["parameters"])
    assert (facts["set"][0], "out of range" in facts["set"][1]) == (False, True)
    assert facts["answer"] == "top"


def test_the_bridge_of_push_t(drive: Drive) -> None:
    outcome = drive("bridge", publish_clock=True, viewer_px=64)
    assert outcome["refused"] == []
    has(
        outcome,
        "publishers",
        ["/camera/top/image_raw", "Image", *NEWEST],
        ["/camera/top/image_raw/compressed", "CompressedImage", *NEWEST],
        ["/camera/viewer/image_raw", "Image", *NEWEST],
        ["/joint_states", "JointState", *NEWEST],
        ["/clock", "Clock", *NEWEST],
        ["/pusht/status", "String", "RELIABLE", "VOLATILE", 10],
        ["/pusht/reward", "Float64", "RELIABLE", "VOLATILE", 10],
    )
    has(outcome, "subscriptions", ["/action", "Float64MultiArray", "RELIABLE", "VOLATILE", 10])
    has(outcome, "services", ["/pusht/reset", "Trigger"])
    facts = outcome["facts"]
    assert facts["set"][0] is False
    assert facts["image"] == [96, 96, "rgb8", 96 * 96 * 3]
    assert facts["reset"] == [True, ["episode", "seed"]]
