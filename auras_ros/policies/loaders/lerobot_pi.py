"""LeRobot's `pi0` and `pi05` (0.4.4): PaliGemma with an action expert, as our family `flow`.

Their config.json names sizes ("gemma_2b") instead of giving them; GEMMAS has the sizes. An empty camera is an image
that is masked and counts in no position: it is left out. An image of another size keeps its aspect ratio and is padded
before it goes from 0..1 to -1..1, so LeRobot's padding of -1 becomes -3; it was trained so.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.hf_names import siglip_name
from auras_ros.models.presets import PI0S
from auras_ros.observation import Pad
from auras_ros.policies.loaders import prompts
from auras_ros.policies.loaders.lerobot import BURIED, NORMALIZER, LeRobotFolder
from auras_ros.policies.loaders.lerobot_vla import check_fixed, flow_manifest, pictures, translated
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated
from auras_ros.policies.prompt import INSTRUCTION, PromptTemplate

VISION, GEMMAS = PI0S["pi0"].vision, {"gemma_2b": PI0S["pi0"].language, "gemma_300m": PI0S["pi0"].expert}
KEYS = {
    "paligemma_variant", "action_expert_variant", "dtype", "chunk_size", "n_action_steps", "max_state_dim",
    "max_action_dim", "num_inference_steps", "min_period", "max_period", "rtc_config", "image_resolution",
    "empty_cameras", "tokenizer_max_length",
}  # fmt: skip
IGNORED = {
    "time_sampling_beta_alpha", "time_sampling_beta_beta", "time_sampling_scale", "time_sampling_offset",
    "gradient_checkpointing", "freeze_vision_encoder", "train_expert_only", "optimizer_grad_clip_norm",
    "scheduler_decay_steps", "scheduler_decay_lr",
}  # fmt: skip
LATER = {"rtc_config"}
STEPS = {  # pi0.5 writes the normalised state into its prompt
    "pi0": ("pi0_new_line_processor", prompts.TOKENIZE, NORMALIZER),
    "pi05": (NORMALIZER, "pi05_prepare_state_tokenizer_processor_step", prompts.TOKENIZE),
}
PADDED = -3.0  # -1 of an image that is 0 to 1, times 2, minus 1
MODEL = "model."  # openpi's own folders do not have it
LARGE, SMALL = f"{MODEL}paligemma_with_expert.paligemma.", f"{MODEL}paligemma_with_expert.gemma_expert."
TOWER = f"{LARGE}model.vision_tower.vision_model."
WORDS, HEAD = f"{LARGE}model.language_model.embed_tokens.weight", f"{LARGE}lm_head.weight"


def translate(folder: LeRobotFolder, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    kind = folder.config["type"]
    folder.known(KEYS, IGNORED, LATER)
    folder.check_steps(STEPS[kind])
    prompts.check_step(folder)
    manifest = _manifest(folder, robot, kind)
    networks = {name: tensor for name, tensor in folder.tensors.items() if not name.startswith(BURIED)}
    tensors = {MODEL + name.removeprefix(MODEL): tensor for name, tensor in networks.items()}
    tensors = shared_words(tensors, WORDS, HEAD, folder)
    tensors = {_present_name(name, kind): tensor for name, tensor in tensors.items()}
    return translated(folder, manifest, tensors, TOWER, _source_of, _is_ignored)


def _manifest(folder: LeRobotFolder, robot: Robot, kind: str) -> dict[str, Any]:
    check_fixed(folder)
    folder.get("dtype", ("float32", "bfloat16"))
    side = _side(folder)
    large, small = (GEMMAS[folder.get(f"{part}_variant", list(GEMMAS))] for part in ("paligemma", "action_expert"))
    state, actions = folder.count("max_state_dim"), folder.count("max_action_dim")
    seen = pictures(folder, robot, side, Pad(PADDED))
    network = {
        "model": kind,
        "vision": asdict(replace(VISION, image_px=side)),
        "language": asdict(large),
        "expert": asdict(small),
        "state": state,
        "actions": actions,
        **_language(folder, robot, kind, state),
    }
    return flow_manifest(folder, robot, network, seen, folder.count("num_inference_steps"))


def _side(folder: LeRobotFolder) -> int:
    height, width = folder.pair("image_resolution") or (0, 0)
    if not height or height != width or height % VISION.patch_px:
        raise folder.refused(
            f"image_resolution: [{height}, {width}] is not supported; there are squares of whole "
            f"patches of {VISION.patch_px}"
        )
    return height


def shared_words(tensors: dict[str, Tensor], words: str, head: str, folder: LeRobotFolder) -> dict[str, Tensor]:
    """The tensors with the embedding under its own name: it is also the head, and stored once, under the head's name.
    Raises CheckpointError if both exist and differ."""
    if words not in tensors and head in tensors:
        return {**tensors, words: tensors[head]}
    if words in tensors and head in tensors and not torch.equal(tensors[words], tensors[head]):
        raise CheckpointError(f"{folder.weights}: tensors '{words}' and '{head}' are one, but differ")
    return tensors


# -- names ------------------------------------------------------------------------------------------------


def _present_name(name: str, kind: str) -> str:
    """openpi's names of the time layers, renamed for either kind (as in LeRobot itself)."""
    given, own = ("time_mlp_", "action_time_mlp_") if kind == "pi0" else ("action_time_mlp_", "time_mlp_")
    return MODEL + own + name.removeprefix(MODEL + given) if name.startswith(MODEL + given) else name


def _source_of(name: str) -> str:
    """LeRobot's name of one of our tensors."""
    part, _, rest = name.removeprefix("prefix.model.").partition(".")
    if part == "vision":
        return TOWER + siglip_name(rest)
    if part == "projector":
        norm = rest.startswith("norm.")
        return f"{TOWER}post_layernorm.{rest[5:]}" if norm else f"{LARGE}model.multi_modal_projector.{rest}"
    if part == "language":
        return f"{LARGE}model.language_model.{rest}"
    return f"{SMALL}model.{rest}" if rest.startswith(("layers.", "norm.")) else MODEL + rest


def _is_ignored(name: str) -> bool:
    """Heads over words: no next word is predicted."""
    return name in (HEAD, f"{SMALL}lm_head.weight", f"{SMALL}model.embed_tokens.weight")


# -- the prompt -------------------------------------------------------------------------------------------


def _language(folder: LeRobotFolder, robot: Robot, kind: str, states: int) -> dict[str, Any]:
    """The manifest's keys of the prompt; for pi0.5 with the numbers. Raises CheckpointError."""
    limit = folder.count("tokenizer_max_length")
    encode = prompts.encoder(folder)
    if kind == "pi0":
        return prompts.prompt_keys(folder, robot, encode, f"{INSTRUCTION}\n", limit)
    template, text = f"Task: {INSTRUCTION}, State:", prompts.instruction(robot, folder.path)
    told = PromptTemplate((0,), text, template, plain=True).formatted(text)
    numbers, after = prompts.spelling(folder, encode, told, states)
    room = limit - states * max(map(len, numbers)) - len(after)
    return {
        **prompts.prompt_keys(folder, robot, encode, template, room, plain=True),
        "numbers": numbers,
        "after": after,
    }
