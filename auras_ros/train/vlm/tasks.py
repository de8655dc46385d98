"""What the included adapters of the Push-T model are asked, what is true, and how their heads learn it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from auras_ros.lora.heads import HeadResult
from auras_ros.sim.pusht.things import Disc
from auras_ros.sim.pusht.world import SIZE_PX
from auras_ros.train.vlm.evaluation import CLOSE_PERCENT, named_place
from auras_ros.train.vlm.pictures import COLUMNS, Pictures
from auras_ros.train.vlm.questions import TOPICS, TableQuestion
from auras_ros.train.vlm.scenes import Scene, draw_scene

LABELS = ("no", "yes")
BOX_WEIGHT = 20.0  # of a box's numbers beside its score


class AdapterTask(Protocol):
    """question: it is trained with these words alone. topic: of the held-out scenes. head: what task_head.json says;
    outputs: of it. steps: of training."""

    question: str
    topic: str
    head: Mapping[str, Any]
    outputs: int
    steps: int

    def targets(self, data: Pictures, first: int) -> Tensor:
        """Of each picture. first: the seed of the first one's scene."""
        ...

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor: ...

    def is_right(self, asked: TableQuestion, said: HeadResult | str) -> bool:
        """said: a head's result, or the model's words."""
        ...

    def more(self, asked: Sequence[TableQuestion], said: Sequence[HeadResult]) -> dict[str, Any]:
        """What the share does not say."""
        ...


class YesNo(AdapterTask):
    """A topic of the model's own as a monitor: whether, with a score."""

    def __init__(self, topic: str) -> None:
        self.topic, self.question, self.outputs, self.steps = topic, TOPICS[topic].wordings[0], 1, 800
        self.head = {"kind": "binary", "labels": list(LABELS), "threshold": 0.5}

    def targets(self, data: Pictures, first: int) -> Tensor:
        column = torch.from_numpy(np.array(data.answers[:, COLUMNS.index((self.topic, ""))]))
        return (column == TOPICS[self.topic].answers.index("yes")).float()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(outputs[:, 0], targets)

    def is_right(self, asked: TableQuestion, said: HeadResult | str) -> bool:
        return asked.answer == (said if isinstance(said, str) else said.label)

    def more(self, asked: Sequence[TableQuestion], said: Sequence[HeadResult]) -> dict[str, Any]:
        wrong = [each.answer for each, result in zip(asked, said, strict=True) if not self.is_right(each, result)]
        return {"head_wrong_where_true_is": {label: wrong.count(label) for label in LABELS}}


class ThingInTheWay(AdapterTask):
    """A box around the thing in the way, of several the nearest to the tee: the model alone can say whether there is
    one, and not where. It is right if its centre lies as near to one of them as the model's places have to, or if it
    names no place where there is none."""

    question, topic, outputs, steps = "Where is the thing in the way?", "way", 5, 2500
    head: Mapping[str, Any] = {"kind": "box", "labels": ["thing"], "boxes": 1, "threshold": 0.5}

    def targets(self, data: Pictures, first: int) -> Tensor:
        """[N, 5]: centre, width and height in shares of the picture, and whether there is one."""
        boxes = np.zeros((len(data.images), self.outputs))
        for number, box in enumerate(boxes):
            scene = draw_scene(first + number)
            if blocking := _blocking(scene):
                nearest = min(blocking, key=lambda each: np.hypot(*(np.array([each.x, each.y]) - scene.centre)))
                box[:] = np.array([nearest.x, nearest.y, 2 * nearest.radius, 2 * nearest.radius, SIZE_PX]) / SIZE_PX
        return torch.from_numpy(boxes).float()

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        there = targets[:, 4]
        away = (outputs[:, :4].sigmoid() - targets[:, :4]).abs().mean(1)
        return (BOX_WEIGHT * away * there).mean() + F.binary_cross_entropy_with_logits(outputs[:, 4], there)

    def is_right(self, asked: TableQuestion, said: HeadResult | str) -> bool:
        away = self._percent(asked, said)
        return away is None if asked.answer == "no" else away is not None and away <= CLOSE_PERCENT

    def more(self, asked: Sequence[TableQuestion], said: Sequence[HeadResult]) -> dict[str, Any]:
        """By how many things are in the way: right answers, and how far boxes are from the nearest."""
        names = ("none", "one", "several")
        groups: dict[str, list[tuple[TableQuestion, HeadResult]]] = {name: [] for name in names}
        for pair in zip(asked, said, strict=True):
            groups[names[min(len(_blocking(pair[0].scene)), 2)]].append(pair)
        return {name: self._counted(pairs) for name, pairs in groups.items()}

    def _counted(self, pairs: Sequence[tuple[TableQuestion, HeadResult]]) -> dict[str, Any]:
        away = [each for each in (self._percent(*pair) for pair in pairs) if each is not None and np.isfinite(each)]
        right = sum(self.is_right(*pair) for pair in pairs)
        return {"scenes": len(pairs), "right": right, "median_percent": float(np.median(away)) if away else None}

    def _percent(self, asked: TableQuestion, said: HeadResult | str) -> float | None:
        """From the place that is said to the nearest thing in the way, percent of the table's side; infinite if there
        is none. None: no place is said."""
        if isinstance(said, str):
            at = named_place(said)
        else:
            at = (100 * said.boxes[0].x, 100 * said.boxes[0].y) if said.boxes else None
        if at is None:
            return None
        things = [np.array([each.x, each.y]) / SIZE_PX * 100 for each in _blocking(asked.scene)]
        return min((float(np.hypot(*(each - at))) for each in things), default=float("inf"))


def _blocking(scene: Scene) -> list[Disc]:
    return [thing for thing, blocks in zip(scene.things, scene.in_the_way, strict=True) if blocks]


SETS: Mapping[str, Mapping[str, AdapterTask]] = {
    "pusht-monitor": {"way": YesNo("way"), "goal": YesNo("goal")},
    "pusht-detector": {"thing": ThingInTheWay()},
}
