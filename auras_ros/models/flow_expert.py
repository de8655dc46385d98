"""The action experts of the pi0 family (Black et al. 2024): small Gemmas that read another decoder's keys and values.

Each layer attends to its own tokens and to the keys and values of images and prompt in the same layer of the large
decoder, which never sees the expert: these keys and values are computed once for all steps. pi0's tokens are the
robot's state and the noisy actions, with the time mixed in; pi0.5's are the actions, and the time modulates the norms
of every layer (`AdaptiveLayer`). An expert keeps nothing between calls and knows no number of steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.flow_context import PrefixKV, places_after, visible_after
from auras_ros.models.kv_cache import Attend, attention
from auras_ros.models.llama import GatedMlp, LlamaAttention, LlamaConfig, LlamaDecoderLayer, RmsNorm
from auras_ros.models.rotary import rotary

SHORTEST_PERIOD, LONGEST_PERIOD = 4e-3, 4.0  # of the time embedding; time is 0 to 1


class TimedExpert(nn.Module):
    """An expert that mixes the time into each action."""

    action_in_proj: nn.Linear
    action_time_mlp_in: nn.Linear
    action_time_mlp_out: nn.Linear

    def timed(self, sample: Tensor, time: Tensor) -> Tensor:
        """Each action with the time mixed in, [B, horizon, width]."""
        actions = self.action_in_proj(sample)
        when = time_embedding(time, actions.shape[-1]).to(sample.dtype)[:, None].expand(-1, sample.shape[1], -1)
        out: Tensor = self.action_time_mlp_out(F.silu(self.action_time_mlp_in(torch.cat([actions, when], -1))))
        return out


class ActionExpert(TimedExpert):
    """(noisy actions, time, state, prefix) -> velocity; horizon is the number of actions given.

    Velocity is the derivative of the actions with respect to time, which is 1 for noise and 0 for data: noise - data on
    the straight paths of training. config.vocabulary is not used: there are no words here.
    """

    def __init__(self, config: LlamaConfig, state: int, actions: int) -> None:
        super().__init__()
        check_width(config)
        self.config = config
        width = config.width
        self.state_proj, self.action_in_proj = nn.Linear(state, width), nn.Linear(actions, width)
        self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(LlamaDecoderLayer(config, LlamaAttention(config, i)) for i in range(config.layers))
        self.norm = RmsNorm(width, config.norm_eps, config.norm_offset)
        self.action_out_proj = nn.Linear(width, actions)

    def forward(self, sample: Tensor, time: Tensor, state: Tensor, prefix: PrefixKV) -> Tensor:
        """sample [B, horizon, actions], time [B], state [B, state] -> velocity [B, horizon, actions]."""
        x = self.embed(sample, time, state)
        angles, attend = reading(prefix, visible_to_suffix(x.shape[1], x.device), self.config, x.dtype)
        for each in self.layers:
            x = each(x, angles, attend)
        velocity: Tensor = self.action_out_proj(self.norm(x[:, 1:]))
        return velocity

    def embed(self, sample: Tensor, time: Tensor, state: Tensor) -> Tensor:
        """The suffix: the state's token, then each action's with the time mixed in, [B, 1 + horizon, width]."""
        return torch.cat([self.state_proj(state)[:, None], self.timed(sample, time)], 1)


class AdaptiveRmsNorm(nn.Module):
    """x / rms(x) * (1 + scale) + shift, in float32 at least, and a gate for the residual; all three are linear in the
    condition (Peebles and Xie 2023, with the root mean square for the norm)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.dense, self.eps = nn.Linear(width, 3 * width), eps

    def forward(self, x: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """x [B, T, width], condition [B, width] -> (normed [B, T, width], gate [B, 1, width])."""
        wide = x if x.dtype == torch.float64 else x.float()
        scale, shift, gate = self.dense(condition)[:, None].chunk(3, -1)
        normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (normed * (1 + scale.to(wide.dtype)) + shift.to(wide.dtype)).to(x.dtype), gate


class AdaptiveLayer(nn.Module):
    """A decoder layer whose norms and residuals are modulated by the time."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(config, layer)
        self.mlp = GatedMlp(config.width, config.hidden, config.activation)
        self.input_layernorm = AdaptiveRmsNorm(config.width, config.norm_eps)
        self.post_attention_layernorm = AdaptiveRmsNorm(config.width, config.norm_eps)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], attend: Attend, condition: Tensor) -> Tensor:
        normed, gate = self.input_layernorm(x, condition)
        x = x + self.self_attn(normed, angles, attend) * gate
        normed, gate = self.post_attention_layernorm(x, condition)
        out: Tensor = x + self.mlp(normed) * gate
        return out


class AdaptiveExpert(nn.Module):
    """pi0.5's: like `ActionExpert`, without the state, which its prompt holds, and with the time in every norm."""

    def __init__(self, config: LlamaConfig, actions: int) -> None:
        super().__init__()
        check_width(config)
        self.config = config
        width = config.width
        self.action_in_proj = nn.Linear(actions, width)
        self.time_mlp_in, self.time_mlp_out = nn.Linear(width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(AdaptiveLayer(config, i) for i in range(config.layers))
        self.norm = AdaptiveRmsNorm(width, config.norm_eps)
        self.action_out_proj = nn.Linear(width, actions)

    def forward(self, sample: Tensor, time: Tensor, _state: Tensor, prefix: PrefixKV) -> Tensor:
        """sample [B, horizon, actions], time [B] -> velocity [B, horizon, actions]; actions attend to one another."""
        x: Tensor = self.action_in_proj(sample)
        condition = self.time_mlp_in(time_embedding(time, self.config.width).to(sample.dtype))
        condition = F.silu(self.time_mlp_out(F.silu(condition)))
        tokens = x.shape[1]
        everything = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device)
        angles, attend = reading(prefix, everything, self.config, x.dtype)
        for each in self.layers:
            x = each(x, angles, attend, condition)
        velocity: Tensor = self.action_out_proj(self.norm(x, condition)[0])
        return velocity


def reading(
    prefix: PrefixKV, own: Tensor, config: LlamaConfig, dtype: torch.dtype
) -> tuple[tuple[Tensor, Tensor], Attend]:
    """Rotary angles of the tokens after the prefix, and their attention to it and, by `own` [T, T], to themselves."""
    angles = rotary(
        places_after(prefix.valid, len(own)), config.size_of_head, config.rope_theta, config.rope_scaling, dtype
    )
    visible = visible_after(prefix.valid, own)

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        before = prefix.kept[:, layer].unbind(1)
        keys, values = (torch.cat(both, 2) for both in zip(before, (key, value), strict=True))
        return attention(query, keys, values, visible)

    return angles, attend


def check_width(config: LlamaConfig) -> None:
    """Raise ValueError if the width does not fit sine and cosine of the time."""
    if config.width < 4 or config.width % 2:
        raise ValueError(f"action expert: width: {config.width} is not even and at least 4: sine and cosine of time")


def visible_to_suffix(tokens: int, device: torch.device) -> Tensor:
    """What pi0's suffix sees of itself, bool [tokens, tokens]: the first token, the state's, sees only itself; actions
    see everything."""
    place = torch.arange(tokens, device=device)
    return (place[:, None] > 0) | (place == 0)


def time_embedding(time: Tensor, width: int) -> Tensor:
    """Sines, then cosines of time [B] at width / 2 periods in geometric order: float64 [B, width].

    In float64, because the shortest period repeats hundreds of times over the unit interval.
    """
    share = torch.arange(width // 2, device=time.device, dtype=torch.float64) / (width // 2 - 1)
    period = SHORTEST_PERIOD * (LONGEST_PERIOD / SHORTEST_PERIOD) ** share
    angle = 2 * math.pi * time.double()[:, None] / period
    return torch.cat([angle.sin(), angle.cos()], -1)
