"""Monitors gate the policy: rules are read or refused, verdicts pause and resume it, and silence pauses it.

Guards: a chunk of the old epoch after a pause; a policy that runs because its monitor is dead; an answer that was made
by nobody in particular and ends the node.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auras_ros.nodes.agent.monitor_rules import MonitorRule, read_rules, read_verdict
from auras_ros.nodes.agent.monitors import MonitorGate
from auras_ros.nodes.agent.prompt import PromptGate
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import Level
from auras_ros.nodes.common.texts import MessageError
from auras_ros.parameters import ParameterError
from auras_ros.ros import QoSProfile, ReliabilityPolicy
from auras_ros.ros.msg import String
from tests.nodes.agent_child import running

MS = 1_000_000
WAY = {"standing": "way", "label": "yes", "do": "pause"}
ANSWERS = QoSProfile(depth=10, reliability=ReliabilityPolicy.RELIABLE)


def answer(standing: str = "way", label: str = "yes", score: float = 0.9, **changes: Any) -> dict[str, Any]:
    """What the node vlm publishes, as far as it counts; its image is `age_ms` old."""
    stamp_ns = changes.pop("stamp_ns", time.time_ns())
    image = {"camera": "top", "stamp_ns": stamp_ns, "age_end_ms": changes.pop("age_ms", 0.0)}
    result = {"kind": "binary", "label": label, "score": score, "values": [], "boxes": []}
    return {"id": "way/1", "standing": standing, "finish": "stop", "result": result, "image": image} | changes


class GateStage:
    """A gate with frames around it that only count epochs. Its clocks stand still until they are moved."""

    def __init__(self, *rules: dict[str, Any], age_limit_ms: float = 1000.0) -> None:
        self.now_ns, self.epoch = 10**12, 3
        logger = SimpleNamespace(warning=lambda *_, **__: None, error=lambda *_, **__: None)
        self.prompts = PromptGate(None, lambda ids: None, 4096, logger)
        read = read_rules(json.dumps(rules), 4096)
        self.said: list[str] = []  # in the heartbeats that are sent at once

        def changed() -> None:
            self.said.append(self.gate.paused_because)

        self.gate = MonitorGate(read, age_limit_ms, self.prompts, lambda: self.now_ns, logger, changed)
        self.gate._monotonic = SimpleNamespace(now_ns=lambda: self.now_ns)  # type: ignore[assignment]
        self.gate.connect(self._begin_epoch, lambda: self.epoch + 1)

    def _begin_epoch(self, change: Callable[[], None]) -> None:
        change()
        self.epoch += 1

    def hears(self, standing: str = "way", label: str = "yes", score: float = 0.9, age_ms: float = 0.0) -> None:
        self.now_ns += 50 * MS
        stamp_ns = self.now_ns - round(age_ms * MS)
        self.gate.on_answer(json.dumps(answer(standing, label, score, stamp_ns=stamp_ns)))

    def runs(self, epoch: int | None = None) -> bool:
        """Whether a chunk of this epoch, by default the newest, is published."""
        with self.gate.lock:
            return self.gate.answered(self.epoch if epoch is None else epoch) is not None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"do": "adapter"}, r"do: 'adapter': no policy here takes an adapter; expected one of pause, prompt"),
        ({"do": "stop"}, "do: 'stop'"),
        ({"do": ["pause"]}, "do: "),
        ({"standing": ""}, "standing: expected a text"),
        ({"label": 7}, "label: expected a text"),
        ({"label": "x" * 129}, "label: expected a text"),
        ({"min_score": 1.5}, "min_score: expected a number from 0 to 1"),
        ({"min_score": True}, "min_score"),
        ({"for_frames": 0}, "for_frames"),
        ({"clear_frames": 1.5}, "clear_frames"),
        ({"for_frames": 1001}, "more than 1000"),
        ({"prompt": "go"}, "prompt: only a rule that does 'prompt' has one"),
        ({"do": "prompt"}, "prompt: expected a text"),
        ({"do": "prompt", "prompt": "a\x07"}, r"prompt: not text: it contains the character U\+0007"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_refused_by_its_field(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(MessageError, match=rf"monitors\[0\]: {why}|monitors\[0\].*{why}"):
        read_rules(json.dumps([WAY | changes]), 4096)


@pytest.mark.parametrize("text", ["{", "{}", "[1]", "7", json.dumps([WAY] * 33), "[" * 100_000])
def test_what_is_no_list_of_rules_is_refused_with_the_parameters_name(text: str) -> None:
    with pytest.raises(ParameterError, match="agent: monitors"):
        AgentSettings(monitors=text).check()


def test_rules_are_read() -> None:
    assert read_rules(" ", 4096) == ()
    assert read_rules(json.dumps([WAY, WAY | {"do": "prompt", "prompt": "wait", "for_frames": 2}]), 4096) == (
        MonitorRule("way", "yes", "pause"),
        MonitorRule("way", "yes", "prompt", prompt="wait", for_frames=2),
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"result": None, "finish": "refused", "detail": "too old"},
        {"result": {"label": "yes"}},
        {"result": {"label": "", "score": 0.5}},
        {"result": {"label": "yes", "score": 1.1}},
        {"result": {"label": "yes", "score": float("nan")}},
        {"result": {"label": "yes", "score": True}},
        {"image": None},
        {"image": {"stamp_ns": "now", "age_end_ms": 1}},
        {"image": {"stamp_ns": 1 << 70, "age_end_ms": 1}},
        {"image": {"stamp_ns": 1, "age_end_ms": None}},
        {"image": {"stamp_ns": 1, "age_end_ms": float("inf")}},
        {"image": {"stamp_ns": 1, "age_end_ms": -1}},
    ],
)
def test_an_answer_that_says_nothing_is_refused_and_is_no_verdict(changes: dict[str, Any]) -> None:
    stage = GateStage(WAY)
    stage.hears(label="no")
    stage.gate.on_answer(json.dumps(answer() | changes))
    assert (stage.gate.refused, stage.gate.verdicts) == (1, 1)
    assert stage.runs()
    assert stage.gate.check().level is Level.WARN


@given(st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_whatever_comes_as_an_answer_ends_nothing(text: str) -> None:
    stage = GateStage(WAY)
    for each in (text, f'{{"standing": "way", "result": {text}}}', "x" * 100_000):
        stage.gate.on_answer(each)
    assert stage.gate.verdicts == 0
    assert not stage.runs()


def test_answers_about_anything_else_are_not_looked_at() -> None:
    assert read_verdict(json.dumps(answer("turn", result="nonsense")), {"way"}) is None
    assert read_verdict(json.dumps({"standing": ["way"]}), {"way"}) is None


def test_without_a_verdict_the_policy_pauses_and_the_first_begins_an_epoch() -> None:
    stage = GateStage(WAY)
    assert not stage.runs()
    assert stage.gate.paused_because == "no verdict of 'way' yet"
    assert stage.gate.blocked_because == "paused: no verdict of 'way' yet"
    assert stage.gate.check().level is Level.ERROR
    stage.hears(label="no")
    assert stage.epoch == 4
    assert (stage.runs(3), stage.runs()) == (False, True)
    assert (stage.gate.blocked_because, stage.gate.check().level) == ("", Level.OK)


def test_a_pause_is_at_once_and_ends_with_a_new_epoch() -> None:
    stage = GateStage(WAY | {"min_score": 0.5})
    stage.hears(label="no")
    before = stage.epoch
    stage.hears(label="yes", score=0.4)
    assert stage.runs()
    stage.hears(label="yes", score=0.6)
    assert not stage.runs()
    assert stage.gate.paused_because == "'way' says 'yes'"
    report = stage.gate.check()
    assert report.level is Level.WARN
    assert report.values["monitors[0]"] == "pause while 'way' says 'yes': active, began 1 times"
    stage.hears(label="yes")
    assert stage.epoch == before
    stage.hears(label="no")
    assert stage.epoch == before + 1
    assert (stage.runs(before), stage.runs()) == (False, True)
    assert stage.said == ["", "'way' says 'yes'", ""]


def test_every_question_must_have_a_fresh_verdict() -> None:
    stage = GateStage(WAY, WAY | {"standing": "goal"}, age_limit_ms=500.0)
    stage.hears("way", "no")
    assert stage.gate.paused_because == "no verdict of 'goal' yet"
    stage.hears("goal", "no", age_ms=400.0)
    epoch = stage.epoch
    assert stage.runs()
    stage.now_ns += 99 * MS
    assert stage.runs()
    stage.now_ns += 2 * MS  # its image is more than 500 ms old now
    assert not stage.runs()
    assert stage.gate.paused_because == "no fresh verdict of 'goal'"
    stage.hears("way", "no")
    assert not stage.runs()
    stage.hears("goal", "no")
    assert stage.epoch == epoch + 1, "what began before must not go on"
    assert (stage.runs(epoch), stage.runs()) == (False, True)


def test_a_monitor_that_falls_silent_in_a_pause_is_named() -> None:
    stage = GateStage(WAY, age_limit_ms=500.0)
    stage.hears(label="yes")
    stage.now_ns += 600 * MS
    assert stage.gate.paused_because == "no fresh verdict of 'way'"
    report = stage.gate.check()
    assert (report.level, report.message) == (Level.ERROR, "the policy pauses: no fresh verdict of 'way'")
    stage.hears(label="no")
    assert stage.runs()


@pytest.mark.parametrize("which", ["stamp", "said"])
def test_a_verdict_about_an_old_image_is_none(which: str) -> None:
    stage = GateStage(WAY, age_limit_ms=500.0)
    old = {"stamp_ns": stage.now_ns - 501 * MS} if which == "stamp" else {"stamp_ns": stage.now_ns, "age_ms": 501.0}
    stage.gate.on_answer(json.dumps(answer(label="no", **old)))
    assert not stage.runs()
    assert (stage.gate.verdicts, stage.gate.refused) == (0, 1)
    assert "501 ms old, limit 500 ms" in stage.gate.check().message


def test_so_many_verdicts_in_a_row_begin_and_end_a_pause() -> None:
    stage = GateStage(WAY | {"for_frames": 3, "clear_frames": 2})
    said = ["no", "yes", "yes", "no", "yes", "yes", "yes", "no", "yes", "no", "no", "yes"]
    runs = []
    for label in said:
        stage.hears(label=label)
        runs.append(stage.runs())
    assert runs == [True] * 6 + [False] * 4 + [True] * 2


def test_a_gap_is_no_row() -> None:
    stage = GateStage(WAY | {"for_frames": 2}, age_limit_ms=500.0)
    stage.hears(label="no")
    stage.hears(label="yes")
    stage.now_ns += 600 * MS
    stage.hears(label="yes")
    assert stage.runs()
    stage.hears(label="yes")
    assert not stage.runs()


def test_a_prompt_is_run_while_it_is_said_and_then_the_one_that_was_asked_for_last() -> None:
    stage = GateStage(WAY | {"do": "prompt", "prompt": "go round it"})
    stage.prompts.want("push the tee")
    stage.hears(label="no")
    assert stage.prompts.active == "push the tee"
    stage.hears(label="yes")
    assert stage.prompts.active == "go round it"
    assert stage.runs()
    epoch = stage.epoch
    stage.prompts.want("push it gently")
    stage.prompts.want("a\x07")
    assert (stage.prompts.active, stage.epoch) == ("go round it", epoch)
    assert (stage.prompts.accepted, stage.prompts.refused) == (2, 1)
    stage.hears(label="no")
    assert stage.prompts.active == "push it gently"
    assert stage.epoch == epoch + 1


def test_an_agent_pauses_over_topics_and_its_heartbeat_says_so(checkpoint: str, tmp_path: Path) -> None:
    with running(checkpoint, tmp_path, monitors=json.dumps([WAY]), monitor_age_ms=60000.0) as agent:
        topic = agent.watch.node.create_publisher(String, "answer", ANSWERS)
        beats = agent.watch.beats

        def say(label: str) -> None:
            topic.publish(String(data=json.dumps(answer(label=label))))

        agent.says("no chunk: paused: no verdict of 'way' yet")
        assert beats[-1]["pause"] == "no verdict of 'way' yet"
        assert not agent.watch.chunks
        topic.publish(String(data="{"))
        agent.diagnosed("monitors", 2, "the policy pauses: no verdict of 'way' yet; the newest was refused: answer")
        say("no")
        first = agent.chunk("a chunk after the first verdict")
        assert beats[-1]["pause"] == ""
        say("yes")
        agent.watch.until(lambda: beats[-1]["pause"] == "'way' says 'yes'", "a pause")
        count = len(agent.watch.chunks)
        agent.says("no chunk: paused: 'way' says 'yes'")
        assert len(agent.watch.chunks) <= count + 1  # one may have been on its way when the heartbeat was
        agent.diagnosed("monitors", 1, "the policy pauses: 'way' says 'yes'")
        say("no")
        assert agent.chunk("a chunk after the pause")["epoch"] > first["epoch"]
        agent.diagnosed("monitors", 0, "no monitor pauses the policy")
