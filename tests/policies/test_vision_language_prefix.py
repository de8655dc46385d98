"""The prefix of a vision-language-action policy: order of its parts, blocks, and the prompt at its fixed address."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from auras_ros.models.presets import RT2S
from auras_ros.models.rt2 import build_rt2
from auras_ros.policies.vision_language import VisionLanguagePrefix, random_ids

CONFIG = RT2S["rt2-tiny"]
PATCHES = (CONFIG.vision.image_px // CONFIG.vision.patch_px) ** 2


@pytest.fixture
def prefix() -> VisionLanguagePrefix:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_rt2(replace(CONFIG)).eval().requires_grad_(False)
    return VisionLanguagePrefix(model, random_ids(1, 512, 1), random_ids(3, 512, 2))


def pictures(batch: int, cameras: int) -> torch.Tensor:
    size = CONFIG.vision.image_px
    return torch.randn(batch, 2, cameras, 3, size, size, generator=torch.Generator().manual_seed(4))


def test_the_parts_follow_one_another(prefix: VisionLanguagePrefix) -> None:
    images = pictures(2, 2)
    out = prefix(images, torch.zeros(2, 2, 0))
    assert out.shape == (2, 1 + 2 * PATCHES + 3, CONFIG.language.width)
    embed = prefix.model.language.embed
    for row in range(2):
        assert torch.equal(out[row, :1], embed(prefix.before)[0])
        for camera in range(2):
            start = 1 + camera * PATCHES
            alone = prefix.model.see(images[row : row + 1, -1, camera])[0]  # the newest instant
            assert torch.allclose(out[row, start : start + PATCHES], alone, atol=1e-6)
        assert torch.equal(out[row, -3:], embed(prefix.after)[0])


def test_in_blocks_it_is_the_same(prefix: VisionLanguagePrefix) -> None:
    images, state = pictures(2, 2), torch.zeros(2, 2, 0)
    value = (images, state)
    for _, block in prefix.blocks():
        value = block(*value)
    assert len(prefix.blocks()) > 4
    assert torch.equal(value[0], prefix(images, state))


def test_another_prompt_is_a_copy_to_the_same_address(prefix: VisionLanguagePrefix) -> None:
    images, state, address = pictures(1, 1), torch.zeros(1, 2, 0), prefix.after.data_ptr()
    before, ids = prefix(images, state), random_ids(3, 512, 9)
    prefix.set_prompt(ids)
    assert prefix.after.data_ptr() == address
    after = prefix(images, state)
    assert torch.equal(after[:, :-3], before[:, :-3])
    assert torch.equal(after[0, -3:], prefix.model.language.embed(ids))
    with pytest.raises(ValueError, match="prompt: 4 tokens, but this policy was made for 3"):
        prefix.set_prompt(random_ids(4, 512, 9))
