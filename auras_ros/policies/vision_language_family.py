"""The checkpoint families `openvla` and `rt2`: a vision-language model that writes its actions as tokens.

The manifest's `network` holds the sizes of the published networks, the prompt (`policies.prompt`) and which ids mean
actions. Its statistics say what these mean on the robot, and its observation how images are processed. Nothing here
reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from auras_ros.models.action_tokens import BINS, ActionStatistics, ActionTokens, OpenVlaTokens, Rt2Tokens
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.openvla import IDS_BEFORE_IMAGE, OpenVlaConfig, build_openvla
from auras_ros.models.rotary import RopeScaling
from auras_ros.models.rt2 import Rt2Config, build_rt2
from auras_ros.models.vision_language import SeeingLanguage, VisionLanguage
from auras_ros.models.vit import VitConfig
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.autoregressive import AutoregressivePolicy
from auras_ros.policies.autoregressive_family import token_policy
from auras_ros.policies.family import Trained, check_keys
from auras_ros.policies.prompt import KEYS as PROMPT_KEYS
from auras_ros.policies.prompt import PromptTemplate
from auras_ros.policies.vision_language import PaddedPrefix, VisionLanguagePrefix

ConfigT = TypeVar("ConfigT")


class TokenIds(nn.Module):
    """Which ids mean actions: `count` of them from `first` on. It has no weights."""

    def __init__(self, first: int, count: int, vocabulary: int) -> None:
        super().__init__()
        if not 0 <= first < first + count <= vocabulary:
            raise ValueError(f"network: action ids {first} to {first + count - 1} are not within {vocabulary}")
        self.first, self.count = first, count


class OpenVla:
    """network: dinov2, siglip, language (their sizes), vocabulary (of the tokenizer, whose last 256 ids mean actions),
    and the prompt. Images are stacked twice, DINOv2's three channels first. A plan has no settings."""

    KEYS = frozenset({"dinov2", "siglip", "language", "vocabulary", "prompt"})

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_parts(encoder, network, self.KEYS)
        config = OpenVlaConfig(
            read_config(VitConfig, network["dinov2"], "network: dinov2"),
            read_config(VitConfig, network["siglip"], "network: siglip"),
            read_config(LlamaConfig, network["language"], "network: language"),
        )
        vocabulary = whole(network, "vocabulary")
        check_pictures(architecture, 6, config.dinov2.image_px)
        ids = TokenIds(vocabulary - BINS, BINS, config.language.vocabulary)
        prompt = checked_prompt(network, config.language.vocabulary)
        prefix = make_prefix(build_openvla(config), prompt, IDS_BEFORE_IMAGE, architecture.cameras)
        return nn.ModuleDict({"prefix": prefix, "ids": ids})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> AutoregressivePolicy:
        ids = networks["ids"]
        assert isinstance(ids, TokenIds)
        lower, upper = trained.lower.tolist(), trained.upper.tolist()
        statistics = ActionStatistics(tuple(lower), tuple(upper), (True,) * len(lower))
        return _policy(networks, trained, settings, OpenVlaTokens(statistics, ids.first + ids.count))


class Rt2:
    """network: vision, language (their sizes), first and bins (the ids that mean actions), the prompt, and image_at
    (how many of its ids come before the images). A plan has no settings."""

    KEYS = frozenset({"vision", "language", "first", "bins", "image_at", "prompt"})

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        check_parts(encoder, network, self.KEYS)
        config = Rt2Config(
            read_config(VitConfig, network["vision"], "network: vision"),
            read_config(LlamaConfig, network["language"], "network: language"),
        )
        check_pictures(architecture, 3, config.vision.image_px)
        ids = TokenIds(whole(network, "first", 0), whole(network, "bins"), config.language.vocabulary)
        prompt = checked_prompt(network, config.language.vocabulary)
        prefix = make_prefix(build_rt2(config), prompt, whole(network, "image_at", 0), architecture.cameras)
        return nn.ModuleDict({"prefix": prefix, "ids": ids})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> AutoregressivePolicy:
        ids = networks["ids"]
        assert isinstance(ids, TokenIds)
        codec = Rt2Tokens(trained.lower.tolist(), trained.upper.tolist(), ids.first, ids.count)
        return _policy(networks, trained, settings, codec)


def make_prefix(model: SeeingLanguage, prompt: PromptTemplate, image_at: int, cameras: int) -> VisionLanguagePrefix:
    """A prefix with room for every prompt up to its limit, or only for this one's length. Raises ValueError."""
    before, after = split_prompt(prompt, image_at)
    if prompt.limit is None:
        return VisionLanguagePrefix(model, before, after, cameras)
    return PaddedPrefix(model, before, after, cameras, prompt.limit - image_at)


def split_prompt(prompt: PromptTemplate, image_at: int) -> tuple[Tensor, Tensor]:
    """The ids before the images, and those after. Raises ValueError if none are left after them."""
    if image_at >= len(prompt.ids):
        raise ValueError(f"network: image_at: {image_at}, but the prompt has {len(prompt.ids)} ids")
    ids = torch.tensor(prompt.ids, dtype=torch.int64)
    return ids[:image_at], ids[image_at:]


def check_parts(encoder: Any, network: Any, keys: frozenset[str]) -> None:
    """Check that a manifest's `encoder` is empty and its `network` has these keys, and no others but the prompt's.
    Raises TypeError or ValueError."""
    if encoder != {}:
        raise ValueError(f"encoder: {encoder!r}, expected {{}}: the network has its own encoder")
    check_keys(network, keys, PROMPT_KEYS)


def check_pictures(architecture: Architecture, channels: int, px: int) -> None:
    """Check that the observation gives what the vision encoder takes. Raises ValueError."""
    found, expected = (architecture.channels, *architecture.image_px), (channels, px, px)
    if architecture.cameras < 1 or found != expected:
        shape = " x ".join(map(str, found))
        raise ValueError(
            f"observation: {architecture.cameras} cameras of {shape}, expected at least one of {channels} x {px} x {px}"
        )


def checked_prompt(network: Mapping[str, Any], vocabulary: int) -> PromptTemplate:
    """The manifest's prompt. Raises ValueError, also for an id that has no embedding."""
    prompt = PromptTemplate.of(network)
    if max(prompt.ids) >= vocabulary:
        raise ValueError(f"network: prompt: id {max(prompt.ids)} is not below the vocabulary, {vocabulary}")
    return prompt


def whole(network: Mapping[str, Any], key: str, least: int = 1) -> int:
    """A whole number. Raises ValueError."""
    value = network[key]
    if type(value) is not int or value < least:
        raise ValueError(f"network: {key}: {value!r} is not a whole number of {least} or more")
    return value


def read_config(kind: type[ConfigT], raw: Any, owner: str) -> ConfigT:
    """A frozen dataclass of sizes from its JSON object, as `dataclasses.asdict` writes it. Raises TypeError or
    ValueError, naming the key."""
    if not isinstance(raw, Mapping):
        raise TypeError(f"{owner}: {raw!r} is not an object")
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for key in sorted(raw.keys() - known.keys()):
        raise ValueError(f"{owner}: '{key}' is unknown")
    values = dict(raw)
    for key, each in known.items():
        if key not in values and each.default is MISSING:
            raise ValueError(f"{owner}: '{key}' is missing")
        if key in values and not _fits(values[key], str(each.type)):
            raise ValueError(f"{owner}: {key}: {values[key]!r} is not of type {each.type}")
        if isinstance(values.get(key), list):
            values[key] = tuple(values[key])
    if values.get("rope_scaling") is not None:
        values["rope_scaling"] = read_config(RopeScaling, values["rope_scaling"], f"{owner}: rope_scaling")
    return kind(**values)


def _fits(value: Any, wanted: str) -> bool:
    """Whether the JSON value has the annotated type; the class itself checks words."""
    kinds = {"int": int, "float": int | float, "bool": bool, "None": type(None), "RopeScaling": Mapping}
    if wanted == "tuple[int, ...]":
        return isinstance(value, list | tuple) and all(type(each) is int for each in value)
    allowed = [kinds.get(part, str) for part in wanted.split(" | ")]
    return any(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)) for kind in allowed)


def _policy(
    networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any], codec: ActionTokens
) -> AutoregressivePolicy:
    prefix = networks["prefix"]
    assert isinstance(prefix, VisionLanguagePrefix)
    assert isinstance(prefix.model, VisionLanguage)
    return token_policy(prefix, prefix.model.language, codec, trained, settings)
