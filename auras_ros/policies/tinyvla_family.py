"""The checkpoint family `tinyvla`: a vision-language model that encodes, and Diffusion Policy's head (Auras 6.6).

A plan is a sampler, as in the family `diffusion`. The prompt has a fixed length: the head is conditioned on the mean
over all tokens, which a padded prompt would change. Nothing here reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from auras_ros.models.gpt_neox import GptNeoxConfig
from auras_ros.models.tinyvla import TinyVlaConfig, build_head, build_llava_pythia
from auras_ros.models.vit import VitConfig
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.diffusion_family import sampler_of
from auras_ros.policies.family import Trained
from auras_ros.policies.tinyvla import TinyVlaEncoder, TinyVlaPolicy
from auras_ros.policies.vision_language_family import (
    check_parts,
    check_pictures,
    checked_prompt,
    read_config,
    split_prompt,
    whole,
)

HEAD = ("kernel", "groups", "step_width")


class TinyVla:
    """network: vision, language (their sizes), down_dims, kernel, groups, step_width (the U-Net's), the prompt, and
    image_at (how many of its ids come before the images)."""

    KEYS = frozenset({"vision", "language", "down_dims", *HEAD, "image_at", "prompt"})

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_parts(encoder, network, self.KEYS)
        dims = network["down_dims"]
        if not isinstance(dims, list) or not dims or any(type(each) is not int or each < 1 for each in dims):
            raise ValueError(f"network: down_dims: {dims!r} is not a list of whole numbers above zero")
        if architecture.state < 1:
            raise ValueError("observation: state: none, but the head is conditioned on it")
        config = TinyVlaConfig(
            read_config(VitConfig, network["vision"], "network: vision"),
            read_config(GptNeoxConfig, network["language"], "network: language"),
            architecture.state,
            architecture.actions,
            architecture.horizon,
            tuple(dims),
            **{key: whole(network, key) for key in HEAD},
        )
        check_pictures(architecture, 3, config.vision.image_px)
        prompt = checked_prompt(network, config.language.vocabulary)
        if prompt.limit is not None:
            raise ValueError("network: prompt_limit: not supported: the head sees the mean over the whole prompt")
        before, after = split_prompt(prompt, whole(network, "image_at", 0))
        model, (condition, head) = build_llava_pythia(config), build_head(config)
        seen = TinyVlaEncoder(model, condition, before, after, architecture.cameras)
        return nn.ModuleDict({"encoder": seen, "network": head})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> TinyVlaPolicy:
        return TinyVlaPolicy(networks["encoder"], networks["network"], sampler_of(trained, settings), trained)
