"""Penalties, biases, least lengths, and the prompt's log probabilities, against a loop over the model's own scores.

Guards: a repetition penalty that forgets the prompt; a frequency or presence penalty that counts the prompt; a setting
that is lost by a preemption; scores of the prompt that come from another request's blocks, or twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.engine.engine import Engine
from auras_ros.engine.request import Grammar, InvalidRequestError, VlmRequest
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.decoding import greedy_logits
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import answers, chat, ended, engine_of

pytest.importorskip("transformers")
pytest.importorskip("PIL")

TOKENS = 16
GREEDY = {"temperature": 0.0}


@pytest.fixture(scope="module")
def folder(written: Callable[[str], Written]) -> Written:
    return written("llava")


@pytest.fixture(scope="module")
def reference(folder: Written) -> VlmCheckpoint:
    """The same weights once more, as an engine packs its own."""
    return open_vlm(folder.path)


@pytest.fixture(scope="module")
def engine(folder: Written) -> Engine:
    return engine_of(folder.path, block=4, waiting=64)


@pytest.fixture(autouse=True)
def nothing_left(engine: Engine) -> Any:
    yield
    ended(engine)


def asked(prompt: VlmPrompt, **others: Any) -> VlmRequest:
    return VlmRequest(prompt, **{"max_tokens": TOKENS, "ignore_eos": True} | others)


def next_scores(reference: VlmCheckpoint, ids: list[int]) -> Tensor:
    """[vocabulary], after these tokens."""
    _, scores = greedy_logits(reference.model, reference.prompts.tokens(ids), 1)
    return scores[0]


def loop(reference: VlmCheckpoint, prompt: VlmPrompt, adjust: Callable[[Tensor, list[int]], Tensor]) -> list[int]:
    """Greedy tokens where `adjust` changes the scores, by what it is told of the answer so far."""
    ids, answer = prompt.ids.tolist(), list[int]()
    for _ in range(TOKENS):
        answer.append(int(adjust(next_scores(reference, ids + answer), answer).argmax()))
    return answer


def competing_prompt(reference: VlmCheckpoint, penalty: float) -> tuple[VlmPrompt, int, int]:
    """A prompt that has the token that would be next, and the tokens without and with its penalty."""
    for seed in range(400):
        ids = torch.randint(10, 320, (24,), generator=torch.Generator().manual_seed(seed)).tolist()
        ids = [token for token in ids if token not in reference.prompts.special_tokens.values()]
        scores = next_scores(reference, ids)
        plain = int(scores.argmax())
        ids = [*ids[:4], plain, *ids[4:]]  # the prompt has it, and says the same otherwise
        scores = next_scores(reference, ids)
        plain = int(scores.argmax())
        seen = torch.zeros(len(scores), dtype=torch.bool)
        seen[ids] = True
        penalised = torch.where(seen, torch.where(scores > 0, scores / penalty, scores * penalty), scores)
        if plain in ids and int(penalised.argmax()) != plain:
            return reference.prompts.tokens(ids), plain, int(penalised.argmax())
    raise AssertionError("no such prompt")


@pytest.mark.parametrize("penalty", [1.3, 3.0])
def test_the_repetition_penalty_knows_the_prompt(engine: Engine, reference: VlmCheckpoint, penalty: float) -> None:
    """The first token shows it: of the answer there is nothing yet. transformers chooses the same one."""
    transformers = pytest.importorskip("transformers")
    prompt, plain, wanted = competing_prompt(reference, penalty)
    scores = next_scores(reference, prompt.ids.tolist())[None]
    theirs = transformers.RepetitionPenaltyLogitsProcessor(penalty)(prompt.ids[None], scores.clone())
    assert int(theirs.argmax()) == wanted != plain
    given, without = answers(
        engine,
        [
            asked(prompt, max_tokens=1, sampling=Sampling(**GREEDY, repetition_penalty=penalty)),
            asked(prompt, max_tokens=1),
        ],
    )
    assert (given.ids, without.ids) == ([wanted], [plain])


def test_the_other_penalties_know_the_answer_alone(engine: Engine, reference: VlmCheckpoint) -> None:
    prompt = chat(engine.checkpoint, "how many red things are in the way?")

    def adjust(frequency: float, presence: float) -> Callable[[Tensor, list[int]], Tensor]:
        def adjusted(scores: Tensor, answer: list[int]) -> Tensor:
            counts = torch.bincount(torch.tensor(answer, dtype=torch.int64), minlength=len(scores))
            return scores - frequency * counts - presence * (counts > 0)

        return adjusted

    pairs = [(0.0, 0.0), (1.5, 0.0), (0.0, 1.5), (2.0, 2.0), (-1.0, 0.5)]
    requests = [
        asked(prompt, sampling=Sampling(**GREEDY, frequency_penalty=frequency, presence_penalty=presence))
        for frequency, presence in pairs
    ]
    made = [answer.ids for answer in answers(engine, requests)]
    assert made == [loop(reference, prompt, adjust(*pair)) for pair in pairs]
    assert len({tuple(ids) for ids in made}) > 1


def test_a_bias_is_added_to_the_scores(engine: Engine, reference: VlmCheckpoint) -> None:
    prompt = chat(engine.checkpoint, "is the tee left?")
    (plain,) = answers(engine, [asked(prompt)])
    first = plain.ids[0]
    biases = {first: -100.0, 17: 2.5}

    def adjusted(scores: Tensor, _: list[int]) -> Tensor:
        changed = scores.clone()
        for token, bias in biases.items():
            changed[token] += bias
        return changed

    banned, forced = answers(engine, [asked(prompt, logit_bias=biases), asked(prompt, logit_bias={17: 100.0})])
    assert first not in banned.ids
    assert banned.ids == loop(reference, prompt, adjusted)
    assert forced.ids == [17] * TOKENS
    with pytest.raises(InvalidRequestError, match="logit_bias: token 5000 is not one of"):
        engine.submit(asked(prompt, logit_bias={5000: 1.0}))


def test_settings_outlive_a_preemption(folder: Written, engine: Engine) -> None:
    prompts = [chat(engine.checkpoint, text) for text in ("is the tee left?", "the block", "how many red things")]
    settings = Sampling(temperature=1.3, frequency_penalty=1.0, presence_penalty=0.5, repetition_penalty=1.2)
    requests = [
        asked(prompt, max_tokens=40, sampling=settings, seed=seed, logit_bias={20: 1.0}, prompt_logprobs=1)
        for seed in range(4)
        for prompt in prompts
    ]
    wanted = answers(engine, requests)
    scarce = engine_of(folder.path, 40, block=4, waiting=64)
    made = answers(scarce, requests)
    assert scarce.stats.preemptions
    assert [answer.ids for answer in made] == [answer.ids for answer in wanted]
    for one, other in zip(made, wanted, strict=True):
        assert [token.id for token in one.prompt_tokens] == [token.id for token in other.prompt_tokens]
    ended(scarce)


def test_an_answer_is_not_shorter_than_its_least_length(engine: Engine) -> None:
    prompt = chat(engine.checkpoint, "is the tee left?")
    (plain,) = answers(engine, [asked(prompt)])
    stop_text = next(letter for letter in plain.text if letter != "\ufffd")
    by_token, by_text, both = answers(
        engine,
        [
            asked(prompt, stop_ids=frozenset({plain.ids[1]})),
            asked(prompt, stop=(stop_text,)),
            asked(prompt, stop=(stop_text,), stop_ids=frozenset({plain.ids[1]}), min_tokens=8),
        ],
    )
    assert (len(by_token.ids), by_token.stop_reason) == (2, plain.ids[1])
    assert by_text.stop_reason == stop_text
    assert by_text.text == plain.text[: plain.text.index(stop_text)]
    assert len(by_text.ids) < 8 <= len(both.ids)
    assert plain.ids[1] not in both.ids[:8]
    (held,) = answers(engine, [asked(prompt, ignore_eos=False, min_tokens=TOKENS)])
    assert (len(held.ids), held.finish, held.stop_reason) == (TOKENS, "length", None)


def test_a_grammars_end_counts_more_than_the_least_length(engine: Engine) -> None:
    pytest.importorskip("llguidance")
    prompt = chat(engine.checkpoint, "is the tee left?")
    (answer,) = answers(engine, [asked(prompt, grammar=Grammar("regex", "yes|no"), ignore_eos=False, min_tokens=10)])
    assert (answer.text in ("yes", "no"), answer.finish) == (True, "stop")


def test_what_stopped_an_answer_can_be_part_of_it(engine: Engine) -> None:
    prompt = chat(engine.checkpoint, "is the tee left?")
    (whole,) = answers(engine, [asked(prompt)])
    clean = next(at for at in range(2, len(whole.text) - 2) if "\ufffd" not in whole.text[at : at + 2])
    stop = whole.text[clean : clean + 2]
    left_out, contained, token = answers(
        engine,
        [
            asked(prompt, stop=(stop,)),
            asked(prompt, stop=(stop,), include_stop=True),
            asked(prompt, stop_ids=frozenset({whole.ids[5]}), include_stop=True),
        ],
    )
    assert contained.text == left_out.text + stop
    assert contained.stop_reason == left_out.stop_reason == stop
    at = whole.ids.index(whole.ids[5])
    assert token.text == engine.checkpoint.prompts.tokenizer.decode(whole.ids[: at + 1])


def test_special_tokens_are_written_where_that_is_asked_for(engine: Engine) -> None:
    prompts = engine.checkpoint.prompts
    prompt, special = chat(engine.checkpoint, "is the tee left?"), prompts.tokenizer.token_to_id("</s>")
    requests = [asked(prompt, logit_bias={special: 100.0}, max_tokens=2, skip_special=skip) for skip in (True, False)]
    skipped, written = answers(engine, requests)
    assert (skipped.text, written.text) == ("", "</s></s>")


@pytest.mark.parametrize("options", [{}, {"chunked": True, "prefill_tokens": 16}], ids=["whole", "chunked"])
def test_the_prompts_log_probabilities_are_the_models(
    folder: Written, reference: VlmCheckpoint, options: dict[str, Any]
) -> None:
    """Also for a prompt whose blocks are there already: keys and values do not give scores."""
    engine = engine_of(folder.path, block=4, waiting=64, **options)
    text = chat(engine.checkpoint, "how many red things are in the way, and is the tee on its goal?")
    seen = chat(engine.checkpoint, "where is it?", [(40, 60)])
    for prompt in (text, seen):
        answers(engine, [asked(prompt)])
        first, again = answers(engine, [asked(prompt, prompt_logprobs=3), asked(prompt, prompt_logprobs=0)])
        assert first.usage.cached_tokens == again.usage.cached_tokens == 0
        ids = prompt.ids.tolist()
        assert [token.id for token in first.prompt_tokens] == ids
        assert first.prompt_tokens[0].logprob is None
        for one, other in zip(first.prompt_tokens[1:], again.prompt_tokens[1:], strict=True):
            assert other.logprob == pytest.approx(one.logprob, abs=1e-4)
            assert (len(one.top), len(other.top)) == (3, 0)
            assert one.logprob is not None
            assert one.logprob <= one.top[0][1] + 1e-6
    scores = answers(engine, [asked(text, prompt_logprobs=1)])[0].prompt_tokens
    ids = text.ids.tolist()
    for place in (1, 7, len(ids) - 1):
        wanted = next_scores(reference, ids[:place]).log_softmax(0)
        assert scores[place].logprob == pytest.approx(float(wanted[ids[place]]), abs=1e-4)
        assert scores[place].top[0][0] == int(wanted.argmax())
    (plain,) = answers(engine, [asked(text)])
    assert plain.prompt_tokens == ()
    assert plain.usage.cached_tokens > 0
    ended(engine)
    engine.close()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"min_tokens": -1}, "min_tokens: -1"),
    ({"min_tokens": TOKENS + 1}, "min_tokens: 17 is not a whole number from 0 to max_tokens"),
    ({"logit_bias": {3: 101.0}}, "logit_bias: 3: 101.0"),
    ({"logit_bias": {"3": 1.0}}, "logit_bias: '3'"),
    ({"logit_bias": {3: float("nan")}}, "logit_bias: 3: nan"),
    ({"logit_bias": dict.fromkeys(range(1025), 1.0)}, "logit_bias: not a mapping of 1024 tokens at most"),
    ({"prompt_logprobs": 21}, "prompt_logprobs: 21 is not a whole number from 0 to 20"),
]


@pytest.mark.parametrize(("fields", "text"), REFUSED, ids=lambda each: str(each)[:30])
def test_what_is_asked_wrongly_is_named(engine: Engine, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        asked(chat(engine.checkpoint, "left"), **fields)
    assert text in str(refused.value)
