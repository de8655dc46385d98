"""The two training loops: the vision part on what is true of a scene, then the whole model on questions and answers.

A picture is seen once, and all types of questions are asked of it in one sequence: each question sees the picture and
itself, and only answers count. Heads that predict maps and facts exist in training alone: they teach the vision part to
count, measure and compare long before answers could.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from auras_ros.models.vit import Vit
from auras_ros.models.vlm import TiledVlm
from auras_ros.report.result import Say
from auras_ros.sim.pusht.world import IMAGE_PX
from auras_ros.train.loops import REPORT_STEPS, Curve, fit
from auras_ros.train.vlm.beginning import look_around
from auras_ros.train.vlm.conversation import Conversations, Packed
from auras_ros.train.vlm.pictures import FACTS, GRID, MAPS, TEE, Pictures

BATCH = 32
PEAK = 1e-3
MATRIX_PEAK = 2e-3
MAPS_WEIGHT, SUMS_WEIGHT = 4.0, 0.1  # of maps and their sums, beside votes and facts
HELP_WEIGHT = 0.3  # of all of them beside answers
CORNERS, TURN = slice(0, 16), slice(16, 18)  # of the facts
VOTES = 18  # the same
TURN_WEIGHT = 0.5  # the slowest of the facts to be learnt
SHOWS = 0.02  # share of a cell from which on the tee shows in it
TURNED_COSINE = 0.98  # of the turn: more than about 10 degrees
EMBEDDING_STD = 0.1  # torch's 1 would start from scores of ten


@dataclass(frozen=True, eq=False)
class Seen:
    """What the heads say: maps [B, cells, MAPS]; votes [B, cells, VOTES]; facts [B, FACTS]."""

    maps: Tensor
    votes: Tensor
    facts: Tensor


class Student(nn.Module):
    """The model and the heads that only training has."""

    def __init__(self, model: TiledVlm) -> None:
        super().__init__()
        self.model = model
        nn.init.normal_(model.language.embed_tokens.weight, std=EMBEDDING_STD)
        assert isinstance(model.vision, Vit)
        look_around(model.vision)
        self.maps = nn.Linear(model.vision.features, MAPS)
        self.votes = nn.Linear(model.vision.features, VOTES)
        width = model.language.config.width
        self.facts = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, FACTS))

    def see(self, images: Tensor) -> tuple[Tensor, Seen]:
        """Images -> their tokens [B, tokens, width], and what the heads say of them."""
        patches = self.model.vision(images)
        tokens = self.model.projector(patches)
        return tokens, Seen(self.maps(patches).float(), self.votes(patches).float(), self.facts(tokens.mean(1)).float())


@dataclass(frozen=True, eq=False)
class Batches:
    """Random pictures of the training set, as tensors. half: multiply in bfloat16. turned: three quarters of a batch
    are scenes whose tee must turn; the others teach nothing about its shape."""

    data: Pictures
    half: bool
    turned: bool = False

    def draw(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Normalised images [B, 3, px, px], maps, facts, answers and places."""
        drawn = torch.randint(0, len(self.data.images), (BATCH,))
        if self.turned:
            wide = torch.from_numpy(np.flatnonzero(self.data.facts[:, TURN][:, 1] < TURNED_COSINE))
            many = 3 * BATCH // 4
            drawn[:many] = wide[torch.randint(0, len(wide), (many,))]
        index = np.sort(drawn.numpy())
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

    batches = replace(batches, turned=True)

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
    wanted = resampled(maps, cells)
    of_maps = F.smooth_l1_loss(seen.maps, wanted, beta=0.1)
    of_sums = F.smooth_l1_loss(seen.maps.sum(1), wanted.sum(1), beta=0.2)
    of_votes = vote_loss(seen.votes, wanted[..., TEE], facts)
    of_facts = F.smooth_l1_loss(seen.facts, facts, beta=0.05)
    of_turn = F.smooth_l1_loss(seen.facts[:, TURN], facts[:, TURN], beta=0.05)
    return MAPS_WEIGHT * of_maps + SUMS_WEIGHT * of_sums + of_votes + of_facts + TURN_WEIGHT * of_turn


def vote_loss(votes: Tensor, tee: Tensor, facts: Tensor) -> Tensor:
    """Every cell in which the tee shows (tee: its share of each cell [B, cells]) says where its corners lie from there,
    and its turn: the idea of voting for key points (Peng et al. 2019, PVNet, section 3.1). The facts alone are said of
    the whole picture, and from them the turn is not learnt in a thousand steps."""
    side = round(tee.shape[1] ** 0.5)
    at = (torch.arange(side) + 0.5) * (2 / side) - 1
    cells = torch.stack(torch.meshgrid(at, at, indexing="xy"), -1).flatten(0, 1).repeat(1, 8)
    corners = facts[:, None, CORNERS] - cells
    turn = facts[:, None, TURN].expand(-1, len(cells), -1)
    of_corners = F.smooth_l1_loss(votes[..., CORNERS], corners, beta=0.05, reduction="none").mean(-1)
    of_turn = F.smooth_l1_loss(votes[..., TURN], turn, beta=0.05, reduction="none").mean(-1)
    shows = (tee > SHOWS).float()
    return ((of_corners + of_turn) * shows).sum() / shows.sum().clamp(min=1)


def resampled(maps: Tensor, cells: int) -> Tensor:
    """Amounts in GRID x GRID cells -> in so many cells of another square grid [B, cells, MAPS]; their sum stays."""
    side = round(cells**0.5)
    edges, fine = torch.arange(side + 1) * (GRID / side), torch.arange(GRID)
    share = (torch.minimum(edges[1:, None], fine + 1.0) - torch.maximum(edges[:-1, None], fine)).clamp(min=0)
    square = maps.unflatten(1, (GRID, GRID))
    return torch.einsum("yi,xj,bijm->byxm", share, share, square).flatten(1, 2)


def _train(student: Student, loss: Callable[[], Tensor], steps: int, curve: Curve, progress: Say) -> nn.Module:
    """Matrices of the layers by Muon, the rest by AdamW: with AdamW alone the turn takes more than twice the steps."""
    matrices = [each for name, each in student.named_parameters() if ".layers." in name and each.ndim == 2]
    known = set(matrices)
    rest = [each for each in student.parameters() if each not in known]
    optimizers = (
        torch.optim.Muon(matrices, lr=MATRIX_PEAK, weight_decay=0.02, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=PEAK, weight_decay=0.02, betas=(0.9, 0.98)),
    )
    # Its backward pass is quicker on a CPU than the flash kernel's at these lengths.
    with sdpa_kernel(SDPBackend.MATH):
        return fit(student, optimizers, loss, steps, 100, curve, progress)


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
