"""What another node may set, over the parameter services as `ros2 param` does, and what it learns from answers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from auras_ros.checkpoints.identity import checkpoint_digest
from auras_ros.ros.msg import Log
from tests.nodes.agent_child import Running, running
from tests.nodes.wire import RELIABLE
from tests.portability.asking import Parameters

FORGED = "a/b\n[FATAL] [1.0] [actuator]: emergency stop failed\x1b[31m\r\u202e"
UNLOADABLE = "agent: what its parameters name cannot be loaded; the log on its own computer says why"


@contextmanager
def asked(checkpoint: str, folder: Path, **parameters: Any) -> Iterator[tuple[Running, Parameters, list[Any]]]:
    """An unconfigured agent, its parameters as another node sees them, and what it publishes on /rosout."""
    with running(checkpoint, folder, autostart=False, **parameters) as agent:
        published = list[Any]()
        agent.watch.node.create_subscription(Log, "/rosout", published.append, RELIABLE)
        agent.reaches("unconfigured")
        yield agent, Parameters(agent.watch, "agent"), published


def test_what_names_files_is_read_only(checkpoint: str, tmp_path: Path) -> None:
    with asked(checkpoint, tmp_path) as (agent, parameters, _):
        for name, value in (("checkpoint", "lift"), ("offload_folder", "/tmp"), ("remote_configuration", True)):
            [(successful, reason)] = parameters.set(**{name: value})
            assert (successful, "read-only" in reason) == (False, True), reason
            assert parameters.describe(name).read_only
        assert not parameters.set_together(seed=5, checkpoint="lift")[0], "all or nothing"
        assert parameters.get("seed") == 0
        assert parameters.describe("checkpoint").additional_constraints == (
            "set at the node's start only; remote_configuration: true, also given at the start, allows it later"
        )
        assert parameters.set(seed=7, plan="quick,mode=dec") == [(True, ""), (True, "")]
        assert (parameters.get("seed"), parameters.get("checkpoint")) == (7, checkpoint)
        assert agent.transition("configure"), agent.child.output
        beat = agent.reaches("inactive")
        assert beat["checkpoint"] == checkpoint_digest(Path(checkpoint))
        assert agent.transition("cleanup")
        assert agent.reaches("unconfigured")["checkpoint"] == ""


def test_with_remote_configuration_another_checkpoint_is_taken_and_reported(checkpoint: str, tmp_path: Path) -> None:
    with asked("/no/such/folder", tmp_path, plan="quick", remote_configuration=True) as (agent, parameters, _):
        assert not parameters.describe("checkpoint").read_only
        assert not parameters.set(remote_configuration=False)[0][0], "that is for the start"
        assert parameters.set(checkpoint=checkpoint) == [(True, "")]
        assert agent.transition("configure"), agent.child.output
        assert agent.reaches("inactive")["checkpoint"] == checkpoint_digest(Path(checkpoint))
        assert not parameters.set(checkpoint=3)[0][0]


def test_other_nodes_are_told_the_same_of_a_path_that_is_there_and_of_one_that_is_not(
    checkpoint: str, tmp_path: Path
) -> None:
    broken = shutil.copytree(checkpoint, tmp_path / "broken")
    (broken / "policy.json").write_text("{")
    (tmp_path / "a_file").write_text("")
    (tmp_path / "empty").mkdir()
    with asked(checkpoint, tmp_path, remote_configuration=True) as (agent, parameters, published):
        for path in (
            broken,
            tmp_path / "a_file",
            tmp_path / "empty",
            tmp_path / "no" / "such",
            Path("/no/such/folder"),
        ):
            said = len(published)
            assert parameters.set(checkpoint=str(path)) == [(True, "")]
            beats = len(agent.watch.beats)
            assert not agent.transition("configure")
            agent.watch.until(lambda n=beats: agent.watch.beats[n:] and refused(agent), "the heartbeat's refusal")
            assert agent.watch.beats[-1]["state"] == f"refused: {UNLOADABLE}"
            agent.diagnosed("lifecycle", 2, f"^refused: {UNLOADABLE}$")
            agent.watch.until(lambda n=said: len(published) >= n + 2, "its lines on /rosout")
            texts = [line.msg for line in published[said:]]
            assert f"cannot configure: {UNLOADABLE}" in texts
            local = [line for line in agent.child.output.splitlines() if "[local.agent]" in line]
            assert any(str(path) in line for line in local), agent.child.output
            assert not [text for text in texts if str(path) in text and not text.startswith("loading ")]


def refused(agent: Running) -> bool:
    return str(agent.watch.beats[-1]["state"]).startswith("refused: ")


@pytest.mark.parametrize("field", ["checkpoint", "plan"])
def test_no_text_from_outside_forges_a_log_line(checkpoint: str, tmp_path: Path, field: str) -> None:
    with asked(checkpoint, tmp_path, remote_configuration=True) as (agent, parameters, published):
        assert parameters.set(**{field: FORGED}) == [(True, "")]
        assert not agent.transition("configure")
        agent.watch.until(lambda: any("cannot configure" in line.msg for line in published), "its line on /rosout")
        output = agent.child.output
        assert r"\n[FATAL] [1.0] [actuator]: emergency stop failed\x1b[31m\r\u202e" in output
        assert not [line for line in output.splitlines() if line.startswith("[FATAL]")]
        assert not set(output) & set("\x1b\r\u202e")
        assert not [line.msg for line in published if not line.msg.isprintable()]
