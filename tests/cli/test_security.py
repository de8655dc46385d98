"""`auras security`: a policy file of SROS 2 in which nobody may do more than it has to."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from auras_ros.cli import security

KEYS = "{require_emergency_stop: true, emergency_stop_key_file: /key, emergency_stops: [emergency_stop, pendant/stop]}"
SIGNED = f"""
supervisor: {{ros__parameters: {{processes: [actuator, agent]}}}}
actuator: {{ros__parameters: {KEYS}}}
"""


class Policy:
    """A policy that was printed."""

    def __init__(self, text: str) -> None:
        self.root = ElementTree.fromstring(text)

    def enclaves(self) -> list[str]:
        return [each.attrib["path"] for each in self.root.iter("enclave")]

    def who(self, may: str, name: str) -> list[str]:
        """The enclaves that may publish, subscribe, reply or request this name."""
        return [
            enclave.attrib["path"]
            for enclave in self.root.iter("enclave")
            if any(entry.text == name for rule in enclave.iter() if may in rule.attrib for entry in rule)
        ]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Policy:
    assert security.run(list(words)) == 0
    return Policy(capsys.readouterr().out)


def test_the_form_is_that_of_sros2(capsys: pytest.CaptureFixture[str]) -> None:
    root = printed(capsys, "pusht").root
    assert (root.tag, root.attrib) == ("policy", {"version": "0.2.0"})
    assert [each.tag for each in root] == ["enclaves"]
    for enclave in root[0]:
        [profiles] = enclave
        assert (enclave.tag, profiles.tag) == ("enclave", "profiles")
        for profile in profiles:
            assert set(profile.attrib) == {"ns", "node"}
            for rule in profile:
                assert [*rule.attrib.values()] == ["ALLOW"]
                assert {entry.tag for entry in rule} == {rule.tag.removesuffix("s")}
                assert all(entry.text and entry.text.startswith("/") for entry in rule)


def test_only_a_button_presses_and_only_an_operator_arms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """S1 and S2 of a participant without keys of a button, and S4 of one without the operator's."""
    (tmp_path / "robot.yaml").write_text(SIGNED)
    policy = printed(capsys, str(tmp_path / "robot.yaml"))
    buttons = ["/buttons/emergency_stop", "/buttons/pendant/stop"]
    assert policy.enclaves() == ["/actuator", "/agent", *buttons, "/drivers", "/operator"]
    assert policy.who("publish", "/emergency_stop") == buttons[:1]
    assert policy.who("publish", "/pendant/stop/signed") == buttons[1:]
    assert policy.who("publish", "/actuator/stop_challenge") == ["/actuator"]
    assert policy.who("subscribe", "/actuator/stop_challenge") == [*buttons, "/operator"]
    for service in ("arm", "disarm", "stop", "release_stop", "set_parameters"):
        assert policy.who("request", f"/actuator/{service}") == ["/operator"]
        assert policy.who("reply", f"/actuator/{service}") == ["/actuator"]
    assert policy.who("request", "/agent/change_state") == ["/operator"]
    assert policy.who("publish", "/action") == ["/actuator"]
    assert policy.who("publish", "/joint_states") == ["/drivers"]
    assert policy.who("publish", "/agent/chunk") == policy.who("publish", "/agent/heartbeat") == ["/agent"]


def test_a_simulator_stands_for_the_drivers(capsys: pytest.CaptureFixture[str]) -> None:
    policy = printed(capsys, "pusht")
    assert policy.enclaves() == ["/pusht", "/actuator", "/agent", "/buttons/emergency_stop", "/operator"]
    assert policy.who("publish", "/joint_states") == ["/pusht"]
    assert policy.who("subscribe", "/action") == ["/pusht", "/operator"]


@pytest.mark.parametrize("config", ["forward_command", "joint_trajectory", "mobile_base", "two_arms", "vlm_pusht"])
def test_every_config_has_a_policy(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    policy = printed(capsys, config, "--namespace", "left/")
    assert all(path.startswith("/left/") for path in policy.enclaves())
    assert policy.who("publish", "/rosout") == policy.enclaves()
    ours = [path for path in policy.enclaves() if path != "/left/operator"]
    assert policy.who("subscribe", "/clock") == ours, "use_sim_time may be a launch argument"
    assert policy.who("subscribe", "/left/emergency_stop") == (["/left/actuator"] if config != "vlm_pusht" else [])


REALSENSE = "/camera/camera/color/image_raw"
ROBOT = f"""
supervisor: {{ros__parameters: {{processes: [actuator, agent], remap: ["prompt:=/task"]}}}}
actuator: {{ros__parameters: {{joint_states_topic: /arm/joint_states}}}}
agent: {{ros__parameters: {{joint_states_topic: /arm/joint_states, camera_topics: ["top:={REALSENSE}"]}}}}
"""


def test_the_topics_of_a_robot_are_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of parameters, of `remap` in the config, and of what `auras run` is given."""
    (tmp_path / "robot.yaml").write_text(ROBOT)
    policy = printed(capsys, str(tmp_path / "robot.yaml"), "--remap", "agent:provenance:=/cell/provenance")
    assert policy.who("subscribe", REALSENSE) == ["/agent"]
    assert policy.who("publish", REALSENSE) == ["/drivers"]
    assert policy.who("subscribe", "/arm/joint_states") == ["/actuator", "/agent"]
    assert policy.who("publish", "/arm/joint_states") == ["/drivers"]
    assert policy.who("subscribe", "/joint_states") == []
    assert policy.who("publish", "/task") == ["/operator"]
    assert policy.who("subscribe", "/task") == ["/agent"]
    assert policy.who("publish", "/cell/provenance") == ["/agent"]


def test_a_rule_for_every_camera_s_topic_is_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checkpoint names the cameras, so the policy has `camera/*/image_raw`, and what one of them becomes."""
    (tmp_path / "robot.yaml").write_text(f"""
supervisor: {{ros__parameters: {{processes: [agent, actuator], remap: ["camera/top/image_raw:={REALSENSE}"]}}}}
""")
    policy = printed(capsys, str(tmp_path / "robot.yaml"))
    assert policy.who("subscribe", REALSENSE) == ["/agent"]
    assert policy.who("publish", REALSENSE) == ["/drivers"]


def test_a_config_that_is_wrong_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("actuator: {ros__parameters: {rate_hz: 1}}\n")
    assert security.run([str(tmp_path / "bad.yaml")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "rate_hz" in err
