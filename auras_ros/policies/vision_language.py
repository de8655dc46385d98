"""The prefix of a vision-language-action policy: [X_L before, X_V, X_L after] of its newest instant (Auras 4.2.1).

The prompt lies at a fixed address, so that captured stages read the current one. `VisionLanguagePrefix` has a fixed
length: another prompt of as many tokens is a copy, one of another length needs another prefix. `PaddedPrefix` has room
for any length up to a maximum. Token ids come from outside; there is no tokenizer here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Blocks, carrying
from auras_ros.models.vision_language import SeeingLanguage


class VisionLanguagePrefix(nn.Module):
    """Images [B, history, cameras, channels, px, px] -> [B, before + cameras * patches + after, width].

    Cameras follow one another in the observation's order. The robot's state is not used. ids: int64 [P]. Images are
    taken in float32, like observations, and cast to the type of the networks.
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
        """The first ids, each camera's patches, the other ids; empty segments are left out."""
        parts = (self.before.shape[1], *[self.model.vision.patches] * self.cameras, self.after.shape[1])
        return tuple(part for part in parts if part)

    def set_ids(self, ids: Tensor) -> None:
        """Set another prompt as its tokenizer gives it, int64 [P], with the ids before the images.

        Raises ValueError if its beginning differs, or its length does not fit.
        """
        first = self.before.shape[1]
        if ids[:first].tolist() != self.before[0].tolist():
            raise ValueError(f"prompt: begins with {ids[:first].tolist()}, expected {self.before[0].tolist()}")
        self.set_prompt(ids[first:])

    def set_prompt(self, after: Tensor) -> None:
        """Set the ids after the images, int64 [P]. Raises ValueError for another length."""
        if after.shape != self.after.shape[1:]:
            raise ValueError(f"prompt: {len(after)} tokens, but this policy was made for {self.after.shape[1]}")
        self.after.copy_(after[None])

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return self._joined(self.model.see(self._newest(images)), state)[0]

    def blocks(self) -> Blocks:
        """`forward` in parts; the state is passed on only for its batch size."""
        inner = [(name, carrying(block)) for name, block in self.model.blocks()]
        return [("newest", lambda images, state: (self._newest(images), state)), *inner, ("prompt", self._joined)]

    def _newest(self, images: Tensor) -> Tensor:
        return images[:, -1].flatten(0, 1).to(next(self.parameters()).dtype)

    def _joined(self, seen: Tensor, state: Tensor) -> tuple[Tensor]:
        """Patches of all images [B * cameras, patches, width] -> the whole prefix."""
        batch = len(state)
        return (self.model.prefix(seen.reshape(batch, -1, seen.shape[-1]), self.before, self.after),)


class PaddedPrefix(VisionLanguagePrefix):
    """With room for `room` ids behind the images: a shorter prompt stands at the end of the room, and the gap before it
    is masked (`layout`) and not counted in positions.

    The output has the same length for every prompt, so shapes, segments and addresses stay. It needs a decoder that
    takes mask and places. Decoded tokens are as after the prompt alone, up to the rounding of masked sums.
    """

    gap: Tensor

    def __init__(self, model: SeeingLanguage, before: Tensor, after: Tensor, cameras: int, room: int) -> None:
        super().__init__(model, before, after.new_zeros(room), cameras)
        self.room, self.first = room, before.shape[0] + cameras * model.vision.patches  # where the gap begins
        self.register_buffer("gap", torch.zeros((), dtype=torch.int64), persistent=False)
        self.set_prompt(after)

    def set_prompt(self, after: Tensor) -> None:
        """Set the ids after the images, int64 [P]. Raises ValueError if there are none, or more than the room."""
        if not 0 < len(after) <= self.room:
            raise ValueError(f"prompt: {len(after)} tokens, but this policy has room for {self.room}")
        padding = after.new_zeros(self.room - len(after))
        self.after.copy_(torch.cat([padding, after])[None])
        self.gap.fill_(len(padding))

    def layout(self, slots: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """For a forward over `slots`, int64 [T], of `length`: (places int64 [T], mask bool [1, T, length]).

        A slot in the gap is visible only to itself, and later slots count on as if the gap were not there.
        """
        every, end = torch.arange(length, device=slots.device), self.first + self.gap
        seen = (every < self.first) | (every >= end)
        mask = seen[None] | (every[None] == slots[:, None])
        return torch.where(slots >= end, slots - self.gap, slots), mask[None]


def random_ids(count: int, vocabulary: int, seed: int) -> Tensor:
    """A prompt for benchmarks and tests: int64 [count]."""
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(seed))
