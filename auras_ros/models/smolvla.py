"""SmolVLA (Shukor et al. 2025): SmolVLM2's first layers process images, prompt and state, a narrow expert reads them.

Images go through SigLIP's layers, are folded (each `fold` x `fold` patches become one token) and projected. The state
is the last token of the prefix: it sees the whole prefix, and nothing in the prefix sees it. The expert's layers
alternate: some attend to the prefix's keys and values and to the actions before them, the others only to the prefix,
through projections of their own. Those do not depend on the step, so they are computed once, with the context.
Positions are as in `pi0`: only valid tokens count.

Two details of the published code are kept: rotary frequencies have base 10000, whatever SmolVLM2 was trained with, and
the tokens around an image are embedded without the factor of all other words. One is not: transformers 4.55 and later
move SmolVLM2's image positions by one patch in float32, but not in bfloat16, its training type.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from auras_ros.models.flow_context import PrefixKV, padded
from auras_ros.models.flow_expert import TimedExpert, check_width, reading
from auras_ros.models.flow_model import FlowModel, check_keys
from auras_ros.models.kv_cache import attention
from auras_ros.models.llama import Llama, LlamaAttention, LlamaConfig, LlamaDecoderLayer, RmsNorm
from auras_ros.models.rotary import rotary, rotate
from auras_ros.models.vit import Vit, VitConfig


@dataclass(frozen=True)
class SmolVlaConfig:
    """language: with as many layers as are used. fold: side of the squares of patches that become one token.

    self_attention_every: layers 0, n, 2n, ... of the expert attend to the actions too, the others only to the prefix;
    1: all do, 0: none. around: token ids before and after each image. empty: cameras without an image; the prefix has
    only the tokens around it. Raises ValueError, naming the size.
    """

    vision: VitConfig
    language: LlamaConfig
    expert: LlamaConfig
    fold: int = 4
    self_attention_every: int = 2
    horizon: int = 50
    state: int = 32
    actions: int = 32
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    empty: int = 0

    def __post_init__(self) -> None:
        for name in ("fold", "horizon", "state", "actions"):
            if getattr(self, name) < 1:
                raise ValueError(f"smolvla: {name}: {getattr(self, name)} is less than 1")
        for name in ("self_attention_every", "empty"):
            if getattr(self, name) < 0:
                raise ValueError(f"smolvla: {name}: {getattr(self, name)} is less than 0")
        side = self.vision.image_px // self.vision.patch_px
        if side % self.fold:
            raise ValueError(f"smolvla: fold: {self.fold} does not divide the {side} patches of a side")
        if unknown := [i for ids in self.around for i in ids if not 0 <= i < self.language.vocabulary]:
            raise ValueError(f"smolvla: around: {unknown[0]} is not a token of {self.language.vocabulary}")
        check_keys("smolvla", self.language, self.expert)
        if self.language.heads != self.expert.heads:
            heads = f"{self.language.heads} in the language model, {self.expert.heads} in the expert"
            raise ValueError(f"smolvla: heads: {heads}")

    def sees_actions(self, layer: int) -> bool:
        """Whether the expert's layer attends to the actions too."""
        return self.self_attention_every > 0 and layer % self.self_attention_every == 0


class FoldProjector(nn.Module):
    """SigLIP's last norm, the folding and the projection: patches [..., P, features] -> [..., P / fold^2, width].

    scaled: the result is multiplied by the square root of the width, like SmolVLA's words.
    """

    def __init__(self, vision: VitConfig, fold: int, width: int, scaled: bool = True) -> None:
        super().__init__()
        self.norm, self.fold, self.width = nn.LayerNorm(vision.width, vision.norm_eps), fold, width
        self.scaled = scaled
        self.linear = nn.Linear(vision.width * fold**2, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        side = int(x.shape[-2] ** 0.5)
        squares = self.norm(x).unflatten(-2, (side // self.fold, self.fold, side // self.fold, self.fold))
        folded = squares.transpose(-4, -3).flatten(-3).flatten(-3, -2)
        out: Tensor = self.linear(folded)
        return out * out.new_full((), self.width**0.5) if self.scaled else out  # rounded to the weights' type


class CrossAttention(LlamaAttention):
    """Attention only to the prefix; `reread` makes its keys and values from the prefix's."""

    def __init__(self, config: LlamaConfig, layer: int) -> None:
        super().__init__(config, layer, config.kv_heads * config.size_of_head)

    def reread(self, kept: Tensor) -> Tensor:
        """The prefix's keys, already rotated, and values [B, 2, kv_heads, P, head_dim] -> this layer's, same shape."""
        joined = kept.transpose(2, 3).flatten(3)  # heads side by side
        parts = torch.stack([self.k_proj(joined[:, 0]), self.v_proj(joined[:, 1])], 1)
        out: Tensor = parts.unflatten(-1, (-1, self.head_dim)).transpose(2, 3)
        return out

    def forward(  # type: ignore[override]
        self, x: Tensor, angles: tuple[Tensor, Tensor], kept: Tensor, visible: Tensor
    ) -> Tensor:
        query = self.q_proj(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
        seen = attention(rotate(query, angles), kept[:, 0], kept[:, 1], visible)
        out: Tensor = self.o_proj(seen.transpose(1, 2).flatten(2))
        return out


class SmolExpert(TimedExpert):
    """(noisy actions, time, state, prefix) -> velocity. An action attends to those before it, in a cross-attention
    layer only to the prefix."""

    def __init__(self, config: SmolVlaConfig) -> None:
        super().__init__()
        check_width(config.expert)
        expert, width, actions = config.expert, config.expert.width, config.actions
        self.config = config
        self.action_in_proj = nn.Linear(actions, width)
        self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.layers = nn.ModuleList(
            LlamaDecoderLayer(expert, (LlamaAttention if config.sees_actions(i) else CrossAttention)(expert, i))
            for i in range(expert.layers)
        )
        self.norm = RmsNorm(width, expert.norm_eps)
        self.action_out_proj = nn.Linear(width, actions)

    def reread(self, layer: int, kept: Tensor) -> Tensor:
        """What this layer reads of the language model layer's keys and values."""
        each = self.layers[layer].self_attn
        return each.reread(kept) if isinstance(each, CrossAttention) else kept

    def forward(self, sample: Tensor, time: Tensor, _state: Tensor, prefix: PrefixKV) -> Tensor:
        """sample [B, horizon, actions], time [B] -> velocity [B, horizon, actions]; prefix: from `reread`."""
        x, expert = self.timed(sample, time), self.config.expert
        place = torch.arange(x.shape[1], device=x.device)
        following = reading(prefix, place[:, None] >= place, expert, x.dtype)
        from_zero = rotary(place, expert.size_of_head, expert.rope_theta, None, x.dtype)  # positions begin at 0
        for i, layer in enumerate(self.layers):
            own = self.config.sees_actions(i)
            x = layer(x, *(following if own else (from_zero, prefix.kept[:, i], prefix.valid[:, None, None])))
        velocity: Tensor = self.action_out_proj(self.norm(x))
        return velocity


class SmolVla(FlowModel):
    """`vision`, `projector`, `language` and `state_proj` make the prefix, `expert` gives the velocity."""

    expert: SmolExpert
    states = 0  # the state is in the prefix

    def __init__(self, config: SmolVlaConfig) -> None:
        projector = FoldProjector(config.vision, config.fold, config.language.width)
        super().__init__(Vit(config.vision), projector, Llama(config.language))
        self.config = config
        self.state_proj = nn.Linear(config.state, config.language.width)
        self.expert = SmolExpert(config)
        for name, ids in zip(("start", "end"), config.around, strict=True):
            self.register_buffer(name, torch.tensor(ids, dtype=torch.int64), persistent=False)

    def join(self, seen: Tensor, prompt: Tensor, there: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Patches of each row's cameras [batch * cameras, tokens, width], the prompt int64 [1, ids] with its mask
        `there`, and the state [batch, D] -> the prefix [batch, P, width] and its mask [batch, P].

        Raises ValueError if D is too large.
        """
        batch, own = len(state), padded(state, self.config.state, "smolvla").to(self.dtype)
        start, end = (self.language.embed_tokens(ids) for ids in (self.start, self.end))  # without the words' factor
        around = [part.expand(len(seen), -1, -1) for part in (start, end)]
        pictures = torch.cat([around[0], seen, around[1]], 1).reshape(batch, -1, seen.shape[-1])
        empty = torch.cat([start, end]).repeat(self.config.empty, 1).expand(batch, -1, -1)
        words = self.language.embed(prompt).expand(batch, -1, -1)
        last = self.state_proj(own)[:, None]
        valid = [torch.ones_like(part[..., 0], dtype=torch.bool) for part in (pictures, empty, last)]
        masks = [valid[0], valid[1], there.expand(batch, -1), valid[2]]
        return torch.cat([pictures, empty, words, last], 1), torch.cat(masks, 1)

    def layer(self, index: int, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """One layer over the whole prefix: its output, and what the expert's layer reads of it."""
        place = torch.arange(x.shape[1], device=x.device)
        state = x.shape[1] - 1
        visible = valid[:, None, None] & ((place < state) | (place[:, None] == state))
        x, kept = self.prefix_layer(index, x, valid, visible)
        return x, self.expert.reread(index, kept)
