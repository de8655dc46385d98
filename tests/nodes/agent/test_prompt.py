"""The prompt: refused by length before anything else, and active from an epoch boundary on."""

from __future__ import annotations

import itertools
import re
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.common.texts import text_refusal
from auras_ros.ros.msg import Log, String
from tests.nodes.agent_child import Running, running
from tests.nodes.stand_ins import Loop, Robot
from tests.nodes.wire import LATCHED, RELIABLE, Child, Children, Watch

HUGE = "x" * 10_000_000
REFUSED_WITHIN_MS = 10
ROUNDS = 3  # one of them must be as it should: the machine may be busy with something else


def test_a_huge_prompt_costs_nothing() -> None:
    times_ms: list[float] = []
    for _ in range(5):
        began_s = time.perf_counter()
        assert text_refusal("prompt", HUGE, 4096) == "prompt: longer than 4096 bytes"
        times_ms.append((time.perf_counter() - began_s) * 1e3)
    assert min(times_ms) < REFUSED_WITHIN_MS


@pytest.mark.parametrize("text", ["a\x00b", "\x1b[31m", "\x7f", "\ud800", "\x85"])
def test_what_is_not_text_is_refused_by_its_character(text: str) -> None:
    assert "not text: it contains the character U+" in text_refusal("prompt", text, 4096)


def test_what_was_not_utf8_on_the_wire_is_refused() -> None:
    """rclpy hands such a prompt over with the replacement character where the bytes were."""
    assert text_refusal("prompt", b"caf\xe9".decode("utf-8", "replace"), 4096) == "prompt: not UTF-8"


@given(
    st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufffd"), max_size=50),
    st.integers(1, 100),
)
def test_text_is_taken_up_to_its_length_in_bytes(text: str, limit: int) -> None:
    assert (text_refusal("prompt", text, limit) == "") == (len(text.encode()) <= limit)


def test_a_prompt_from_before_is_active_from_the_first_chunk_and_the_next_raises_the_epoch(
    checkpoint: str, tmp_path: Path
) -> None:
    with running(checkpoint, tmp_path, autostart=False) as agent:
        topic = agent.watch.node.create_publisher(String, "prompt", LATCHED)
        topic.publish(String(data="before"))
        assert agent.transition("configure")
        agent.diagnosed("prompt", 0, "prompt active")
        assert agent.transition("activate")
        agent.chunk("chunks")
        chunks = agent.watch.chunks
        assert {chunk["prompt"] for chunk in chunks} == {"before"}

        topic.publish(String(data="push the T — gently"))
        agent.watch.until(lambda: chunks[-1]["prompt"] == "push the T — gently", "chunks of the prompt")
        epochs = {chunk["prompt"]: {c["epoch"] for c in chunks if c["prompt"] == chunk["prompt"]} for chunk in chunks}
        assert max(epochs["before"]) < min(epochs["push the T — gently"])
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


SAID_NOT_UTF8 = re.compile(r"refused: prompt: (.* on /prompt: .*'utf-8' codec|not UTF-8)")  # our layer, rclpy
NOT_UTF8 = (b"\xff\xfe", b"caf\xe9", b"\xc0\xaf", b"\xed\xa0\x80", b"push \xf5\x80\x80\x80")


@pytest.mark.slow
def test_a_prompt_that_is_not_utf8_is_counted_and_said_and_nothing_else_notices(
    checkpoint: str, tmp_path: Path
) -> None:
    with running(checkpoint, tmp_path) as agent:
        topic = agent.watch.node.create_publisher(String, "prompt", LATCHED)
        said: list[str] = []

        def on_log(message: Any) -> None:
            if message.name == "agent" and SAID_NOT_UTF8.search(message.msg):
                said.append(message.msg)

        agent.watch.node.create_subscription(Log, "/rosout", on_log, RELIABLE)
        topic.publish(String(data="push"))
        agent.watch.until(lambda: agent.watch.chunks and agent.watch.chunks[-1]["prompt"] == "push", "chunks of it")
        epoch = agent.chunk("a chunk")["epoch"]

        def counted() -> int:
            return int(agent.diagnostics.get("prompt", (0, "", {}))[2].get("refused", 0))

        def send() -> None:
            text = next(texts)
            topic.publish(b"\0\1\0\0" + struct.pack("<I", len(text) + 1) + text + b"\0")

        first, texts = len(agent.watch.chunks), itertools.cycle(NOT_UTF8)
        loop = Loop(0.1, send)
        try:
            agent.watch.until(lambda: counted() > len(NOT_UTF8) and len(said) >= 2, "each kind is counted, and said")
            agent.chunk("chunks go on beside it")
        finally:
            loop.close()
        held = agent.watch.chunks[first:]
        assert {(chunk["prompt"], chunk["epoch"]) for chunk in held} == {("push", epoch)}
        values = agent.diagnosed("prompt", 1, "the newest was refused: ")
        assert (values["prompt"], values["accepted"]) == ("push", "1")
        assert len(said) < int(values["refused"])  # at most one line a second
        topic.publish(String(data="push gently"))
        agent.watch.until(lambda: agent.watch.chunks[-1]["prompt"] == "push gently", "the next good one")


@pytest.mark.slow
def test_prompts_of_ten_megabytes_hold_nobody_up(
    actuator: Callable[..., Child], children: Children, watch: Watch, robot: Robot, checkpoint: str
) -> None:
    """Chunks go on between them, and the robot is driven at every tick."""
    actuator()
    given = {"checkpoint": checkpoint, "sync_tolerance_ms": 100.0, "camera_age_limit_ms": 1000.0}
    agent = Running(children.node("agent", given), watch, robot)
    watch.hear_agent()
    flood = children(sys.executable, "-m", "tests.nodes.children.prompts")
    watch.until(lambda: "ready" in flood.output, "the prompts' process")
    agent.reaches("active")
    watch.arm()
    watch.armed()

    def refused() -> int:
        return int(agent.diagnosed("prompt", 1, "prompt: [0-9]+ bytes on /prompt: at most 4108")["refused"])

    flood.send(signal.SIGUSR1)
    refused()
    for _ in range(ROUNDS):
        begin_ns, before, chunks = time.monotonic_ns(), refused(), len(watch.chunks)
        watch.until(lambda n=before: refused() >= n + 8, "eight prompts refused")
        since, prompts = watch.since(begin_ns), refused() - before
        states = {heard.label.state for heard in since}
        if states == {"armed"} and len(watch.chunks) - chunks >= prompts:
            break
    assert states == {"armed"}
    assert len(since) > 100
    assert len(watch.chunks) - chunks >= prompts  # at least one between two of them
    assert {chunk["prompt"] for chunk in watch.chunks} == {""}
    assert len({chunk["epoch"] for chunk in watch.chunks}) == 1
