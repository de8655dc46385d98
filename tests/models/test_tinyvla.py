"""TinyVLA's networks: the published parts put together by hand give the same condition; sizes are the published ones.

Guards: cameras joined in another order or by channel; the norm before the mean; the state left out of the condition;
the head's weights in the model's place.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.checkpoints.hf_names import TensorNameError
from auras_ros.models.gpt_neox import GptNeox
from auras_ros.models.presets import CLIP_L_336, PYTHIAS, TINYVLAS
from auras_ros.models.tinyvla import build_head, build_llava_pythia
from auras_ros.models.vit import VitLayer
from auras_ros.policies.tinyvla import TinyVlaEncoder
from tests.models import published
from tests.models.hf_names import rename, tinyvla_rule

TINY = TINYVLAS["tinyvla-tiny"]
WIDTH = TINY.language.width

# Parameters with the embedding of the input and the head of the output (Biderman et al. 2023).
PYTHIA_COUNTS = {"pythia-70m": 70_426_624, "pythia-410m": 405_334_016, "pythia-1b": 1_011_781_632}
CLIP_L_336_COUNT = 303_507_456
FOLDER_LANGUAGE, FOLDER_400M_MIB = replace(PYTHIAS["pythia-70m"], head=True), 715  # two bytes each
# Whole policies, as the paper counts them (Wen et al. 2024): 422 M, 740 M and 1.3 B.
TINYVLA_COUNTS = {"tinyvla-400m": (422e6, -6), "tinyvla-700m": (740e6, -6), "tinyvla-1.3b": (1.3e9, -8)}


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def parts() -> nn.ModuleDict:
    """As `tinyvla_rule` names them, with random weights."""
    condition, network = build_head(TINY)
    made = nn.ModuleDict({"model": build_llava_pythia(TINY), "condition": condition, "network": network})
    return published.randomise(made)  # type: ignore[return-value]


class PublishedTinyVla(nn.Module):
    """transformers' two networks and torch's layers, joined as the published model joins them."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.clip = published.clip(TINY.vision, attention)
        self.pythia = published.gpt_neox(replace(TINY.language, head=True), attention)
        projector = nn.Sequential(nn.Linear(TINY.vision.width, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.projector = published.randomise(projector, 5)
        self.norm = published.randomise(nn.ModuleDict({"norm": nn.LayerNorm(WIDTH)}), 6)["norm"]  # type: ignore[index]
        self.combine = published.randomise(nn.Linear(WIDTH + TINY.state, WIDTH), 7)

    def forward(self, cameras: list[Tensor], before: Tensor, after: Tensor, state: Tensor) -> Tensor:
        seen = [self.projector(published.features(self.clip, images, TINY.vision)) for images in cameras]
        first, last = (self.pythia.get_input_embeddings()(ids).expand(len(state), -1, -1) for ids in (before, after))
        hidden = self.pythia.gpt_neox(inputs_embeds=torch.cat([first, *seen, last], 1)).last_hidden_state
        pooled = self.norm(F.adaptive_avg_pool1d(hidden.transpose(1, 2), 1).squeeze(-1))
        condition: Tensor = self.combine(torch.cat([pooled, state], -1))
        return condition

    def folder(self) -> dict[str, Tensor]:
        """The weights under the names that the published modules give them; the U-Net's are random."""
        clip = published.without("vision_model.", self.clip.state_dict())
        named = {f"gpt_neox.vision_tower.vision_model.{name}": tensor for name, tensor in clip.items()}
        named |= {f"gpt_neox.mm_projector.{name}": tensor for name, tensor in self.projector.state_dict().items()}
        named |= {name: tensor for name, tensor in self.pythia.state_dict().items() if name.startswith("gpt_neox.")}
        head = {"norm_after_pool": self.norm, "combine": self.combine}
        for layer, module in head.items():
            named |= {f"embed_out.{layer}.{name}": tensor for name, tensor in module.state_dict().items()}
        network = parts()["network"].state_dict()
        return named | {
            f"embed_out.{name}": tensor.to(named["gpt_neox.embed_in.weight"]) for name, tensor in network.items()
        }


@torch.no_grad()
@pytest.mark.parametrize(
    ("dtype", "attention", "tolerance"), [(torch.float32, "eager", 1e-4), (torch.float64, "sdpa", 1e-11)]
)
def test_the_condition_is_that_of_the_published_parts_put_together(
    dtype: torch.dtype, attention: str, tolerance: float
) -> None:
    pytest.importorskip("transformers")
    theirs, ours = PublishedTinyVla(attention).to(dtype), parts().to(dtype)
    ours.load_state_dict(rename(theirs.folder(), tinyvla_rule(TINY), ours.state_dict()))
    random = torch.Generator().manual_seed(0)
    side = TINY.vision.image_px
    images = torch.randn(2, 1, 3, 3, side, side, generator=random).to(dtype)
    state = torch.randn(2, 1, TINY.state, generator=random).to(dtype)
    before, after = torch.tensor([1, 7]), torch.tensor([4, 300, 511])
    encoder = TinyVlaEncoder(ours["model"], ours["condition"], before, after, cameras=3)  # type: ignore[arg-type]
    expected = theirs(list(images[:, 0].unbind(1)), before[None], after[None], state[:, 0])
    torch.testing.assert_close(encoder(images, state), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["embed_out.pool.weight", "embed_out.combine.scale", "vision.proj", "gpt_neox.norm"])
def test_a_name_without_a_place_is_refused(name: str) -> None:
    pytest.importorskip("transformers")
    folder = {**PublishedTinyVla("eager").folder(), name: torch.zeros(1)}
    with pytest.raises(TensorNameError, match=f"tensor '{name}'"):
        rename(folder, tinyvla_rule(TINY), parts().state_dict())


def test_published_sizes() -> None:
    left_out = parameters(VitLayer(CLIP_L_336)) + 2 * CLIP_L_336.width  # the last layer and the norm behind it
    with torch.device("meta"):
        for name, count in PYTHIA_COUNTS.items():
            assert parameters(GptNeox(replace(PYTHIAS[name], head=True))) == count
        for name, (count, digits) in TINYVLA_COUNTS.items():
            model, head = build_llava_pythia(TINYVLAS[name]), build_head(TINYVLAS[name])
            assert round(parameters(model) + left_out + sum(map(parameters, head)), digits) == count
        folder = build_llava_pythia(replace(TINYVLAS["tinyvla-400m"], language=FOLDER_LANGUAGE))
    assert parameters(folder.vision) + left_out == CLIP_L_336_COUNT
    assert round(2 * (parameters(folder) + left_out) / 2**20) == FOLDER_400M_MIB


def test_small_ones_are_small() -> None:
    with torch.device("meta"):
        for name, limit in (("tinyvla-small", 60_000_000), ("tinyvla-tiny", 200_000)):
            whole = parameters(build_llava_pythia(TINYVLAS[name])) + sum(map(parameters, build_head(TINYVLAS[name])))
            assert whole < limit


def test_a_horizon_that_the_head_cannot_halve_is_refused() -> None:
    with pytest.raises(ValueError, match="tinyvla: horizon: 6 is not a multiple of 4"):
        build_head(replace(TINY, horizon=6))
