"""Tiny checkpoints of the families with language: random weights, one camera, and a tokenizer of a few words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from auras_ros.action import Contract
from auras_ros.models.presets import OPENVLAS, RT2S, TINYVLAS
from auras_ros.observation import ObservationSpec
from auras_ros.policies.checkpoint import build
from auras_ros.policies.writing import Description, write

PX, BEGIN, END = 28, 1, 6
AXES = ("x", "y", "z")
TEXT, IDS = "push the block", [BEGIN, 10, 11, 12, 21, 13, 14, 15, 20, 21, 22, 16, 17, END]
TEMPLATE = "In: What should the robot do to {instruction}?\nOut:"
WORDS = ["push", "the", "block", "pull", "red", "cup", "away", "from", "wall", "now", "please"]  # ids 20 on
FRAME = ["in:", "what", "should", "robot", "do", "to", "?", "out:"]
IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
LOWER, UPPER = [-0.05, -0.1, -1.0], [0.05, 0.2, 1.0]


def write_tokenizer(path: Path) -> Path:
    """Words to ids by a table; BEGIN comes first, END does not come last; every text is cut and padded, in vain."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    table = {"<unk>": 0, "<s>": BEGIN, "<end>": END}
    table |= {word: 10 + i for i, word in enumerate(FRAME)} | {word: 20 + i for i, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("?", "isolated")]
    )
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BEGIN)])
    made.enable_padding(length=40)
    made.enable_truncation(max_length=5)
    made.save(str(path))
    return path


def spec(stacked: bool, cameras: tuple[str, ...] = ("top",), state: bool = True) -> ObservationSpec:
    """Frames of 30 x 40."""
    size = {"height": PX, "width": PX, "interpolation": "pillow_bicubic"}
    rules = {**IMAGENET, "stacked": [HALF]} if stacked else HALF
    named = [{"name": name, "height": 30, "width": 40, "resize": size, **rules} for name in cameras]
    joints = {"names": list(AXES)} if state else None
    return ObservationSpec.from_dict({"cameras": named, "state": joints, "history": 1, "dt_ms": 1000})


def contract() -> Contract:
    channel = {"unit": "m", "kind": "delta_previous", "lower": -2.0, "upper": 2.0, "hold": "zero"}
    return Contract.from_dict({"dt_ms": 1000, "channels": [{"name": name, **channel} for name in AXES]})


def prompt(limit: int | None = None) -> dict[str, Any]:
    keys = {"prompt": IDS, "prompt_text": TEXT, "prompt_template": TEMPLATE, "prompt_end": END}
    return keys if limit is None else {**keys, "prompt_limit": limit}


def networks() -> dict[str, dict[str, Any]]:
    """`network` of each family."""
    openvla, rt2, tinyvla = OPENVLAS["openvla-tiny"], RT2S["rt2-tiny"], TINYVLAS["tinyvla-tiny"]
    head = {key: getattr(tinyvla, key) for key in ("kernel", "groups", "step_width")}
    return {
        "openvla": {
            "dinov2": asdict(openvla.dinov2), "siglip": asdict(openvla.siglip), "language": asdict(openvla.language),
            "vocabulary": 500, **prompt(),
        },
        "rt2": {
            "vision": asdict(rt2.vision), "language": asdict(rt2.language), "first": 200, "bins": 256, "image_at": 3,
            **prompt(),
        },
        "tinyvla": {
            "vision": asdict(tinyvla.vision), "language": asdict(tinyvla.language),
            "down_dims": list(tinyvla.down_dims), **head, "image_at": 1, **prompt(),
        },
    }  # fmt: skip


PLANS: dict[str, dict[str, Any]] = {
    "openvla": {"greedy": {}},
    "rt2": {"greedy": {}},
    "tinyvla": {"quick": {"sampler": "ddim", "steps": 4, "spacing": "leading"}},
}
HORIZON = {"openvla": 2, "rt2": 2, "tinyvla": 8}


def describe(kind: str, state: bool = True, **network: Any) -> Description:
    """Of this family, with some keys of `network` replaced."""
    return Description(
        f"tiny-{kind}", kind, HORIZON[kind], spec(kind == "openvla", state=state), contract(), LOWER, UPPER,
        PLANS[kind], network={**networks()[kind], **network},
    )  # fmt: skip


def manifest(made: Description) -> dict[str, Any]:
    """What `write` makes of a description, without weights."""
    return json.loads(
        json.dumps(
            {
                "name": made.name, "type": made.type, "encoder": {}, "network": made.network, "horizon": made.horizon,
                "observation": made.spec.to_dict(), "action": made.contract.to_dict(), "plans": made.plans,
                "statistics": {"kind": "min_max", "lower": list(made.lower), "upper": list(made.upper)},
            }
        )
    )  # fmt: skip


def parts(made: Description, seed: int = 0) -> dict[str, nn.Module]:
    """Random networks, large enough weights for different pictures to give different actions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        found = dict(build(manifest(made), "", Path("policy.json")).networks.items())
        for part in found.values():
            for name, weight in part.named_parameters():
                if weight.dim() > 1 and "network" not in name:
                    nn.init.normal_(weight, std=0.15)
    return found


def observation(made: Description, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    random, cameras = np.random.default_rng(seed), made.spec.cameras
    images = {each.name: random.integers(0, 256, (1, each.height, each.width, 3), dtype=np.uint8) for each in cameras}
    joints = () if made.spec.state is None else made.spec.state.names
    return images, {joint: random.uniform(-1, 1, 1) for joint in joints}


def written(
    folder: Path, kind: str, tokenizer: bool = False, seed: int = 0, state: bool = True, **network: Any
) -> float | None:
    """A folder of this family; returns the golden sample's margin."""
    made = describe(kind, state, **network)
    path = write_tokenizer(folder.with_suffix(".json")) if tokenizer else None
    return write(folder, made, parts(made, seed), *observation(made), tokenizer=path)
