"""Writes tiny folders of all types, as the LeRobot that is installed saves them, with what it answers itself.

    python scripts/write_loader_fixtures/lerobot_matrix.py OUT [NAME ...]

OUT/RELEASE/NAME: act, diffusion, smolvla, pi0 and pi05, with a square image and with one that is not, as made and
after one step of LeRobot's own optimiser on its own loss; with a joint that never moved; with relative actions and with
a LoRA adapter, where the release has them. scripts/lerobot/env.sh installs the releases; `make test-lerobot` does all
of it. Sizes that LeRobot fixes in its code, or takes from the Hub, are replaced by tiny ones; everything else is its
own. Weights are random.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import tiny_resnet
import tiny_tokenizer
import torch
from torch import Tensor

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is looked up
RELEASE = metadata.version("lerobot")
if RELEASE.startswith("0.4"):
    import patched_gemma
    import patched_smolvlm

    patched_gemma.install()

import lerobot_fixture as fixture  # noqa: E402

ACTIONS = STATES = len(fixture.JOINTS)
PROMPT = "pick up the_cube"
STILL = 3  # the joint that never moved: the gripper
SIZES = {  # height, width of the camera
    "act": {"square": (48, 48), "wide": (40, 64)},
    "diffusion": {"square": (48, 48), "wide": (40, 64)},
    "smolvla": {"square": (32, 32), "wide": (24, 32)},
    "pi0": {"square": (28, 28), "wide": (20, 36)},
    "pi05": {"square": (28, 28), "wide": (20, 36)},
}
VLA = ("smolvla", "pi0", "pi05")
# In LeRobot's order; its code wants 8 heads.
GEMMAS = {
    "gemma_2b": (16, 2, 24, 8, 1, 4),
    "gemma_300m": (8, 2, 16, 8, 1, 4),
}
CLASSES = {"act": "ACT", "diffusion": "Diffusion", "smolvla": "SmolVLA", "pi0": "PI0", "pi05": "PI05"}


def release() -> tuple[int, ...]:
    return tuple(int(part) for part in RELEASE.split(".")[:3])


def part_of(kind: str, module: str) -> Any:
    return importlib.import_module(f"lerobot.policies.{kind}.{module}_{kind}")


# -- sizes ------------------------------------------------------------------------------------------------


def shrink_pi(kind: str) -> None:
    module = part_of(kind, "modeling")
    module.get_gemma_config = lambda variant: module.GemmaConfig(*GEMMAS[variant])
    own = hasattr(module, "PaliGemmaForConditionalGenerationWithPiGemma")  # since LeRobot 0.5
    large_name = "PaliGemmaForConditionalGenerationWithPiGemma" if own else "PaliGemmaForConditionalGeneration"
    small_name = "PiGemmaForCausalLM" if own else "GemmaForCausalLM"
    if hasattr(getattr(module, large_name), "is_tiny"):
        return
    large, small = getattr(module, large_name), getattr(module, small_name)

    def paligemma(config: Any) -> Any:
        vision, text = config.vision_config, config.text_config
        vision.hidden_size, vision.num_hidden_layers, vision.num_attention_heads = 8, 2, 2
        vision.intermediate_size, vision.patch_size, vision.projection_dim = 16, 14, text.hidden_size
        vision.vision_use_head = False
        text.vocab_size, config.pad_token_id, text.pad_token_id = len(tiny_tokenizer.pretrained()), 0, 0
        return large(config)

    def gemma(config: Any) -> Any:
        config.vocab_size, config.pad_token_id = 8, 0
        return small(config)

    paligemma.is_tiny = True  # type: ignore[attr-defined]
    setattr(module, large_name, paligemma)
    setattr(module, small_name, gemma)


def shrink_smolvla() -> None:
    from transformers import SmolVLMConfig

    vision = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    text = {
        "model_type": "llama", "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 4, "intermediate_size": 24, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
        "vocab_size": len(tiny_tokenizer.pretrained()), "pad_token_id": 0,
    }  # fmt: skip

    def sizes(*_args: Any, **_settings: Any) -> SmolVLMConfig:
        vision_config = {**vision, "image_size": 32, "patch_size": 8}
        return SmolVLMConfig(vision_config=vision_config, text_config=text, scale_factor=2, pad_token_id=0)

    made = tiny_tokenizer.pretrained(begin=False)
    made.fake_image_token_id, made.global_image_token_id = made.convert_tokens_to_ids(list(tiny_tokenizer.PICTURE))
    module = importlib.import_module("lerobot.policies.smolvla.smolvlm_with_expert")
    processor = types.SimpleNamespace(tokenizer=made)
    module.AutoProcessor = types.SimpleNamespace(from_pretrained=lambda *_args, **_settings: processor)
    module.AutoConfig = types.SimpleNamespace(from_pretrained=sizes)
    module.get_intermediate_size = lambda hidden, *_args, **_settings: 2 * hidden
    if RELEASE.startswith("0.4"):  # its transformers shifts patches in float32, not in bfloat16, in which it is trained
        patched_smolvlm.install()


def settings_of(kind: str) -> dict[str, Any]:
    """LeRobot's own keys of a configuration."""
    vla = {"chunk_size": 6, "n_action_steps": 4, "max_state_dim": 6, "max_action_dim": 6}
    return {
        "act": {
            "vision_backbone": "resnet_least", "pretrained_backbone_weights": None, "chunk_size": 6,
            "n_action_steps": 4, "latent_dim": 4, "n_vae_encoder_layers": 1, "n_encoder_layers": 1, "n_heads": 2,
            "dim_feedforward": 16, "dim_model": 16,
        },
        "diffusion": {
            "vision_backbone": "resnet_least", "pretrained_backbone_weights": None, "crop_shape": None,
            "use_group_norm": False, "spatial_softmax_num_keypoints": 4, "down_dims": (8, 8), "kernel_size": 3,
            "diffusion_step_embed_dim": 8, "n_groups": 2, "horizon": 8, "n_obs_steps": 2, "n_action_steps": 6,
            "noise_scheduler_type": "DDIM", "num_train_timesteps": 100, "num_inference_steps": 5,
            "prediction_type": "sample",
        },
        "smolvla": {
            **vla, "num_steps": 4, "resize_imgs_with_padding": (32, 32), "tokenizer_max_length": 24,
            "num_vlm_layers": 2,
        },
        "pi0": {**vla, "num_inference_steps": 4, "image_resolution": (28, 28), "tokenizer_max_length": 24},
        "pi05": {**vla, "num_inference_steps": 4, "image_resolution": (28, 28), "tokenizer_max_length": 80},
    }[kind]  # fmt: skip


# -- one folder -------------------------------------------------------------------------------------------


def statistics(features: dict[str, Any], still: bool) -> dict[str, Any]:
    made = fixture.statistics(features)
    for values in made.values():
        values["q01"], values["q99"] = values["min"] + 0.1 * values["std"], values["max"] - 0.1 * values["std"]
    if still:
        for name in ("observation.state", "action"):
            for key, tensor in made[name].items():
                tensor[STILL] = 0.0 if key == "std" else 0.05
    return made


def randomise(policy: torch.nn.Module, kind: str) -> None:
    random = torch.Generator().manual_seed(0)
    if kind not in VLA:
        tiny_resnet.settle(policy)
        return
    ones = ("layer_norm1.weight", "layer_norm2.weight", "post_layernorm.weight")
    for name, parameter in policy.named_parameters():
        is_norm = "norm" in name and name.endswith("weight") if kind == "smolvla" else name.endswith(ones)
        parameter.data.copy_(float(is_norm) + 0.2 * torch.randn(parameter.shape, generator=random))
    if kind != "smolvla":  # as in the base checkpoints
        large = policy.model.paligemma_with_expert.paligemma
        large.lm_head.weight.data.copy_(large.model.language_model.embed_tokens.weight.data)


def train(policy: Any, before: Callable[[Any], Any], raw: dict[str, Tensor], stats: dict[str, Any]) -> None:
    """One step of LeRobot's own optimiser on its own loss."""
    config = policy.config
    policy.train()
    optimizer = config.get_optimizer_preset().build(policy.get_optim_params())
    length = getattr(config, "chunk_size", None) or config.horizon
    share = torch.rand((1, length, ACTIONS), generator=torch.Generator().manual_seed(3))
    action = stats["action"]["min"] + share * (stats["action"]["max"] - stats["action"]["min"])
    frames = [fixture.frame(raw, at) for at in range(config.n_obs_steps)]
    if config.n_obs_steps > 1:
        observed = {name: torch.stack([each[name] for each in frames])[None] for name in frames[0]}
    else:
        observed = {name: values[None] for name, values in frames[0].items()}
    pad = torch.zeros((1, length), dtype=torch.bool)
    batch = before({**observed, "task": [PROMPT], "action": action, "action_is_pad": pad})
    loss = policy.forward(batch)[0]
    loss.backward()
    optimizer.step()
    policy.eval()


def answer(policy: Any, kind: str, processors: Any, raw: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(actions in their unit [chunk, actions], noise) for this observation."""
    config, (before, after) = policy.config, processors
    frames = [before({**fixture.frame(raw, at), "task": PROMPT}) for at in range(config.n_obs_steps)]
    random = torch.Generator().manual_seed(2)
    policy.reset()
    with torch.no_grad():
        if kind == "act":
            chunk = policy.predict_action_chunk(observations(frames[0]))
            return after(chunk)[0, : config.n_action_steps], torch.zeros(0)
        if kind == "diffusion":
            noise = torch.randn((1, config.horizon, ACTIONS), generator=random)
            return after(diffused(policy, frames, noise))[0], noise
        noise = torch.randn((1, config.chunk_size, config.max_action_dim), generator=random)
        chunk = policy.predict_action_chunk(frames[0], noise=noise)
        return after(chunk)[0, : config.n_action_steps], noise[0]


def observations(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in batch.items() if name.startswith("observation")}


def diffused(policy: Any, frames: list[dict[str, Any]], noise: Tensor) -> Tensor:
    from lerobot.policies.utils import populate_queues

    for frame in frames:
        batch = observations(frame)
        batch["observation.images"] = torch.stack([batch[key] for key in policy.config.image_features], dim=-4)
        policy._queues = populate_queues(policy._queues, batch)
    return policy.predict_action_chunk(batch, noise=noise)


def write(out: Path, kind: str, shape: str, *, trained: bool = False, still: bool = False, **settings: Any) -> None:
    torch.manual_seed(0)
    features = fixture.features({"top": SIZES[kind][shape]}, STATES, ACTIONS)
    stats = statistics(features, still)
    config_class = getattr(part_of(kind, "configuration"), f"{CLASSES[kind]}Config")
    config = config_class(**features, device="cpu", push_to_hub=False, **{**settings_of(kind), **settings})
    policy = getattr(part_of(kind, "modeling"), f"{CLASSES[kind]}Policy")(config).eval()
    randomise(policy, kind)
    processors = getattr(part_of(kind, "processor"), f"make_{kind}_pre_post_processors")(config, stats)
    raw = fixture.observations(features, stats, config.n_obs_steps)
    if trained:
        train(policy, processors[0], raw, stats)
    actions, noise = answer(policy, kind, processors, raw)
    save(out, kind, (policy, *processors), raw, actions, noise)
    if settings.get("use_relative_actions"):
        edit_robot(out, lambda robot: [c.update(kind="delta_origin") for c in robot["action"]["channels"][:STILL]])


def save(out: Path, kind: str, parts: tuple[Any, ...], raw: dict[str, Tensor], actions: Tensor, noise: Tensor) -> None:
    more = {"prompt": PROMPT} if kind in VLA else {}
    fixture.write(str(out.absolute()), parts, raw, actions, noise, **more)
    if kind in VLA:
        tiny_tokenizer.tokenizer(begin=kind != "smolvla").save(str(out / "tokenizer.json"))


def edit_robot(out: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    robot = json.loads((out / "robot.json").read_text(encoding="utf-8"))
    edit(robot)
    (out / "robot.json").write_text(json.dumps(robot, indent=1) + "\n", encoding="utf-8")


def write_adapter(out: Path, kind: str) -> None:
    """A LoRA adapter of random values with its base beside it, as LeRobot's training saves them."""
    torch.manual_seed(0)
    features = fixture.features({"top": SIZES[kind]["wide"]}, STATES, ACTIONS)
    stats = statistics(features, still=False)
    config = getattr(part_of(kind, "configuration"), f"{CLASSES[kind]}Config")(
        **features, device="cpu", push_to_hub=False, **settings_of(kind)
    )
    policy = getattr(part_of(kind, "modeling"), f"{CLASSES[kind]}Policy")(config).eval()
    randomise(policy, kind)
    base = out.with_name(f"{out.name}_base")
    policy.save_pretrained(base)
    config.pretrained_path = Path(base.name)
    adapted = policy.wrap_with_peft(peft_cli_overrides={"r": 4, "method_type": "LORA"})
    random = torch.Generator().manual_seed(4)
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(0.3 * torch.randn(parameter.shape, generator=random))
    processors = getattr(part_of(kind, "processor"), f"make_{kind}_pre_post_processors")(config, stats)
    raw = fixture.observations(features, stats, config.n_obs_steps)
    actions, noise = answer(adapted.eval(), kind, processors, raw)
    save(out, kind, (adapted, *processors), raw, actions, noise)
    if kind != "smolvla" and release() < (0, 5, 1):  # nothing in such a folder tells it
        edit_robot(out, lambda robot: robot.update(lerobot_version=RELEASE))
    config.use_peft = True
    config.save_pretrained(out)
    (out / "README.md").unlink()  # of PEFT: about the adapter's model in general


# -- all of them ------------------------------------------------------------------------------------------


def folders() -> dict[str, Callable[[Path], None]]:
    """What writes each folder, by its name."""
    made: dict[str, Callable[[Path], None]] = {}
    for kind, shapes in SIZES.items():
        for shape in shapes:
            for trained in (False, True):
                name = f"{kind}_{shape}{'_trained' if trained else ''}"
                made[name] = lambda out, k=kind, s=shape, t=trained: write(out, k, s, trained=t)
        made[f"{kind}_still"] = lambda out, k=kind: write(out, k, "wide", still=True)
    for kind in ("pi0", "pi05"):
        if release() >= (0, 5, 1):
            names = {"use_relative_actions": True, "action_feature_names": fixture.JOINTS}
            made[f"{kind}_relative"] = lambda out, k=kind, n=names: write(out, k, "wide", **n)
    pretrained = importlib.import_module("lerobot.policies.pretrained").PreTrainedPolicy
    if hasattr(pretrained, "wrap_with_peft"):
        for kind in VLA:
            made[f"{kind}_lora"] = lambda out, k=kind: write_adapter(out, k)
    return made


def main(argv: list[str]) -> None:
    out, asked = Path(argv[0]), argv[1:]
    tiny_resnet.register("resnet_least", (4, 8, 8, 16), (1, 1, 1, 1))
    step = importlib.import_module("lerobot.processor.tokenizer_processor")
    step.AutoTokenizer = types.SimpleNamespace(
        from_pretrained=lambda name, **_settings: tiny_tokenizer.pretrained(begin="SmolVLM" not in name)
    )
    shrink_smolvla()
    for kind in ("pi0", "pi05"):
        shrink_pi(kind)
    for name, write_folder in folders().items():
        if not asked or name in asked:
            write_folder(out / RELEASE / name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
