"""The two training loops: the vision part on what is true of a scene, then the whole model on questions and answers.

A picture is seen once, and all types of questions are asked of it in one sequence: each question sees the picture and
itself, and only answers count. Heads that predict maps and facts exist in training alone: they teach the vision part to
count, measure and compare long before answers could.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from auras_ros.models.vlm import TiledVlm
from auras_ros.report.result import Say
from auras_ros.sim.pusht import IMAGE_PX, SIZE_PX
from auras_ros.train.loops import REPORT_STEPS, Curve, fit
from auras_ros.train.vlm.conversation import Conversations, Packed
from auras_ros.train.vlm.pictures import FACTS, GRID, MAPS, Pictures

BATCH = 32
PEAK = 1e-3
MAPS_WEIGHT, SUMS_WEIGHT, PARTS_WEIGHT = 4.0, 0.1, 0.3  # of maps, their sums and the tee's parts beside facts
HELP_WEIGHT = 0.3  # of all of them beside answers
TURN, TURN_WEIGHT = slice(16, 18), 0.5  # of the facts; the turn is the slowest to be learnt
FINE, PARTS = 48, 2  # cells on a side in which the tee's two parts are told apart, and their number
EMBEDDING_STD = 0.1  # torch's 1 would start from scores of ten


@dataclass(frozen=True, eq=False)
class Seen:
    """What the heads say: maps [B, cells, MAPS]; parts [B, cells, finer cells of a cell * PARTS], log odds; facts
    [B, FACTS]."""

    maps: Tensor
    parts: Tensor
    facts: Tensor


class Student(nn.Module):
    """The model and the heads that only training has."""

    def __init__(self, model: TiledVlm) -> None:
        super().__init__()
        self.model = model
        nn.init.normal_(model.language.embed_tokens.weight, std=EMBEDDING_STD)
        side = round(model.vision.patches**0.5)
        self.maps = nn.Linear(model.vision.features, MAPS)
        self.parts = nn.Linear(model.vision.features, PARTS * (FINE // side) ** 2)
        width = model.language.config.width
        self.facts = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, FACTS))

    def see(self, images: Tensor) -> tuple[Tensor, Seen]:
        """Images -> their tokens [B, tokens, width], and what the heads say of them."""
        patches = self.model.vision(images)
        tokens = self.model.projector(patches)
        return tokens, Seen(self.maps(patches).float(), self.parts(patches).float(), self.facts(tokens.mean(1)).float())


@dataclass(frozen=True, eq=False)
class Batches:
    """Random pictures of the training set, as tensors. half: multiply in bfloat16."""

    data: Pictures
    half: bool

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Normalised images [B, 3, px, px], maps, facts, answers and places."""
        index = np.sort(torch.randint(0, len(self.data.images), (BATCH,)).numpy())
        images = torch.from_numpy(self.data.images[index]).permute(0, 3, 1, 2).float() / 127.5 - 1
        # A camera's noise and compression, about: the picture must not matter to a level or two.
        images = images * (1 + 0.02 * torch.randn(BATCH, 1, 1, 1)) + 0.01 * torch.randn(BATCH, 3, IMAGE_PX, IMAGE_PX)
        data = self.data
        rest = (torch.from_numpy(each[index]) for each in (data.maps, data.facts, data.answers, data.places))
        maps, facts, answers, places = rest
        return images, maps.float(), facts, answers, places

    def precision(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16, enabled=self.half)


def quick_half() -> bool:
    """Whether this CPU multiplies bfloat16 faster than float32."""
    seconds = []
    for dtype in (torch.bfloat16, torch.float32):
        one = torch.ones(768, 768, dtype=dtype)
        seconds.append(min(_seconds(one) for _ in range(5)))
    return seconds[0] < seconds[1]


def train_vision(student: Student, batches: Batches, steps: int, curve: Curve, progress: Say) -> nn.Module:
    """Maps and facts alone; returns the moving average of the weights."""

    def loss() -> Tensor:
        images, maps, facts, _, _ = batches.draw()
        with batches.precision():
            _, seen = student.see(images)
        return help_loss(seen, maps, facts)

    return _train(student, loss, steps, curve, _timed(progress, "vision", steps))


def train_answers(
    student: Student, conversations: Conversations, batches: Batches, steps: int, curve: Curve, progress: Say
) -> nn.Module:
    """Questions and answers, with maps and facts beside them; returns the moving average of the weights."""

    def loss() -> Tensor:
        images, maps, facts, answers, places = batches.draw()
        packed = conversations.pack(answers, places)
        with batches.precision():
            tokens, seen = student.see(images)
            scores = _scores(student.model, packed, tokens)
        return answer_loss(scores.float(), packed) + HELP_WEIGHT * help_loss(seen, maps, facts)

    return _train(student, loss, steps, curve, _timed(progress, "answers", steps))


def answer_loss(scores: Tensor, packed: Packed) -> Tensor:
    """Cross entropy of the answers' tokens, each type's mean weighed alike. scores: [B, answered, vocabulary]."""
    losses = -(packed.targets * scores.log_softmax(-1)).sum(-1)
    return (losses * packed.weights).sum() / packed.weights.sum()


def _scores(model: TiledVlm, packed: Packed, tokens: Tensor) -> Tensor:
    """Of the tokens that follow `packed.answered`."""
    embedded = model.language.embed(packed.ids)
    start, count = packed.image, tokens.shape[1]
    sequence = torch.cat([embedded[:, :start], tokens.to(embedded.dtype), embedded[:, start + count :]], 1)
    hidden = model.language(sequence, mask=packed.mask, places=packed.places)
    scores: Tensor = model.language.logits(hidden[:, packed.answered])
    return scores


def help_loss(seen: Seen, maps: Tensor, facts: Tensor) -> Tensor:
    """Of the heads; maps as the training set has them."""
    cells = seen.maps.shape[1]
    wanted, shape = resampled(maps, cells), parts(facts, cells)
    of_maps = F.smooth_l1_loss(seen.maps, wanted, beta=0.1)
    of_sums = F.smooth_l1_loss(seen.maps.sum(1), wanted.sum(1), beta=0.2)
    of_parts = F.binary_cross_entropy_with_logits(seen.parts, shape, reduction="sum") / shape.sum()
    of_facts = F.smooth_l1_loss(seen.facts, facts, beta=0.05)
    of_turn = F.smooth_l1_loss(seen.facts[:, TURN], facts[:, TURN], beta=0.05)
    return MAPS_WEIGHT * of_maps + SUMS_WEIGHT * of_sums + PARTS_WEIGHT * of_parts + of_facts + TURN_WEIGHT * of_turn


def parts(facts: Tensor, cells: int) -> Tensor:
    """Where the tee's bar and its stem lie, of its corners: 0 or 1, [B, cells, finer cells of a cell * PARTS].

    The tee has three arms of nearly one length, and its colour does not say which of them is the stem: without this the
    turn is not learnt in thousands of steps.
    """
    side = round(cells**0.5)
    corners = (facts[:, :16].unflatten(1, (8, 2)) + 1) * (SIZE_PX / 2)
    along = F.normalize(corners[:, 1] - corners[:, 0], dim=-1)
    down = torch.stack([-along[:, 1], along[:, 0]], -1)
    at = (torch.arange(FINE) + 0.5) * (SIZE_PX / FINE)
    points = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).flatten(0, 1)
    offset = points - corners[:, 2:4].mean(1, keepdim=True)  # from the middle of the bar's far side
    x, y = torch.einsum("bpc,bc->bp", offset, along).abs(), torch.einsum("bpc,bc->bp", offset, down)
    bar, stem = (x < 60) & (y > 0) & (y <= 30), (x < 15) & (y > 30) & (y < 120)
    square = torch.stack([bar, stem], -1).float().unflatten(1, (side, FINE // side, side, FINE // side))
    out: Tensor = square.transpose(2, 3).flatten(3).flatten(1, 2)
    return out


def resampled(maps: Tensor, cells: int) -> Tensor:
    """Amounts in GRID x GRID cells -> in so many cells of another square grid [B, cells, MAPS]; their sum stays."""
    side = round(cells**0.5)
    edges, fine = torch.arange(side + 1) * (GRID / side), torch.arange(GRID)
    share = (torch.minimum(edges[1:, None], fine + 1.0) - torch.maximum(edges[:-1, None], fine)).clamp(min=0)
    square = maps.unflatten(1, (GRID, GRID))
    return torch.einsum("yi,xj,bijm->byxm", share, share, square).flatten(1, 2)


def _train(student: Student, loss: Callable[[], Tensor], steps: int, curve: Curve, progress: Say) -> nn.Module:
    optimizer = torch.optim.AdamW(student.parameters(), lr=PEAK, weight_decay=0.02, betas=(0.9, 0.98))
    # Its backward pass is quicker on a CPU than the flash kernel's at these lengths.
    with sdpa_kernel(SDPBackend.MATH):
        return fit(student, optimizer, loss, steps, 100, curve, progress)


def _timed(progress: Say, name: str, steps: int) -> Say:
    """Adds the time that is left; it is told of every REPORT_STEPS steps."""
    began, told = time.monotonic(), 0

    def say(text: str) -> None:
        nonlocal told
        told += REPORT_STEPS
        left_s = (time.monotonic() - began) / told * (steps - told)
        progress(f"{name} {text}, {left_s / 60:.0f} min left")

    return say


def _seconds(one: Tensor) -> float:
    """Of a product."""
    began = time.perf_counter()
    one @ one
    return time.perf_counter() - began
