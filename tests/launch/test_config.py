"""The configurations that ship. Nodes ignore what they never declared: a typing error would pass unseen."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from auras_ros.cli.demo_policy import DemoPolicy
from auras_ros.evaluate.fit import misfit
from auras_ros.nodes.actuator.settings import ActuatorSettings
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.config import BRIDGE, read_config
from auras_ros.nodes.vlm.settings import VlmSettings
from auras_ros.parameters import checked
from auras_ros.pipeline.plan import Plan
from auras_ros.sim.bridge.settings import bridge_settings
from auras_ros.sim.worlds import find

FOLDER = Path(__file__).resolve().parents[2] / "config"
CONFIGS = sorted([*FOLDER.glob("pusht*.yaml"), FOLDER / "lift.yaml"])
BRIDGES: dict[str, Any] = {name: bridge_settings(find(name)) for name in ("pusht", "lift")}
SETTINGS: dict[str, Any] = {**BRIDGES, "actuator": ActuatorSettings, "agent": AgentSettings, "vlm": VlmSettings}


def sections(path: Path) -> dict[str, dict[str, Any]]:
    return {name: each["ros__parameters"] for name, each in yaml.safe_load(path.read_text()).items()}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_parameter_is_one_of_its_node_and_of_its_type(path: Path) -> None:
    for name, section in sections(path).items():
        if name == "supervisor":
            continue
        known = {each.name: each.default for each in fields(SETTINGS[name])}
        assert set(section) <= set(known), f"{path.name}: {name}"
        for key, value in section.items():
            assert type(value) is type(known[key]), f"{path.name}: {name}: {key}"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_bridge_takes_its_section(path: Path) -> None:
    world = read_config(path).supervision.node(BRIDGE)
    known = {each.name: each for each in fields(BRIDGES[world])}
    given = sections(path)[world]
    BRIDGES[world](**{name: checked(world, known[name], value) for name, value in given.items()})


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_its_policy_plays_its_world(path: Path) -> None:
    config = read_config(path)
    agent, actuator = config.section("agent"), config.section("actuator")
    policy, plan = DemoPolicy.read(agent["checkpoint"]), Plan.parse(agent["plan"])
    assert misfit(policy.contract, policy.cameras, find(config.supervision.sim).world) == ""
    assert actuator["checkpoint"] == agent["checkpoint"]
    assert plan == policy.with_period(Plan(plan.generation))
    assert plan.generation in policy.plans


def test_lift_differs_from_the_table_in_what_is_the_worlds() -> None:
    """Guards against two configurations that drift apart: what the actuator promises is the same in both."""
    table, lift = (sections(FOLDER / name) for name in ("pusht.yaml", "lift.yaml"))
    different = {(name, key) for name in ("actuator", "agent") for key in table[name] | lift[name]
                 if table[name].get(key) != lift[name].get(key)}  # fmt: skip
    assert different == {(each, "checkpoint") for each in ("actuator", "agent")} | {
        ("actuator", "max_chunk_age_ms"), ("agent", "plan")
    }  # fmt: skip


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_supervisor_starts_the_actuator_before_the_agent(path: Path) -> None:
    """The actuator watches the agent; it must be there first."""
    supervisor = sections(path)["supervisor"]
    watched = ["vlm"] if path.name == "pusht_monitor.yaml" else []
    assert supervisor["processes"] == ["sim_bridge", "actuator", "agent", *watched]
    assert supervisor["respawn"] is True


def test_the_drifting_table_differs_in_the_table_alone() -> None:
    """Guards against two configurations that drift apart: their runs are compared with each other."""
    plain, drift = ({p.name: sections(p) for p in CONFIGS}[name] for name in ("pusht.yaml", "pusht_drift.yaml"))
    different = {
        (name, key) for name, section in plain.items() for key in section if drift[name].get(key) != section[key]
    }
    assert different == {("pusht", "drift_px"), ("pusht", "success_coverage")}
    assert (drift["pusht"]["drift_px"], drift["pusht"]["success_coverage"]) == (0.5, 0.9)


def test_the_watched_table_differs_in_what_watches_it() -> None:
    plain, watched = ({p.name: sections(p) for p in CONFIGS}[name] for name in ("pusht.yaml", "pusht_monitor.yaml"))
    for name in ("pusht", "actuator", "agent"):
        assert {key: watched[name].get(key) for key in plain[name]} == plain[name], name
    agent = replace(AgentSettings(), **watched["agent"])
    vlm = replace(VlmSettings(), **watched["vlm"])
    rules, asked = agent.monitor_rules(), {each.name: each for each in vlm.standing_questions()}
    assert {rule.standing for rule in rules} == set(asked)
    folders = vlm.adapter_folders()
    for name, standing in asked.items():
        folder = folders[standing.question.adapter]
        assert json.loads((folder / "task_head.json").read_text())["labels"] == ["no", "yes"], name
        assert standing.every_frames * 100 < agent.monitor_age_ms / 2
