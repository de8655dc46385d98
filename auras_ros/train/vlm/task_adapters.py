"""`auras train pusht-monitor | pusht-detector`: adapters of the Push-T model with task heads, how well they see, and
their record.

The adapters are folders as PEFT saves them, with a task head beside: what `loras` of the node vlm takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from auras_ros import resources
from auras_ros.checkpoints.peft import CONFIG as ADAPTER
from auras_ros.checkpoints.peft import WEIGHTS as ADAPTER_WEIGHTS
from auras_ros.checkpoints.peft import read_peft
from auras_ros.checkpoints.task_head import CONFIG as HEAD
from auras_ros.checkpoints.task_head import WEIGHTS as HEAD_WEIGHTS
from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.lora.heads import HeadResult, head_result
from auras_ros.report.result import Say
from auras_ros.report.statistics import success_fields
from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.train.export import origin, put_in_place, write_record
from auras_ros.train.loops import Curve
from auras_ros.train.vlm.evaluation import ask
from auras_ros.train.vlm.pictures import render
from auras_ros.train.vlm.questions import held_out
from auras_ros.train.vlm.stages import MOST_SEED, SEEDS
from auras_ros.train.vlm.task_student import LANGUAGE, RANK, AskedPictures, TaskStudent, train_student
from auras_ros.train.vlm.tasks import SETS, AdapterTask

BASE = "pusht-vlm"
PUBLISHED = "base_model.model.model.text_model."


@dataclass(frozen=True)
class TaskSchedule:
    """How much of everything; `smoke` is for tests of the machinery, its adapters are useless. steps: at most."""

    pictures: int = 12_000
    steps: int = 2500

    @classmethod
    def smoke(cls) -> TaskSchedule:
        return cls(40, 2)


def make_adapters(
    name: str, out: Path, work: Path, seed: int, schedule: TaskSchedule, questions: int, progress: Say
) -> dict[str, Any]:
    """Train all of a set, write their folders below `out`, evaluate them; returns the record beside them. questions: of
    each. seed: scenes are those that the base model was trained with under this seed; 0 was the included one's."""
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed: {seed} is not in [0, {MOST_SEED}]: its scenes would be held-out ones")
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    checkpoint, curve, first = open_vlm(resources.checkpoint(BASE), "float32"), Curve(), SEEDS * (seed + 1)
    data = render(work / "pictures", schedule.pictures, first, progress)
    fresh = out.with_name(out.name + ".partial")
    fresh.mkdir(parents=True, exist_ok=True)
    for which, task in SETS[name].items():
        curve.stage(which)
        torch.manual_seed(seed)
        asked = AskedPictures(checkpoint, task.question)
        progress(f"{which}: pictures")
        sequences, targets = asked.sequences(data.images), task.targets(data, first)
        student = TaskStudent(asked.shapes, sequences.shape[-1], task.outputs)
        steps, say = min(task.steps, schedule.steps), partial(_say, progress, which)
        loss = lambda outputs, drawn, task=task, targets=targets: task.loss(outputs, targets[drawn])  # noqa: E731
        write_adapter(fresh / which, train_student(student, asked, sequences, loss, steps, curve, say), task)
    put_in_place(fresh, out)
    record: dict[str, Any] = {
        **origin(seed),
        "base": {"name": checkpoint.name, "digest": checkpoint.digest},
        "schedule": asdict(schedule),
        "rank": RANK,
        "evaluation": f"auras train {name} --out {out.name} --evaluate",
        "answers": evaluate_adapters(name, out, questions, progress),
    }
    write_record(out, record, curve)
    return record


def _say(progress: Say, name: str, text: str) -> None:
    progress(f"{name} {text}")


def write_adapter(folder: Path, student: TaskStudent, task: AdapterTask) -> None:
    """PEFT's files, and the head's."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": BASE, "r": RANK, "lora_alpha": RANK,
        "target_modules": sorted({name.rpartition(".")[2] for name in student.names}), "lora_dropout": 0.0,
        "bias": "none", "inference_mode": True,
    }  # fmt: skip
    factors = {
        f"{PUBLISHED}{name}.lora_{letter}.weight": tensor.detach().contiguous()
        for name, pair in student.factors().items()
        for letter, tensor in zip("AB", pair, strict=True)
    }
    head = {"weight": student.head.weight.detach(), "bias": student.head.bias.detach()}
    save_file(factors, folder / ADAPTER_WEIGHTS, {"format": "pt"})
    save_file(head, folder / HEAD_WEIGHTS, {"format": "pt"})
    for name, values in ((ADAPTER, config), (HEAD, task.head)):
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def evaluate_adapters(name: str, folder: Path, count: int, progress: Say, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Of each adapter of a set, the head's share of right answers on `count` balanced held-out scenes, and beside it
    that of the base model's own words on the same ones (VaLoRA figure 4)."""
    checkpoint, results = open_vlm(resources.checkpoint(BASE), "float32"), dict[str, dict[str, Any]]()
    for which, task in SETS[name].items():
        asked, table = list(held_out(task.topic, count, seed)), PosedTable()
        pictures = [table.picture(each.scene.tee, each.scene.pusher, each.scene.things) for each in asked]
        by_head = heads_results(checkpoint, folder / which, task, pictures)
        in_words = ask(checkpoint, pictures, [task.question] * count)
        answers: dict[str, Sequence[HeadResult | str]] = {"head": by_head, "words": in_words}
        shares: dict[str, Any] = {
            who: success_fields([task.is_right(*each) for each in zip(asked, said, strict=True)])
            for who, said in answers.items()
        }
        results[which] = {**shares, "question": task.question, **task.more(asked, by_head)}
        progress(f"{which}: head {shares['head']['success']:.1%}, words {shares['words']['success']:.1%}")
    return results


@torch.no_grad()
def heads_results(
    checkpoint: VlmCheckpoint, folder: Path, task: AdapterTask, pictures: Sequence[NDArray[np.uint8]]
) -> list[HeadResult]:
    """As the folder says it, read as the engine reads it."""
    adapter, asked = read_peft(folder, checkpoint.targets), AskedPictures(checkpoint, task.question)
    if adapter.head is None:
        raise ValueError(f"{folder}: has no task head")
    factors = {layer.removeprefix(LANGUAGE): (each.a, each.b) for layer, each in adapter.factors.items()}
    return [head_result(adapter.head, each) for each in asked.hidden(asked.sequences(pictures), factors)]
