"""The engine's greedy tokens against transformers' `generate` with the model that wrote the folder (cogagent: against
the tests' own decoding, which is compared with a naive reference elsewhere). float32: the tokens are equal.

Guards: a token of one sequence that sees another's block; positions, image rows or rotary places that are off by a
chunk, after a preemption, or when a prefix came from the cache; an image's embeddings given to another; a block that is
shared while it is written; a sampled answer that takes another number after a preemption.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import pytest

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.engine.baselines import StaticUnits
from auras_ros.engine.build import make_engine
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.planner import SplitPlan
from auras_ros.engine.request import Answer, VlmRequest
from auras_ros.engine.scheduler import Dispatch, EngineState
from auras_ros.models.sampler import Sampling
from tests.checkpoints.vlm.decoding import greedy, greedy_logits
from tests.checkpoints.vlm.folders import Written, image
from tests.checkpoints.vlm.test_vlm_parity import TOKENS, reference
from tests.engine.making import answers, chat, ended, engine_of, finish

pytest.importorskip("transformers")
pytest.importorskip("PIL")

KINDS = ("smolvlm", "llava", "qwen2_5_vl", "cogagent")
LONG = "the block must turn left: how many red things are in the way? " * 2
ASKED: list[tuple[str, list[tuple[int, int]], int]] = [
    ("tee", [], 0),
    (LONG, [], 0),
    ("is the tee left?", [(40, 60)], 0),
    ("how many", [(25, 70), (90, 31)], 3),
    ("is the tee left?", [(40, 60)], 5),  # the same words, another picture
    ("the goal", [(64, 64), (25, 70), (40, 60)], 7),
    ("is the tee on its goal", [(40, 60)], 0),  # the same picture, other words
]
BLOCK = 4
LONGER = 24
NO_CACHES = {"prefix_cache": False, "image_cache_mib": 0}
NOVA = NovaScheduler(SplitPlan(by_vision=6, by_prefill=4, beta_vision=1, beta_prefill=1, least=2, sizes=(2, 4, 6)))
SETUPS: dict[str, dict[str, Any]] = {
    "alone": {"running": 1},
    "batch": {"running": 8},
    "no-caches": NO_CACHES,
    "chunks": {"chunked": True, "prefill_tokens": 23, "block": 3},
    "chunks-on-threads": {"chunked": True, "prefill_tokens": 11, "own_threads": True},
    "hybrid": {"scheduler": "chunk:23"},  # what decodes is in the forwards of prefills
    "limit": {"scheduler": "pf-limit:2"},
    "nova": {"scheduler": NovaScheduler(StaticUnits()), "own_threads": True},  # all side by side
}
SCARCE: dict[str, dict[str, Any]] = {
    "plain": NO_CACHES,
    "chunked": {"chunked": True, "prefill_tokens": 29},
    "threads": {"chunked": True, "prefill_tokens": 29, "own_threads": True},
    "hybrid": {"scheduler": "chunk:29"},
    "nova": {"scheduler": NovaScheduler(StaticUnits()), "own_threads": True},
}
CLOSE = 0.1  # of log probabilities in bfloat16
PAIR = (2, 4)  # each with an image: their prompts fit together, their answers do not


class Case:
    """A folder, its prompts, and the tokens that the reference answers with."""

    def __init__(self, written: Written, kind: str) -> None:
        self.path, checkpoint = written.path, open_vlm(written.path)
        self.prompts = [chat(checkpoint, text, sizes, seed) for text, sizes, seed in ASKED]
        self.wanted = [
            greedy(checkpoint.model, prompt, TOKENS) if kind == "cogagent" else reference(written, prompt, kind)[0]
            for prompt in self.prompts
        ]
        self.pair = sum(-(-len(self.prompts[place].ids) // BLOCK) for place in PAIR)

    def order(self, blocks: int) -> list[int]:
        """The pair first, then all others that fit in so many blocks."""
        fit = [place for place, prompt in enumerate(self.prompts) if len(prompt.ids) + LONGER <= blocks * BLOCK]
        return [*PAIR, *(place for place in fit if place not in PAIR)]

    @cached_property
    def longer(self) -> list[list[int]]:
        """Answers of LONGER tokens; the first ones are the reference's."""
        engine = engine_of(self.path, running=1, **NO_CACHES)
        made = tokens(answers(engine, [asked(prompt, max_tokens=LONGER) for prompt in self.prompts]))
        assert [each[:TOKENS] for each in made] == self.wanted
        return made

    def requests(self, **others: Any) -> list[VlmRequest]:
        return [asked(prompt, **others) for prompt in self.prompts]


def asked(prompt: VlmPrompt, **others: Any) -> VlmRequest:
    return VlmRequest(prompt, ignore_eos=True, **{"max_tokens": TOKENS} | others)


@pytest.fixture(scope="module", params=KINDS)
def case(request: pytest.FixtureRequest, written: Callable[[str], Written]) -> Case:
    return Case(written(request.param), request.param)


def tokens(given: list[Answer]) -> list[list[int]]:
    return [answer.ids for answer in given]


@pytest.mark.parametrize("name", SETUPS)
def test_tokens_are_the_references(case: Case, name: str) -> None:
    """Also the second time, when every prefix and image is known."""
    options = {"block": BLOCK} | SETUPS[name]
    engine = engine_of(case.path, **options)
    for again in (False, True):
        given = answers(engine, case.requests())
        assert tokens(given) == case.wanted
        assert {answer.finish for answer in given} == {"length"}
        ended(engine)
        cached = [answer.usage.cached_tokens for answer in given]
        if options.get("prefix_cache", True):
            block = options["block"]
            full = [(len(prompt.ids) - 1) // block * block for prompt in case.prompts]
            assert not again or cached == full
        else:
            assert not any(cached)
    images = sum(len(prompt.images) for prompt in case.prompts)
    different = {image.digest for prompt in case.prompts for image in prompt.images}
    if options.get("image_cache_mib", 64):
        assert engine.stats.images == len(different)
    else:
        assert len(different) <= engine.stats.images <= 2 * images
    assert not engine.stats.preemptions
    engine.close()


def test_tokens_are_the_references_while_the_split_changes(case: Case) -> None:
    """Decode is captured for each part, and moves to a smaller one while more requests wait."""
    used = set[int | None]()

    class Watched:
        def next(self, state: EngineState) -> Dispatch | None:
            dispatch = NOVA.next(state)
            used.update({dispatch.split} if dispatch and dispatch.stage == "decode" else ())
            return dispatch

    engine = engine_of(case.path, block=BLOCK, scheduler=Watched(), splits=(2, 4, 6))
    assert tokens(answers(engine, case.requests())) == case.wanted
    assert used == {None, 2, 4, 6}
    ended(engine)
    engine.close()


@pytest.mark.parametrize("name", SCARCE)
def test_tokens_are_the_references_when_blocks_run_out(case: Case, name: str) -> None:
    """Requests with images, too, give their blocks back and are computed again."""
    blocks = case.pair + 2
    engine, order = engine_of(case.path, blocks, block=BLOCK, **SCARCE[name]), case.order(blocks)
    requests = [asked(case.prompts[place], max_tokens=LONGER) for place in order]
    for _ in range(50):  # both prompts fit; what they answer does not
        before, pair = engine.stats.preemptions, [engine.submit(request) for request in requests[:2]]
        while engine.open and len(engine._state.queues["decode"]) < 2:
            engine.step()
        if engine.open:  # else one had ended before the other one's image was seen, in a thread of its own
            break
    given = answers(engine, requests[2:])
    given = [reply.result(0) for reply in pair] + given
    assert tokens(given) == [case.longer[place] for place in order]
    ended(engine)
    engine.close()
    preempted = [answer.usage.preempted for answer in given]
    assert sum(preempted) == engine.stats.preemptions - before
    assert sum(preempted[:2]) > 0


def test_a_sampled_answer_is_the_same_alone_in_a_batch_and_when_preempted(case: Case) -> None:
    blocks = case.pair + 2
    order = case.order(blocks)

    def requests() -> list[VlmRequest]:
        settings = Sampling(temperature=1.3, top_k=50, repetition_penalty=1.2)
        return [asked(case.prompts[place], sampling=settings, seed=place, max_tokens=LONGER) for place in order]

    alone = engine_of(case.path, running=1, block=BLOCK, **NO_CACHES)
    wanted = tokens(answers(alone, requests()))
    assert wanted != [case.longer[place] for place in order]
    scarce = engine_of(case.path, blocks, block=BLOCK, chunked=True, prefill_tokens=30)
    assert tokens(answers(scarce, requests())) == wanted
    assert scarce.stats.preemptions
    batch = engine_of(case.path, block=BLOCK)
    assert tokens(answers(batch, requests())) == wanted
    for engine in (alone, scarce, batch):
        ended(engine)
        engine.close()


def test_requests_that_come_while_others_decode_change_nothing(case: Case) -> None:
    """One more at each step: batches of every size, and prefixes shared with those still running."""
    engine = engine_of(case.path, block=BLOCK)
    replies = []
    for request in case.requests():
        replies.append(engine.submit(request))
        engine.step()
    while engine.step():
        pass
    assert [reply.result(0).ids for reply in replies] == case.wanted
    ended(engine)


def test_idefics3_is_served_as_transformers_does(written: Callable[[str], Written]) -> None:
    case = Case(written("idefics3"), "idefics3")
    engine = engine_of(case.path, block=BLOCK)
    assert tokens(answers(engine, case.requests())) == case.wanted


def test_int8_is_near_float32_and_the_same_in_a_batch(written: Callable[[str], Written]) -> None:
    """Stated: its tokens are its own, but no neighbour's and no preemption's: each token is rounded by itself."""
    case = Case(written("llava"), "llava")
    alone = engine_of(case.path, block=BLOCK, int8=True, running=1)
    given = answers(alone, case.requests(logprobs=1))
    first = [abs((answer.tokens[0].logprob or 0.0) - known) for answer, known in zip(given, firsts(case), strict=True)]
    assert max(first) < 0.2
    blocks = case.pair + 2
    scarce, order = engine_of(case.path, blocks, block=BLOCK, int8=True), case.order(blocks)
    made = answers(scarce, [case.requests()[place] for place in order])
    assert tokens(made) == [given[place].ids for place in order]
    ended(scarce)


def firsts(case: Case) -> list[float]:
    """In float32, the log probability of the first token of each answer."""
    engine = engine_of(case.path, block=BLOCK)
    return [answer.tokens[0].logprob or 0.0 for answer in answers(engine, case.requests(logprobs=1))]


def test_a_picture_that_is_there_twice_is_encoded_once(case: Case) -> None:
    engine = engine_of(case.path, block=BLOCK)
    parts = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    picture = image(40, 60)
    prompt = engine.checkpoint.prompts.chat([{"role": "user", "content": parts}], [picture, picture])
    wanted = greedy(open_vlm(case.path).model, prompt, TOKENS)
    assert tokens(answers(engine, [asked(prompt)] * 2)) == [wanted] * 2
    assert engine.stats.images == 1


def test_questions_on_the_frames_of_a_video_share_what_is_before_them(case: Case) -> None:
    """Several frames are one prompt. A chunk that begins a frame later shares its frames' vision, and no more: what a
    token is depends on all before it."""
    engine = engine_of(case.path, block=BLOCK)
    frames = [(40, 60)] * 3
    first = chat(engine.checkpoint, "which action is it?", frames)
    second, later = (chat(engine.checkpoint, "how many red things?", frames, seed) for seed in (0, 1))
    length = min(len(first.ids), len(second.ids))
    both = int((first.ids[:length] == second.ids[:length]).int().cumprod(0).sum())
    assert both > max(first.at.tolist())  # the question comes after all frames
    for prompt, shared, seen in ((first, 0, 3), (second, both, 3), (later, int(later.at[0]), 4)):
        wanted = greedy(open_vlm(case.path).model, prompt, TOKENS)
        answer = answers(engine, [asked(prompt)])[0]
        assert answer.ids == wanted
        assert answer.usage.cached_tokens == shared // BLOCK * BLOCK
        assert engine.stats.images == seen
    ended(engine)


def test_a_prefix_that_another_owns_needs_no_room(case: Case) -> None:
    """Blocks for one prompt and two answers: the second request decodes beside the first."""
    prompt = case.prompts[3]
    length = len(prompt.ids)
    blocks = -(-length // BLOCK) + 2 * -(-TOKENS // BLOCK) + 2
    engine = engine_of(case.path, blocks, block=BLOCK)
    first = engine.submit(asked(prompt))
    while not engine._state.queues["decode"]:
        engine.step()
    second = engine.submit(asked(prompt))
    while not second.ended:
        engine.step()
        if len(engine._state.queues["decode"]) == 2:
            break
    assert not first.ended
    finish(engine)
    assert first.result(0).ids == second.result(0).ids == case.wanted[3]
    assert second.result(0).usage.cached_tokens == (length - 1) // BLOCK * BLOCK
    assert not engine.stats.preemptions
    ended(engine)


@pytest.mark.parametrize("kind", KINDS)
def test_in_bfloat16_the_answers_are_the_model_s_own_but_for_its_rounding(
    kind: str, written: Callable[[str], Written]
) -> None:
    """Against one sequence at a time, in the same type: a token differs only where two scores are as close as that."""
    checkpoint = open_vlm(written(kind).path, "bfloat16")
    prompts = [chat(checkpoint, text, sizes, seed) for text, sizes, seed in ASKED]
    wanted = [greedy_logits(checkpoint.model, prompt, TOKENS) for prompt in prompts]  # the engine repacks the weights
    engine = make_engine(checkpoint, EngineOptions(block=BLOCK, length=512))
    found = answers(engine, [VlmRequest(prompt, max_tokens=TOKENS, logprobs=0) for prompt in prompts])
    ended(engine)
    for (tokens, scores), answer in zip(wanted, found, strict=True):
        logprobs = scores.float().log_softmax(-1)
        for got, own, each in zip(answer.tokens, tokens, logprobs, strict=False):
            assert each[got.id] >= each[own] - CLOSE
            assert got.logprob == pytest.approx(float(each[got.id]), abs=CLOSE)
            if got.id != own:
                break
