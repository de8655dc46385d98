"""The positions of a picture's patches that are meant, for a transformers that shifts them.

Transformers 4.55 and later of version 4 put patches one position too early in float32, not in bfloat16, in which
SmolVLM2 was trained. 5.3 and later do not.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.models.smolvlm import modeling_smolvlm


def embedded(self: Any, pixel_values: Tensor, patch_attention_mask: Tensor) -> Tensor:
    patches = self.patch_embedding(pixel_values).flatten(2).transpose(1, 2)
    return patches + self.position_embedding(torch.arange(patches.shape[1]))


def install() -> None:
    modeling_smolvlm.SmolVLMVisionEmbeddings.forward = embedded
