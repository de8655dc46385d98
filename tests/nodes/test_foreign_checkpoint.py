"""Another library's folder at the nodes: the actuator enforces its robot.json; the agent says that it is unchecked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.action import ContractError
from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.nodes.agent.status import AgentStatus
from auras_ros.nodes.common.diagnostics import Level
from auras_ros.policies.checkpoint import read_manifest
from auras_ros.policies.loaders.robot import Robot
from tests.policies import tiny
from tests.policies.loaders.lerobot_tiny import copied, edit_json


def test_the_actuators_contract_is_robot_jsons(tmp_path: Path) -> None:
    folder = copied("lerobot_diffusion", tmp_path)
    contract = load_contract(str(folder))
    assert (contract.names, contract.dt_ms) == (("shoulder", "elbow", "wrist"), 50)
    edit_json(folder / "robot.json", lambda robot: robot.update(action=[]))
    with pytest.raises(ContractError, match=r"robot.json: has no action contract"):
        load_contract(str(folder))
    tiny.write(folder)
    assert load_contract(str(folder)).names == tiny.AXES


@pytest.mark.parametrize("file", ["policy.json", "robot.json"])
def test_the_actuator_refuses_a_key_that_the_agent_refuses(file: str, tmp_path: Path) -> None:
    """By the same reader, with the name that was meant."""
    folder = copied("lerobot_diffusion", tmp_path)
    if file == "policy.json":
        tiny.write(folder)
    edit_json(folder / file, lambda raw: raw.update(actoin=raw.pop("action")))
    said = rf"{file}: key 'actoin' is unknown; did you mean action\?"
    with pytest.raises(ContractError, match=said):
        load_contract(str(folder))
    with pytest.raises(CheckpointError, match=said):
        read_manifest(folder) if file == "policy.json" else Robot.load(folder / file)


@pytest.mark.parametrize(("verified", "level", "said"), [(True, Level.OK, "replayed"), (False, Level.WARN, "none")])
def test_the_agent_says_whether_a_golden_sample_was_replayed(verified: bool, level: Level, said: str) -> None:
    status = AgentStatus("life")
    check = status.tasks()["lifecycle"]
    status.set_state("inactive")
    assert "golden_sample" not in check().values
    checkpoint: Any = SimpleNamespace(verified=verified)
    status.configured = SimpleNamespace(pipelines=(SimpleNamespace(checkpoint=checkpoint),))  # type: ignore[assignment]
    report = check()
    assert (report.level, report.values["golden_sample"]) == (level, said)
    assert ("no golden sample" in report.message) is not verified
    status.set_state("inactive", "no memory", wrong=True)
    assert (check().level, check().message) == (Level.ERROR, "no memory")
