"""The reader of configs: what was typed wrong is never left out in silence, and what is somebody else's not refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from auras_ros.nodes.common import config, reference
from auras_ros.nodes.common.config import ConfigError, NodeConfig, read_config, read_parameters_file

ROOT = Path(__file__).resolve().parents[3]
START = "supervisor: {ros__parameters: {processes: [actuator, agent]}}\n"

Read = Callable[[str], NodeConfig]
Refused = Callable[[str], list[str]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def given(text: str) -> NodeConfig:
        (tmp_path / "mine.yaml").write_text(text)
        return read_parameters_file(tmp_path / "mine.yaml")

    return given


@pytest.fixture
def refused(read: Read, tmp_path: Path) -> Refused:
    """What is said of a file, without its folder."""

    def given(text: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            read(text)
        return [line.removeprefix(f"{tmp_path}/") for line in str(caught.value).splitlines()]

    return given


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.yaml")), ids=lambda path: path.name)
def test_what_ships_is_good(path: Path) -> None:
    """No warning either: where a file starts actuator and agent, they name the same checkpoint."""
    found = read_config(path)
    assert found.warnings == ()
    if {"actuator", "agent"} <= set(found.supervision.started):
        assert found.section("actuator")["checkpoint"] == found.section("agent")["checkpoint"]


def test_an_actuator_with_another_checkpoint_than_its_agent_is_warned_of(read: Read) -> None:
    sections = "agent: {{ros__parameters: {{checkpoint: {}}}}}\nactuator: {{ros__parameters: {{{}}}}}\n"
    said = "it arms only if the files are the same"
    (warning,) = read(START + sections.format("lift", "checkpoint: pusht")).warnings
    assert warning.endswith(f"mine.yaml:3: actuator: checkpoint is 'pusht', the agent's is 'lift': {said}")
    (warning,) = read(START + sections.format("lift", "rate_hz: 50.0")).warnings
    assert f"actuator: checkpoint is 'pusht', the agent's is 'lift': {said}" in warning
    assert read(START + sections.format("pusht", "rate_hz: 50.0")).warnings == ()
    assert read(START + "/**: {ros__parameters: {checkpoint: lift}}\n").warnings == ()


# Text parameters that another node may set while the node is not active. They choose among names and rules; a new one
# that names a file or folder, or is loaded, belongs to NAMES_FILES and gets `names_files` in its declaration.
NAMES_FILES = {
    "agent": {"checkpoint", "offload_folder"},
    "vlm": {"checkpoint", "loras", "lora_ways", "stage_profile", "swap_folder"},
}
NAMES_NO_FILES = {
    "agent": {
        "plan", "actuator", "fallback_plan", "monitors", "device", "dtype", "cores", "joint_states_topic",
        "joint_prefix", "stamps",
    },
    "vlm": {
        "cameras", "camera", "system", "standing", "dtype", "device", "cores", "scheduler", "lora_policy",
        "lora_thetas", "stamps",
    },
}  # fmt: skip


@pytest.mark.parametrize("node", sorted(config.LIFECYCLE))
def test_every_text_parameter_is_known_to_name_files_or_not(node: str) -> None:
    known = config.parameters_of(node).values()
    marked = {each.name for each in known if each.metadata["names_files"]}
    texts = {each.name for each in known if isinstance(each.default, str)}
    assert marked == NAMES_FILES[node]
    assert texts - marked == NAMES_NO_FILES[node]
    assert "remote_configuration" in config.parameters_of(node)


def test_everything_that_is_wrong_is_said_with_its_line_and_the_name_that_was_meant(refused: Refused) -> None:
    """The first two would arm without an emergency stop and with actions of any age."""
    text = """\
supervisor:
  ros__parameters: {processes: [actuator, agnet], respwan: true}
actuator:
  ros__parameters:
    require_emergency_stopp: true
    max_chunk_age_mss: 50.0
    rate_hz: 1000.0
    blend_ms: often
actuater: {ros__parameters: {rate_hz: 50.0}}
/left/agent: {ros__parameters: {sede: 3}}
right: {agent: {ros__parameters: {plan: mode=warp}}}
/**: {ros__parameters: {require_emergency_stpo: true}}
"""
    assert refused(text) == [
        "mine.yaml:2: supervisor: no parameter 'respwan'; did you mean respawn?",
        "mine.yaml:5: actuator: no parameter 'require_emergency_stopp'; did you mean require_emergency_stop?",
        "mine.yaml:6: actuator: no parameter 'max_chunk_age_mss'; did you mean max_chunk_age_ms?",
        "mine.yaml:7: actuator: rate_hz: must be in [10.0, 200.0], got 1000.0",
        "mine.yaml:8: actuator: blend_ms: expected float, got 'often'",
        "mine.yaml:9: no node 'actuater'; did you mean actuator?",
        "mine.yaml:10: agent: no parameter 'sede'; did you mean seed?",
        "mine.yaml:11: agent: plan: mode: must be one of seq, dec, par, auras, got 'warp'",
        "mine.yaml:12: no parameter 'require_emergency_stpo'; did you mean require_emergency_stop?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "mine.yaml:3: 'a' stands in line 1 already"),
        (
            "actuator:\n  ros__parameters:\n    rate_hz: 50.0\n    rate_hz: 100.0\n",
            "mine.yaml:4: actuator/ros__parameters: 'rate_hz' stands in line 3 already",
        ),
        (
            "agent: {ros__parameters: {seed: 3}}\n/agent: {ros__parameters: {cores: '', seed: 4}}\n",
            "mine.yaml:2: 'seed' is already given under 'agent'",
        ),
        (
            "left/agent: {ros__parameters: {seed: 3}}\nleft: {agent: {ros__parameters: {seed: 3}}}\n",
            "mine.yaml:2: 'seed' is already given under 'left/agent'",
        ),
        ("/**: {ros__parameters: {seed: 3}}\n'**': {ros__parameters: {seed: 3}}\n", "'seed' is already given under"),
        (
            "/**: {ros__parameters: {seed: 3}}\nagent: {ros__parameters: {plan: 'quick,pp_generation=4'}}\n",
            "mine.yaml:2: agent: plan: pp_generation",
        ),
        (
            "agent: {ros__parameters: {seed: 3}}\n/**: {ros__parameters: {plan: 'pp_generation=4'}}\n",
            "mine.yaml:1: agent: plan: pp_generation",
        ),
        (
            "agent: {ros__parameters: {seed: 3, mode: auras}}",
            "mine.yaml:1: agent: no parameter 'mode'; it is a field of `plan`, such as `plan: quick,mode=...`",
        ),
        (
            "agent: {ros__parameters: {seed: 3}}\n/**: {ros__parameters: {pp_generation: 4}}\n",
            "mine.yaml:2: no parameter 'pp_generation'; it is a field of `plan`, such as",
        ),
        ("agent:\n  seed: 3\n", "mine.yaml:2: agent: ros__parameters is missing above 'seed'"),
        ("agent:\n", "mine.yaml:1: agent: ros__parameters is missing"),
        ("agent: {ros_parameters: {seed: 3}}", "mine.yaml:1: 'ros_parameters': did you mean ros__parameters?"),
        ("agent: {ros__parameters: [seed]}", "mine.yaml:1: agent: ros__parameters: expected names and values"),
        ("ros__parameters: {seed: 3}", "mine.yaml:1: ros__parameters must be under a node's name"),
        ("[agent]", "mine.yaml: expected sections"),
        ("agent: [", "mine.yaml:1: not YAML: "),
        ("agent: \x07", "mine.yaml: not YAML: "),
        ("[" * 50_000, "mine.yaml: not YAML: "),
        ("agent: &all {ros__parameters: {seed: 3}}\nbeside: *all\n", "mine.yaml:2: alias *all: ROS 2 parameter files"),
        ("agent: &all {again: *all}", "mine.yaml:1: alias *all"),
        ("supervisor: {ros__parameters: {processes: [agent, agent]}}", "processes: 'agent' is listed 2 times"),
        ("supervisor: {ros__parameters: {processes: [agnet]}}", "no executable 'agnet'; did you mean agent?"),
        ("agent: {ros__parameters: {seed: {of: 3}}}", "agent: no parameter 'seed.of'; did you mean seed?"),
        ("agent: {ros__parameters: {use_sim_time: 1}}", "mine.yaml:1: agent: use_sim_time: expected bool, got 1"),
        ("agent: {ros__parameters: {cores: one}}", "agent: cores: expected core numbers such as 2,3"),
        ("pusht: {ros__parameters: {viewer_px: 3}}", "pusht: viewer_px: must be 0 or in [16, 2048], got 3"),
        ("actuator: {ros__parameters: {seam: glue}}", "actuator: seam: must be one of blend, switch, ensemble"),
        ("#" * (1 << 16) + "\n", "more than 65536 bytes, the most that is read"),
    ],
)  # fmt: skip
def test_what_is_no_config_is_refused_in_one_line(refused: Refused, text: str, said: str) -> None:
    (line,) = refused(text)
    assert said in line


def test_values_go_together_that_stand_apart(read: Read) -> None:
    """What the node runs with is not refused: what is for all, and what is in a second section of its name."""
    found = read("/**: {ros__parameters: {plan: mode=auras}}\nagent: {ros__parameters: {seed: 4}}\n")
    assert found.section("agent") == {"plan": "mode=auras", "seed": 4}
    found = read("agent: {ros__parameters: {plan: mode=auras}}\n/agent: {ros__parameters: {seed: 4}}\n")
    assert found.section("agent") == {"plan": "mode=auras", "seed": 4}


def test_nodes_of_somebody_else_are_left_alone_and_said(read: Read, tmp_path: Path) -> None:
    found = read(
        START + "my_actuator: {ros__parameters: {rate: 1}}\nagent_2: {ros__parameters: {x: 1}}\n"
        "/**: {ros__parameters: {use_sim_time: true, robot_ip: here, seed: 3}}\nagent: {ros__parameters: {seed: 4}}\n"
    )
    assert [line.removeprefix(f"{tmp_path}/mine.yaml:") for line in found.warnings] == [
        "2: 'my_actuator' is not one of our nodes: its parameters are not checked",
        "3: 'agent_2' is not one of our nodes: its parameters are not checked",
        "4: 'robot_ip' is not a parameter of one of our nodes",
    ]
    assert found.section("agent") == {"seed": 4}
    assert found.section("pusht") == {"seed": 3}
    with pytest.raises(ConfigError, match=r"mine\.yaml: actuator/ros__parameters is missing"):
        found.section("actuator")


def test_a_checkpoint_beside_the_config_is_found_where_the_working_directory_has_none(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The working directory comes first, as for every path; a name without a separator is one that ships."""
    text = "agent: {ros__parameters: {checkpoint: ./mine}}\nactuator: {ros__parameters: {checkpoint: mine}}\n"
    (tmp_path / "mine").mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = read(text)
    assert found.placed == {"agent": {"checkpoint": str(tmp_path / "mine")}}
    assert found.section("agent")["checkpoint"] == str(tmp_path / "mine")
    (elsewhere / "mine").mkdir()
    assert read(text).placed == {}


def test_checking_needs_neither_torch_nor_ros() -> None:
    code = "import sys\nimport auras_ros.cli.check as c\nc.run(['pusht', 'vlm'])\nprint(*sys.modules)"
    held = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
    assert not {"torch", "rclpy", "cyclonedds", "auras_ros.ros"} & set(held)


def test_the_page_of_parameters_is_the_code_s() -> None:
    """`auras check --markdown > docs/parameters.md` makes it again."""
    assert (ROOT / "docs" / "parameters.md").read_text(encoding="utf-8") == reference.page()
    for node in config.SETTINGS:
        for name in (each.name for each in fields(config.settings_of(node))):
            assert f"| `{name}` |" in reference.page()
            assert f"\n  {name}  (" in reference.text()


@pytest.mark.parametrize("name", ["/bad topic!", "", "7up", "a//b", "a/", "~b", "{name}"])
def test_what_is_no_name_of_a_topic_is_found_before_anything_starts(refused: Refused, name: str) -> None:
    text = f"actuator: {{ros__parameters: {{action_topic: '{name}', rate_hz: 50.0}}}}\n"
    assert refused(text) == [f"mine.yaml:1: actuator: action_topic: {name!r} is not a topic name"]


@pytest.mark.parametrize("name", ["action", "/arm_1/commands", "~/action", "{node}/action"])
def test_what_ros_takes_for_a_topic_is_taken(read: Read, name: str) -> None:
    read(f"actuator: {{ros__parameters: {{trajectory_topic: '{name}'}}}}\n")


def test_a_section_whose_name_no_started_node_has_is_refused(tmp_path: Path) -> None:
    """The actuator would run on its defaults: `require_emergency_stop` would require nothing."""
    path = tmp_path / "mine.yaml"
    text = "supervisor: {ros__parameters: {processes: [actuator]}}\n"
    other = "actuator_node: {ros__parameters: {require_emergency_stop: true}}\n"
    path.write_text(text + other)
    with pytest.raises(ConfigError, match="'actuator_node': the node that is started is called actuator: rename"):
        read_config(path)
    path.write_text(text + other + "actuator: {ros__parameters: {rate_hz: 50.0}}\n")  # the other is another machine's
    assert len(read_config(path).warnings) == 1


def test_a_section_of_a_node_that_is_not_started_is_said(read: Read) -> None:
    """Somebody waits for answers of a vlm that nobody started."""
    assert (
        read(START + "vlm: {ros__parameters: {max_tokens: 8}}\n")
        .warnings[0]
        .endswith("mine.yaml:2: 'vlm' is not one of supervisor.processes: it is not started")
    )
    assert read("vlm: {ros__parameters: {max_tokens: 8}}\n").warnings == ()


def test_the_parameters_of_a_vlm_are_checked_together(refused: Refused) -> None:
    text = "vlm: {ros__parameters: {cameras: 'top', camera: back, kv_mbi: 3}}\n"
    assert refused(text) == ["mine.yaml:1: vlm: no parameter 'kv_mbi'; did you mean kv_mib?"]
    assert refused(text.replace(", kv_mbi: 3", "")) == [
        "mine.yaml:1: vlm: camera: 'back' is not one of `cameras`: 'top'"
    ]
    standing = 'vlm: {ros__parameters: {standing: "[{}]"}}\n'
    assert refused(standing) == ["mine.yaml:1: vlm: standing[0]: name: missing"]
