"""torchvision beside a torch of another build, as PyPI's is beside a CPU's: its operators do not load, and to import it
fails for two of them that nothing here calls. They are declared, without an implementation.
"""

from __future__ import annotations

import torch

OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[torch.library.Library] = []  # an operator lives as long as its library


def declare() -> None:
    """Where torchvision brings its own, nothing is left to declare."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in OPERATORS:
            library.define(operator)
        _kept.append(library)
