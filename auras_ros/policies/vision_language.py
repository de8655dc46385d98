"""The prefix of a vision-language-action policy: [X_L before, X_V, X_L after] of its newest instant (Auras 4.2.1).

The prompt lies at a fixed address, so that captured stages read the one that is set. Its length is fixed too: another
prompt of as many tokens is a copy, one of another length another prefix. Tokens come from outside; no tokenizer here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.vision_language import SeeingLanguage
from auras_ros.policies.perception import Body


class VisionLanguagePrefix(nn.Module):
    """Images [B, history, cameras, channels, px, px] -> [B, before + cameras * patches + after, width].

    Cameras follow one another as the observation names them. The robot's state is not looked at. ids: int64 [P].
    """

    before: Tensor
    after: Tensor

    def __init__(self, model: SeeingLanguage, before: Tensor, after: Tensor, cameras: int = 1) -> None:
        super().__init__()
        self.model, self.cameras = model, cameras
        self.register_buffer("before", before[None].clone(), persistent=False)
        self.register_buffer("after", after[None].clone(), persistent=False)

    @property
    def segments(self) -> tuple[int, ...]:
        """The first ids, each camera's patches, the other ids; what has no embedding is left out."""
        parts = (self.before.shape[1], *[self.model.vision.patches] * self.cameras, self.after.shape[1])
        return tuple(part for part in parts if part)

    def set_prompt(self, after: Tensor) -> None:
        """Another prompt, int64 [P]. Raises ValueError for another length."""
        if after.shape != self.after.shape[1:]:
            raise ValueError(f"prompt: {len(after)} tokens, but this policy was made for {self.after.shape[1]}")
        self.after.copy_(after[None])

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return self._joined(self.model.see(_newest(images)), state)[0]

    def blocks(self) -> list[tuple[str, Body]]:
        """As `forward`; the state goes along for its batch size alone."""
        inner = [(name, beside(block)) for name, block in self.model.blocks()]
        return [("newest", lambda images, state: (_newest(images), state)), *inner, ("prompt", self._joined)]

    def _joined(self, seen: Tensor, state: Tensor) -> tuple[Tensor]:
        """Patches of all pictures [B * cameras, patches, width] -> the whole prefix."""
        batch = len(state)
        return (self.model.prefix(seen.reshape(batch, -1, seen.shape[-1]), self.before, self.after),)


def _newest(images: Tensor) -> Tensor:
    return images[:, -1].flatten(0, 1)


def beside(block: Body) -> Body:
    """The block with what it does not look at handed on behind what it returns: the last tensor, the state."""
    return lambda *carried: (*block(*carried[:-1]), carried[-1])


def random_ids(count: int, vocabulary: int, seed: int) -> Tensor:
    """A prompt for benches and tests: int64 [count]."""
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(seed))
