"""Two hundred mixed requests from several threads at once, many of them hostile, to an engine with few blocks.

Guards, together: a request that was taken and never ends; a block that stays allocated; an answer that has another
request's tokens, or one wrong token after a preemption; a thread or an object left behind for each request.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.tokenizer import PromptError
from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.active import ActiveRequest
from auras_ros.engine.engine import Engine
from auras_ros.engine.reply import LOGGER, Listener, Reply
from auras_ros.engine.request import Answer, EngineFullError, Grammar, InvalidRequestError, VlmRequest
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.decoding import greedy
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import PATIENCE_S, answers, chat, ended, engine_of

pytest.importorskip("transformers")
pytest.importorskip("PIL")

REQUESTS, THREADS, TOKENS, SEEDS = 200, 4, 10, 2
WARM = Sampling(temperature=1.2, top_p=0.95)


@dataclass
class Asked:
    """What was asked, and what came."""

    prompt: int
    seed: int | None  # None is greedy
    reply: Reply
    pieces: list[str]
    gone: bool = False  # cancelled, late or without a listener: a part of the answer is right, too
    adapter: str = ""


@dataclass
class Log:
    asked: list[Asked] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


def asks(engine: Engine) -> list[VlmPrompt]:
    sizes = [[], [], [(40, 60)], [(30, 30), (40, 60)], [(40, 60)], []]
    words = ["tee", "how many red things are in the way?", "left?", "left?", "right?", "how many red things?"]
    return [chat(engine.checkpoint, text, each) for text, each in zip(words, sizes, strict=True)]


def hostile(engine: Engine, chance: random.Random, prompts: list[VlmPrompt]) -> None:
    """Something that is refused before it is taken."""
    none = torch.empty(0, dtype=torch.int64)
    prompt: dict[str, Any] = {"prompt": prompts[0]}
    asked: list[dict[str, Any]] = [
        {"prompt": VlmPrompt(torch.tensor([chance.choice([-1, 320, 2**62])]), (), none)},
        prompt | {"max_tokens": chance.choice([0, 1 << 20, 10**30])},
        prompt | {"deadline_ms": chance.choice([0.0, float("inf"), float("nan")])},
        prompt | {"stop_ids": [1]},
        prompt | {"grammar": Grammar("regex", chance.choice(["(" * 300, "\ud800", "[z-a]"]))},
        {"prompt": VlmPrompt(torch.zeros(5000, dtype=torch.int64), (), none)},
        {"prompt": VlmPrompt(prompts[2].ids, prompts[2].images, none)},
        prompt | {"adapter": "nobody's"},
        prompt | {"head": True},
    ]
    with pytest.raises(InvalidRequestError):
        engine.submit(VlmRequest(**chance.choice(asked)))
    with pytest.raises(PromptError):
        engine.checkpoint.prompts.plain("\ud800")


def submit(engine: Engine, log: Log, request: VlmRequest, listener: Listener) -> Reply:
    """When there is room."""
    while True:
        try:
            return engine.submit(request, listener)
        except EngineFullError:
            log.refused["full"] += 1
            with log.lock:
                waiting = [each.reply for each in log.asked if not each.reply.ended]
            if waiting:
                waiting[0].result(PATIENCE_S)


def ask(engine: Engine, log: Log, seed: int, adapters: Sequence[str] = ("",)) -> None:
    """One client. adapters: that it asks for; one may be gone."""
    chance, prompts = random.Random(seed), asks(engine)
    for _ in range(REQUESTS // THREADS):
        if chance.random() < 0.15:
            hostile(engine, chance, prompts)
            log.refused["invalid"] += 1
            continue
        place, sampled, fate = chance.randrange(len(prompts)), chance.random() < 0.4, chance.random()
        pieces: list[str] = []

        def listen(piece: Any, pieces: list[str] = pieces, leaves: bool = fate < 0.1) -> None:
            pieces.append(piece.text)
            if leaves and len(pieces) > 3:
                raise ConnectionResetError("the client has gone")

        own, adapter = chance.randrange(SEEDS) if sampled else None, chance.choice(adapters)
        request = VlmRequest(
            prompts[place], WARM if sampled else Sampling(temperature=0), TOKENS, ignore_eos=True, seed=own,
            deadline_ms=chance.choice([0.01, 5.0, 20.0]) if 0.1 <= fate < 0.25 else None,
            priority=chance.randrange(3), stop=("\ud800",) if chance.random() < 0.2 else (), adapter=adapter,
        )  # fmt: skip
        try:
            reply = submit(engine, log, request, listen)
        except InvalidRequestError as error:
            if f"adapter: there is no '{adapter}'" not in str(error):
                raise
            log.refused["removed"] += 1
            continue
        with log.lock:
            log.asked.append(Asked(place, own, reply, pieces, fate < 0.4, adapter))
        if 0.25 <= fate < 0.4:
            if chance.random() < 0.5:
                threading.Event().wait(chance.random() * 0.01)
            reply.cancel()


def alone(path: Path) -> dict[tuple[int, int | None], list[int]]:
    """The right answers, by prompt and seed: computed one after another."""
    quiet = engine_of(path, running=1, prefix_cache=False, image_cache_mib=0)
    model = open_vlm(path).model
    expected: dict[tuple[int, int | None], list[int]] = {}
    for place, prompt in enumerate(asks(quiet)):
        expected[place, None] = greedy(model, prompt, TOKENS)
        sampled = [VlmRequest(prompt, WARM, TOKENS, ignore_eos=True, seed=seed) for seed in range(SEEDS)]
        for seed, answer in enumerate(answers(quiet, sampled)):
            expected[place, seed] = answer.ids
    quiet.close()
    return expected


def soaked(
    engine: Engine, log: Log, before: set[threading.Thread], clients: Sequence[Callable[[], None]]
) -> list[tuple[Asked, Answer]]:
    """What the clients, each in a thread, were answered by an engine that is closed then and has given back all it had.
    before: threads that there were before the engine; one of an earlier test may end meanwhile."""
    engine.start()
    started = set(threading.enumerate())
    threads = [threading.Thread(target=each) for each in clients]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    given = [(each, each.reply.result(PATIENCE_S)) for each in log.asked]
    assert set(threading.enumerate()) <= started
    assert started - before <= set(threading.enumerate())
    until = time.monotonic() + PATIENCE_S
    while engine.adapters is not None and engine.adapters.loading:  # for a request that was cancelled
        assert time.monotonic() < until
        time.sleep(0.001)
    engine.close()
    assert set(threading.enumerate()) <= before
    ended(engine)
    reasons = Counter(answer.finish for _, answer in given)
    assert engine.stats.ended == reasons
    assert min(reasons["length"], reasons["cancelled"], reasons["deadline"]) > 0
    assert min(engine.stats.preemptions, engine.stats.image_hits, log.refused["invalid"]) > 0
    return given


@pytest.mark.parametrize("cores", [{}, {"own_threads": True}], ids=["inline", "threads"])
def test_two_hundred_mixed_requests(
    written: Callable[[str], Written], cores: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LOGGER, "disabled", True)  # pytest keeps what is logged, with the frames of what was raised
    path, earlier = written("llava").path, requests_alive()  # another test's, which a fixture may keep
    expected, before, log = alone(path), set(threading.enumerate()), Log()
    engine = engine_of(path, 26, block=4, waiting=6, chunked=True, prefill_tokens=24, **cores)
    given = soaked(engine, log, before, [partial(ask, engine, log, seed) for seed in range(THREADS)])
    assert len(given) + log.refused["invalid"] == REQUESTS
    for each, answer in given:
        check(each, answer, expected[each.prompt, each.seed])
    del given, each, answer
    log.asked.clear()
    gc.collect()
    assert not [left for left in requests_alive() if not any(left is each for each in earlier)]


def requests_alive() -> list[ActiveRequest]:
    return [each for each in gc.get_objects() if isinstance(each, ActiveRequest)]


def check(asked: Asked, answer: Answer, wanted: list[int]) -> None:
    assert answer.ids == wanted[: len(answer.ids)]
    if not asked.gone:
        assert (answer.finish, len(answer.ids)) == ("length", TOKENS)
    assert answer.finish in ("length", "cancelled", "deadline")
    if answer.finish == "length":
        assert answer.ids == wanted
    assert "".join(asked.pieces) == answer.text
