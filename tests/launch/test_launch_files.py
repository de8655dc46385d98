"""The launch files, imported over recording doubles of `launch` and `launch_ros`, and walked."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOUBLES = Path(__file__).with_name("doubles")
FILES = ("agent.launch.py", "sim.launch.py")
# What setup.py installs into lib/auras_ros.
EXECUTABLES = {"agent", "actuator", "pusht_bridge"}


@pytest.fixture(autouse=True)
def _doubles(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(DOUBLES))
    mine = [name for name in sys.modules if name.split(".")[0] in ("launch", "launch_ros")]
    for name in mine:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ("launch", "launch_ros")]:
        del sys.modules[name]


def load(file: str) -> ModuleType:
    path = ROOT / "launch" / file
    spec = importlib.util.spec_from_file_location(path.name.replace(".", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments(file: str) -> dict[str, Any]:
    from launch.actions import DeclareLaunchArgument

    entities = load(file).generate_launch_description().entities
    return {each.name: each for each in entities if isinstance(each, DeclareLaunchArgument)}


def started(file: str, config: str = "pusht", namespace: str = "") -> list[Any]:
    """The nodes that the file would start, in order, with the arguments of a command line."""
    from launch.actions import OpaqueFunction

    from launch import LaunchContext

    context = LaunchContext(config=config, namespace=namespace)
    entities = load(file).generate_launch_description().entities
    return [node for each in entities if isinstance(each, OpaqueFunction) for node in each.function(context)]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("agent.launch.py", [("actuator", "actuator"), ("agent", "agent")]),
        ("sim.launch.py", [("pusht_bridge", "pusht")]),
    ],
)
def test_each_file_starts_its_side_under_the_names_the_yaml_uses(file: str, expected: list[tuple[str, str]]) -> None:
    """Guards against a node whose name is not its section's: it would silently run on defaults."""
    nodes = started(file)
    assert [(node.executable, node.name) for node in nodes] == expected
    assert {node.package for node in nodes} == {"auras_ros"}
    sections = yaml.safe_load((ROOT / "config" / "pusht.yaml").read_text())
    for node in nodes:
        assert node.executable in EXECUTABLES
        assert node.parameters == [
            str(ROOT / "config" / "pusht.yaml"),
            sections[node.name]["ros__parameters"],
        ]


@pytest.mark.parametrize("file", FILES)
def test_a_dead_process_comes_back_after_a_pause(file: str) -> None:
    for node in started(file):
        assert node.respawn is True
        assert node.respawn_delay >= 0.5


def test_respawn_follows_the_yaml(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    supervisor = {"processes": ["agent"], "respawn": False}
    config.write_text(yaml.safe_dump({"supervisor": {"ros__parameters": supervisor}}))
    (node,) = started("agent.launch.py", str(config))
    assert node.respawn is False
    assert node.parameters == [str(config)]  # no section: nothing beside the file


@pytest.mark.parametrize("file", FILES)
def test_the_arguments_are_deployment_settings_alone(file: str) -> None:
    """A parameter as a launch argument would be a second truth beside the YAML."""
    declared = arguments(file)
    assert set(declared) == {"config", "namespace"}
    assert declared["config"].default_value == "pusht"
    assert all(each.description for each in declared.values())


@pytest.mark.parametrize("file", FILES)
def test_the_namespace_reaches_every_node(file: str) -> None:
    from launch import LaunchContext

    context = LaunchContext(config="pusht", namespace="robot1")
    for node in started(file, namespace="robot1"):
        assert node.namespace.perform(context) == "robot1"


@pytest.mark.parametrize("config", ["pusht_drift", "pusht_drift.yaml", str(ROOT / "config" / "pusht_drift.yaml")])
def test_a_configuration_is_a_name_or_a_path(config: str) -> None:
    (node,) = started("sim.launch.py", config)
    assert node.parameters[0] == str(ROOT / "config" / "pusht_drift.yaml")
    assert node.parameters[1]["drift_px"] == 0.5


@pytest.mark.parametrize("file", FILES)
def test_an_unknown_configuration_is_named(file: str) -> None:
    with pytest.raises(FileNotFoundError, match="no_such_thing"):
        started(file, "no_such_thing")


@pytest.mark.parametrize(("file", "other"), [("agent.launch.py", "pusht_bridge"), ("sim.launch.py", "agent")])
def test_a_configuration_without_this_side_is_refused(file: str, other: str, tmp_path: Path) -> None:
    """Guards against a launch that starts nothing and looks as if it ran."""
    config = tmp_path / "half.yaml"
    config.write_text(yaml.safe_dump({"supervisor": {"ros__parameters": {"processes": [other]}}}))
    with pytest.raises(RuntimeError, match=r"half\.yaml: supervisor\.processes"):
        started(file, str(config))
