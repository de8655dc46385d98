"""The prefix of a vision-language-action policy: [X_L before, X_V, X_L after] of its newest instant (Auras 4.2.1).

The prompt lies at a fixed address, so that captured stages read the one that is set. `VisionLanguagePrefix` has a
fixed length: another prompt of as many tokens is a copy, one of another length another prefix. `PaddedPrefix` has room
for any length up to a maximum. Tokens come from outside; no tokenizer here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from auras_ros.models.blocks import Blocks, carrying
from auras_ros.models.vision_language import SeeingLanguage


class VisionLanguagePrefix(nn.Module):
    """Images [B, history, cameras, channels, px, px] -> [B, before + cameras * patches + after, width].

    Cameras follow one another as the observation names them. The robot's state is not looked at. ids: int64 [P].
    Pictures are taken in float32, as observations are, and seen in the type of the networks.
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

    def set_ids(self, ids: Tensor) -> None:
        """Another prompt as its tokenizer gives it, int64 [P], with what stands before the pictures.

        Raises ValueError where it begins otherwise, or for a length that does not fit.
        """
        first = self.before.shape[1]
        if ids[:first].tolist() != self.before[0].tolist():
            raise ValueError(f"prompt: begins with {ids[:first].tolist()}, expected {self.before[0].tolist()}")
        self.set_prompt(ids[first:])

    def set_prompt(self, after: Tensor) -> None:
        """Another prompt, int64 [P]. Raises ValueError for another length."""
        if after.shape != self.after.shape[1:]:
            raise ValueError(f"prompt: {len(after)} tokens, but this policy was made for {self.after.shape[1]}")
        self.after.copy_(after[None])

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return self._joined(self.model.see(self._newest(images)), state)[0]

    def blocks(self) -> Blocks:
        """As `forward`; the state goes along for its batch size alone."""
        inner = [(name, carrying(block)) for name, block in self.model.blocks()]
        return [("newest", lambda images, state: (self._newest(images), state)), *inner, ("prompt", self._joined)]

    def _newest(self, images: Tensor) -> Tensor:
        return images[:, -1].flatten(0, 1).to(next(self.parameters()).dtype)

    def _joined(self, seen: Tensor, state: Tensor) -> tuple[Tensor]:
        """Patches of all pictures [B * cameras, patches, width] -> the whole prefix."""
        batch = len(state)
        return (self.model.prefix(seen.reshape(batch, -1, seen.shape[-1]), self.before, self.after),)


class PaddedPrefix(VisionLanguagePrefix):
    """With room for `room` ids behind the pictures: shorter prompts stand at its end, and the gap before them is seen
    by nobody (`layout`) and not counted in positions.

    The output is as long for every prompt, so shapes, segments and addresses stay. It needs a decoder that takes a mask
    and places. What decodes behind it is what decodes behind the prompt alone, up to the rounding of masked sums.
    """

    gap: Tensor

    def __init__(self, model: SeeingLanguage, before: Tensor, after: Tensor, cameras: int, room: int) -> None:
        super().__init__(model, before, after.new_zeros(room), cameras)
        self.room, self.first = room, before.shape[0] + cameras * model.vision.patches  # where the gap begins
        self.register_buffer("gap", torch.zeros((), dtype=torch.int64), persistent=False)
        self.set_prompt(after)

    def set_prompt(self, after: Tensor) -> None:
        """Another prompt, int64 [P]. Raises ValueError where it is empty, or longer than the room."""
        if not 0 < len(after) <= self.room:
            raise ValueError(f"prompt: {len(after)} tokens, but this policy has room for {self.room}")
        padding = after.new_zeros(self.room - len(after))
        self.after.copy_(torch.cat([padding, after])[None])
        self.gap.fill_(len(padding))

    def layout(self, slots: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Of a forward over `slots`, int64 [T], of `length`: (places int64 [T], mask bool [1, T, length]).

        Nothing but itself sees what lies in the gap, and what follows it counts on as if it were not there.
        """
        every, end = torch.arange(length, device=slots.device), self.first + self.gap
        seen = (every < self.first) | (every >= end)
        mask = seen[None] | (every[None] == slots[:, None])
        return torch.where(slots >= end, slots - self.gap, slots), mask[None]


def random_ids(count: int, vocabulary: int, seed: int) -> Tensor:
    """A prompt for benches and tests: int64 [count]."""
    return torch.randint(0, vocabulary, (count,), generator=torch.Generator().manual_seed(seed))
