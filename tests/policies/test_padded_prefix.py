"""A prompt of any length in room for the longest: what follows it is what follows the prompt alone.

Guards: a query that sees the gap; a position that counts it; an address that moves with the prompt; a merged request
that differs from plain decoding behind a gap.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from auras_ros.clock import VirtualClock
from auras_ros.models.action_tokens import Rt2Tokens
from auras_ros.models.presets import RT2S
from auras_ros.models.rt2 import build_rt2
from auras_ros.models.vision_language import VisionLanguage
from auras_ros.pipeline.modes import make_executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Latched, ObservationOrigin
from auras_ros.pipeline.run_context import RunContext
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.vision_language import PaddedPrefix, VisionLanguagePrefix, random_ids
from tests.policies.test_capturable import OneDevice

CONFIG = RT2S["rt2-tiny"]
ROOM, BEFORE, HORIZON, CHANNELS = 9, 2, 2, 2
STEPS, PATCHES = HORIZON * CHANNELS, 4
LENGTHS = (1, 2, 5, 8, 9)
CLOSE = {"rtol": 0.0, "atol": 1e-10}


@pytest.fixture(scope="module")
def model() -> VisionLanguage:
    """float64, with weights large enough for tokens to depend on all that is before them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = build_rt2(CONFIG).double().eval().requires_grad_(False)
        for weight in made.language.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.3)
    return made


def ids(length: int, seed: int = 5) -> Tensor:
    return random_ids(length, CONFIG.language.vocabulary, seed + length)


FIRST = ids(BEFORE, 90)


def policy_of(prefix: VisionLanguagePrefix) -> AutoregressivePolicy:
    codec = Rt2Tokens([0.0] * CHANNELS, [1.0] * CHANNELS, first=200)
    language = prefix.model.language
    return AutoregressivePolicy(prefix, language, codec, HORIZON, CHANNELS)  # type: ignore[arg-type]


def padded(model: VisionLanguage, length: int) -> AutoregressivePolicy:
    return policy_of(PaddedPrefix(model, FIRST, ids(length), 1, ROOM))


def alone(model: VisionLanguage, length: int) -> AutoregressivePolicy:
    return policy_of(VisionLanguagePrefix(model, FIRST, ids(length), 1))


def seen(seed: int = 0) -> tuple[Tensor, Tensor]:
    px = CONFIG.vision.image_px
    images = torch.randn(2, 1, 1, 3, px, px, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return images, torch.zeros(2, 1, 0)


@pytest.mark.parametrize("length", LENGTHS)
def test_it_decodes_what_the_prompt_alone_decodes(model: VisionLanguage, length: int) -> None:
    room, bare = padded(model, length), alone(model, length)
    contexts = room.perceive(*seen()), bare.perceive(*seen())
    assert contexts[0].shape[1] == BEFORE + PATCHES + ROOM
    assert contexts[1].shape[1] == BEFORE + PATCHES + length
    expected = bare.complete(contexts[1], bare.workspace(2, contexts[1].shape[1])).tokens
    assert len({tuple(row) for row in expected.tolist()}) == 2  # the picture decides
    workspace = room.workspace(2, contexts[0].shape[1])
    assert torch.equal(room.complete(contexts[0], workspace).tokens, expected)
    assert torch.equal(room.refresh(expected, contexts[0], STEPS), expected)
    assert torch.equal(room.refresh(expected, contexts[0], STEPS, workspace), expected)
    hidden = [each._follow(expected, context, STEPS) for each, context in zip((room, bare), contexts, strict=True)]
    torch.testing.assert_close(*hidden, **CLOSE)


@pytest.mark.parametrize("length", LENGTHS)
def test_hidden_states_of_a_shorter_sequence_are_those_inside_the_longer_one(
    model: VisionLanguage, length: int
) -> None:
    """Auras 4.2.3, in every layer, behind a gap."""
    room, language = padded(model, length), model.language
    prefix = room.prefix
    assert isinstance(prefix, PaddedPrefix)
    context = room.perceive(*seen())
    whole = torch.cat([context, language.embed(ids(2 * STEPS)[None].expand(2, -1))], 1)
    layers = range(CONFIG.language.layers + 1)

    def states(count: int) -> list[Tensor]:
        slots = torch.arange(count)
        places, mask = prefix.layout(slots, count)
        return language.hidden_states(whole[:, :count], layers, slots, None, mask, places)

    longest = states(whole.shape[1])
    for count in (context.shape[1], context.shape[1] + 3):
        for short, long in zip(states(count), longest, strict=True):
            torch.testing.assert_close(short, long[:, :count], **CLOSE)


@pytest.mark.parametrize("length", LENGTHS)
def test_nobody_sees_the_gap_and_no_position_counts_it(model: VisionLanguage, length: int) -> None:
    prefix, start = PaddedPrefix(model, FIRST, ids(length), 1, ROOM), BEFORE + PATCHES
    total = start + ROOM + STEPS - 1
    places, mask = prefix.layout(torch.arange(total), total)
    gap = list(range(start, start + ROOM - length))
    others = [slot for slot in range(total) if slot not in gap]
    assert places[others].tolist() == list(range(len(others)))
    assert mask.shape == (1, total, total)
    assert mask[0][others][:, others].all()
    assert not mask[0][others][:, gap].any()
    assert (mask[0][gap][:, gap] == torch.eye(len(gap), dtype=torch.bool)).all()  # never nothing at all: no NaN
    some, part = prefix.layout(torch.tensor([start - 1, total - 1]), total)
    assert some.tolist() == [places[start - 1], places[total - 1]]
    assert torch.equal(part[0], mask[0][[start - 1, total - 1]])


def test_another_prompt_is_a_copy_to_the_same_addresses(model: VisionLanguage) -> None:
    room, contexts = padded(model, 3), []
    prefix = room.prefix
    assert isinstance(prefix, PaddedPrefix)
    addresses = prefix.after.data_ptr(), prefix.gap.data_ptr()
    for length in LENGTHS:
        room.set_prompt(torch.cat([FIRST, ids(length)]))
        assert (prefix.after.data_ptr(), prefix.gap.data_ptr()) == addresses
        contexts.append(room.perceive(*seen()))
        assert torch.equal(contexts[-1], padded(model, length).perceive(*seen()))
        assert int(prefix.gap) == ROOM - length
    assert len({context.shape for context in contexts}) == 1


def test_a_prompt_that_does_not_fit_is_refused_and_the_old_one_stays(model: VisionLanguage) -> None:
    room, bare = padded(model, 3), alone(model, 3)
    before = room.perceive(*seen())
    for policy, count, said in (
        (room, 10, "prompt: 10 tokens, but this policy has room for 9"),
        (room, 0, "prompt: 0 tokens, but this policy has room for 9"),
        (bare, 4, "prompt: 4 tokens, but this policy was made for 3"),
    ):
        with pytest.raises(ValueError, match=said):
            policy.set_prompt(torch.cat([FIRST, ids(count)]))
    with pytest.raises(ValueError, match=r"prompt: begins with \[1, 2\], expected \["):
        room.set_prompt(torch.tensor([1, 2, 3, 4]))
    assert torch.equal(room.perceive(*seen()), before)


@pytest.mark.parametrize("plan", ["a,mode=auras,pp_generation=1", "a,mode=auras,pp_generation=2,reuse=exact", "a"])
def test_executors_take_another_prompt_between_frames(model: VisionLanguage, plan: str) -> None:
    """In a still world every mode gives what the prompt alone decodes, before and after; keys of the old one are gone
    with the epoch."""
    room = padded(model, 3)
    like = Latched(*[part[:1] for part in seen()], ObservationOrigin(0, 0))
    run = make_executor(RunContext(room, Plan.parse(plan), lambda request: torch.zeros(1, 0), like, VirtualClock()))
    (worker,), stamp = run.workers, 0
    for length in (3, 8, 1):
        room.set_prompt(torch.cat([FIRST, ids(length)]))
        run.reset()
        left = []
        for _ in range(4):
            stamp += 1
            worker.begin(Latched(*[part[:1] for part in seen()], ObservationOrigin(stamp, stamp)), stamp)
            worker.run()
            left.append(worker.end(stamp))
        bare = alone(model, length)
        context = bare.perceive(*[part[:1] for part in seen()])
        expected = bare.finish(bare.complete(context, bare.workspace(1, context.shape[1])))
        actions = [emission.actions for emission in left if emission is not None]
        assert len(actions) >= 3
        for each in actions:
            torch.testing.assert_close(each, expected, rtol=0, atol=1e-12)
    run.close()


@torch.no_grad()
def test_nothing_leaves_the_device_and_nothing_is_read_back() -> None:
    """What a CUDA graph would refuse, or freeze, fails on meta; the gap is read where it lies."""
    with torch.device("meta"):
        made = build_rt2(CONFIG)
        prefix = PaddedPrefix(made, ids(BEFORE), ids(3), 1, ROOM)
        policy = policy_of(prefix).eval().to("meta")
        images, state = torch.empty(2, 1, 1, 3, 28, 28), torch.empty(2, 1, 0)
        workspace = policy.workspace(2, sum(prefix.segments))
    with OneDevice("meta") as watch:
        context = policy.perceive(images, state)
        tokens = policy.complete(context, workspace).tokens
        assert policy.refresh(tokens, context, STEPS).shape == (2, STEPS)
        assert policy.refresh(tokens, context, STEPS, workspace).shape == (2, STEPS)
    assert watch.calls > 100
