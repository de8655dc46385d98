"""A policy with language in a live agent: told another task it stops, then does that one or says why it cannot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from auras_ros.ros.msg import String
from tests.nodes.agent_child import running
from tests.nodes.wire import LATCHED
from tests.policies import vision_language_checkpoints as tiny

pytest.importorskip("tokenizers")


def test_another_task_is_taken_up_and_one_that_cannot_be_is_said(tmp_path: Path) -> None:
    tiny.written(tmp_path / "rt2", "rt2", tokenizer=True, state=False, prompt_limit=24)
    too_long = " ".join(["push"] * 30)
    with running(str(tmp_path / "rt2"), tmp_path, plan="greedy,mode=auras,pp_generation=2,reuse=exact") as agent:
        agent.robot._pixels = np.full((30, 40, 3), 90, np.uint8)
        topic = agent.watch.node.create_publisher(String, "prompt", LATCHED)
        first = agent.chunk("chunks of the checkpoint's own prompt")
        assert first["prompt"] == tiny.TEXT
        assert agent.diagnosed("prompt", 0, "prompt active")["tokenizer"] == "ready"

        topic.publish(String(data="pull the red cup away"))
        chunks = agent.watch.chunks
        agent.watch.until(lambda: chunks[-1]["prompt"] == "pull the red cup away", "chunks of the new task")
        assert chunks[-1]["epoch"] > first["epoch"]

        topic.publish(String(data=too_long))
        said = "prompt: 41 tokens, but this policy takes 24 at most"
        values = agent.diagnosed("prompt", 2, f"no chunk is published: {said}")
        assert values["active"] == "pull the red cup away"
        agent.says(f"no chunk: {said}")
        assert chunks[-1]["prompt"] == "pull the red cup away"

        topic.publish(String(data="push now"))
        agent.watch.until(lambda: chunks[-1]["prompt"] == "push now", "chunks of a task that it can do")
        agent.diagnosed("prompt", 0, "prompt active")
        assert {chunk["prompt"] for chunk in chunks} == {tiny.TEXT, "pull the red cup away", "push now"}
