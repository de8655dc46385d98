"""OpenVLA and RT-2 whole: same weights, same logits as the published parts put together by hand.

Guards: an encoder given the other's pixels; channels joined in the other order; the picture at another place of the
prompt; an activation too many in the projector.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from auras_ros.checkpoints.hf_names import openvla_rule
from auras_ros.models.openvla import FusedVision, build_openvla
from auras_ros.models.presets import LLAMAS, OPENVLAS, RT2S
from auras_ros.models.rt2 import build_rt2
from auras_ros.models.vision_language import VisionLanguage
from auras_ros.models.vit import Vit
from auras_ros.policies.perception import cut
from auras_ros.policies.precision import mark
from tests.models import published
from tests.models.decoding import greedy, scores
from tests.models.hf_names import llava_rule, rename
from tests.models.published_openvla import PublishedOpenVla

TINY, RT2 = OPENVLAS["openvla-tiny"], RT2S["rt2-tiny"]


def prompt(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, LLAMAS["llama-tiny"].vocabulary, (2, count), generator=torch.Generator().manual_seed(seed))


def pictures(channels: int, side: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, channels, side, side, generator=torch.Generator().manual_seed(side)).to(dtype)


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-4), (torch.float64, "sdpa", 1e-11)]
)
def test_openvla_is_the_published_parts_put_together(dtype: torch.dtype, attention: str, tolerance: float) -> None:
    pytest.importorskip("transformers")
    theirs = PublishedOpenVla(TINY, attention).to(dtype)
    model = build_openvla(TINY).to(dtype).eval()
    model.load_state_dict(rename(theirs.folder(), openvla_rule(TINY), model.state_dict()))
    images, ids = pictures(6, 28, dtype), prompt(7)
    got = scores(model, images, ids[:, :1], ids[:, 1:])
    assert got.shape == (2, 4 + 7, TINY.language.vocabulary)
    torch.testing.assert_close(got, theirs(images, ids), rtol=tolerance, atol=tolerance)


def published_llava(attention: str = "eager") -> Any:
    import transformers

    vision, text = published.vit_values(RT2.vision), published.llama_values(RT2.language)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**vision),
        text_config=transformers.LlamaConfig(**text),
        image_token_index=RT2.language.vocabulary - 1,
        image_seq_length=RT2.vision.patches,
        attn_implementation=attention,
    )
    return published.randomise(transformers.LlavaForConditionalGeneration(config))


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-4), (torch.float64, "sdpa", 1e-11)]
)
def test_rt2_is_the_published_llava(dtype: torch.dtype, attention: str, tolerance: float) -> None:
    pytest.importorskip("transformers")
    theirs = published.exact_norms(published_llava(attention)).to(dtype)
    model = build_rt2(RT2).to(dtype).eval()
    model.load_state_dict(rename(theirs.state_dict(), llava_rule(RT2), model.state_dict()))
    images, before, after = pictures(3, 28, dtype), prompt(3), prompt(5, seed=1)
    picture = torch.full((2, RT2.vision.patches), RT2.language.vocabulary - 1)
    expected = theirs(input_ids=torch.cat([before, picture, after], 1), pixel_values=images).logits
    torch.testing.assert_close(scores(model, images, before, after), expected, rtol=tolerance, atol=tolerance)


def built() -> dict[str, tuple[VisionLanguage, Tensor]]:
    torch.manual_seed(0)
    return {"openvla": (build_openvla(TINY), pictures(6, 28)), "rt2": (build_rt2(RT2), pictures(3, 28))}


@torch.no_grad()
@pytest.mark.parametrize("name", ["openvla", "rt2"])
def test_blocks_one_after_another_are_perception_bit_for_bit(name: str) -> None:
    model, images = built()[name]
    carried: tuple[Tensor, ...] = (images,)
    for _, block in model.blocks():
        carried = block(*carried)
    assert torch.equal(carried[0], model.see(images))
    names = [each for each, _ in model.blocks()]
    assert names[-1] == "projector"
    layers = {"openvla": TINY.dinov2.built + TINY.siglip.built + 2, "rt2": RT2.vision.built + 1}
    assert len(names) == len(set(names)) == layers[name] + 1


@torch.no_grad()
@pytest.mark.parametrize("name", ["openvla", "rt2"])
def test_perception_is_cut_as_the_executor_cuts_it(name: str) -> None:
    """An encoder of a policy: its blocks carry the state along and end in one context."""
    model, images = built()[name]
    carried: tuple[Tensor, ...] = (images[:, None, None], torch.ones(2, 1, 3))
    encoder = Seeing(model)
    mark(encoder, model)
    for block in cut(encoder, encoder):
        carried = block(*carried)
    assert torch.equal(carried[0][:, :-3], model.see(images).flatten(1))


class Seeing(nn.Module):
    """The model as a policy's encoder."""

    def __init__(self, model: VisionLanguage) -> None:
        super().__init__()
        self.blocks = model.blocks


@torch.no_grad()
def test_a_prompt_for_all_rows_is_the_same_for_each() -> None:
    model, images = built()["openvla"]
    ids = prompt(6)[:1]
    whole = model.prefix(model.see(images), ids[:, :1], ids[:, 1:])
    assert whole.shape == (2, 4 + 6, TINY.language.width)
    assert torch.equal(whole[0, 5:], whole[1, 5:])
    assert not torch.equal(whole[0, 1:5], whole[1, 1:5])
    first = model.prefix(model.see(images), ids, ids[:, :0])[:, :6]
    assert torch.equal(first, model.language.embed(ids).expand(2, -1, -1))


@torch.no_grad()
def test_actions_are_generated_from_the_joined_prefix() -> None:
    model, images = built()["openvla"]
    ids = prompt(6)
    prefix = model.prefix(model.see(images), ids[:, :1], ids[:, 1:])
    got = greedy(model.language, prefix, 7, model.language.make_cache(2, prefix.shape[1] + 6))
    for i in range(7):  # each token is the likeliest after all before it, with nothing kept
        likeliest = scores(model, images, ids[:, :1], torch.cat([ids[:, 1:], got[:, :i]], 1))[:, -1]
        assert torch.equal(likeliest.argmax(-1), got[:, i])


def test_encoders_whose_patches_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="fused vision: image_px: 28 and 56, but patches are joined one by one"):
        FusedVision(Vit(TINY.dinov2), Vit(replace(TINY.siglip, image_px=56)))


def test_one_picture_of_three_channels_is_refused_for_two_encoders() -> None:
    model, _ = built()["openvla"]
    said = r"fused vision: images: \[2, 3, 28, 28\], expected \[N, 6, px, px\]"
    with pytest.raises(ValueError, match=said):
        model.see(pictures(3, 28))
    with pytest.raises(ValueError, match=said):
        model.blocks()[0][1](pictures(3, 28))
