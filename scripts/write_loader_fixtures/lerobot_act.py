"""Writes the fixtures of LeRobot's `act`: two tiny policies as the library saves them, and what it does itself.

    python scripts/write_loader_fixtures/lerobot_act.py

Patched: the backbone (`tiny_resnet`; LeRobot has torchvision's sizes alone). Weights are random.
"""

from __future__ import annotations

from typing import Any

import lerobot_fixture as fixture
import tiny_resnet
import torch
from lerobot.configs.types import NormalizationMode
from lerobot.policies.act.configuration_act import ACTConfig
from lerobot.policies.act.modeling_act import ACTPolicy
from lerobot.policies.act.processor_act import make_act_pre_post_processors

MIN_MAX, QUANTILES = NormalizationMode.MIN_MAX, NormalizationMode.QUANTILES


def write(name: str, cameras: dict[str, tuple[int, int]], actions: int, **settings: Any) -> None:
    torch.manual_seed(0)
    names = fixture.features(cameras, len(fixture.JOINTS), actions)
    stats = fixture.statistics(names)
    for each in stats.values():
        each["q01"], each["q99"] = each["min"] + 0.1 * each["std"], each["max"] - 0.2 * each["std"]
    config = ACTConfig(
        **names, device="cpu", push_to_hub=False, vision_backbone="resnet_tiny", pretrained_backbone_weights=None,
        latent_dim=4, n_vae_encoder_layers=1, n_heads=2, dim_feedforward=24, **settings,
    )  # fmt: skip
    policy = ACTPolicy(config).eval()
    tiny_resnet.settle(policy)
    with torch.no_grad():  # a chunk whose actions differ
        for part, weight in policy.model.named_parameters():
            if ".layers." in part and weight.dim() > 1:
                weight.mul_(2)
    before, after = make_act_pre_post_processors(config, stats)
    raw = fixture.observations(names, stats, 1)
    batch = {key: each for key, each in before(fixture.frame(raw, 0)).items() if key.startswith("observation")}
    chunk = policy.predict_action_chunk(batch)[:, : config.n_action_steps]
    fixture.write(name, (policy, before, after), raw, after(chunk)[0], torch.zeros(0))


def main() -> None:
    tiny_resnet.register("resnet_tiny", (4, 8, 8, 16), (1, 2, 1, 1))
    write("lerobot_act", {"top": (72, 100)}, 4, chunk_size=8, n_action_steps=6, dim_model=16, n_encoder_layers=2)
    write(
        "lerobot_act_cameras", {"wrist": (64, 96), "front": (64, 96)}, 3, chunk_size=5, n_action_steps=5, dim_model=24,
        n_encoder_layers=1, n_decoder_layers=2, pre_norm=True, feedforward_activation="gelu", use_vae=False,
        normalization_mapping={"VISUAL": NormalizationMode.IDENTITY, "STATE": MIN_MAX, "ACTION": QUANTILES},
    )  # fmt: skip


if __name__ == "__main__":
    main()
