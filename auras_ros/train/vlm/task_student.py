"""A task adapter: a low-rank change of the decoder and a task head, which answer one question about a table.

The base model is never changed. What it makes of a picture is computed once, so that a step costs the decoder alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from auras_ros.checkpoints.vlm.open import VlmCheckpoint
from auras_ros.report.result import Say
from auras_ros.train.loops import Curve, fit
from auras_ros.train.vlm.evaluation import ROWS, table_prompt

RANK = 4
BATCH = 64
PEAK = 3e-3
LANGUAGE = "language."


class TaskStudent(nn.Module):
    """shapes: [out, in] of the decoder's linear layers, by name. outputs: of the head. What a layer's weight changes by
    begins with zero."""

    def __init__(self, shapes: Mapping[str, tuple[int, int]], width: int, outputs: int) -> None:
        super().__init__()
        self.names = tuple(shapes)
        self.a = nn.ParameterList(torch.randn(RANK, wide) / wide**0.5 for _, wide in shapes.values())
        self.b = nn.ParameterList(torch.zeros(out, RANK) for out, _ in shapes.values())
        self.head = nn.Linear(width, outputs)

    def factors(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By layer: A and B."""
        return {name: (a, b) for name, a, b in zip(self.names, self.a, self.b, strict=True)}


class AskedPictures:
    """One question, asked of many pictures."""

    def __init__(self, checkpoint: VlmCheckpoint, text: str) -> None:
        self._checkpoint, self._language, self.text = checkpoint, checkpoint.model.language, text
        self._weights = dict(self._language.named_parameters())
        layers = checkpoint.targets.layers
        self.shapes = {
            name.removeprefix(LANGUAGE): shape for name, shape in layers.items() if name.startswith(f"{LANGUAGE}layers")
        }

    @torch.no_grad()
    def sequences(self, pictures: NDArray[np.uint8] | Sequence[NDArray[np.uint8]]) -> Tensor:
        """What the decoder gets of each picture, uint8 RGB, with the question after it: [N, tokens, width]."""
        made = []
        for start in range(0, len(pictures), ROWS):
            prompts = [table_prompt(self._checkpoint, each, self.text) for each in pictures[start : start + ROWS]]
            images = [image for prompt in prompts for image in prompt.images]
            seen = self._checkpoint.model.see(
                torch.cat([each.pixels for each in images]), [each.grid for each in images]
            )
            words = self._language.embed(prompts[0].ids)
            made.append(torch.stack([words.index_copy(0, prompts[0].at, image.tokens) for image in seen]))
        return torch.cat(made)

    def hidden(self, sequences: Tensor, factors: Mapping[str, tuple[Tensor, Tensor]]) -> Tensor:
        """Of the last token, with these factors added to the decoder's weights: [N, width]."""
        changed = {f"{name}.weight": self._weights[f"{name}.weight"] + b @ a for name, (a, b) in factors.items()}
        states: Tensor = functional_call(self._language, changed, (sequences,))
        return states[:, -1]


def train_student(
    student: TaskStudent,
    asked: AskedPictures,
    sequences: Tensor,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    steps: int,
    curve: Curve,
    progress: Say,
) -> TaskStudent:
    """By random batches. loss_of: of the head's outputs [N, outputs] and the numbers of their pictures [N]."""

    def loss() -> Tensor:
        drawn = torch.randint(0, len(sequences), (BATCH,))
        return loss_of(student.head(asked.hidden(sequences[drawn], student.factors())), drawn)

    optimizer = torch.optim.AdamW(student.parameters(), lr=PEAK, weight_decay=0.01, betas=(0.9, 0.98))
    mean = fit(student, (optimizer,), loss, steps, min(100, steps), curve, progress)
    assert isinstance(mean, TaskStudent)
    return mean
