"""All questions of a picture in one sequence, as the chat template would put each of them alone.

The picture comes first and is shared. A question sees the picture and its own tokens, at the positions that it would
have alone, so nothing tells it of the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from auras_ros.train.vlm.folder import AROUND, ASK, BEFORE, END, IMAGE, WHOLE
from auras_ros.train.vlm.pictures import COLUMNS
from auras_ros.train.vlm.questions import TOPICS

COUNTED = 2  # colours whose number is asked of a picture
SPREAD = 0.8  # of a place's number over its neighbours, percent of the table


@dataclass(frozen=True, eq=False)
class Packed:
    """ids: [B, T]. image: where its tokens begin. mask: [1, T, T], who may see whom before causality. places: [T].
    answered: positions whose next token counts; targets: its distribution [B, answered, vocabulary]; weights:
    [B, answered]."""

    ids: Tensor
    image: int
    mask: Tensor
    places: Tensor
    answered: Tensor
    targets: Tensor
    weights: Tensor


class Conversations:
    """Packs batches. tokens: of a picture. Wordings are drawn for a whole batch, so that its rows are equally long."""

    def __init__(self, tokenizer: Any, tokens: int) -> None:
        def ids(text: str) -> list[int]:
            found: list[int] = tokenizer.encode(text).ids
            return found

        self.tokenizer, self.vocabulary = tokenizer, tokenizer.get_vocab_size()
        start = ids(f"{BEFORE}{AROUND}{WHOLE}")
        self.image, self.shared = len(start), start + ids(IMAGE) * tokens + ids(AROUND)
        self.ask, self.end = ids(ASK), ids(END)
        self.numbers = torch.tensor([ids(f" {number}") for number in range(101)]).flatten()
        self.axes = [ids(" x"), ids(" y")]
        self.words = {
            name: torch.tensor([ids(f" {answer}") for answer in topic.answers]).flatten()
            for name, topic in TOPICS.items()
        }
        self.wordings = {
            name: [{colour: ids(wording.format(colour)) for colour in topic.colours} for wording in topic.wordings]
            for name, topic in TOPICS.items()
        }

    def pack(self, answers: Tensor, places: Tensor) -> Packed:
        """answers: [B, columns] as in `pictures.COLUMNS`; places: the tee's centre [B, 2], percent of the table."""
        rows = len(answers)
        parts, groups = [torch.tensor(self.shared).expand(rows, -1)], [0] * len(self.shared)
        places_of = list(range(len(self.shared)))
        answered, targets, weights = list[int](), list[Tensor](), list[Tensor]()
        asked = [name for name in TOPICS for _ in range(COUNTED if name == "count" else 1)]
        for group, name in enumerate(asked, 1):
            question, column = self._question(name, rows)
            if name == "place":
                answer, wanted = self._place(places)
                known = torch.ones(rows)
            else:
                answer, wanted, known = self._word(name, answers, column)
            segment = torch.cat([question, answer], 1)
            first = len(groups) + question.shape[1] - 1
            answered += range(first, first + answer.shape[1])
            targets.append(wanted)
            weights.append((known / known.sum().clamp(min=1) / answer.shape[1])[:, None].expand(-1, answer.shape[1]))
            parts.append(segment)
            groups += [group] * segment.shape[1]
            places_of += range(len(self.shared), len(self.shared) + segment.shape[1])
        of = torch.tensor(groups)
        mask = (of[:, None] == of) | (of == 0)
        return Packed(
            torch.cat(parts, 1),
            self.image,
            mask[None],
            torch.tensor(places_of),
            torch.tensor(answered),
            torch.cat(targets, 1),
            torch.cat(weights, 1),
        )

    def _question(self, name: str, rows: int) -> tuple[Tensor, Tensor]:
        """Its tokens up to where the answer begins, and each row's column of `answers`."""
        wordings, colours = self.wordings[name], TOPICS[name].colours
        wording = wordings[int(torch.randint(len(wordings), ()))]
        chosen = torch.randint(len(colours), (rows,))
        ids = torch.tensor([wording[colour] + self.ask for colour in colours])[chosen]
        columns = torch.tensor([COLUMNS.index((name, each)) if name != "place" else 0 for each in colours])
        return ids, columns[chosen]

    def _word(self, name: str, answers: Tensor, column: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, their distributions, and whether the scene has an answer."""
        place = answers.gather(1, column[:, None])[:, 0]
        ids = torch.stack([self.words[name][place.clamp(min=0)], torch.full_like(place, self.end[0])], 1)
        return ids, self._certain(ids), (place >= 0).float()

    def _place(self, places: Tensor) -> tuple[Tensor, Tensor]:
        nearest = self.numbers[places.round().long().clamp(0, 100)]
        fixed = [torch.full((len(places),), ids[0]) for ids in (*self.axes, self.end)]
        ids = torch.stack([fixed[0], nearest[:, 0], fixed[1], nearest[:, 1], fixed[2]], 1)
        wanted = self._certain(ids)
        for axis in range(2):
            distance = torch.arange(101) - places[:, axis, None]
            spread = torch.softmax(-0.5 * (distance / SPREAD).square(), -1)
            wanted[:, 1 + 2 * axis] = torch.zeros(len(places), self.vocabulary).index_copy(1, self.numbers, spread)
        return ids, wanted

    def _certain(self, ids: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(ids, self.vocabulary).float()
