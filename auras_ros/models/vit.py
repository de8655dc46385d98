"""One vision transformer (Dosovitskiy et al. 2021): DINOv2 with registers, SigLIP or CLIP, by its configuration.

It returns the patch tokens of an inner layer, as OpenVLA and LLaVA use them; layers after that one and the pooling
heads are not built. Parameter names are timm's, with `layers` for timm's `blocks`. Images have the native size and are
normalised by the checkpoint's preprocessing: position embeddings are never interpolated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.blocks import Block, Blocks, chain

Activation = Literal["gelu", "gelu_tanh", "quick_gelu"]

INITIAL_STD = 0.02


@dataclass(frozen=True)
class VitConfig:
    """depth: layers of the published network. feature_layer: -1 is the last layer, -2 the one before it. image_px: if
    it is not a multiple of patch_px, the right and lower edge are not seen.

    hidden: width inside the linear layers. class_token: a token before the patches that is not returned.
    class_position: it has its own position embedding (CLIP); if not, weights are expected to hold the sum, as timm's
    do. registers: more such tokens, without positions. pre_norm: a norm before the first layer. post_norm: each layer's
    norms are behind attention and linear layers, before the residual (EVA2-CLIP-E). Raises ValueError, naming the size.
    """

    image_px: int
    patch_px: int
    width: int
    depth: int
    heads: int
    hidden: int
    activation: Activation = "gelu"
    class_token: bool = False
    class_position: bool = False
    registers: int = 0
    pre_norm: bool = False
    patch_bias: bool = True
    layer_scale: bool = False
    norm_eps: float = 1e-6
    feature_layer: int = -2
    post_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("image_px", "patch_px", "width", "depth", "heads", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"vit: {name}: {getattr(self, name)} is less than 1")
        if self.image_px < self.patch_px:
            raise ValueError(f"vit: image_px: {self.image_px} is less than patch_px, {self.patch_px}")
        if self.width % self.heads:
            raise ValueError(f"vit: width: {self.width} is not a multiple of heads, {self.heads}")
        if not -self.depth <= self.feature_layer <= -1:
            raise ValueError(f"vit: feature_layer: {self.feature_layer} is not in -{self.depth} to -1")
        if self.activation not in get_args(Activation):
            known = ", ".join(get_args(Activation))
            raise ValueError(f"vit: activation: '{self.activation}' is not known; known: {known}")
        if self.class_position and not self.class_token:
            raise ValueError("vit: class_position: there is no class token")

    @property
    def patches(self) -> int:
        """Tokens returned for an image."""
        return (self.image_px // self.patch_px) ** 2

    @property
    def prefix(self) -> int:
        """Tokens before the patches: class token and registers."""
        return int(self.class_token) + self.registers

    @property
    def built(self) -> int:
        """Layers up to the one whose output is returned."""
        return self.depth + self.feature_layer + 1


class PatchEmbed(nn.Module):
    """Images [N, 3, h, w] -> patches [N, patches, width], row by row."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, config.width, config.patch_px, config.patch_px, bias=config.patch_bias)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images).flatten(2).transpose(1, 2)
        return patches


class VitAttention(nn.Module):
    """Every token attends to every token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)  # query, key, value
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        out: Tensor = self.proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))
        return out


class Mlp(nn.Module):
    """Two linear layers."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(config.width, config.hidden), nn.Linear(config.hidden, config.width)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(activate(self.activation, self.fc1(x)))
        return out


class LayerScale(nn.Module):
    """One learned factor per channel (Touvron et al. 2021)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class VitLayer(nn.Module):
    """Attention and linear layers; each with a norm before or behind it, a scale if the network has one, and a residual
    after."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        width, eps = config.width, config.norm_eps
        self.norm1, self.attn = nn.LayerNorm(width, eps), VitAttention(width, config.heads)
        self.norm2, self.mlp = nn.LayerNorm(width, eps), Mlp(config)
        self.ls1: nn.Module = LayerScale(width) if config.layer_scale else nn.Identity()
        self.ls2: nn.Module = LayerScale(width) if config.layer_scale else nn.Identity()
        self.post_norm = config.post_norm

    def forward(self, x: Tensor) -> Tensor:
        if self.post_norm:
            x = x + self.ls1(self.norm1(self.attn(x)))
            out: Tensor = x + self.ls2(self.norm2(self.mlp(x)))
        else:
            x = x + self.ls1(self.attn(self.norm1(x)))
            out = x + self.ls2(self.mlp(self.norm2(x)))
        return out


class Vit(nn.Module):
    """Images [N, 3, image_px, image_px], normalised -> patch tokens [N, patches, width] of the feature layer."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config, self.features, self.patches = config, config.width, config.patches
        width = config.width
        self.patch_embed = PatchEmbed(config)
        self.cls_token = _token(1, width) if config.class_token else None
        self.reg_token = _token(config.registers, width) if config.registers else None
        self.pos_embed = _token(config.patches + int(config.class_position), width)
        self.norm_pre: nn.Module = nn.LayerNorm(width, config.norm_eps) if config.pre_norm else nn.Identity()
        self.layers = nn.ModuleList(VitLayer(config) for _ in range(config.built))

    def blocks(self) -> Blocks:
        """Consecutive parts, by name; each takes what the one before it returns. Together: `forward`."""
        return [("embed", self._embed), *((f"layers.{i}", self._layer(i)) for i in range(len(self.layers)))]

    def forward(self, images: Tensor) -> Tensor:
        return chain(self.blocks(), images)

    def _embed(self, images: Tensor) -> tuple[Tensor]:
        """Images -> all tokens: class token, registers, patches."""
        side = self.config.image_px
        if images.dim() != 4 or images.shape[1:] != (3, side, side):
            got = list(images.shape)
            raise ValueError(f"vit: images: {got}, expected [N, 3, {side}, {side}]: positions are not interpolated")
        x, rows = self.patch_embed(images), len(images)
        x = x + self.pos_embed[:, -self.config.patches :]
        before = []
        if self.cls_token is not None:
            place = self.pos_embed[:, :1] if self.config.class_position else 0
            before.append((self.cls_token + place).expand(rows, -1, -1))
        if self.reg_token is not None:
            before.append(self.reg_token.expand(rows, -1, -1))
        return (self.norm_pre(torch.cat([*before, x], 1)),)

    def _layer(self, index: int) -> Block:
        """One layer; the last one returns only the patches."""
        prefix = self.config.prefix if index + 1 == len(self.layers) else 0

        def run(x: Tensor) -> tuple[Tensor]:
            return (self.layers[index](x)[:, prefix:],)

        return run


def activate(name: Activation, x: Tensor) -> Tensor:
    """GELU: exact, its tanh approximation, or CLIP's x * sigmoid(1.702 x)."""
    if name == "quick_gelu":
        return x * torch.sigmoid(1.702 * x)
    return F.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")


def _token(count: int, width: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(1, count, width) * INITIAL_STD)
