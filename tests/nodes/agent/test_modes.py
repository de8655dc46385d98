"""The agent in every mode, from its parameters alone: chunks come, and each says what its stages saw."""

from __future__ import annotations

from pathlib import Path

from auras_ros.ros.msg import ParameterMsg, ParameterType, ParameterValue
from auras_ros.ros.srv import SetParameters
from tests.nodes.agent_child import Running, running

STAGES = {"mode=seq": 1, "mode=dec": 1, "mode=par,concurrency=2": 1, "mode=auras,pp_generation=4,alpha=0.5": 4}


def give(agent: Running, plan: str) -> None:
    value = ParameterValue(type=ParameterType.PARAMETER_STRING, string_value=plan)
    client = agent.watch.node.create_client(SetParameters, "agent/set_parameters")
    agent.watch.until(client.service_is_ready, "the service")
    future = client.call_async(SetParameters.Request(parameters=[ParameterMsg(name="plan", value=value)]))
    agent.watch.until(future.done, "an answer")
    assert future.result().results[0].successful


def test_chunks_come_in_each_mode_and_say_what_their_stages_saw(checkpoint: str, tmp_path: Path) -> None:
    """One process, which is cleaned up and configured again for each."""
    with running(checkpoint, tmp_path, autostart=False) as agent:
        for mode, stages in STAGES.items():
            give(agent, f"quick,{mode}")
            assert agent.transition("configure")
            agent.watch.chunks.clear()
            assert agent.transition("activate")
            chunks = agent.watch.chunks
            agent.watch.until(lambda heard=chunks: len(heard) >= 5, f"five chunks of {mode}")
            assert agent.transition("deactivate")
            requests = [chunk["request"] for chunk in chunks]
            assert len(set(requests)) == len(requests)
            ages = chunks[-1]["context_age_ns"]
            assert len(ages) == stages
            assert all(age > 0 for age in ages)
            assert mode in chunks[-1]["plan"] or mode == "mode=seq"
            assert agent.transition("cleanup")
