"""pi0.5's state in its prompt: bins and token ids against numpy's and against the sentence as it is spelt out.

Guards: an edge that belongs to the other bin; numbers that the robot does not have and that are not 0; a short number
whose room is seen; a table that is moved by one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.models.pi0 import Pi0
from auras_ros.models.presets import PI0S, SMOLVLAS
from auras_ros.models.smolvla import SmolVla
from auras_ros.policies.family import unit
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.flow_prefix import NOTHING, FlowPrefix, Pi05Prefix
from auras_ros.policies.policy import generate
from tests.models import published
from tests.policies import tiny_flow
from tests.policies.flow_checkpoints import IDS, LIMIT, NUMBERS
from tests.policies.test_capturable import OneDevice

CONFIG = replace(PI0S["pi0-tiny"], adaptive=True)
AFTER = [330, 331]
VALUES = [-3.0, -1.0, -0.9999, 127 / 128, 0.0, -1e-7, 1.0, 2.5, -127 / 128, 0.5]


def pi05() -> Pi05Prefix:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = published.randomise(Pi0(CONFIG))
    assert isinstance(model, Pi0)
    return Pi05Prefix(model, torch.tensor(IDS), NUMBERS, AFTER, LIMIT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_numbers_are_put_into_the_bins_of_the_published_code(dtype: torch.dtype) -> None:
    """Left edges of 256 bins from -1 to 1, which a cast of the network leaves where they are; below them is -1."""
    prefix = pi05().to(dtype)
    for i in range(0, len(VALUES), 5):
        state = np.array([VALUES[i : i + 5]], dtype=np.float32)
        bins = np.digitize(state, np.linspace(-1, 1, 257)[:-1]) - 1
        expected = [id_ for bin_ in bins[0] for id_ in (NUMBERS[bin_ + 1] + [NOTHING] * 4)[:4]]
        assert prefix.spell(torch.from_numpy(state)).tolist() == [expected]


def test_numbers_that_the_robot_has_not_are_zero() -> None:
    prefix = pi05()
    assert (
        prefix.spell(torch.tensor([[0.25, -0.5]])).tolist()
        == prefix.spell(torch.tensor([[0.25, -0.5, 0.0, 0.0, 0.0]])).tolist()
    )
    with pytest.raises(ValueError, match="state: 6 numbers, but the network takes 5"):
        prefix.spell(torch.zeros(1, 6))


def test_the_sentence_is_as_if_it_were_one_prompt() -> None:
    """A network whose prompt is the whole sentence, for each row its own, with nothing masked."""
    prefix, random = pi05().double(), torch.Generator().manual_seed(4)
    side = CONFIG.vision.image_px
    images = torch.randn(2, 1, 2, 3, side, side, generator=random, dtype=torch.float64)
    state = torch.tensor([[[-2.0, 0.99, -0.4]], [[0.1, -0.95, 1.0]]], dtype=torch.float64)
    noise = torch.randn(2, CONFIG.horizon, CONFIG.actions, generator=random, dtype=torch.float64)
    policy = FlowMatchingPolicy(prefix, unit(tiny_flow.SHAPE), 3)
    made = generate(policy, noise, policy.perceive(images, state))
    for row in range(2):
        spelt = [id_ for id_ in prefix.spell(state[row]).flatten().tolist() if id_ != NOTHING]
        ids = torch.tensor([[*IDS, *spelt, *AFTER]])
        joined = prefix.model.join(prefix.model.see(images[row, -1]), ids, ids >= 0, torch.zeros(1, 0))
        carried: Any = (*joined, state[row])
        for _, block in prefix.model.prefix_blocks():
            carried = block(*carried)
        alone = generate(policy, noise[row : row + 1], carried[0])
        torch.testing.assert_close(made[row : row + 1], alone, rtol=1e-11, atol=1e-11)
    assert len(spelt) < 20  # some room was empty


def test_the_state_counts_in_the_prompt_and_nowhere_else() -> None:
    prefix = pi05()
    side = CONFIG.vision.image_px
    images = torch.zeros(1, 1, 1, 3, side, side)
    near, same, far = (torch.tensor([[[value, 0.0, 0.0]]]) for value in (0.1, 0.1001, 0.2))
    assert torch.equal(prefix(images, near), prefix(images, same))  # of one bin
    assert not torch.equal(prefix(images, near), prefix(images, far))


@pytest.mark.parametrize("kind", ["pi05", "smolvla"])
def test_they_stay_on_their_device_and_read_nothing_back(kind: str) -> None:
    """Of the published size, on a device without values: what a CUDA graph would refuse fails here."""
    with torch.device("meta"):
        ids = torch.zeros(5, dtype=torch.int64)
        prefix: FlowPrefix
        if kind == "pi05":
            prefix, px, tokens = Pi05Prefix(Pi0(replace(PI0S["pi0"], adaptive=True)), ids, NUMBERS, AFTER, 60), 224, 256
            size = 18 * 2 * 256 * (2 * tokens + 60 + 32 * 4 + 2) + (2 * tokens + 60 + 32 * 4 + 2)
        else:
            prefix, px, tokens = FlowPrefix(SmolVla(SMOLVLAS["smolvla"]), ids, 48), 512, 64
            size = 16 * 2 * 5 * 64 * (2 * tokens + 48 + 1) + (2 * tokens + 48 + 1)
    policy = FlowMatchingPolicy(prefix, unit(replace(tiny_flow.SHAPE, actions=6))).to("meta").bfloat16()
    given = [(1, 1, 2, 3, px, px), (1, 1, 6), (1, *policy.noise_shape)]
    images, state, noise = (torch.empty(shape, device="meta") for shape in given)
    with OneDevice("meta") as watch:
        context = policy.perceive(images, state)
        moved = policy.step(policy.begin(noise), context, torch.zeros(1, dtype=torch.int64, device="meta"))
        assert policy.finish(moved).dtype == torch.float64
    assert context.shape == (1, size)
    assert moved.sample.dtype == torch.float32
    assert watch.calls > 1000
