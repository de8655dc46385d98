"""Perception of the flow matching policies: images, prompt and state to the public context, by model.

The prompt lies at a fixed address, padded to the longest length: another prompt is a copy, and captured stages read the
current one. Padding is masked and counts in no position, as if it were not there. pi0.5 has the state in its prompt, as
whole numbers of 0 to 255: their token ids are in a table, and no tokenizer runs here. Token ids come from outside.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from auras_ros.models.blocks import Blocks, carrying, chain
from auras_ros.models.flow_context import padded
from auras_ros.models.pi0 import Pi0
from auras_ros.models.smolvla import SmolVla

BINS = 256  # of a number of the state between -1 and 1; one below -1 is bin -1
NOTHING = -1  # in a table of ids: no token


class FlowPrefix(nn.Module):
    """(images [B, history, cameras, 3, px, px], state [B, history, D]) -> context [B, C], of the newest instant.

    prompt: int64 [ids], complete with its template. limit: the longest prompt that can be set; this prompt's length
    unless given. Each model decides how prompt and state are used (`join`): pi0's state goes to the expert, SmolVLA's
    is the last token.
    """

    prompt: Tensor
    there: Tensor

    def __init__(self, model: Pi0 | SmolVla, prompt: Tensor, limit: int | None = None) -> None:
        super().__init__()
        self.model, size = model, len(prompt) if limit is None else limit
        self.register_buffer("prompt", torch.zeros(1, size, dtype=torch.int64), persistent=False)
        self.register_buffer("there", torch.zeros(1, size, dtype=torch.bool), persistent=False)
        self.set_prompt(prompt)

    @property
    def limit(self) -> int:
        """Tokens of the longest prompt."""
        return self.prompt.shape[1]

    def set_prompt(self, prompt: Tensor) -> None:
        """Set another prompt, int64 [ids]. Raises ValueError if it is empty, too long, or has unknown ids."""
        count, vocabulary = len(prompt), self.model.language.config.vocabulary
        if not 0 < count <= self.limit:
            raise ValueError(f"prompt: {count} tokens, but this policy takes 1 to {self.limit}")
        if not prompt.is_meta and not 0 <= int(prompt.min()) <= int(prompt.max()) < vocabulary:
            raise ValueError(f"prompt: {prompt.tolist()} are not all tokens of a vocabulary of {vocabulary}")
        self.prompt.copy_(F.pad(prompt, (0, self.limit - count))[None])
        self.there.copy_((torch.arange(self.limit, device=prompt.device) < count)[None])

    def blocks(self) -> Blocks:
        """Consecutive parts; the state is the last of the tensors that are passed on."""
        model = self.model
        seeing = [(name, carrying(block)) for name, block in model.blocks()]
        return [("newest", self._newest), *seeing, ("prompt", self._join), *model.prefix_blocks()]

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        return chain(self.blocks(), images, state)

    def _newest(self, images: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return images[:, -1].flatten(0, 1).to(self.model.dtype), state[:, -1]

    def _join(self, seen: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> the prefix [B, P, width], its mask [B, P], and the state for the expert."""
        return *self.model.join(seen, self.prompt, self.there, state), state


class Pi05Prefix(FlowPrefix):
    """pi0.5: images, the prompt, a number for each of the model's numbers of the state, the end of the sentence.

    numbers: token ids of the bins -1 to 255 in the sentence, with their separators. Lengths differ, so each has the
    room of the longest, and the rest is masked. after: ids of the end.
    """

    model: Pi0
    table: Tensor
    after: Tensor
    edges: Tensor

    def __init__(
        self,
        model: Pi0,
        prompt: Tensor,
        numbers: Sequence[Sequence[int]],
        after: Sequence[int],
        limit: int | None = None,
    ) -> None:
        super().__init__(model, prompt, limit)
        if len(numbers) != BINS + 1 or not all(numbers):
            raise ValueError(f"numbers: {len(numbers)} lists of ids, expected {BINS + 1}, of -1 to 255, none empty")
        longest = max(map(len, numbers))
        rows = [[*ids, *[NOTHING] * (longest - len(ids))] for ids in numbers]
        self.register_buffer("table", torch.tensor(rows), persistent=False)
        self.register_buffer("after", torch.tensor([list(after)], dtype=torch.int64), persistent=False)
        # Left edges: multiples of 1 / 128, which stay exact if the whole network is cast.
        edges = torch.linspace(-1, 1, BINS + 1, dtype=torch.float64)[:-1]
        self.register_buffer("edges", edges.to(prompt.device), persistent=False)

    def _join(self, seen: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, spelt = len(state), self.spell(state)
        ids = torch.cat([self.prompt.expand(rows, -1), spelt.clamp(min=0), self.after.expand(rows, -1)], 1)
        ends = torch.ones_like(self.after, dtype=torch.bool).expand(rows, -1)
        there = torch.cat([self.there.expand(rows, -1), spelt != NOTHING, ends], 1)
        return *self.model.join(seen, ids, there, state), state

    def spell(self, state: Tensor) -> Tensor:
        """State [B, D], normalised -> token ids of the model's numbers [B, room], NOTHING where there is none.

        Numbers that the robot does not have are 0 before binning. Raises ValueError if D is too large.
        """
        own = padded(state, self.model.config.state, "pi0.5")
        bins = torch.bucketize(own.double(), self.edges.double(), right=True) - 1
        return self.table[bins + 1].flatten(1)
