"""How often a model folder answers rightly on held-out scenes, and how often with another scene's picture.

It goes the way of any user of a folder: `open_vlm`, the chat template, greedy tokens until one that ends the answer.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.report.result import Say
from auras_ros.report.statistics import success_fields
from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.sim.pusht.world import SIZE_PX, SUCCESS_COVERAGE
from auras_ros.train.vlm.questions import TOPICS, TableQuestion, blind_share, held_out
from auras_ros.train.vlm.scenes import NEAR_COVERAGE, Scene

ROWS = 64  # prompts in one batch
MOST_ANSWER = 8  # tokens
CLOSE_PERCENT = 5.0  # of the table: a place is right up to here
PLACE = re.compile(r"x (\d+) y (\d+)")


def ask(checkpoint: VlmCheckpoint, pictures: Sequence[NDArray[np.uint8]], texts: Sequence[str]) -> list[str]:
    """The greedy answer to each question about its picture."""
    prompts = [table_prompt(checkpoint, *each) for each in zip(pictures, texts, strict=True)]
    by_length = defaultdict[int, list[int]](list)
    for place, prompt in enumerate(prompts):
        by_length[len(prompt.ids)].append(place)
    answers = [""] * len(prompts)
    for places in by_length.values():
        for start in range(0, len(places), ROWS):
            batch = places[start : start + ROWS]
            for place, ids in zip(batch, _greedy(checkpoint, [prompts[each] for each in batch]), strict=True):
                answers[place] = checkpoint.prompts.tokenizer.decode(ids).strip()
    return answers


def evaluate_vlm(folder: Path, count: int, progress: Say, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Each type's share of right answers to `count` balanced questions with its 95 % interval; `shuffled`: the same
    questions, each with the picture of another; `chance`: what an answer without a picture would score."""
    checkpoint, table, results = open_vlm(folder), PosedTable(), dict[str, dict[str, Any]]()
    began = time.monotonic()
    for done, name in enumerate(TOPICS, 1):
        questions = list(held_out(name, count, seed))
        pictures = [table.picture(each.scene.tee, each.scene.pusher, each.scene.things) for each in questions]
        texts = [each.text for each in questions]
        others = list(np.random.default_rng(seed).permutation(count))
        answers = ask(checkpoint, pictures, texts)
        wrong_pictures = ask(checkpoint, [pictures[other] for other in others], texts)
        results[name] = {
            **_share(questions, answers, name),
            "shuffled": _share(questions, wrong_pictures, name)["share"],
            "chance": blind_share(name) if TOPICS[name].answers else _best_guess(questions),
        } | _more(name, questions, answers)
        left_s = (time.monotonic() - began) / done * (len(TOPICS) - done)
        progress(f"{name}: {results[name]['share']:.1%} of {count} right, {left_s:.0f} s left")
    return results


def is_right(name: str, question: TableQuestion, answer: str) -> bool:
    """The very word; of a place at most CLOSE_PERCENT of the table from the true one."""
    return answer == question.answer if name != "place" else _distance(question.scene, answer) <= CLOSE_PERCENT


def _distance(scene: Scene, answer: str) -> float:
    """From the place that an answer names to the tee's centre, percent of the table's side; infinite if it names
    none."""
    at = named_place(answer)
    return float("inf") if at is None else float(np.hypot(*(np.array(at) - scene.centre / SIZE_PX * 100)))


def named_place(answer: str) -> tuple[float, float] | None:
    """Percent of the table from the left and from the top; None if the answer names none."""
    found = PLACE.fullmatch(answer)
    return None if found is None else (float(found[1]), float(found[2]))


def _share(questions: Sequence[TableQuestion], answers: Sequence[str], name: str) -> dict[str, Any]:
    right = [is_right(name, *each) for each in zip(questions, answers, strict=True)]
    fields = success_fields(right)
    return {"share": fields["success"], "questions": len(right), "low": fields["low"], "high": fields["high"]}


def _best_guess(questions: Sequence[TableQuestion]) -> float:
    """The share that the best single place would score."""
    points = np.stack([each.scene.centre / SIZE_PX * 100 for each in questions])
    distances = np.linalg.norm(points[:, None] - points, axis=-1)
    return float((distances <= CLOSE_PERCENT).mean(1).max())


def _more(name: str, questions: Sequence[TableQuestion], answers: Sequence[str]) -> dict[str, Any]:
    """What the share does not say: a place's distances; for the goal, where the errors are."""
    if name == "place":
        distances = [_distance(each.scene, answer) for each, answer in zip(questions, answers, strict=True)]
        named = [each for each in distances if np.isfinite(each)]
        middle = float(np.median(named)) if named else None
        return {"median_percent": middle, "mean_percent": float(np.mean(named)) if named else None}
    if name != "goal":
        return {}
    edges = (0.0, NEAR_COVERAGE, 0.85, 0.9, SUCCESS_COVERAGE, 0.97, 1.0)
    rows = []
    for low, high in pairwise(edges):
        right = [
            is_right(name, each, answer)
            for each, answer in zip(questions, answers, strict=True)
            if low < each.scene.coverage <= high or each.scene.coverage == low == 0
        ]
        rows.append({"above": low, "to": high, "questions": len(right), "right": sum(right)})
    return {"by_coverage": rows}


def table_prompt(checkpoint: VlmCheckpoint, picture: NDArray[np.uint8], text: str) -> VlmPrompt:
    """The question about the picture, as the folder's chat template puts it."""
    content = [{"type": "image"}, {"type": "text", "text": text}]
    return checkpoint.prompts.chat([{"role": "user", "content": content}], [picture])


@torch.inference_mode()
def _greedy(checkpoint: VlmCheckpoint, prompts: Sequence[VlmPrompt]) -> list[list[int]]:
    """Answers to prompts of one length, without the token that ends them."""
    model, stops, length = checkpoint.model, checkpoint.stop_ids, len(prompts[0].ids)
    images = [image for prompt in prompts for image in prompt.images]
    seen = model.see(torch.cat([image.pixels for image in images]), [image.grid for image in images])
    words = [model.language.embed(prompt.ids) for prompt in prompts]
    pairs = zip(words, prompts, seen, strict=True)
    x = torch.stack([own.index_copy(0, prompt.at, image.tokens) for own, prompt, image in pairs])
    cache = model.language.make_cache(len(prompts), length + MOST_ANSWER)
    positions, chosen = torch.arange(length), list[Tensor]()
    for step in range(MOST_ANSWER):
        chosen.append(model.language.logits(model.language(x, positions, cache)[:, -1]).argmax(-1))
        x, positions = model.language.embed(chosen[-1][:, None]), torch.tensor([length + step])
    rows: list[list[int]] = torch.stack(chosen, 1).tolist()
    return [row[: next((at for at, token in enumerate(row) if token in stops), len(row))] for row in rows]
