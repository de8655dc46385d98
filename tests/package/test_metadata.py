"""What is stated twice agrees, and what must be a link is one."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import auras_ros
from tests.package.tree import ENTRY_POINTS, ROOT


@pytest.fixture(scope="module")
def manifest() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "package.xml").getroot()


def test_manifest(manifest: ElementTree.Element) -> None:
    assert manifest.get("format") == "3"
    assert manifest.findtext("name") == "auras_ros"
    assert manifest.findtext("license") == "Apache-2.0"
    assert manifest.findtext("export/build_type") == "ament_python"
    assert manifest.findtext("version") == auras_ros.__version__
    assert f"## {auras_ros.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_message_package_is_declared(manifest: ElementTree.Element) -> None:
    """A ROS workspace installs what package.xml names and nothing else."""
    declared = {element.text for element in manifest.findall("exec_depend")}
    assert {"rclpy", "launch", "launch_ros"} <= declared
    sources = [path.read_text() for path in (ROOT / "auras_ros" / "ros").rglob("*.py")]
    used = {name for text in sources for name in re.findall(r"\b[a-z_]+_(?:msgs|interfaces|srvs)\b", text)}
    assert "sensor_msgs" in used
    foreign = {"rmw_dds_common", "service_msgs", "type_description_interfaces"}  # the wire's own, ours only
    assert used - foreign <= declared


def test_the_ros_wheels_are_exact_for_one_machine_and_in_no_other_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are somebody's builds, which nobody maintains and which must not be beside a sourced ROS: only who asks for
    them gets them. Each message package that we import is among them, except vision_msgs, which has no wheel."""
    given: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", lambda **keywords: given.update(keywords))
    runpy.run_path(str(ROOT / "setup.py"))
    extras = given["extras_require"]
    wheels = extras.pop("ros")
    marker = "; sys_platform == 'linux' and platform_machine == 'x86_64'"
    assert all(re.fullmatch(rf"ros-jazzy-[a-z-]+(\[fastrtps\])?==[\d.]+{re.escape(marker)}", each) for each in wheels)
    assert not [each for names in [given["install_requires"], *extras.values()] for each in names if "ros-" in each]
    declared = {each.text for each in ElementTree.parse(ROOT / "package.xml").getroot().findall("exec_depend")}
    messages = {name for name in declared if name and re.search("_(msgs|interfaces|srvs)$", name)}
    installed = {re.sub("^ros-jazzy-", "", each.split("==")[0]).replace("-", "_") for each in wheels}
    assert installed - {"rclpy[fastrtps]"} == messages - {"vision_msgs"}


@pytest.mark.parametrize("target", ENTRY_POINTS.values())
def test_every_entry_point_leads_somewhere(target: str) -> None:
    """A package instead of a module here installs well and fails at the first start."""
    module, _, name = target.partition(":")
    assert callable(getattr(importlib.import_module(module), name))


@pytest.mark.parametrize("room", ["kernels", "sim"])
def test_rooms_at_the_top_are_relative_links(room: str) -> None:
    """An absolute link, or a copy, would work here and break in every other checkout."""
    link = ROOT / "auras_ros" / room
    assert link.is_symlink()
    assert os.readlink(link) == f"../{room}"


def test_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_threads(ros_domain_id: int) -> None:
    """The test environment itself: one torch thread, no screen, a domain of our own."""
    import torch

    assert torch.get_num_threads() == 1
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    assert os.environ["ROS_DOMAIN_ID"] == str(ros_domain_id)
    assert 0 < ros_domain_id < 40


def test_shell_scripts_are_marked_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    steps = (
        "make test </dev/null\nmake test-rclpy </dev/null\nmake test-worlds </dev/null\n"
        "exec make test-triton </dev/null"
    )
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith(steps)
    assert Path(ROOT / "scripts" / "env.sh").read_text().startswith("#!/bin/sh\n")
