"""Writes tests/policies/loaders/data/lerobot_smolvla and lerobot_smolvla_tokens with LeRobot 0.4.4's own classes.

    python scripts/write_loader_fixtures/lerobot_smolvla.py

It takes lerobot 0.4.4 and transformers 4.57. SmolVLM2's sizes come from the Hub: they are replaced here by tiny ones.
`patched_smolvlm` puts the patches where they are meant to be. Weights are random, norms around one.
"""

from __future__ import annotations

import types
from typing import Any

import patched_gemma
import patched_smolvlm
import tiny_tokenizer
import torch

patched_gemma.install()  # before lerobot_pi, whose writing is used

import lerobot_pi as pi  # noqa: E402
from lerobot.policies.smolvla import modeling_smolvla, smolvlm_with_expert  # noqa: E402
from lerobot.policies.smolvla.configuration_smolvla import SmolVLAConfig  # noqa: E402
from lerobot.policies.smolvla.processor_smolvla import make_smolvla_pre_post_processors  # noqa: E402
from lerobot.processor import tokenizer_processor  # noqa: E402
from transformers import SmolVLMConfig  # noqa: E402

SIDE = 32


def sizes() -> SmolVLMConfig:
    vision = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    text = {
        "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48, "rms_norm_eps": 1e-5, "rope_theta": 100000.0,
        "vocab_size": len(tiny_tokenizer.pretrained()), "pad_token_id": 0,
    }  # fmt: skip
    return SmolVLMConfig(
        vision_config={**vision, "image_size": SIDE, "patch_size": 8},
        text_config=text,
        scale_factor=2,
        pad_token_id=0,
    )


def write(name: str, **settings: Any) -> None:
    torch.manual_seed(0)
    config = SmolVLAConfig(
        **pi.FEATURES, device="cpu", push_to_hub=False, chunk_size=6, max_state_dim=5, max_action_dim=6, num_steps=4,
        resize_imgs_with_padding=(SIDE, SIDE), tokenizer_max_length=24, **settings,
    )  # fmt: skip
    policy = modeling_smolvla.SmolVLAPolicy(config)
    random = torch.Generator().manual_seed(0)
    for key, parameter in policy.named_parameters():
        around = float("norm" in key and key.endswith("weight"))
        parameter.data.copy_(around + 0.2 * torch.randn(parameter.shape, generator=random))
    pi.write(name, policy, make_smolvla_pre_post_processors(config, pi.STATISTICS), begin=False)


def main() -> None:
    made = tiny_tokenizer.pretrained(begin=False)
    made.fake_image_token_id, made.global_image_token_id = made.convert_tokens_to_ids(list(tiny_tokenizer.PICTURE))
    tokenizer_processor.AutoTokenizer = types.SimpleNamespace(from_pretrained=lambda _name: made)
    processor = types.SimpleNamespace(tokenizer=made)
    smolvlm_with_expert.AutoProcessor = types.SimpleNamespace(from_pretrained=lambda _name: processor)
    smolvlm_with_expert.AutoConfig = types.SimpleNamespace(from_pretrained=lambda _name: sizes())
    smolvlm_with_expert.get_intermediate_size = lambda hidden: 2 * hidden
    patched_smolvlm.install()
    write("lerobot_smolvla", num_vlm_layers=3, n_action_steps=4)
    write(
        "lerobot_smolvla_tokens", num_vlm_layers=2, n_action_steps=6, add_image_special_tokens=True, empty_cameras=1,
        prefix_length=60, pad_language_to="max_length", self_attn_every_n_layers=0,
    )  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
