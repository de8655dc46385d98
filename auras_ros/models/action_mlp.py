"""robomimic's behaviour cloning without recurrence: a multi-layer perceptron from an observation to one action.

Every layer but the last is followed by ReLU, as in robomimic (Mandlekar et al. 2021). The head is the action itself, or
the means of a mixture of Gaussians with a logit for each; all numbers pass tanh.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ActionMlp(nn.Module):
    """Condition [B, condition] -> (means [B, modes, actions], each from -1 to 1, and logits [B, modes]).

    hidden: widths of the layers. modes: None for a single action: the logits are then zero, [B, 1].
    """

    def __init__(self, actions: int, condition: int, hidden: Sequence[int], modes: int | None = None) -> None:
        super().__init__()
        self._shape = (modes or 1, actions)
        self.layers = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in zip([condition, *hidden], hidden, strict=False)
        )
        self.mean = nn.Linear(hidden[-1], (modes or 1) * actions)
        self.logits = None if modes is None else nn.Linear(hidden[-1], modes)

    def forward(self, condition: Tensor) -> tuple[Tensor, Tensor]:
        x = condition
        for layer in self.layers:
            x = torch.relu(layer(x))
        means = torch.tanh(self.mean(x)).unflatten(-1, self._shape)
        return means, means.new_zeros(len(x), 1) if self.logits is None else self.logits(x)
