"""TinyVLA as a policy: the whole vision-language model is perception, denoising is generation (Auras 6.6).

Steps, sampler and noise are `DiffusionPolicy`'s; the encoder differs: one for all cameras, the prompt and the state,
instead of one for each image. Nothing here reads a file or knows a tokenizer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Blocks, carrying
from auras_ros.models.presets import TINYVLAS
from auras_ros.models.tinyvla import LlavaPythia, PooledCondition, build_head, build_llava_pythia
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.denoising import SamplerName, make_sampler
from auras_ros.policies.diffusion import DiffusionPolicy
from auras_ros.policies.family import unit
from auras_ros.policies.perception import PerceptionBlock, without_grad
from auras_ros.policies.precision import like_weights, mark
from auras_ros.policies.vision_language import VisionLanguagePrefix, random_ids

INFERENCE_STEPS = 10  # of 100, DDIM, as published


class TinyVlaEncoder(nn.Module):
    """Images [B, history, cameras, 3, px, px] and state [B, history, D] -> the head's condition [B, width].

    Only the newest instant of both is used. Cameras are joined by token: all patches of one camera, then all of the
    next, between the two parts of the prompt. before, after: their token ids, int64 [P].
    """

    def __init__(
        self, model: LlavaPythia, condition: PooledCondition, before: Tensor, after: Tensor, cameras: int
    ) -> None:
        super().__init__()
        self.prefix = VisionLanguagePrefix(model, before, after, cameras)
        self.condition = condition
        mark(self, condition)

    @property
    def model(self) -> LlavaPythia:
        assert isinstance(self.prefix.model, LlavaPythia)
        return self.prefix.model

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return self._condition(self.model(self.prefix(images, state)), state)[0]

    def blocks(self) -> Blocks:
        """`forward` in consecutive parts, by name; the state is passed on last."""
        *seeing, (name, join) = self.prefix.blocks()  # its last part reads the state and does not return it
        encoding = [(f"language.{layer}", carrying(block)) for layer, block in self.model.language.blocks()]
        seeing.append((name, lambda seen, state: (*join(seen, state), state)))
        return [*seeing, *encoding, ("condition", self._condition)]

    def _condition(self, hidden: Tensor, state: Tensor) -> tuple[Tensor]:
        return (self.condition(hidden, like_weights(self, state[:, -1])),)


class TinyVlaPolicy(DiffusionPolicy):
    """A diffusion policy whose encoder takes the whole observation. encoder: a `TinyVlaEncoder`."""

    encoder: TinyVlaEncoder

    def set_prompt(self, ids: Tensor) -> None:
        """Set another prompt, int64 [P], as its tokenizer gives it. Raises ValueError if its beginning or its length
        differs."""
        self.encoder.prefix.set_ids(ids)

    @torch.no_grad()
    def perceive(self, images: Tensor, state: Tensor) -> Tensor:
        context: Tensor = self.encoder(images, state)
        return context

    def perception_blocks(self) -> list[PerceptionBlock]:
        """`perceive` in parts: chained on (images, state) they give its context, bit for bit."""
        return without_grad(self.encoder.blocks())


def make_tinyvla(
    name: str,
    *,
    seed: int,
    cameras: int = 2,
    prompt: tuple[Tensor, Tensor] | None = None,
    sampler: SamplerName = "ddim",
    steps: int = INFERENCE_STEPS,
) -> TinyVlaPolicy:
    """A TinyVLA of `models.presets` with random weights from `seed`, in evaluation mode; actions lie in [-1, 1].

    prompt: token ids before and after the images; 1 and 31 random ones unless given. The noise network predicts the
    noise and counts as trained with 100 steps, of which DDIM takes every `100 // steps`th. The caller's random state
    does not change. Raises ValueError, naming what is wrong.
    """
    if name not in TINYVLAS:
        raise ValueError(f"policy '{name}' is not known; known: {', '.join(TINYVLAS)}")
    if cameras < 1:
        raise ValueError(f"policy '{name}': cameras: {cameras} is less than 1")
    config = TINYVLAS[name]
    vocabulary = config.language.vocabulary
    before, after = prompt or (random_ids(1, vocabulary, 1), random_ids(31, vocabulary, 2))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model, (condition, network) = build_llava_pythia(config), build_head(config)
    encoder = TinyVlaEncoder(model, condition, before, after, cameras)
    table = make_sampler(sampler, steps, "epsilon", spacing="leading")
    px = (config.vision.image_px, config.vision.image_px)
    shape = Architecture(name, cameras, px, 1, config.state, config.horizon, config.actions)
    return TinyVlaPolicy(encoder, network, table, unit(shape)).eval().requires_grad_(False)
