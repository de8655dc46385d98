"""`auras check`: status 2 and a line for each thing that is wrong; without a file, what may be said."""

from __future__ import annotations

import importlib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from auras_ros import resources
from auras_ros.cli import check, sim
from auras_ros.cli.security import ENDPOINTS
from auras_ros.cli.used_topics import topics_of
from auras_ros.nodes.common.config import read_config


def test_a_good_file_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(["pusht", "lift.yaml"]) == 0
    out, err = capsys.readouterr()
    assert [line for line in out.splitlines() if not line.startswith("  ")] == [
        f"{resources.config('pusht')}: 24 parameters of pusht, actuator, agent, all valid",
        f"{resources.config('lift')}: 22 parameters of lift, actuator, agent, all valid",
    ]
    assert err == ""


MINE = """
supervisor: {ros__parameters: {processes: [actuator, agent]}}
actuator: {ros__parameters: {checkpoint: %s, max_chunk_age_ms: 500.0}}
agent: {ros__parameters: {checkpoint: %s, plan: "%s", fallback_plan: "%s"}}
"""


@pytest.mark.parametrize(
    ("given", "errors"),
    [
        (("pusht", "pusht", "quick", ""), []),
        (("pusht", "pusht", "fast", ""), ["agent: plan: checkpoint {pusht} has no plan 'fast'; known: quick, ddpm100"]),
        (("pusht", "pusht", "quik", "ddpm10"), ["plan 'quik'; did you mean quick?", "'ddpm10'; did you mean ddpm100?"]),
        (("pusht", "pushd", "quick", ""), ["agent: checkpoint 'pushd': no such folder in ", "did you mean pusht?"]),
        (("./nowhere", "pusht", "quick", ""), ["actuator: checkpoint folder not found: nowhere, in "]),
    ],
    ids=str,
)
def test_what_a_config_names_must_be_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: tuple[str, ...], errors: list[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(MINE % given)
    assert check.run([str(path)]) == (2 if errors else 0)
    out, err = capsys.readouterr()
    for error in errors:
        assert error.format(pusht=resources.checkpoint("pusht")) in err
    assert ("all valid" in out) == (not errors)
    assert all(line.startswith((f"error: {path}: ", "warning: ")) for line in err.splitlines())


def test_a_chunk_that_comes_hardly_before_the_last_ones_end_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The robot would be armed and held four times a second."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE % ("pusht", "pusht", "quick,frame_period_ms=400", ""))
    assert check.run([str(path)]) == 0
    assert "max_chunk_age_ms = 500 ms: it will hold between two chunks unless one is computed within 100 ms" in (
        capsys.readouterr().err
    )
    for name in ("pusht", "demo", "lift", "pusht_drift", "pusht_monitor"):
        assert check.run([name]) == 0
        assert "warning" not in capsys.readouterr().err


REALSENSE = "/camera/camera/color/image_raw"
ROBOT = f"""
supervisor: {{ros__parameters: {{processes: [actuator, agent, vlm], remap: ["agent:prompt:=/task"]}}}}
actuator: {{ros__parameters: {{checkpoint: lift, joint_states_topic: /arm/joint_states, action_topic: /arm/commands}}}}
agent:
  ros__parameters:
    checkpoint: lift
    joint_states_topic: /arm/joint_states
    camera_topics: ["agentview:={REALSENSE}"]
vlm: {{ros__parameters: {{cameras: "front,agentview", compressed: true, camera_topics: ["agentview:={REALSENSE}"]}}}}
"""


def test_the_topics_that_will_be_used_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the checkpoint's cameras, and after parameters and remapping."""
    (tmp_path / "robot.yaml").write_text(ROBOT)
    assert check.run([str(tmp_path / "robot.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    wrist = "/camera/robot0_eye_in_hand/image_raw"
    assert f"  agent hears {REALSENSE}, {wrist}, /arm/joint_states, /task" in lines
    assert "  actuator hears /arm/joint_states, /robot_description, /emergency_stop" in lines
    assert "  actuator says  /arm/commands, /actuator/state" in lines
    assert f"  vlm hears /camera/front/image_raw/compressed, {REALSENSE}/compressed, /question" in lines


@pytest.mark.parametrize("config", ["pusht", "lift", "two_arms", "mobile_base", "vlm_pusht", "pusht_monitor"])
def test_what_is_named_is_what_the_nodes_use(config: str) -> None:
    read = read_config(resources.config(config))
    for executable in read.supervision.processes:
        nodes = importlib.import_module(ENDPOINTS[executable]).endpoints(
            read.settings(read.supervision.node(executable))
        )
        for names, field in zip(topics_of(read, executable), ("subscribes", "publishes"), strict=True):
            used = [name for node in nodes for name in getattr(node, field)]
            assert all(any(fnmatchcase(name, each) for each in used) for name in names), (executable, field)


def test_a_camera_that_the_checkpoint_does_not_have_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_agent, of_vlm = ROBOT.split("vlm: {")
    (tmp_path / "robot.yaml").write_text(of_agent.replace("agentview:=", "front:=") + "vlm: {" + of_vlm)
    assert check.run([str(tmp_path / "robot.yaml")]) == 2
    known = "agentview, robot0_eye_in_hand"
    assert f"agent: camera_topics: 'front' is none of the cameras ({known})" in capsys.readouterr().err


def test_what_is_a_list_is_told_so_and_two_places_of_the_joints_are_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "map.yaml").write_text(f"agent: {{ros__parameters: {{camera_topics: {{agentview: {REALSENSE}}}}}}}\n")
    assert check.run([str(tmp_path / "map.yaml")]) == 2
    assert "camera_topics is a list: [agentview:=...]" in capsys.readouterr().err
    (tmp_path / "two.yaml").write_text(ROBOT.replace("checkpoint: lift, joint_states_topic: /arm/joint_states,", ""))
    check.run([str(tmp_path / "two.yaml")])
    warning = "actuator: joint_states_topic is 'joint_states', the agent's is '/arm/joint_states'"
    assert warning in capsys.readouterr().err


@pytest.mark.parametrize("rule", ["joint_states", "__ns:=/left", "a b:=c"])
def test_a_rule_that_is_none_is_refused_with_its_line(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.yaml").write_text(
        f"supervisor:\n  ros__parameters:\n    processes: [agent]\n    remap: ['{rule}']\n"
    )
    assert check.run([str(tmp_path / "bad.yaml")]) == 2
    assert "supervisor: remap: " in capsys.readouterr().err


def test_a_bad_file_is_status_2_and_others_are_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("actuator: {ros__parameters: {require_emergency_stopp: true, rate_hz: 1}}\n")
    assert check.run([str(tmp_path / "bad.yaml"), "no_such", "pusht"]) == 2
    out, err = capsys.readouterr()
    assert "pusht.yaml: 24 parameters of pusht, actuator, agent, all valid\n" in out
    assert [line.partition("bad.yaml:1: ")[2] for line in err.splitlines()[:2]] == [
        "actuator: no parameter 'require_emergency_stopp'; did you mean require_emergency_stop?",
        "actuator: rate_hz: must be in [10.0, 200.0], got 1.0",
    ]
    assert err.splitlines()[2].startswith("error: config 'no_such.yaml' not found")


def test_without_a_file_every_parameter_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run([]) == 0
    every = capsys.readouterr().out
    assert "  require_emergency_stop  (bool; false)\n      refuse arming without a live button" in every
    assert "  rate_hz  (float, 10 to 200; 100.0)\n" in every
    assert check.run(["--parameters", "pusht"]) == 0
    assert capsys.readouterr().out.startswith("pusht:\n  seed  (int, 0 to 2147483647; 0)\n")


def test_a_simulator_is_not_started_with_a_misspelt_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.yaml").write_text("pusht: {ros__parameters: {drift: 0.5}}\n")
    assert sim.run(["pusht", "--config", str(tmp_path / "bad.yaml")]) == 2
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/bad.yaml:1: pusht: no parameter 'drift'; did you mean drift_px?\n"
    )
