"""LeRobot's `smolvla`: SmolVLM2's first layers with an action expert, as our family `flow`.

Its config.json names the vision-language model; VLMS has its sizes. What the reference masks (empty cameras, padded
prompts, a padded prefix) counts in no position and is left out. For an empty camera the tokens around the image stay,
because the reference does not mask those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.hf_names import siglip_name
from auras_ros.checkpoints.tokenizer import TOKENIZER, read_tokenizer
from auras_ros.models.llama import LlamaConfig
from auras_ros.models.presets import SMOLVLAS
from auras_ros.models.vit import VitConfig
from auras_ros.observation import Pad
from auras_ros.policies.loaders import prompts
from auras_ros.policies.loaders.lerobot import BURIED, NORMALIZER, LeRobotFolder
from auras_ros.policies.loaders.lerobot_vla import EMPTY, check_fixed, flow_manifest, pictures, translated
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated
from auras_ros.policies.prompt import INSTRUCTION


@dataclass(frozen=True)
class VlmSizes:
    """The sizes behind the name of a vision-language model. language: with all its layers."""

    vision: VitConfig
    language: LlamaConfig
    fold: int


_SMOLVLA = SMOLVLAS["smolvla"]
VLMS: dict[str, VlmSizes] = {
    "HuggingFaceTB/SmolVLM2-500M-Video-Instruct": VlmSizes(
        _SMOLVLA.vision, replace(_SMOLVLA.language, layers=32), _SMOLVLA.fold
    )
}
KEYS = {
    "chunk_size", "n_action_steps", "max_state_dim", "max_action_dim", "resize_imgs_with_padding", "empty_cameras",
    "adapt_to_pi_aloha", "use_delta_joint_actions_aloha", "tokenizer_max_length", "num_steps", "use_cache",
    "vlm_model_name", "add_image_special_tokens", "attention_mode", "num_expert_layers", "num_vlm_layers",
    "self_attn_every_n_layers", "expert_width_multiplier", "min_period", "max_period", "rtc_config",
}  # fmt: skip
IGNORED = {
    "freeze_vision_encoder", "train_expert_only", "train_state_proj", "load_vlm_weights", "prefix_length",
    "pad_language_to", "optimizer_grad_clip_norm", "scheduler_decay_steps", "scheduler_decay_lr",
}  # fmt: skip
LATER = {"rtc_config"}
STEPS = ("smolvla_new_line_processor", prompts.TOKENIZE, NORMALIZER)
PADDED = -1.0  # 0 of an image that is 0 to 1, times 2, minus 1
AROUND = ("<fake_token_around_image>", "<global-img>")
VLM, EXPERT = "model.vlm_with_expert.vlm.", "model.vlm_with_expert.lm_expert."
TOWER, WORDS, HEAD = f"{VLM}model.vision_model.", f"{VLM}model.text_model.embed_tokens.weight", f"{VLM}lm_head.weight"
HIDDEN_MULTIPLE = 256  # the expert's hidden width is rounded up to a multiple of it


def translate(folder: LeRobotFolder, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    folder.check_steps(STEPS)
    prompts.check_step(folder)
    manifest = _manifest(folder, robot)
    tensors = {name: tensor for name, tensor in folder.tensors.items() if not name.startswith(BURIED)}
    if WORDS not in tensors and HEAD in tensors:  # if they are one, it is stored under the head's name
        tensors[WORDS] = tensors[HEAD]
    return translated(folder, manifest, tensors, TOWER, _source_of, lambda name: name == HEAD)


def _manifest(folder: LeRobotFolder, robot: Robot) -> dict[str, Any]:
    check_fixed(folder)
    folder.get("adapt_to_pi_aloha", (False,))
    folder.get("use_delta_joint_actions_aloha", (False,))
    folder.get("use_cache", (True,))
    vlm = VLMS[folder.get("vlm_model_name", list(VLMS))]
    side = vlm.vision.image_px
    if (given := folder.get("resize_imgs_with_padding")) != [side, side]:
        raise folder.refused(f"resize_imgs_with_padding: {given!r} is not supported; expected [{side}, {side}]")
    seen = pictures(folder, robot, side, Pad(PADDED, "end"))
    limit = folder.count("tokenizer_max_length")
    network = {
        "model": "smolvla",
        "vision": asdict(vlm.vision),
        **_decoders(folder, vlm),
        "state": folder.count("max_state_dim"),
        "actions": folder.count("max_action_dim"),
        **_pictures(folder),
        **prompts.prompt_keys(folder, robot, prompts.encoder(folder), f"{INSTRUCTION}\n", limit),
        "fold": vlm.fold,
    }
    return flow_manifest(folder, robot, network, seen, folder.count("num_steps"))


def _decoders(folder: LeRobotFolder, vlm: VlmSizes) -> dict[str, Any]:
    """Sizes of the truncated language model and of the expert, and which of its layers see the actions."""
    asked, share = folder.get("num_vlm_layers"), folder.get("expert_width_multiplier")
    if type(asked) is not int or not isinstance(share, int | float) or not share > 0:
        raise folder.refused(f"num_vlm_layers {asked!r} or expert_width_multiplier {share!r}: not a size")
    layers = min(asked, vlm.language.layers) if asked > 0 else vlm.language.layers
    if folder.get("num_expert_layers") not in (-1, 0, layers):
        raise folder.refused(
            f"num_expert_layers: {folder.config['num_expert_layers']!r} is not supported; expected -1 "
            f"and {layers}, as many as the language model's"
        )
    every = folder.get("self_attn_every_n_layers")
    if type(every) is not int:
        raise folder.refused(f"self_attn_every_n_layers: {every!r} is not a whole number")
    if folder.get("attention_mode", ("cross_attn", "self_attn")) == "self_attn":
        every = 1
    language, width = replace(vlm.language, layers=layers), int(vlm.language.width * share)
    expert = replace(language, width=width, hidden=expert_hidden(width), head_dim=language.size_of_head)
    return {"language": asdict(language), "expert": asdict(expert), "self_attention_every": max(every, 0)}


def expert_hidden(width: int) -> int:
    """Four times two thirds of the width, truncated at each step, and rounded up."""
    return -(-4 * int(2 * width / 3) // HIDDEN_MULTIPLE) * HIDDEN_MULTIPLE


def _pictures(folder: LeRobotFolder) -> dict[str, Any]:
    """Tokens around images, and how many images are empty. Raises CheckpointError."""
    empty = sum(EMPTY.fullmatch(feature.name) is not None for feature in folder.cameras)
    if empty != folder.get("empty_cameras"):
        told = folder.config.get("empty_cameras")
        raise folder.refused(f"empty_cameras: {told!r}, but input_features has {empty}")
    if not folder.get("add_image_special_tokens", (False, True)):
        return {"around": [[], []], "empty": 0}
    prompts.encoder(folder)  # raises if there is none
    path = folder.path / TOKENIZER
    ids = [read_tokenizer(path).token_to_id(token) for token in AROUND]
    if None in ids:
        raise CheckpointError(f"{path}: token '{AROUND[ids.index(None)]}', which stands around images, is missing")
    return {"around": [ids, ids[:1]], "empty": empty}


def _source_of(name: str) -> str:
    """LeRobot's name of one of our tensors."""
    part, _, rest = name.removeprefix("prefix.model.").partition(".")
    places: Mapping[str, str] = {"language": f"{VLM}model.text_model.", "state_proj": "model.state_proj."}
    if part in places:
        return places[part] + rest
    if part == "vision":
        return TOWER + siglip_name(rest)
    if part == "projector":
        norm = rest.startswith("norm.")
        return f"{TOWER}post_layernorm.{rest[5:]}" if norm else f"{VLM}model.connector.modality_projection.proj.weight"
    return EXPERT + rest if rest.startswith(("layers.", "norm.")) else f"model.{rest}"
