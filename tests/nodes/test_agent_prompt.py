"""The prompt: refused by length before anything else, and in force from an epoch boundary on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.agent_peers import prompt_refusal
from auras_ros.ros.msg import String
from tests.nodes.agent_child import running
from tests.nodes.wire import LATCHED

HUGE = "x" * 10_000_000
REFUSED_WITHIN_MS = 10


def test_a_huge_prompt_costs_nothing() -> None:
    began_s = time.perf_counter()
    assert prompt_refusal(HUGE, 4096) == "prompt: longer than 4096 bytes"
    assert (time.perf_counter() - began_s) * 1e3 < REFUSED_WITHIN_MS


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[31m", "\x7f", "\ud800", "\x85"])
def test_what_is_not_text_is_refused_by_its_character(text: str) -> None:
    assert "not text: it has the character U+" in prompt_refusal(text, 4096)


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=50), st.integers(1, 100))
def test_text_is_taken_up_to_its_length_in_bytes(text: str, limit: int) -> None:
    assert (prompt_refusal(text, limit) == "") == (len(text.encode()) <= limit)


def test_a_prompt_raises_the_epoch_and_stands_in_the_provenance(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path) as agent:
        topic = agent.watch.node.create_publisher(String, "prompt", LATCHED)
        assert agent.chunk("chunks")["prompt"] == ""
        topic.publish(String(data="push the T — gently"))
        chunks = agent.watch.chunks
        agent.watch.until(lambda: chunks[-1]["prompt"] == "push the T — gently", "chunks of the prompt")
        epochs = {chunk["prompt"]: {c["epoch"] for c in chunks if c["prompt"] == chunk["prompt"]} for chunk in chunks}
        assert max(epochs[""]) < min(epochs["push the T — gently"])
        epoch = chunks[-1]["epoch"]
        for bad in (HUGE, "a\x07b"):
            refused = int(agent.diagnostics.get("prompt", (0, "", {}))[2].get("refused", 0))
            topic.publish(String(data=bad))
            agent.watch.until(
                lambda n=refused: int(agent.diagnostics["prompt"][2].get("refused", 0)) == n + 1, "refused and counted"
            )
        later = agent.chunk("chunks after hostile prompts")
        assert (later["prompt"], later["epoch"]) == ("push the T — gently", epoch)
        agent.diagnosed("prompt", 1, r"U\+0007")


def test_a_prompt_from_before_the_agent_started_is_in_force_from_the_first_chunk(
    checkpoint: str, tmp_path: Path
) -> None:
    with running(checkpoint, tmp_path, autostart=False) as agent:
        topic = agent.watch.node.create_publisher(String, "prompt", LATCHED)
        topic.publish(String(data="before"))
        assert agent.transition("configure")
        agent.diagnosed("prompt", 0, "in force")
        assert agent.transition("activate")
        agent.chunk("chunks")
        assert {chunk["prompt"] for chunk in agent.watch.chunks} == {"before"}
