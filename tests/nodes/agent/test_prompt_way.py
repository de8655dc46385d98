"""The prompt's way into a policy that is told in words what to do, in one process: held, set at a boundary, or said.

Guards: a chunk of the old task after another was asked for; a chunk that names a prompt it does not answer; a prompt
that cannot be used and is passed over; an older prompt that comes out last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.action import Chunk
from auras_ros.clock import MonotonicClock
from auras_ros.loading.pipeline import Pipeline, PipelineSettings
from auras_ros.nodes.agent import configured
from auras_ros.nodes.agent.configured import ConfiguredPolicy
from auras_ros.nodes.agent.frame_runner import FrameRunner
from auras_ros.nodes.agent.prompt import PromptGate
from auras_ros.nodes.agent.settings import AgentSettings
from auras_ros.nodes.common.diagnostics import Level
from auras_ros.nodes.common.latest_worker import LatestWorker
from auras_ros.observation import Observation
from auras_ros.pipeline.noise import noise_tape
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched
from auras_ros.policies.golden import GoldenSample, observed
from auras_ros.policies.loaders.open import load
from auras_ros.policies.policy import generate
from auras_ros.policies.prompt import Language
from auras_ros.ros.msg import String
from tests.nodes.payloads import serialized
from tests.policies import vision_language_checkpoints as tiny

pytest.importorskip("tokenizers")

PATIENCE_S = 60.0
TEXTS = ("push the block", "pull the red cup away", "push now", "pull the block from the wall please")
TOO_LONG = " ".join(["push"] * 30)


def until(condition: Callable[[], Any], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    made = tmp_path_factory.mktemp("prompts") / "rt2"
    tiny.written(made, "rt2", tokenizer=True, prompt_limit=24)
    return made


@pytest.fixture(scope="module")
def actions_of(folder: Path) -> dict[str, np.ndarray]:
    """What each prompt leads to, decoded the plain way."""
    checkpoint, sample = load(folder), GoldenSample.load(folder / "golden.safetensors")
    policy, found = checkpoint.policy("greedy"), {}
    assert checkpoint.language is not None
    for text in TEXTS:
        policy.set_prompt(torch.tensor(checkpoint.language.ids(text)))  # type: ignore[attr-defined]
        context = policy.perceive(*observed(checkpoint.spec, sample))
        noise = noise_tape(policy.noise_shape, 0, 0)[None]
        found[text] = generate(policy, noise, context)[0].numpy()
    assert len({each.tobytes() for each in found.values()}) == len(TEXTS)
    return found


class Inputs:
    """The golden sample's observation, a new one each time it is asked for."""

    fault, arrivals = "", None

    def __init__(self, folder: Path) -> None:
        images, state = observed(load(folder).spec, GoldenSample.load(folder / "golden.safetensors"))
        self._images, self._state = images[0].numpy(), state[0].numpy()

    def open(self, *_: Any) -> None: ...

    def shut(self) -> None: ...

    def reset(self) -> None: ...

    def close(self) -> None: ...

    def latch(self, now_ns: int) -> Observation:
        stamps = ((now_ns,),)
        return Observation(self._images, self._state, np.zeros(3), now_ns, now_ns, stamps, now_ns)


class Node:
    """Says nothing on any wire; remembers what is logged, and hands prompts over as the topic would."""

    def __init__(self) -> None:
        self.node = self
        self.logged: list[str] = []
        self.prompt: Callable[[Any], None] = lambda message: None

    def get_logger(self) -> Any:
        say = lambda text, **_: self.logged.append(text)  # noqa: E731
        return SimpleNamespace(debug=say, info=say, warning=say, error=say)

    def create_subscription(self, kind: Any, topic: str, take: Callable[[Any], None], *_: Any, **__: Any) -> Any:
        assert topic == "prompt"
        self.prompt = lambda message: take(serialized(String(data=message.data)))  # the subscription is raw
        return SimpleNamespace(close=lambda: None)

    def resolve_topic_name(self, topic: str) -> str:
        return f"/{topic}"


class Robot:
    """A configured agent without a wire."""

    def __init__(self, folder: Path, plans: Sequence[str]) -> None:
        checkpoint = load(folder)
        made = [Pipeline(checkpoint, Plan.parse(plan), PipelineSettings(), MonotonicClock()) for plan in plans]
        for pipeline in made:
            pipeline.warm_up()
        self.node, self.chunks = Node(), list[Chunk]()
        node: Any = self.node
        self.configured = ConfiguredPolicy(node, AgentSettings(), tuple(made), node)
        self.prompts = self.configured.prompts
        self.frames: FrameRunner | None = None
        self.looks = 0  # of workers, for something to do

    def activate(self) -> FrameRunner:
        publishers: Any = SimpleNamespace(chunk=lambda chunk, emission, contract: self.chunks.append(chunk))
        self.frames = frames = self.configured.frames(publishers, lambda step: None)
        latch = frames._latch

        def looked(number: int, now_ns: int) -> Latched | None:
            self.looks += 1
            return latch(number, now_ns)

        frames._latch = looked  # type: ignore[method-assign]
        frames.open()
        for live in frames.lives:
            live.start()
        return frames

    def tell(self, text: str) -> None:
        self.node.prompt(SimpleNamespace(data=text))

    def answers(self, text: str) -> None:
        """Until chunks of it come, and no other since."""
        until(lambda: self.chunks and self.chunks[-1].provenance.prompt == text, f"chunks of {text!r}")

    def still(self) -> None:
        """While chunks stay away although the workers look for work again and again."""
        until(lambda: self.prompts.blocked_because, "chunks held")
        count, looks = len(self.chunks), self.looks
        until(lambda: self.looks > looks + 12, "workers that look")
        assert len(self.chunks) == count

    def close(self) -> None:
        if self.frames is not None:
            assert self.frames.halt()
        self.configured.close()


@pytest.fixture
def start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Robot]]:
    monkeypatch.setattr(configured, "ObservationInputs", lambda node, spec, settings, qos, contract: Inputs(folder))
    quiet = SimpleNamespace(silent=lambda: False, executes=lambda session: True, close=lambda: None)
    monkeypatch.setattr(configured, "ActuatorWatch", lambda node, name, timeout_ms, qos: quiet)
    made: list[Robot] = []

    def begin(*plans: str, of: Path = folder) -> Robot:
        made.append(Robot(of, plans or ("greedy",)))
        return made[-1]

    yield begin
    for robot in made:
        robot.close()


def language_of(robot: Robot) -> Language:
    language = robot.configured.pipelines[0].checkpoint.language
    assert language is not None
    return language


def check_all(robot: Robot, actions_of: dict[str, np.ndarray]) -> None:
    """Every chunk answers the prompt that it names."""
    assert robot.chunks
    for chunk in robot.chunks:
        np.testing.assert_allclose(chunk.actions, actions_of[chunk.provenance.prompt], rtol=0, atol=1e-9)


PLANS = (
    "greedy",
    "greedy,mode=dec",
    "greedy,mode=par,concurrency=2",
    "greedy,mode=auras,pp_generation=1",
    "greedy,mode=auras,pp_generation=2,fetch_offset=-1,reuse=exact",
    "greedy,mode=auras,pp_generation=3,emit=newest",
)


@pytest.mark.parametrize("plan", PLANS)
def test_every_chunk_answers_the_prompt_that_it_names(
    start: Callable[..., Robot], actions_of: dict[str, np.ndarray], plan: str
) -> None:
    """Prompts of four lengths, some overtaken by the next before they are set."""
    robot = start(plan)
    robot.activate()
    robot.answers(TEXTS[0])
    random = np.random.default_rng(0)
    for turn in range(12):
        text = TEXTS[random.integers(len(TEXTS))]
        robot.tell(text)
        if turn % 3 == 2:
            robot.answers(text)
    robot.answers(text)
    check_all(robot, actions_of)
    epochs = [chunk.provenance.epoch for chunk in robot.chunks]
    assert epochs == sorted(epochs)
    by_epoch = {(chunk.provenance.epoch, chunk.provenance.prompt) for chunk in robot.chunks}
    assert len({epoch for epoch, _ in by_epoch}) == len(by_epoch)  # one prompt an epoch
    assert robot.prompts.check().level is Level.OK
    assert robot.prompts.active == text


def test_no_chunk_of_another_task_leaves_once_one_is_asked_for(
    start: Callable[..., Robot], actions_of: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While token ids are made frames could go on; nothing of them is given out."""
    robot = start("greedy,mode=auras,pp_generation=2")
    robot.activate()
    robot.answers(TEXTS[0])
    gate, language = threading.Event(), language_of(robot)
    real = language.ids
    monkeypatch.setattr(language, "ids", lambda text: gate.wait(PATIENCE_S) and real(text))
    robot.tell(TEXTS[1])
    robot.still()
    report = robot.prompts.check()
    assert (report.level, report.message) == (Level.ERROR, "no chunk is published: prompt: being set")
    assert (report.values["prompt"], report.values["active"]) == (TEXTS[1], TEXTS[0])
    gate.set()
    robot.answers(TEXTS[1])
    check_all(robot, actions_of)


def test_a_chunk_that_is_finished_while_the_prompt_is_set_goes_nowhere(
    start: Callable[..., Robot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the ids and the epoch, a moment: it was begun for the old task, and may have read some of the new."""
    robot = start()
    frames, last = robot.activate(), []
    robot.answers(TEXTS[0])
    emit, executor = frames._emit, robot.configured.pipelines[0].executor
    monkeypatch.setattr(frames, "_emit", lambda number, emission: (last.append(emission), emit(number, emission)))
    until(lambda: last, "a finished request")
    raised, reset = [], executor.reset

    def late(*given: Any) -> None:
        epoch = executor.ledger.epoch
        emit(0, replace(last[-1], epoch=epoch))
        raised.append((epoch, [chunk.provenance for chunk in robot.chunks]))
        reset(*given)

    monkeypatch.setattr(executor, "reset", late)
    robot.tell(TEXTS[1])
    robot.answers(TEXTS[1])
    ((epoch, before),) = raised
    assert {provenance.prompt for provenance in before} == {TEXTS[0]}
    assert all(chunk.provenance.epoch > epoch for chunk in robot.chunks if chunk.provenance.prompt == TEXTS[1])


def test_a_task_that_is_not_wanted_any_more_is_not_set(
    start: Callable[..., Robot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for another one and back at once, while its token ids are made."""
    robot = start()
    robot.activate()
    robot.answers(TEXTS[0])
    begun, gate, language, told = threading.Event(), threading.Event(), language_of(robot), []
    ids, take = language.ids, robot.configured.pipelines[0].set_prompt

    def slow(text: str) -> Sequence[int]:
        begun.set()
        assert gate.wait(PATIENCE_S)
        return ids(text)

    monkeypatch.setattr(language, "ids", slow)
    monkeypatch.setattr(robot.configured.pipelines[0], "set_prompt", lambda new: (told.append(tuple(new)), take(new)))
    robot.tell(TEXTS[1])
    assert begun.wait(PATIENCE_S)
    robot.tell(TEXTS[0])
    gate.set()
    until(lambda: told, "a prompt is set")
    assert told == [tuple(ids(TEXTS[0]))]
    robot.answers(TEXTS[0])


def test_a_prompt_that_cannot_be_used_holds_until_one_that_can_be(
    start: Callable[..., Robot], actions_of: dict[str, np.ndarray]
) -> None:
    robot = start()
    robot.activate()
    robot.answers(TEXTS[0])
    robot.tell(TOO_LONG)
    said = "prompt: 41 tokens, but this policy takes 24 at most"
    until(lambda: robot.prompts.blocked_because == said, said)
    robot.still()
    report = robot.prompts.check()
    assert (report.level, report.message) == (Level.ERROR, f"no chunk is published: {said}")
    assert f"no chunk is published: {said}" in robot.node.logged
    robot.tell(TOO_LONG)  # the same once more is no news
    robot.still()
    robot.tell("\x01 no text")  # and what is no prompt at all changes nothing
    robot.still()
    robot.tell(TEXTS[0])  # the one that the policy has run all along
    robot.answers(TEXTS[0])
    until(lambda: robot.prompts.check().level is Level.OK, "all is well")
    robot.tell(TEXTS[2])
    robot.answers(TEXTS[2])
    check_all(robot, actions_of)


def test_what_is_no_prompt_is_refused_and_the_task_goes_on(start: Callable[..., Robot]) -> None:
    robot = start()
    robot.activate()
    robot.answers(TEXTS[0])
    robot.tell("x" * 5000)
    count = len(robot.chunks)
    until(lambda: len(robot.chunks) > count + 3, "chunks go on")
    report = robot.prompts.check()
    assert (report.level, report.values["active"]) == (Level.WARN, TEXTS[0])
    assert "prompt: 5009 bytes on /prompt: at most" in report.message


def test_a_prompt_before_activation_is_active_from_the_first_chunk_on(
    start: Callable[..., Robot], actions_of: dict[str, np.ndarray]
) -> None:
    robot = start("greedy,mode=auras,pp_generation=2")
    robot.tell(TEXTS[3])
    until(lambda: robot.prompts.active == TEXTS[3], "the prompt is set")
    frames = robot.activate()
    robot.answers(TEXTS[3])
    assert {chunk.provenance.prompt for chunk in robot.chunks} == {TEXTS[3]}
    assert frames.halt()
    robot.tell(TEXTS[1])  # and one between two activations
    until(lambda: robot.prompts.active == TEXTS[1], "the next one is set")
    robot.activate()
    robot.answers(TEXTS[1])
    check_all(robot, actions_of)


def test_an_unusable_prompt_before_activation_lets_no_chunk_out(start: Callable[..., Robot]) -> None:
    robot = start()
    robot.tell(TOO_LONG)
    until(lambda: "41 tokens" in robot.prompts.blocked_because, "it is refused")
    robot.activate()
    robot.still()
    robot.tell(TEXTS[0])
    robot.answers(TEXTS[0])


def test_a_plan_that_changes_while_a_prompt_is_set_answers_it(
    start: Callable[..., Robot], actions_of: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a prompt that waits for an epoch of the plan that no longer runs."""
    robot = start("greedy,mode=auras,pp_generation=2", "greedy")
    frames = robot.activate()
    robot.answers(TEXTS[0])
    begin_epoch = frames.lives[0].reset

    def after_an_overload(change: Callable[[], None]) -> None:
        with robot.prompts.lock:
            frames._enter(1)
        begin_epoch(change)

    monkeypatch.setattr(frames.lives[0], "reset", after_an_overload)
    robot.tell(TEXTS[1])
    robot.answers(TEXTS[1])
    assert robot.chunks[-1].provenance.plan == "greedy"
    check_all(robot, actions_of)


def test_the_fallback_plan_runs_the_same_prompt(start: Callable[..., Robot], actions_of: dict[str, np.ndarray]) -> None:
    robot = start("greedy,mode=auras,pp_generation=2", "greedy")
    frames = robot.activate()
    robot.answers(TEXTS[0])
    robot.tell(TEXTS[1])
    robot.answers(TEXTS[1])
    with robot.prompts.lock:
        frames._enter(1)
    frames._arrived()
    until(lambda: robot.chunks[-1].provenance.plan == "greedy", "chunks of the fallback")
    robot.tell(TEXTS[2])
    robot.answers(TEXTS[2])
    frames.reset()
    until(lambda: robot.chunks[-1].provenance.plan != "greedy", "chunks of the first plan again")
    assert robot.chunks[-1].provenance.prompt == TEXTS[2]
    check_all(robot, actions_of)


def test_without_a_tokenizer_another_prompt_holds(
    start: Callable[..., Robot], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.written(tmp_path / "mute", "rt2")
    robot = start(of=tmp_path / "mute")
    robot.activate()
    robot.answers(tiny.TEXT)
    assert robot.prompts.check().values["tokenizer"] == "no tokenizer.json"
    robot.tell("pull the cup")
    until(lambda: "the checkpoint has no tokenizer.json" in robot.prompts.blocked_because, "it is said")
    robot.still()


def test_a_policy_without_language_takes_every_text_as_it_was_and_says_that_it_changes_nothing() -> None:
    warnings: list[str] = []
    prompts = PromptGate(None, lambda ids: None, 4096, SimpleNamespace(warning=warnings.append))
    prompts.want("something")
    prompts.want("anything")
    assert warnings == ["prompt: this policy has no language: a prompt changes nothing"]
    assert prompts.blocked_because == ""
    assert prompts.check().message == "prompt active"
    assert prompts.check().values == {"prompt": "anything", "accepted": 2, "refused": 0}


def test_a_chunk_from_before_the_prompts_epoch_is_not_published() -> None:
    """It was finished between the change of the prompt and the new epoch; whether the policy has a language or not."""
    language: Any = SimpleNamespace(prompt=SimpleNamespace(text=""), prepare=lambda: "", ids=lambda text: (1,))
    for known in (None, language):
        prompts = PromptGate(known, lambda ids: None, 4096, Node().get_logger())
        prompts.connect(lambda change: change(), lambda: 5)
        assert prompts.answered(4) == ""
        prompts.want("new")
        until(lambda found=prompts: found.active == "new", "it is active")
        with prompts.lock:
            assert (prompts.answered(4), prompts.answered(5)) == (None, "new")
        prompts.close()


def test_whatever_fails_with_a_prompt_is_said_and_the_next_one_is_set() -> None:
    """Guards against a thread that a GPU's error ends, and a prompt that is "being set" for ever."""

    def ids(text: str) -> tuple[int, ...]:
        if text == "bad":
            raise RuntimeError("CUDA error")
        return (1,)

    language: Any = SimpleNamespace(prompt=SimpleNamespace(text=""), prepare=lambda: "", ids=ids)
    prompts = PromptGate(language, lambda ids: None, 4096, Node().get_logger())
    prompts.want("bad")
    until(lambda: prompts.blocked_because == "prompt: RuntimeError('CUDA error')", "it is said")
    prompts.want("good")
    until(lambda: prompts.active == "good", "the next one is set")
    prompts.close()


def test_of_texts_that_come_quickly_the_newest_is_set() -> None:
    begun, gate, used = threading.Event(), threading.Event(), []

    def slow(key: str, text: str) -> None:
        begun.set()
        assert gate.wait(PATIENCE_S)
        used.append((key, text))

    worker = LatestWorker("test", slow, lambda value, error: None)
    worker.put("left", "a")
    assert begun.wait(PATIENCE_S)
    for key, text in (("left", "bb"), ("right", "d"), ("left", "ccc")):
        worker.put(key, text)
    gate.set()
    until(lambda: len(used) == 3, "the newest of each is handled")
    worker.close()
    assert used == [("left", "a"), ("left", "ccc"), ("right", "d")]
    assert not worker._thread.is_alive()
