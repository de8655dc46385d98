"""The checkpoint family `flow`: pi0, pi0.5 and SmolVLA, whose actions move along a learned velocity.

The manifest's `network` names the model (`model`) and holds its sizes and the prompt (`policies.prompt`); the
manifest's statistics say what the networks' numbers mean on the robot. Nothing here reads a file or knows a tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from auras_ros.models.llama import LlamaConfig
from auras_ros.models.pi0 import Pi0, Pi0Config
from auras_ros.models.smolvla import SmolVla, SmolVlaConfig
from auras_ros.models.vit import VitConfig
from auras_ros.policies.architecture import Architecture
from auras_ros.policies.family import Trained, known
from auras_ros.policies.flow import FlowMatchingPolicy
from auras_ros.policies.flow_prefix import FlowPrefix, Pi05Prefix
from auras_ros.policies.prompt import PromptTemplate
from auras_ros.policies.vision_language_family import check_parts, check_pictures, checked_prompt, read_config, whole

COMMON = frozenset({"model", "vision", "language", "expert", "state", "actions", "prompt"})
OWN: Mapping[str, frozenset[str]] = {
    "pi0": frozenset(),
    "pi05": frozenset({"numbers", "after"}),
    "smolvla": frozenset({"fold", "self_attention_every", "around", "empty"}),
}


class Flow:
    """network: model (of OWN), vision, language, expert (their sizes), state and actions (numbers in the networks; a
    robot's are padded with zeros), and the prompt.

    pi05: numbers, the token ids of -1 to 255 in the prompt, and after, those of its end. smolvla: fold,
    self_attention_every, around and empty, as in `SmolVlaConfig`. A plan is a number of steps.
    """

    def networks(self, encoder: Any, network: Any, architecture: Architecture) -> nn.ModuleDict:
        model = network.get("model") if isinstance(network, Mapping) else None
        if isinstance(network, Mapping) and (not isinstance(model, str) or model not in OWN):
            raise ValueError(f"network: model {model!r} is not known; known: {', '.join(OWN)}")
        check_parts(encoder, network, COMMON | OWN[str(model)] if model in OWN else COMMON)
        vision = read_config(VitConfig, network["vision"], "network: vision")
        check_pictures(architecture, 3, vision.image_px)
        for name, count in (("state", architecture.state), ("actions", architecture.actions)):
            if not 0 < count <= whole(network, name):
                raise ValueError(f"{name}: the robot has {count}, the network takes 1 to {network[name]}")
        if type(architecture.horizon) is not int:
            raise TypeError(f"horizon: {architecture.horizon!r} is not a whole number")
        language = read_config(LlamaConfig, network["language"], "network: language")
        parts = vision, language, read_config(LlamaConfig, network["expert"], "network: expert")
        prompt = checked_prompt(network, language.vocabulary)
        make = _smolvla if model == "smolvla" else _pi0
        return nn.ModuleDict({"prefix": make(parts, architecture.horizon, network, prompt)})

    def policy(self, networks: nn.ModuleDict, trained: Trained, settings: Mapping[str, Any]) -> FlowMatchingPolicy:
        known(settings, {"steps"})
        steps, prefix = settings["steps"], networks["prefix"]
        if type(steps) is not int:
            raise TypeError(f"steps: {steps!r} is not a whole number")
        assert isinstance(prefix, FlowPrefix)
        return FlowMatchingPolicy(prefix, trained, steps)


Parts = tuple[VitConfig, LlamaConfig, LlamaConfig]  # vision, language, expert


def _pi0(parts: Parts, horizon: int, network: Mapping[str, Any], prompt: PromptTemplate) -> FlowPrefix:
    config = Pi0Config(*parts, horizon, network["state"], network["actions"], network["model"] == "pi05")
    model, ids = Pi0(config), torch.tensor(prompt.ids, dtype=torch.int64)
    if not config.adaptive:
        return FlowPrefix(model, ids, prompt.limit)
    numbers, vocabulary = network["numbers"], config.language.vocabulary
    if not isinstance(numbers, list):
        raise TypeError(f"network: numbers: {type(numbers).__name__}, expected a list of lists of token ids")
    for i, each in enumerate(numbers):
        _ids(each, f"numbers[{i}]", vocabulary)
    return Pi05Prefix(model, ids, numbers, _ids(network["after"], "after", vocabulary), prompt.limit)


def _smolvla(parts: Parts, horizon: int, network: Mapping[str, Any], prompt: PromptTemplate) -> FlowPrefix:
    around, vocabulary = network["around"], parts[1].vocabulary
    if not isinstance(around, list) or len(around) != 2:
        raise ValueError(f"network: around: {around!r} is not [ids before an image, ids after it]")
    start, end = (tuple(_ids(each, f"around[{i}]", vocabulary)) for i, each in enumerate(around))
    folding = whole(network, "fold"), whole(network, "self_attention_every", 0)
    numbers = horizon, network["state"], network["actions"]
    config = SmolVlaConfig(*parts, *folding, *numbers, (start, end), whole(network, "empty", 0))
    return FlowPrefix(SmolVla(config), torch.tensor(prompt.ids, dtype=torch.int64), prompt.limit)


def _ids(raw: Any, key: str, vocabulary: int) -> list[int]:
    if not isinstance(raw, list) or not all(type(each) is int and 0 <= each < vocabulary for each in raw):
        raise ValueError(f"network: {key}: {raw!r} is not a list of token ids below {vocabulary}")
    return raw
