"""The action expert of the pi0 family (Black et al. 2024): a small Gemma that reads another decoder's keys and values.

Its tokens are the robot's state and the noisy actions. Each layer attends to what the same layer of the large decoder
kept of pictures and prompt, and to its own tokens; the large decoder never sees them, which is why its keys and values
are made once for all steps. The expert keeps nothing between calls and knows no number of steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.kv_cache import attention
from auras_ros.models.llama import DecoderLayer, LlamaConfig, RmsNorm
from auras_ros.models.rotary import rotary

SHORTEST_PERIOD, LONGEST_PERIOD = 4e-3, 4.0  # of the time embedding; time is 0 to 1


class ActionExpert(nn.Module):
    """(noisy actions, time, state, keys and values of the prefix) -> velocity; horizon is the number of actions given.

    Velocity is the derivative of the actions by time, which is 1 for noise and 0 for data: noise - data on the
    straight paths that it is trained on. config.vocabulary is not used: there are no words here.
    """

    def __init__(self, config: LlamaConfig, state: int, actions: int) -> None:
        super().__init__()
        if config.width < 4 or config.width % 2:
            raise ValueError(
                f"action expert: width: {config.width} is not even and at least 4: sine and cosine of time"
            )
        self.config = config
        width = config.width
        self.state_proj, self.action_in_proj = nn.Linear(state, width), nn.Linear(actions, width)
        self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(DecoderLayer(config, i) for i in range(config.layers))
        self.norm = RmsNorm(width, config.norm_eps, config.norm_offset)
        self.action_out_proj = nn.Linear(width, actions)

    def forward(self, sample: Tensor, time: Tensor, state: Tensor, prefix: Tensor) -> Tensor:
        """sample [B, horizon, actions], time [B], state [B, state], prefix [B, layers, 2, kv_heads, P, head_dim], keys
        before values -> velocity [B, horizon, actions]."""
        config, x = self.config, self.embed(sample, time, state)
        length, tokens = prefix.shape[-2], x.shape[1]
        places = torch.arange(length, length + tokens, device=x.device)
        angles = rotary(places, config.size_of_head, config.rope_theta, config.rope_scaling, x.dtype)
        visible = visible_to_suffix(length, tokens, x.device)

        def attend(layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            keys, values = (torch.cat(both, 2) for both in zip(prefix[:, layer].unbind(1), (key, value), strict=True))
            return attention(query, keys, values, visible)

        for each in self.layers:
            x = each(x, angles, attend)
        velocity: Tensor = self.action_out_proj(self.norm(x[:, 1:]))
        return velocity

    def embed(self, sample: Tensor, time: Tensor, state: Tensor) -> Tensor:
        """The suffix: the state's token, then each action's with the time in it, [B, 1 + horizon, width]."""
        when = time_embedding(time, self.config.width).to(sample.dtype)[:, None].expand(-1, sample.shape[1], -1)
        mixed = self.action_time_mlp_in(torch.cat([self.action_in_proj(sample), when], -1))
        return torch.cat([self.state_proj(state)[:, None], self.action_time_mlp_out(F.silu(mixed))], 1)


def visible_to_suffix(length: int, tokens: int, device: torch.device) -> Tensor:
    """What the suffix sees of prefix and suffix, bool [1, 1, tokens, length + tokens]: the state's token, the first,
    sees the prefix and itself; actions see everything."""
    column, row = torch.arange(length + tokens, device=device), torch.arange(tokens, device=device)
    return ((column <= length) | (row[:, None] > 0))[None, None]


def time_embedding(time: Tensor, width: int) -> Tensor:
    """Sines, then cosines of time [B] at width / 2 periods in geometric order: float64 [B, width].

    In float64 because the shortest period turns hundreds of times over the unit interval.
    """
    share = torch.arange(width // 2, device=time.device, dtype=torch.float64) / (width // 2 - 1)
    period = SHORTEST_PERIOD * (LONGEST_PERIOD / SHORTEST_PERIOD) ** share
    angle = 2 * math.pi * time.double()[:, None] / period
    return torch.cat([angle.sin(), angle.cos()], -1)
