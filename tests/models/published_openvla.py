"""OpenVLA put together by hand of the published parts: what our own is compared with."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from auras_ros.models.openvla import OpenVlaConfig
from tests.models import published


class PublishedOpenVla(nn.Module):
    """transformers' three networks and torch's linear layers, joined as the published model joins them."""

    def __init__(self, config: OpenVlaConfig, attention: str) -> None:
        super().__init__()
        self.config = config
        self.dinov2 = published.dinov2(config.dinov2, attention)
        self.siglip = published.siglip(config.siglip, attention)
        self.llama = published.exact_norms(published.llama(config.language, attention))
        features, width = config.dinov2.width + config.siglip.width, config.language.width
        sizes = [features, 4 * features, width, width]
        linear = [nn.Linear(i, o) for i, o in pairwise(sizes)]
        self.linear = published.randomise(nn.Sequential(linear[0], nn.GELU(), linear[1], nn.GELU(), linear[2]), 3)

    def forward(self, images: Tensor, ids: Tensor) -> Tensor:
        one, other = images.split(3, 1)
        seen = [
            published.features(self.dinov2, one, self.config.dinov2),
            published.features(self.siglip, other, self.config.siglip),
        ]
        embedded = self.llama.get_input_embeddings()(ids)
        whole = [embedded[:, :1], self.linear(torch.cat(seen, 2)), embedded[:, 1:]]
        logits: Tensor = self.llama(inputs_embeds=torch.cat(whole, 1)).logits
        return logits

    def folder(self) -> dict[str, Tensor]:
        """The weights under the names that an OpenVLA folder has."""
        vision, fused = published.dinov2_as_timm(self.dinov2), published.siglip_as_timm(self.siglip)
        named = {f"vision_backbone.featurizer.{name}": tensor for name, tensor in vision.items()}
        named |= {f"vision_backbone.fused_featurizer.{name}": tensor for name, tensor in fused.items()}
        for number, layer in (("1", "0"), ("2", "2"), ("3", "4")):
            for kind in ("weight", "bias"):
                named[f"projector.fc{number}.{kind}"] = self.linear.state_dict()[f"{layer}.{kind}"]
        return named | {f"language_model.{name}": tensor for name, tensor in self.llama.state_dict().items()}
