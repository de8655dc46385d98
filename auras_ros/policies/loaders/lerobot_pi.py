"""LeRobot's `pi0` and `pi05`: PaliGemma with an action expert, as our family `flow`.

Their config.json names sizes ("gemma_2b") instead of giving them; GEMMAS has the sizes. An empty camera is an image
that is masked and counts in no position: it is left out. An image of another size keeps its aspect ratio and is padded.

Two things changed with LeRobot 0.5, and a folder means what the release that trained it made of it. Before, the padding
was -1 of an image that is 0..1, so -3 of one that is -1..1; since then it is black, -1. Before, pi0.5's prompt had
`max_state_dim` numbers of the state, those that the robot lacks as zeros; since then it has the robot's own.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.hf_names import siglip_name
from auras_ros.models.presets import PI0S
from auras_ros.observation import Pad
from auras_ros.policies.loaders import prompts
from auras_ros.policies.loaders.lerobot import BURIED, NORMALIZER, USES_RELATIVE_ACTIONS, LeRobotFolder
from auras_ros.policies.loaders.lerobot_relative import check_relative
from auras_ros.policies.loaders.lerobot_version import HEAD, PALIGEMMA, WORDS
from auras_ros.policies.loaders.lerobot_vla import check_fixed, flow_manifest, pictures, translated
from auras_ros.policies.loaders.robot import Robot
from auras_ros.policies.loaders.translated import Translated
from auras_ros.policies.prompt import INSTRUCTION, PromptTemplate

VISION, GEMMAS = PI0S["pi0"].vision, {"gemma_2b": PI0S["pi0"].language, "gemma_300m": PI0S["pi0"].expert}
KEYS = {
    "paligemma_variant", "action_expert_variant", "dtype", "chunk_size", "n_action_steps", "max_state_dim",
    "max_action_dim", "num_inference_steps", "min_period", "max_period", "rtc_config", "image_resolution",
    "empty_cameras", "tokenizer_max_length", USES_RELATIVE_ACTIONS,
}  # fmt: skip
IGNORED = {
    "time_sampling_beta_alpha", "time_sampling_beta_beta", "time_sampling_scale", "time_sampling_offset",
    "freeze_vision_encoder", "train_expert_only",
    "relative_exclude_joints", "action_feature_names",  # the preprocessor's step has them, and that decides
}  # fmt: skip
LATER = {"rtc_config", USES_RELATIVE_ACTIONS}
STEPS = {  # pi0.5 writes the normalised state into its prompt
    "pi0": ("pi0_new_line_processor", prompts.TOKENIZE, NORMALIZER),
    "pi05": (NORMALIZER, "pi05_prepare_state_tokenizer_processor_step", prompts.TOKENIZE),
}
CHANGED = (0, 5, 0)  # the release that changed padding and prompt
PADDED_BEFORE, PADDED = -3.0, -1.0  # -1 and 0 of an image that is 0 to 1, times 2, minus 1
DIFFERENCES = {  # for a folder of which nothing tells the release
    "pi0": "the border of images that are not square differs",
    "pi05": "the numbers of the state in the prompt differ, and the border of images that are not square",
}
MODEL = "model."  # openpi's own folders do not have it
LARGE, SMALL = PALIGEMMA, f"{MODEL}paligemma_with_expert.gemma_expert."
TOWER = f"{LARGE}model.vision_tower.vision_model."


def translate(folder: LeRobotFolder, robot: Robot) -> Translated:
    """Raises CheckpointError, naming the file and the key, or the file and the tensor."""
    kind = folder.config["type"]
    relative = check_relative(folder, robot)
    folder.check_steps(STEPS[kind])
    prompts.check_step(folder)
    networks = {name: tensor for name, tensor in folder.tensors.items() if not name.startswith(BURIED)}
    tensors = {MODEL + name.removeprefix(MODEL): tensor for name, tensor in networks.items()}
    if WORDS not in tensors and HEAD in tensors:  # if they are one, it is stored under the head's name
        tensors[WORDS] = tensors[HEAD]
    if WORDS not in tensors:
        raise CheckpointError(f"{folder.weights}: tensor '{WORDS}' is missing")
    is_changed = folder.is_since(CHANGED, robot, DIFFERENCES[kind])
    manifest = _manifest(folder, robot, kind, is_changed)
    tensors = {_present_name(name, kind): tensor for name, tensor in tensors.items()}
    made = translated(folder, manifest, tensors, TOWER, _source_of, _is_ignored)
    return replace(made, notes=(*_meaning(kind, is_changed, manifest), *([relative] if relative else [])))


def _meaning(kind: str, is_changed: bool, manifest: dict[str, Any]) -> list[str]:
    """What was taken of that which changed with LeRobot 0.5, a sentence each."""
    border = f"the border of images that are not square is {PADDED if is_changed else PADDED_BEFORE:g}"
    if kind == "pi0":
        return [border]
    owner = "the robot's own" if is_changed else "max_state_dim"
    return [border, f"the prompt has {manifest['network']['state']} numbers of the state ({owner})"]


def _manifest(folder: LeRobotFolder, robot: Robot, kind: str, is_changed: bool) -> dict[str, Any]:
    """is_changed: by LeRobot 0.5, see the module's docstring. Raises CheckpointError."""
    check_fixed(folder)
    folder.get("dtype", ("float32", "bfloat16"))
    side = _side(folder)
    large, small = (GEMMAS[folder.get(f"{part}_variant", list(GEMMAS))] for part in ("paligemma", "action_expert"))
    state, actions = folder.count("max_state_dim"), folder.count("max_action_dim")
    seen = pictures(folder, robot, side, Pad(PADDED if is_changed else PADDED_BEFORE))
    if kind == "pi05" and is_changed and folder.state is not None:
        state = folder.state.shape[0]
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
