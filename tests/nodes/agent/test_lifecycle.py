"""The agent's life cycle on the wire: loads when told to, says how far it is, starts at once."""

from __future__ import annotations

import errno
import signal
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from auras_ros.exit_status import BROKEN
from auras_ros.nodes.agent.node import Agent
from auras_ros.pipeline.plan import PlanError, TooSlowError
from auras_ros.ros import Parameter, TransitionCallbackReturn, init, try_shutdown
from tests.nodes.agent_child import Running, running
from tests.nodes.stand_ins import Robot
from tests.nodes.wire import Child, Children, Watch

ACTIVATE_WITHIN_MS = 100
UNLOADABLE = "agent: what its parameters name cannot be loaded; the log on its own computer says why"
LOADS_FOR_EVER = """
import threading
import auras_ros.nodes.agent.loading as load
load.load_pipeline = lambda *words: threading.Event().wait()
"""
SLOW = """
import time
from auras_ros.pipeline.whole import RequestWorker
run = RequestWorker.run
def slow(self):
    run(self)
    time.sleep(0.3)
RequestWorker.run = slow
"""


def test_through_every_state_and_back(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path, autostart=False) as agent:
        first = agent.reaches("unconfigured")
        assert not agent.transition("activate")
        assert agent.transition("configure")
        beat = agent.reaches("inactive")
        assert beat["session"] != first["session"]
        told = {each["state"] for each in agent.watch.beats if each["lifecycle"] == "configuring"}
        assert any(text.startswith("configuring: ") for text in told), told
        agent.diagnosed("lifecycle", 0, "inactive")

        assert agent.transition("activate")
        assert agent.chunk("chunks once active")["session"] == beat["session"]
        assert agent.watch.chunks[0]["request"] == 0  # none before
        agent.reaches("active")
        agent.watch.until(lambda: agent.watch.beats[-1]["state"] == "running", "it says that it runs")
        assert float(agent.diagnosed("lifecycle", 0, "^active")["activate_ms"]) < ACTIVATE_WITHIN_MS

        assert agent.transition("deactivate")
        agent.says("inactive")
        assert agent.watch.call("agent/reset") == (False, "agent: inactive: nothing to reset")
        chunks, epoch = len(agent.watch.chunks), agent.watch.chunks[-1]["epoch"]
        assert agent.transition("activate")
        again = agent.chunk("chunks once active again")
        assert again["epoch"] > epoch
        assert agent.watch.chunks[chunks]["epoch"] > epoch  # nothing came in between

        assert agent.transition("deactivate")
        assert agent.transition("cleanup")
        agent.reaches("unconfigured")
        assert agent.transition("configure")
        assert agent.reaches("inactive")["session"] != beat["session"]
        assert agent.transition("activate")
        agent.chunk("chunks of the second load")
        assert agent.transition("shutdown")
        agent.reaches("finalized")
        assert agent.child.wait() == BROKEN, "no transition leads out of it: a supervisor starts it again"
        assert "shut down by a transition: the process ends with status 1" in agent.child.output
        assert "Traceback" not in agent.child.output


def test_a_refused_configure_says_why_and_leaves_the_process_alive(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path, autostart=False, plan="no_such_plan,mode=wrong") as agent:
        assert not agent.transition("configure")
        beats = agent.watch.beats
        agent.watch.until(lambda: any("mode: " in beat["state"] for beat in beats), "a beat says why")
        agent.diagnosed("lifecycle", 2, "mode: ")
        assert "cannot configure: plan: mode: " in agent.child.output
        assert not agent.transition("configure")  # it can be asked again
        assert agent.child.process.poll() is None


def test_an_agent_that_was_shut_down_over_the_wire_is_started_again(
    checkpoint: str, children: Children, watch: Watch, robot: Robot, tmp_path: Path
) -> None:
    """`auras run` starts it again, and it drives on in another session, once somebody arms."""
    sections: dict[str, Any] = {
        "supervisor": {"processes": ["agent"]},
        "agent": {"checkpoint": checkpoint, "plan": "quick"},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({name: {"ros__parameters": values} for name, values in sections.items()}))
    watch.hear_agent()
    agent = Running(children(sys.executable, "-m", "auras_ros.cli.main", "run", str(path)), watch, robot)
    session = agent.reaches("active")["session"]
    assert agent.transition("shutdown")
    agent.logs("shut down by a transition", "[supervisor] agent exited with status 1, starting again in 0.5 s")
    assert agent.reaches("active")["session"] != session
    agent.child.send(signal.SIGINT)
    assert agent.child.wait() == 0, agent.child.output
    assert "Traceback" not in agent.child.output


def test_asked_to_stop_while_it_loads_it_does(tmp_path: Path, checkpoint: str) -> None:
    with running(checkpoint, tmp_path, code=LOADS_FOR_EVER) as agent:
        assert agent.reaches("configuring")
        agent.child.send(signal.SIGTERM)
        assert agent.child.wait() == 0, agent.child.output


def test_deactivated_while_inferring_the_hold_is_the_last_command(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    """The chunk that was under way is not published; the actuator disarms by itself and falls silent."""
    child = actuator()
    agent = Running(children.node("agent", {"checkpoint": checkpoint}, code=SLOW), watch, robot)
    watch.hear_agent()
    watch.arm()
    watch.armed()
    assert agent.transition("deactivate")
    watch.state_where(lambda state: state["state"] == "disarmed", "disarmed")
    agent.says("inactive")
    heard = watch.sentinel()
    assert (heard[-1].label.state, heard[-1].label.source) == ("disarmed", "hold")
    assert child.process.poll() is None
    assert watch.call("actuator/arm")[0] is False


@pytest.fixture
def agent(domain: int, checkpoint: str) -> Any:
    """An agent in this process, for what its parameters do."""
    init(args=[])
    node = Agent(parameter_overrides=[Parameter("checkpoint", Parameter.Type.STRING, checkpoint)])
    yield node
    node.halt()
    node.destroy_node()
    try_shutdown()


def test_a_machine_too_slow_for_now_is_told_from_settings_that_cannot_work(
    agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch file sees transitions alone: it asks again after an error, and leaves what was refused."""
    words: dict[Exception, Any] = {TooSlowError("plan: outlasts"): TransitionCallbackReturn.ERROR}
    words[PlanError("plan: mode: wrong")] = TransitionCallbackReturn.FAILURE
    words[OSError(errno.EIO, "a network folder is away")] = TransitionCallbackReturn.ERROR
    words[OSError(errno.ENOENT, "no such file")] = TransitionCallbackReturn.FAILURE

    for error, expected in words.items():

        def refuse(settings: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(agent, "_configure", refuse)
        assert agent.trigger_configure() == expected
        assert agent.status.lifecycle == "unconfigured"
        told = UNLOADABLE if isinstance(error, OSError) else error
        assert agent.status.text() == f"refused: {told}"


def test_parameters_are_taken_at_configure_and_refused_while_active(agent: Any) -> None:
    def give(name: str, value: Any) -> Any:
        return agent.set_parameters([Parameter(name, value=value)])[0]

    assert give("seed", 7).successful
    bad = give("seed", 1.5)
    assert (bad.successful, "expected int" in bad.reason) == (False, True)
    assert not give("camera_age_limit_ms", -1.0).successful
    assert not give("autostart", True).successful
    assert agent.get_parameter("seed").value == 7
    assert agent.trigger_configure() == TransitionCallbackReturn.SUCCESS
    assert give("plan", "mode=dec").successful
    assert agent.trigger_activate() == TransitionCallbackReturn.SUCCESS
    refused = give("seed", 8)
    assert not refused.successful
    assert "active" in refused.reason
    assert agent.get_parameter("seed").value == 7
    assert agent.status.frames.pipeline.plan.mode == "seq"  # as it was at configure
    pipeline = agent.status.configured.pipelines[0]
    kept = [weakref.ref(pipeline.checkpoint), weakref.ref(pipeline.executor.workers[0])]
    del pipeline
    assert agent.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
    assert agent.trigger_cleanup() == TransitionCallbackReturn.SUCCESS
    assert [each() for each in kept] == [None, None]  # what is in cycles too
    assert agent.trigger_configure() == TransitionCallbackReturn.SUCCESS
    assert agent.status.configured.pipelines[0].plan.mode == "dec"
