"""Every request that was taken ends, with its reason, and what it had is given back: cancelled or too late in each
state, refused where there is no room, when the engine is closed, and when a forward fails.

Guards: a caller that waits for ever; blocks of a request that ended while it was in a forward; a failure that takes
others' answers along, or what it left behind (numbers that are not finite) that the next owner of a block reads; a
submit that comes in between while the engine closes; an engine's thread that a listener or a deadline ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.clock import VirtualClock
from auras_ros.engine.choose import NoTokenError
from auras_ros.engine.engine import Engine
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import (
    AnswerToken,
    Delta,
    EngineClosedError,
    EngineFullError,
    InvalidRequestError,
    VlmRequest,
)
from auras_ros.engine.scheduler import Dispatch, EngineState, InterleavedScheduler
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import PATIENCE_S, answers, chat, ended, engine_of, finish

pytest.importorskip("transformers")
pytest.importorskip("PIL")

TOKENS = 16
STATES = ("waiting", "vision", "second-image", "chunk", "decode")


@pytest.fixture(scope="module")
def folder(written: Callable[[str], Written]) -> Written:
    return written("llava")


@pytest.fixture(scope="module")
def wanted(folder: Written) -> dict[str, list[int]]:
    """What each prompt is answered with."""
    engine = engine_of(folder.path)
    made = answers(engine, [asked(prompt) for prompt in prompts(engine).values()])
    return dict(zip(prompts(engine), [answer.ids for answer in made], strict=True))


def prompts(engine: Engine) -> dict[str, VlmPrompt]:
    return {
        "text": chat(engine.checkpoint, "how many red things are in the way?"),
        "images": chat(engine.checkpoint, "left?", [(40, 60), (30, 30)]),
        "image": chat(engine.checkpoint, "is the tee left?", [(28, 28)], 9),
    }


def asked(prompt: VlmPrompt, **others: Any) -> VlmRequest:
    return VlmRequest(prompt, **{"max_tokens": TOKENS, "ignore_eos": True} | others)


def reach(engine: Engine, state: str) -> Reply:
    """Steps until a request for two images is in this state, with another one that decodes beside it."""
    asks = prompts(engine)
    engine.submit(asked(asks["text"]))
    reply = engine.submit(asked(asks["images"], deadline_ms=1000.0))
    if state == "waiting":
        return reply
    queues = engine._state.queues
    while True:
        engine.step()
        mine = next((each for each in engine._queues.everyone() if each.reply is reply), None)
        assert mine is not None, f"{state} was never reached"
        vision, unseen = mine in queues["vision"], len(mine.unseen())
        if {
            "vision": vision and unseen == 2,
            "second-image": vision and unseen == 1,
            "chunk": mine in queues["prefill"] and mine.stored > 0,
            "decode": len(mine.ids) > mine.prompt_length + 2,
        }[state]:
            return reply


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
@pytest.mark.parametrize("state", STATES)
def test_a_request_ends_in_each_state(folder: Written, wanted: dict[str, list[int]], state: str, how: str) -> None:
    clock = VirtualClock()
    engine = engine_of(folder.path, block=4, chunked=True, prefill_tokens=6, clock=clock)
    reply = reach(engine, state)
    if how == "cancelled":
        reply.cancel()
        reply.cancel()
    else:
        clock.advance(1_000_000_000)
    engine.step()
    engine.step()  # where it was in a forward, with what that made
    answer = reply.result(0)
    assert answer.finish == how
    assert answer.ids == wanted["images"][: len(answer.ids)]
    assert (len(answer.ids) > 0) == (state == "decode")
    finish(engine)
    ended(engine, [reply])
    assert answers(engine, [asked(prompts(engine)["images"])])[0].ids == wanted["images"]


@pytest.mark.parametrize("how", ["cancelled", "deadline"])
@pytest.mark.parametrize("stage", ["vision", "prefill", "decode"])
def test_a_request_in_a_forward_ends_after_it(
    folder: Written, wanted: dict[str, list[int]], stage: str, how: str
) -> None:
    """On the stage's own thread; its blocks are its own as long as it runs."""
    clock = VirtualClock()
    engine = engine_of(folder.path, block=4, clock=clock, own_threads=True)
    runs, go = threading.Event(), threading.Event()
    worker = engine._forwards.workers[stage]  # type: ignore[index]

    def slow(dispatch: Dispatch) -> Any:
        runs.set()
        assert go.wait(PATIENCE_S)
        return worker(dispatch)

    engine._forwards.workers[stage] = slow  # type: ignore[index]
    reply = engine.submit(asked(prompts(engine)["images"], deadline_ms=1.0))
    while not runs.is_set():
        if not engine.step():
            engine._intake.wait(0.01)
    owned = engine.blocks_in_use
    reply.cancel() if how == "cancelled" else clock.advance(10_000_000)
    engine.step()
    assert not reply.ended
    assert engine.blocks_in_use == owned
    assert engine._until_deadline_s() is None  # there is nothing to be done before the forward has ended
    go.set()
    finish(engine)
    assert reply.result(0).finish == how
    ended(engine, [reply])
    assert answers(engine, [asked(prompts(engine)["images"])])[0].ids == wanted["images"]
    engine.close()


def test_a_sleeping_engine_wakes_for_a_deadline(folder: Written) -> None:
    """Also for that of a request that waits behind another."""
    engine = engine_of(folder.path, running=1, own_threads=True)
    go = threading.Event()
    worker = engine._forwards.workers["decode"]
    engine._forwards.workers["decode"] = lambda dispatch: worker(dispatch) if go.wait(PATIENCE_S) else None  # type: ignore
    engine.start()
    first = engine.submit(asked(prompts(engine)["text"]))
    late = engine.submit(asked(prompts(engine)["text"], deadline_ms=30.0))
    assert late.result(PATIENCE_S).finish == "deadline"
    go.set()
    assert first.result(PATIENCE_S).finish == "length"
    engine.close()
    ended(engine)


def test_ten_times_the_load_is_refused_at_once_and_the_rest_is_answered(
    folder: Written, wanted: dict[str, list[int]]
) -> None:
    engine = engine_of(folder.path, running=2, waiting=4)
    taken, refused, lock = list[Reply](), list[str](), threading.Lock()

    def ask() -> None:
        for _ in range(15):
            try:
                reply = engine.submit(asked(prompts(engine)["text"]))
            except EngineFullError as error:
                with lock:
                    refused.append(str(error))
            else:
                with lock:
                    taken.append(reply)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 6
    assert set(refused) == {"the engine is full: 6 requests run or wait, 6 at most"}
    finish(engine)
    assert [reply.result(0).ids for reply in taken] == [wanted["text"]] * 6
    ended(engine)
    assert answers(engine, [asked(prompts(engine)["text"])])[0].ids == wanted["text"]


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_listener_that_raises_ends_its_own_request(folder: Written, wanted: dict[str, list[int]], at: str) -> None:
    engine = engine_of(folder.path, block=4)

    def gone(piece: Delta) -> None:
        if at == "first" or piece.finish is not None:
            raise BrokenPipeError("nobody listens")

    reply = engine.submit(asked(prompts(engine)["image"]), gone)
    other = engine.submit(asked(prompts(engine)["text"]))
    finish(engine)
    assert reply.result(0).finish == ("cancelled" if at == "first" else "length")
    assert other.result(0).ids == wanted["text"]
    ended(engine)


def test_a_listener_may_ask_cancel_and_submit(folder: Written, wanted: dict[str, list[int]]) -> None:
    engine = engine_of(folder.path)
    again = list[Reply]()

    def listener(piece: Delta) -> None:
        if piece.finish is not None:
            assert reply.result(0).finish == "cancelled"
            again.append(engine.submit(asked(prompts(engine)["text"])))
        reply.cancel()

    reply = engine.submit(asked(prompts(engine)["image"]), listener)
    finish(engine)
    assert again[0].result(0).ids == wanted["text"]
    ended(engine)


@pytest.mark.parametrize("cores", [{}, {"own_threads": True}], ids=["inline", "threads"])
@pytest.mark.parametrize("started", [True, False])
def test_closing_ends_everything(folder: Written, started: bool, cores: dict[str, Any]) -> None:
    engine = engine_of(folder.path, running=2, waiting=20, block=4, **cores)
    if started:
        engine.start()
    came = threading.Event()
    replies = [
        engine.submit(asked(prompt, max_tokens=300), lambda piece: came.set())
        for prompt in [*prompts(engine).values()] * 3
    ]
    while not came.is_set():
        came.wait(1) if started else engine.step()
    engine.close()
    assert {reply.result(0).finish for reply in replies} == {"cancelled"}
    assert replies[-1].result(0).detail == "the engine is closed"
    ended(engine)
    engine.close()
    with pytest.raises(EngineClosedError, match="the engine is closed"):
        engine.submit(asked(prompts(engine)["text"]))


def test_a_request_that_comes_while_the_engine_closes_is_refused_or_ends(
    folder: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's thread may be through before the intake refuses."""
    engine, replies = engine_of(folder.path), list[Reply]()
    engine.start()
    thread, refuse = engine._thread, engine._intake.close
    assert thread is not None

    def late(reason: str) -> None:
        if threading.current_thread() is not thread:
            engine._intake.wake()
            thread.join(0.3)
            replies.append(engine.submit(asked(prompts(engine)["text"], max_tokens=1)))
        refuse(reason)

    monkeypatch.setattr(engine._intake, "close", late)
    engine.close()
    assert replies[0].result(0).finish in ("cancelled", "length")
    ended(engine)


@pytest.mark.parametrize("cores", [{}, {"own_threads": True}], ids=["inline", "threads"])
@pytest.mark.parametrize("stage", ["vision", "prefill", "decode"])
def test_a_forward_that_raises_ends_its_own_requests(
    folder: Written, wanted: dict[str, list[int]], stage: str, cores: dict[str, Any]
) -> None:
    engine = engine_of(folder.path, block=4, **cores)
    worker = engine._forwards.workers[stage]  # type: ignore[index]
    asks = prompts(engine)
    victim = asked(asks["images"])
    hit = list[int]()

    def fails(dispatch: Dispatch) -> Any:
        if not hit and any(each.request is victim for each in dispatch.requests):
            hit.append(len(dispatch.requests))
            written = [each.table[-1] for each in dispatch.requests if each.table]
            engine._cache.store[:, written] = torch.nan
            raise MemoryError("no memory")
        return worker(dispatch)

    engine._forwards.workers[stage] = fails  # type: ignore[index]
    replies = [engine.submit(each) for each in (victim, asked(asks["text"]), asked(asks["image"]))]
    finish(engine)
    given = [reply.result(0) for reply in replies]
    failed = [answer for answer in given if answer.finish == "error"]
    assert given[0] in failed
    assert len(failed) == hit[0]
    assert {answer.detail for answer in failed} == {f"{stage} failed: no memory"}
    for answer, name in zip(given, ("images", "text", "image"), strict=True):
        assert answer.ids == wanted[name][: len(answer.ids)]
        assert answer.finish == "error" or answer.ids == wanted[name]
    ended(engine)
    for name, prompt in asks.items():
        assert answers(engine, [asked(prompt)])[0].ids == wanted[name]
    engine.close()


@pytest.mark.parametrize("place", ["prompt", "answer"])
@pytest.mark.parametrize("chunked", [False, True])
def test_scores_that_are_not_finite_end_their_own_request(
    folder: Written, wanted: dict[str, list[int]], place: str, chunked: bool
) -> None:
    """A word whose embedding is not a number, in the prompt or in the answer. What it left in its blocks is cleared:
    there are so few that the next requests get them."""
    engine = engine_of(folder.path, 24, block=4, chunked=chunked, prefill_tokens=8 if chunked else 512)
    asks = prompts(engine)
    bad = chat(engine.checkpoint, "Q? the block must turn left")
    own = answers(engine_of(folder.path), [asked(bad)])[0].ids
    known = {token for name, prompt in asks.items() for token in [*prompt.ids.tolist(), *wanted[name], 0]}
    fresh = own if place == "answer" else bad.ids.tolist()
    token = next(each for each in fresh if each not in known and (place == "prompt" or each not in bad.ids.tolist()))
    engine.checkpoint.model.language.embed_tokens.weight[token] = torch.nan
    for _ in range(2):
        replies = [engine.submit(asked(prompt)) for prompt in (bad, asks["text"], asks["image"], bad)]
        finish(engine)
        given = [reply.result(0) for reply in replies]
        for answer in (given[0], given[3]):
            assert (answer.finish, answer.detail) == ("error", "the model's scores are not finite")
            assert answer.ids == (own[: own.index(token) + 1] if place == "answer" else [])
        assert [given[1].ids, given[2].ids] == [wanted["text"], wanted["image"]]
        ended(engine)


def test_an_image_whose_embeddings_are_not_finite_is_not_kept(
    folder: Written, wanted: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(folder.path)
    model, asks = engine.checkpoint.model, prompts(engine)
    see = type(model).see

    def broken(self: Any, pixels: Any, grids: Any) -> Any:
        made = see(self, pixels, grids)
        made[0].tokens[3] = torch.nan
        return made

    monkeypatch.setattr(type(model), "see", broken)
    (answer,) = answers(engine, [asked(asks["image"])])
    assert answer.finish == "error"
    monkeypatch.undo()
    assert answers(engine, [asked(asks["image"])])[0].ids == wanted["image"]
    ended(engine)


def test_an_engine_that_fails_ends_everything_and_says_why(folder: Written) -> None:
    class Broken(InterleavedScheduler):
        def next(self, state: EngineState) -> Dispatch | None:
            if any(len(each.ids) > each.prompt_length + 3 for each in state.queues["decode"]):
                raise KeyError("lost")
            return super().next(state)

    engine = engine_of(folder.path, running=1, scheduler=Broken(64, False))
    replies = [engine.submit(asked(prompt)) for prompt in prompts(engine).values()]
    engine.start()
    for reply in replies:
        answer = reply.result(PATIENCE_S)
        assert (answer.finish, answer.detail) == ("error", "the engine failed: KeyError: 'lost'")
    with pytest.raises(EngineClosedError, match="the engine failed: KeyError: 'lost'"):
        engine.submit(asked(prompts(engine)["text"]))
    assert engine.failure == "KeyError: 'lost'"
    engine.close()
    ended(engine)


def test_a_token_that_there_is_none_of_ends_only_its_row(folder: Written, wanted: dict[str, list[int]]) -> None:
    engine = engine_of(folder.path)
    worker = engine._forwards.workers["decode"]

    def none(dispatch: Dispatch) -> Any:
        made: Any = worker(dispatch)
        assert all(isinstance(each, AnswerToken) for each in made)
        pairs = zip(dispatch.requests, made, strict=True)
        return [NoTokenError("no token") if each.number == 1 else token for each, token in pairs]

    engine._forwards.workers["decode"] = none  # type: ignore[index]
    given = answers(engine, [asked(prompt) for prompt in prompts(engine).values()])
    assert [answer.finish for answer in given] == ["error", "length", "length"]
    assert given[1].ids == wanted["images"]
    ended(engine)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_token_is_made_between_any_two_other_forwards_or_within_a_chunk(folder: Written, chunked: bool) -> None:
    """Where stages take turns, so that no answer waits for a prefill and an image."""
    engine = engine_of(folder.path, block=4, chunked=chunked, prefill_tokens=6)
    asks, ran = prompts(engine), list[tuple[str, bool]]()  # stage; whether all that decode get a token
    for stage, worker in list(engine._forwards.workers.items()):

        def noted(dispatch: Dispatch, stage: str = stage, worker: Any = worker) -> Any:
            ran.append((stage, set(engine._state.queues["decode"]) <= set(dispatch.requests)))
            return worker(dispatch)

        engine._forwards.workers[stage] = noted  # type: ignore[index]
    engine.submit(asked(asks["text"], max_tokens=60))
    while not engine._state.queues["decode"]:
        engine.step()
    ran.clear()
    for prompt in (asks["image"], asks["images"], asks["text"]):
        engine.submit(asked(prompt))
    finish(engine)
    assert {"vision", "prefill", "decode"} == {stage for stage, _ in ran}
    for (one, made), (other, made_then) in pairwise(ran):
        assert made or made_then, (one, other)
    assert any(made for stage, made in ran if stage == "prefill") == chunked


def test_an_engine_starts_once(folder: Written) -> None:
    engine = engine_of(folder.path)
    engine.start()
    with pytest.raises(RuntimeError, match="started"):
        engine.start()
    engine.close()


def test_partitions_end_with_the_engine_and_threads_elsewhere_keep_their_number(folder: Written) -> None:
    before, numbers = torch.get_num_threads(), list[int]()
    torch.set_num_threads(2)
    running = set(threading.enumerate())
    try:
        engine_of(folder.path, own_threads=True).close()
        thread = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        with pytest.raises(ValueError, match="kv_mib"):
            engine_of(folder.path, kv_mib=1, block=4096, own_threads=True)
    finally:
        torch.set_num_threads(before)
    assert numbers == [2]
    assert set(threading.enumerate()) <= running


def test_sizes_that_do_not_fit_are_refused(folder: Written) -> None:
    with pytest.raises(ValueError, match="kv_mib: 1 MiB do not hold a block of"):
        engine_of(folder.path, kv_mib=1, block=4096)
    tiny = engine_of(folder.path, 2, block=4)
    with pytest.raises(InvalidRequestError, match=r"prompt: .* leave no room for an answer: .* is 8 tokens"):
        tiny.submit(asked(chat(tiny.checkpoint, "how many red things?")))
