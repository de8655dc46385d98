"""Who may find what we start: the environment's word, then the configuration's, then this machine alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from auras_ros.nodes.common import config as configs
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import ConfigError, NodeConfig, read_config, read_parameters_file
from auras_ros.ros import ranges

CONFIG = Path(__file__).resolve().parents[3] / "config"
RANGE, ONLY = discovery.VARIABLE, discovery.OLD_VARIABLE
URI = {"CYCLONEDDS_URI": "<CycloneDDS/>"}


def config(folder: Path, **settings: object) -> NodeConfig:
    path = folder / "robot.yaml"
    sections = {"supervisor": {"ros__parameters": {"processes": ["actuator"], **settings}}}
    path.write_text(yaml.safe_dump(sections), encoding="utf-8")
    return read_config(path)


@pytest.mark.parametrize(
    ("environment", "word", "expected"),
    [
        ({}, "", "LOCALHOST"), ({}, "SUBNET", "SUBNET"), ({}, "OFF", "OFF"), ({RANGE: ""}, "", "LOCALHOST"),
        ({RANGE: "SUBNET"}, "LOCALHOST", "SUBNET"), ({RANGE: "LOCALHOST"}, "SUBNET", "LOCALHOST"),
        ({ONLY: "1"}, "SUBNET", "LOCALHOST"), ({ONLY: "0"}, "", "SUBNET"),
    ],
)  # fmt: skip
def test_who_has_the_last_word(environment: dict[str, str], word: str, expected: str, tmp_path: Path) -> None:
    text = discovery.apply_range(config(tmp_path, **({"discovery_range": word} if word else {})), environment)
    assert text.startswith(expected)
    assert discovery.effective_range(environment) == ranges.discovery_range(environment) == expected


@pytest.mark.parametrize(
    ("backend", "fastdds_version", "given", "alone"),
    [
        ("dds", 0, {}, True), ("dds", 0, URI, False), ("rclpy", 0, {}, False), ("rclpy", 2, {}, True),
        ("rclpy", 3, {"FASTDDS_DEFAULT_PROFILES_FILE": "/users.xml"}, False),
    ],
)  # fmt: skip
def test_this_machine_alone_is_claimed_where_it_is_kept(
    backend: str, fastdds_version: int, given: dict[str, str], alone: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Under rclpy the RMW decides what LOCALHOST means: a profile of ours confines Fast DDS, no other RMW. A user's
    configuration of Cyclone DDS or Fast DDS may open it."""
    monkeypatch.setattr("auras_ros.ros.BACKEND", backend)
    monkeypatch.setattr("auras_ros.ros.fastdds.fastdds_version", lambda: fastdds_version)
    assert ("only this machine" in discovery.apply_range(config(tmp_path), dict(given))) == alone


@pytest.mark.parametrize("word", ["subnet", "WORLD", 5, ["SUBNET"]])
def test_an_unknown_range_is_refused_by_name(word: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"robot\.yaml.*discovery_range: "):
        config(tmp_path, discovery_range=word)


def test_a_file_without_the_section_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("")
    assert read_parameters_file(path).supervision.discovery_range == ""


def test_the_words_are_those_that_our_layer_knows() -> None:
    assert configs.RANGES == ranges.RANGES


def test_a_robots_configuration_says_subnet_and_a_simulators_nothing() -> None:
    said = {path.stem: read_config(path).supervision.discovery_range for path in CONFIG.glob("*.yaml")}
    robots = {"forward_command", "joint_trajectory", "mobile_base", "two_arms"}
    assert {name for name, word in said.items() if word == "SUBNET"} == robots
    assert {word for name, word in said.items() if name not in robots} == {""}
