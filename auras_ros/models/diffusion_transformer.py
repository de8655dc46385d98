"""The transformer of Diffusion Policy (Chi et al. 2023, section 3.1): the noise network of DP and DP-plus.

Noisy actions are the tokens of a decoder with causal self-attention; the timestep and the observation steps are the
memory that it attends to. Parameter names are those of the published code, so that its weights fit by name. Inference
only: there is no dropout.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.sinusoid import Sinusoid

INITIAL_STD = 0.02


class DenoiserAttention(nn.Module):
    """Multi-head attention of tokens [B, T, width] to themselves, causally, or to a memory [B, S, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))  # query, key, value
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Each token attends to itself and to the tokens before it."""
        query, key, value = self._split(F.linear(x, self.in_proj_weight, self.in_proj_bias), 3)
        return self._join(F.scaled_dot_product_attention(query, key, value, is_causal=True))

    def look_at(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Each token t attends to the memory tokens s where `mask` [T, S] is 0, not to those where it is -inf."""
        width = x.shape[-1]
        (query,) = self._split(F.linear(x, self.in_proj_weight[:width], self.in_proj_bias[:width]), 1)
        key, value = self._split(F.linear(memory, self.in_proj_weight[width:], self.in_proj_bias[width:]), 2)
        return self._join(F.scaled_dot_product_attention(query, key, value, mask))

    def _split(self, projected: Tensor, parts: int) -> tuple[Tensor, ...]:
        """[B, T, parts * width] -> parts of [B, heads, T, width / heads]."""
        batch, tokens = projected.shape[:2]
        return projected.view(batch, tokens, parts, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _join(self, attended: Tensor) -> Tensor:
        out: Tensor = self.out_proj(attended.transpose(1, 2).flatten(2))
        return out


class DenoiserDecoderLayer(nn.Module):
    """Self-attention, attention to the memory, two linear layers; each with a norm before and a residual after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self_attn, self.multihead_attn = DenoiserAttention(width, heads), DenoiserAttention(width, heads)
        self.linear1, self.linear2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(width), nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.norm1(x))
        x = x + self.multihead_attn.look_at(self.norm2(x), memory, memory_mask)
        out: Tensor = x + self.linear2(F.gelu(self.linear1(self.norm3(x))))
        return out


class Decoder(nn.Module):
    """Consecutive layers."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenoiserDecoderLayer(width, heads) for _ in range(layers))

    def forward(self, x: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, memory, memory_mask)
        return x


class DiffusionTransformer(nn.Module):
    """(noisy actions [B, horizon, actions], timestep [B], condition [B, condition]) -> [B, horizon, actions].

    `condition` holds `observations` steps in order, each a token. Action t attends to the timestep and the observation
    steps 0 to t, as published: the first action does not see the second observation. Raises ValueError, naming the
    size.
    """

    memory_mask: Tensor

    def __init__(
        self,
        actions: int,
        condition: int,
        horizon: int,
        observations: int = 2,
        layers: int = 8,
        heads: int = 4,
        width: int = 256,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"transformer: width: {width} is not a multiple of heads, {heads}")
        if condition % observations:
            raise ValueError(f"transformer: a condition of {condition} is not {observations} observations of one size")
        self.sizes = {"type": "transformer", "layers": layers, "heads": heads, "width": width}
        self.observations = observations
        self.input_emb = nn.Linear(actions, width)
        self.pos_emb = nn.Parameter(torch.empty(1, horizon, width))
        self.time_emb = Sinusoid(width)
        self.cond_obs_emb = nn.Linear(condition // observations, width)
        self.cond_pos_emb = nn.Parameter(torch.empty(1, 1 + observations, width))
        self.encoder = nn.Sequential(nn.Linear(width, 4 * width), nn.Mish(), nn.Linear(4 * width, width))
        self.decoder = Decoder(layers, width, heads)
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, actions)
        # Memory token 0 is the timestep; token s is observation s - 1.
        hidden = torch.arange(1 + observations)[None] - 1 > torch.arange(horizon)[:, None]
        mask = torch.zeros(horizon, 1 + observations).masked_fill(hidden, -torch.inf)
        self.register_buffer("memory_mask", mask, persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        """The published initial values: weights and positions normal with deviation 0.02, biases zero."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "norm" not in name and "ln_f" not in name:
                nn.init.normal_(parameter, std=INITIAL_STD)

    def forward(self, x: Tensor, timestep: Tensor, condition: Tensor) -> Tensor:
        time = self.time_emb(timestep).to(x.dtype)[:, None]
        seen = self.cond_obs_emb(condition.unflatten(1, (self.observations, -1)))
        memory = self.encoder(torch.cat([time, seen], 1) + self.cond_pos_emb)
        hidden = self.decoder(self.input_emb(x) + self.pos_emb, memory, self.memory_mask.to(x.dtype))
        out: Tensor = self.head(self.ln_f(hidden))
        return out
