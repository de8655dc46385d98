"""Declares the operators that torchvision's wheel registers only beside a CUDA build of torch. Runs in the peers'
environment, at the start of each of its interpreters (a line of a .pth file), and imports nothing of this package.

torchvision's Python part names these two at import and fails without them, and Qwen2.5-VL's processor imports
torchvision. Nobody calls them here. They are declared when torchvision is imported, so that other programs of the
environment start without torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

OPERATORS = (
    "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class BeforeTorchvision(MetaPathFinder):
    """Finds nothing itself."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision" and self in sys.meta_path:
            sys.meta_path.remove(self)
            import torch

            for operator in OPERATORS:
                name, _, types = operator.partition("(")
                torch.library.define(name, f"({types}")
        return None


sys.meta_path.insert(0, BeforeTorchvision())
