"""A hidden state becomes a task's result in one product, where the language head would take a token after another
(VaLoRA 4.2.2, figure 11)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from auras_ros.checkpoints.task_head import CORNERS, TaskHead


@dataclass(frozen=True)
class DetectedBox:
    """Shares of the image's width and height, 0 to 1."""

    label: str
    score: float
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class HeadResult:
    """label, score: the likeliest one's. values: of an action, in the order of the head's labels. boxes: the likeliest
    first."""

    kind: str
    label: str = ""
    score: float = 0.0
    values: tuple[float, ...] = ()
    boxes: tuple[DetectedBox, ...] = ()

    @property
    def text(self) -> str:
        """What stands for it where an answer is a text."""
        if self.kind == "box":
            return "; ".join(f"{each.label} {each.score:.2f}" for each in self.boxes)
        return " ".join(f"{each:g}" for each in self.values) if self.kind == "action" else self.label


def head_result(head: TaskHead, hidden: Tensor) -> HeadResult:
    """hidden: of a prompt's last token, normalised, [width]. Raises FloatingPointError if an output is not finite."""
    outputs = torch.addmv(head.bias, head.weight, hidden.to(head.weight))
    if not bool(outputs.isfinite().all()):
        raise FloatingPointError("the task head's outputs are not finite")
    if head.kind == "box":
        return HeadResult("box", boxes=_boxes(head, outputs.cpu()))
    if head.kind == "action":
        pairs = zip(outputs.tolist(), head.scale, head.offset, strict=True)
        return HeadResult("action", values=tuple(value * scale + offset for value, scale, offset in pairs))
    if head.kind == "binary":
        score = float(outputs.sigmoid())
        is_second = score >= head.threshold
        return HeadResult("binary", head.labels[is_second], score if is_second else 1 - score)
    scores = outputs.softmax(0)
    best = int(scores.argmax())
    values = (float(best),) if head.kind == "count" else ()
    return HeadResult(head.kind, head.labels[best], float(scores[best]), values)


def _boxes(head: TaskHead, outputs: Tensor) -> tuple[DetectedBox, ...]:
    rows = outputs.view(head.boxes, CORNERS + len(head.labels)).sigmoid()
    scores, labels = rows[:, CORNERS:].max(1)
    found = [
        DetectedBox(head.labels[int(label)], float(score), *row[:CORNERS].tolist())
        for row, score, label in zip(rows, scores, labels, strict=True)
        if score >= head.threshold
    ]
    return tuple(sorted(found, key=lambda each: -each.score))
