"""What the folders of `data` have in common: the image and the question that each version of transformers answered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.checkpoints.vlm.folders import image

DATA = Path(__file__).parent / "data"
QUESTION = "is the tee left?"
TOKENS = 8
SIDES = {"smolvlm": (40, 60), "idefics3": (40, 60), "llava": (40, 60), "qwen2_5_vl": (24, 40)}


def picture(kind: str) -> npt.NDArray[np.uint8]:
    """uint8 RGB [height, width, 3]."""
    return image(*SIDES[kind])
