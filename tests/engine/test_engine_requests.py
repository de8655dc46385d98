"""What a request asks for is what it gets: where the answer ends, by which scores, as which text.

Guards: a stop text that is shown, or cut wrongly where tokens and characters divide it; a stop id that is written; a
seed whose answer depends on the batch; log probabilities after the settings instead of before; a grammar that a token
breaks, or that is lost by a preemption; pieces that are not the whole; what was asked wrongly and is not named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.engine import Engine
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import Grammar, InvalidRequestError, VlmRequest
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.decoding import greedy_logits
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import answers, chat, ended, engine_of, finish

pytest.importorskip("transformers")
pytest.importorskip("PIL")

TOKENS = 40
WARM = Sampling(temperature=1.5)


@pytest.fixture(scope="module")
def folder(written: Callable[[str], Written]) -> Written:
    return written("llava")


@pytest.fixture(scope="module")
def engine(folder: Written) -> Engine:
    return engine_of(folder.path, block=4, waiting=64)


@pytest.fixture(scope="module")
def prompt(engine: Engine) -> VlmPrompt:
    return chat(engine.checkpoint, "is the tee left?", [(40, 60)])


@pytest.fixture(autouse=True)
def nothing_left(engine: Engine) -> Any:
    yield
    ended(engine)


def asked(prompt: VlmPrompt, **others: Any) -> VlmRequest:
    return VlmRequest(prompt, **{"max_tokens": TOKENS, "ignore_eos": True} | others)


def decode(engine: Engine, ids: list[int]) -> str:
    text: str = engine.checkpoint.prompts.tokenizer.decode(ids, skip_special_tokens=True)
    return text


def test_an_answer_ends_before_its_stop_text(engine: Engine, prompt: VlmPrompt) -> None:
    """Wherever it begins, within a token or across several; the tokens end with the one that completed it."""
    (whole,) = answers(engine, [asked(prompt)])
    assert whole.text == decode(engine, whole.ids)
    stops = [whole.text[at : at + 4] for at in range(0, len(whole.text) - 4, 2)]
    stops = [each for each in stops if "\ufffd" not in each]
    assert len(stops) > 5
    for stop, answer in zip(stops, answers(engine, [asked(prompt, stop=(stop,)) for stop in stops]), strict=True):
        assert answer.text == whole.text[: whole.text.index(stop)]
        assert answer.finish == "stop"
        count = next(count for count in range(1, TOKENS + 1) if stop in decode(engine, whole.ids[:count]))
        assert answer.ids == whole.ids[:count]


def test_the_first_of_several_stop_texts_ends_the_answer(engine: Engine, prompt: VlmPrompt) -> None:
    (whole,) = answers(engine, [asked(prompt)])
    clean = re.search("[^\ufffd]{6}", whole.text)
    assert clean is not None
    later, sooner = clean.group()[2:5], clean.group()[1:4]  # they overlap
    (answer,) = answers(engine, [asked(prompt, stop=(later, "never said", sooner))])
    assert answer.text == whole.text[: min(whole.text.index(later), whole.text.index(sooner))]


def test_what_only_began_like_a_stop_text_is_said_at_the_end(engine: Engine, prompt: VlmPrompt) -> None:
    (whole,) = answers(engine, [asked(prompt)])
    for count in range(5, 12):
        text = decode(engine, whole.ids[:count])
        (answer,) = answers(engine, [asked(prompt, max_tokens=count, stop=(text[-2:] + "\x00never",))])
        assert (answer.text, answer.finish) == (text, "length")


def test_a_stop_text_that_comes_with_the_last_token_is_found(engine: Engine, prompt: VlmPrompt) -> None:
    (whole,) = answers(engine, [asked(prompt)])
    for count in range(4, 20):
        text = decode(engine, whole.ids[:count])
        stop = text[-2:]
        if "\ufffd" not in stop and stop not in decode(engine, whole.ids[: count - 1]):
            (answer,) = answers(engine, [asked(prompt, max_tokens=count, stop=(stop,))])
            assert (answer.text, answer.finish, len(answer.ids)) == (text[: text.index(stop)], "stop", count)
            return
    pytest.fail("no such text")


def test_stop_texts_of_several_bytes(engine: Engine, prompt: VlmPrompt) -> None:
    """A regular expression makes the model say them, byte by byte."""
    pytest.importorskip("llguidance")
    grammar = Grammar("regex", "(é|€|😀|ü){12}")
    requests = [asked(prompt, grammar=grammar, sampling=WARM, seed=seed, max_tokens=None) for seed in range(8)]
    wholes = answers(engine, requests)
    for whole in wholes:
        assert re.fullmatch("(é|€|😀|ü){12}", whole.text)
        assert whole.finish == "stop"
    cut = [
        replace(request, stop=(whole.text[7:9], whole.text[9])) for request, whole in zip(requests, wholes, strict=True)
    ]
    for whole, answer, request in zip(wholes, answers(engine, cut), cut, strict=True):
        assert answer.text == whole.text[: min(whole.text.index(stop) for stop in request.stop)]


def test_stop_ids_end_the_answer_and_are_not_written(engine: Engine, prompt: VlmPrompt) -> None:
    (whole,) = answers(engine, [asked(prompt)])
    token = next(each for each in whole.ids[3:] if each not in whole.ids[:3])
    at = whole.ids.index(token)
    (answer,) = answers(engine, [asked(prompt, stop_ids=frozenset({token}))])
    assert (answer.ids, answer.text, answer.finish) == (whole.ids[: at + 1], decode(engine, whole.ids[:at]), "stop")


def test_the_models_own_stop_ids_end_it_unless_they_are_ignored(folder: Written, prompt: VlmPrompt) -> None:
    free = engine_of(folder.path)
    (whole,) = answers(free, [asked(prompt)])
    token = next(each for each in whole.ids[3:] if each not in whole.ids[:3])
    object.__setattr__(free.checkpoint, "stop_ids", frozenset({token}))
    first, second = answers(free, [asked(prompt, ignore_eos=False), asked(prompt)])
    assert (first.ids, first.finish) == (whole.ids[: whole.ids.index(token) + 1], "stop")
    assert second.ids == whole.ids


def test_max_tokens_and_length_are_kept(engine: Engine, folder: Written, prompt: VlmPrompt) -> None:
    for count in (1, 2, 7):
        (answer,) = answers(engine, [asked(prompt, max_tokens=count)])
        assert (len(answer.ids), answer.finish) == (count, "length")
    length = len(prompt.ids) + 9
    small = engine_of(folder.path, length=length, block=4)
    (answer,) = answers(small, [asked(prompt, max_tokens=None)])
    assert (len(answer.ids), answer.finish) == (9, "length")
    with pytest.raises(InvalidRequestError, match=rf"max_tokens: 10 and the prompt's .* context length is {length}"):
        small.submit(asked(prompt, max_tokens=10))
    shorter = engine_of(folder.path, length=len(prompt.ids))
    with pytest.raises(InvalidRequestError, match=r"prompt: .* tokens leave no room for an answer"):
        shorter.submit(asked(prompt))


def test_a_seed_gives_its_answer_alone_and_in_a_batch(engine: Engine, prompt: VlmPrompt) -> None:
    requests = [asked(prompt, sampling=WARM, seed=seed) for seed in (0, 1, 2, -1, 2**70, -5)]
    together = [answer.ids for answer in answers(engine, requests)]
    assert [answers(engine, [request])[0].ids for request in requests] == together
    assert len({tuple(ids) for ids in together}) == len(requests)
    without = answers(engine, [asked(prompt, sampling=WARM) for _ in range(2)])
    assert without[0].ids != without[1].ids


def test_log_probabilities_are_the_references(engine: Engine, folder: Written, prompt: VlmPrompt) -> None:
    """Of the scores before temperature and grammar."""
    tokens, scores = greedy_logits(open_vlm(folder.path).model, prompt, 10)
    wanted = scores.log_softmax(-1)
    (answer,) = answers(engine, [asked(prompt, max_tokens=10, logprobs=3)])
    assert answer.ids == tokens
    for row, token in zip(wanted, answer.tokens, strict=True):
        largest, names = row.topk(3)
        assert token.logprob == pytest.approx(float(row[token.id]), abs=1e-4)
        assert [name for name, _ in token.top] == names.tolist()
        assert [value for _, value in token.top] == pytest.approx(largest.tolist(), abs=1e-4)
    warm, none = answers(
        engine, [asked(prompt, max_tokens=1, logprobs=20, sampling=WARM, seed=1), asked(prompt, logprobs=0)]
    )
    assert warm.tokens[0].logprob == pytest.approx(float(wanted[0, warm.ids[0]]), abs=1e-4)
    assert len(warm.tokens[0].top) == 20
    assert none.tokens[0].logprob is not None
    assert none.tokens[0].top == ()


def test_the_repetition_penalty_is_transformers(engine: Engine, folder: Written) -> None:
    prompt = chat(engine.checkpoint, "how many red things are in the way?")
    wanted = folder.model.generate(
        input_ids=prompt.ids[None], attention_mask=torch.ones(1, len(prompt.ids)), max_new_tokens=16, do_sample=False,
        repetition_penalty=1.5, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    settings = Sampling(temperature=0, repetition_penalty=1.5)
    given, plain = answers(engine, [asked(prompt, max_tokens=16, sampling=settings), asked(prompt, max_tokens=16)])
    assert given.ids == wanted[0, len(prompt.ids) :].tolist()
    assert given.ids != plain.ids


SCHEMA = {
    "type": "object",
    "properties": {"move": {"enum": ["left", "right"]}, "steps": {"type": "integer", "minimum": 0, "maximum": 20}},
    "required": ["move", "steps"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


def test_answers_are_what_the_grammar_describes_also_when_preempted(folder: Written, prompt: VlmPrompt) -> None:
    pytest.importorskip("llguidance")
    schema, regex = (
        Grammar("json_schema", json.dumps(SCHEMA)),
        Grammar("regex", "(left|right|up){4,6}( [0-9]{1,2}){2}!"),
    )
    requests = [
        asked(prompt, grammar=grammar, sampling=WARM, seed=seed, max_tokens=50, ignore_eos=False)
        for seed in range(5)
        for grammar in (schema, regex)
    ]
    plenty = engine_of(folder.path, block=4, waiting=32)
    wanted = answers(plenty, requests)
    for request, answer in zip(requests, wanted, strict=True):
        assert answer.finish == "stop"
        if request.grammar is schema:
            value = json.loads(answer.text)
            assert set(value) == {"move", "steps"}
            assert value["move"] in ("left", "right")
            assert 0 <= value["steps"] <= 20
        else:
            assert re.fullmatch(regex.text, answer.text)
    scarce = engine_of(folder.path, 30, block=4, waiting=32)
    assert [answer.ids for answer in answers(scarce, requests)] == [answer.ids for answer in wanted]
    assert scarce.stats.preemptions
    ended(scarce)
    ended(plenty)


def test_a_greedy_answer_follows_its_grammar_too(engine: Engine, prompt: VlmPrompt) -> None:
    pytest.importorskip("llguidance")
    requests = [asked(prompt, grammar=Grammar("regex", text)) for text in ("yes|no", "a{5}", "[0-9]{3}-[a-f]{2}")]
    for request, answer in zip(requests, answers(engine, requests), strict=True):
        assert request.grammar is not None
        assert re.fullmatch(request.grammar.text, answer.text)
        assert answer.finish == "stop"


BROKEN: dict[str, tuple[str, str]] = {
    "regex": ("regex", "(unfinished"),
    "deep": ("regex", "(" * 20000),
    "schema": ("json_schema", '{"type": 7}'),
    "no-json": ("json_schema", "{"),
    "deep-json": ("json_schema", "[" * 30000),
    "surrogate": ("regex", "\ud800"),
    "long": ("regex", "a" * 70000),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_grammar_that_is_none_is_refused_by_name(engine: Engine, prompt: VlmPrompt, name: str) -> None:
    pytest.importorskip("llguidance")
    kind, text = BROKEN[name]
    with pytest.raises(InvalidRequestError, match=f"^{kind}: "):
        engine.submit(asked(prompt, grammar=Grammar(kind, text)))  # type: ignore[arg-type]


def test_a_costly_grammar_is_refused_and_others_are_answered(engine: Engine, prompt: VlmPrompt) -> None:
    """Within llguidance's own limits it took hundreds of megabytes."""
    pytest.importorskip("llguidance")
    (wanted,) = answers(engine, [asked(prompt)])
    reply = engine.submit(asked(prompt))
    with pytest.raises(InvalidRequestError, match=r"^regex: it is too complex"):
        engine.submit(asked(prompt, grammar=Grammar("regex", "((a{1000}){1000}){1000}")))
    finish(engine)
    assert reply.result(0).ids == wanted.ids


def test_pieces_are_the_whole(engine: Engine, prompt: VlmPrompt) -> None:
    heard: list[Any] = []
    requests = [asked(prompt, stop=("never said",), sampling=WARM, seed=3), asked(prompt, sampling=WARM, seed=4)]
    first = engine.submit(requests[0])
    second = engine.submit(requests[1], heard.append)
    finish(engine)
    for reply, pieces in ((first, list(first)), (second, heard)):
        answer = reply.result(0)
        assert "".join(piece.text for piece in pieces) == answer.text == decode(engine, answer.ids)
        assert [token for piece in pieces for token in piece.tokens] == list(answer.tokens)
        assert [piece.finish for piece in pieces[:-1]] == [None] * TOKENS
        assert pieces[-1].finish == answer.finish == "length"


def test_answers_come_in_the_order_of_priority_then_arrival(folder: Written, prompt: VlmPrompt) -> None:
    one, order = engine_of(folder.path, running=1), list[tuple[int, int]]()
    priorities = [3, 1, 2, 1, -7, 3]
    for place, priority in enumerate(priorities):

        def ends(piece: Any, key: tuple[int, int] = (priority, place)) -> None:
            if piece.finish is not None:
                order.append(key)

        one.submit(asked(prompt, max_tokens=2, priority=priority), ends)
    finish(one)
    assert order == sorted(order)
    assert len(order) == len(priorities)


WRONG: dict[str, dict[str, Any]] = {
    "max_tokens": {"max_tokens": 0},
    "max_tokens-huge": {"max_tokens": 2**40},
    "max_tokens-true": {"max_tokens": True},
    "stop": {"stop": ("",)},
    "stop-long": {"stop": ("x" * 257,)},
    "stop-many": {"stop": ("x",) * 17},
    "stop-bytes": {"stop": (b"x",)},
    "stop-one-text": {"stop": "abc"},
    "stop_ids": {"stop_ids": ["x"]},
    "stop_ids-list": {"stop_ids": [1]},
    "stop_ids-text": {"stop_ids": frozenset({"1"})},
    "seed": {"seed": 0.5},
    "logprobs": {"logprobs": 21},
    "logprobs-less": {"logprobs": -1},
    "deadline_ms": {"deadline_ms": float("nan")},
    "deadline_ms-past": {"deadline_ms": 0},
    "deadline_ms-text": {"deadline_ms": "5"},
    "deadline_ms-far": {"deadline_ms": 1e300},  # longer than a thread can wait: the engine's would end
    "deadline_ms-huge": {"deadline_ms": 10**400},
    "deadline_ms-true": {"deadline_ms": True},
    "priority": {"priority": 1.0},
    "sampling": {"sampling": {"temperature": 1}},
    "grammar": {"grammar": "yes|no"},
    "grammar-text": {"grammar": Grammar("regex", 7)},  # type: ignore[arg-type]
    "grammar-kind": {"grammar": Grammar("lark", "x")},  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_asked_wrongly_is_refused_by_name(prompt: VlmPrompt, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"^{name.partition('-')[0]}: "):
        asked(prompt, **WRONG[name])


def test_a_prompt_that_the_model_cannot_read_is_refused(engine: Engine, prompt: VlmPrompt) -> None:
    """Also one whose images and places do not belong together: it would fail within a batch of others."""
    none = torch.empty(0, dtype=torch.int64)
    for wrong in (
        VlmPrompt(none, (), none),
        VlmPrompt(torch.tensor([5, 320]), (), none),
        VlmPrompt(torch.tensor([-1]), (), none),
        VlmPrompt(torch.tensor([[1, 2]]), (), none),
        VlmPrompt(torch.tensor([1.5, 2.0]), (), none),
        replace(prompt, images=()),
        replace(prompt, at=prompt.at[1:]),
        replace(prompt, at=prompt.at + len(prompt.ids)),
        replace(prompt, images=prompt.images * 2),
    ):
        with pytest.raises(InvalidRequestError, match=r"^prompt: "):
            engine.submit(asked(wrong))


def test_a_reply_that_has_not_ended_says_so(engine: Engine, prompt: VlmPrompt) -> None:
    reply: Reply = engine.submit(asked(prompt))
    with pytest.raises(TimeoutError):
        reply.result(0)
    finish(engine)
    assert len(reply.result(0).ids) == TOKENS
