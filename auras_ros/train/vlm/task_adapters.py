"""`auras train pusht-monitor`: two adapters of the Push-T model whose task heads watch a table, their evaluation and
their record.

The adapters are folders as PEFT saves them, with a task head beside: what `loras` of the node vlm takes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from auras_ros import resources
from auras_ros.checkpoints.peft import CONFIG as ADAPTER
from auras_ros.checkpoints.peft import WEIGHTS as ADAPTER_WEIGHTS
from auras_ros.checkpoints.peft import read_peft
from auras_ros.checkpoints.task_head import CONFIG as HEAD
from auras_ros.checkpoints.task_head import WEIGHTS as HEAD_WEIGHTS
from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.report.result import Say
from auras_ros.report.statistics import success_fields
from auras_ros.sim.pusht.scene import PosedTable
from auras_ros.train.export import origin, put_in_place, write_record
from auras_ros.train.loops import Curve
from auras_ros.train.vlm.evaluation import ask
from auras_ros.train.vlm.monitor_student import LANGUAGE, RANK, MonitorQuestion, MonitorStudent, train_monitor
from auras_ros.train.vlm.pictures import COLUMNS, render
from auras_ros.train.vlm.questions import TOPICS, held_out
from auras_ros.train.vlm.stages import MOST_SEED, SEEDS

BASE = "pusht-vlm"
MONITORS = ("way", "goal")
LABELS = ("no", "yes")
PUBLISHED = "base_model.model.model.text_model."


@dataclass(frozen=True)
class MonitorSchedule:
    """How much of everything; `smoke` is for tests of the machinery, its adapters are useless."""

    pictures: int = 12_000
    steps: int = 800

    @classmethod
    def smoke(cls) -> MonitorSchedule:
        return cls(40, 2)


def question_of(name: str) -> str:
    """What a monitor is asked: it was trained with these words alone."""
    return TOPICS[name].wordings[0]


def make_monitors(
    out: Path, work: Path, seed: int, schedule: MonitorSchedule, questions: int, progress: Say
) -> dict[str, Any]:
    """Train both, write their folders below `out`, evaluate them; returns the record beside them. questions: of each.
    seed: scenes are those that the base model was trained with under this seed; 0 was the included one's."""
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed: {seed} is not in [0, {MOST_SEED}]: its scenes would be held-out ones")
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    checkpoint, curve = open_vlm(resources.checkpoint(BASE), "float32"), Curve()
    data = render(work / "pictures", schedule.pictures, SEEDS * (seed + 1), progress)
    fresh = out.with_name(out.name + ".partial")
    fresh.mkdir(parents=True, exist_ok=True)
    for name in MONITORS:
        curve.stage(name)
        torch.manual_seed(seed)
        question = MonitorQuestion(checkpoint, question_of(name))
        progress(f"{name}: pictures")
        sequences = question.sequences(data.images)
        column = torch.from_numpy(np.array(data.answers[:, COLUMNS.index((name, ""))]))
        answers = (column == TOPICS[name].answers.index("yes")).float()
        student = train_monitor(question, sequences, answers, schedule.steps, curve, partial(_say, progress, name))
        write_adapter(fresh / name, student)
    put_in_place(fresh, out)
    record: dict[str, Any] = {
        **origin(seed),
        "base": {"name": checkpoint.name, "digest": checkpoint.digest},
        "schedule": asdict(schedule),
        "rank": RANK,
        "evaluation": f"auras train pusht-monitor --out {out.name} --evaluate",
        "answers": evaluate_monitors(out, questions, progress),
    }
    write_record(out, record, curve)
    return record


def _say(progress: Say, name: str, text: str) -> None:
    progress(f"{name} {text}")


def write_adapter(folder: Path, student: MonitorStudent) -> None:
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
    task = {"kind": "binary", "labels": list(LABELS), "threshold": 0.5}
    for name, values in ((ADAPTER, config), (HEAD, task)):
        (folder / name).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def evaluate_monitors(folder: Path, count: int, progress: Say, seed: int = 0) -> dict[str, dict[str, Any]]:
    """Of each monitor, the head's share of right answers on `count` balanced held-out scenes, and beside it that of the
    base model's own words on the same ones."""
    checkpoint, results = open_vlm(resources.checkpoint(BASE), "float32"), dict[str, dict[str, Any]]()
    for name in MONITORS:
        asked, table = list(held_out(name, count, seed)), PosedTable()
        pictures = [table.picture(each.scene.tee, each.scene.pusher, each.scene.things) for each in asked]
        wanted = [each.answer for each in asked]
        said = {
            "head": _heads_answers(checkpoint, folder / name, name, pictures),
            "words": ask(checkpoint, pictures, [question_of(name)] * count),
        }
        rights = {who: [one == other for one, other in zip(each, wanted, strict=True)] for who, each in said.items()}
        results[name] = {who: success_fields(right) for who, right in rights.items()}
        missed = {
            answer: sum(not right for right, each in zip(rights["head"], wanted, strict=True) if each == answer)
            for answer in LABELS
        }
        results[name] |= {"question": question_of(name), "head_wrong_where_true_is": missed}
        progress(f"{name}: head {results[name]['head']['success']:.1%}, words {results[name]['words']['success']:.1%}")
    return results


@torch.no_grad()
def _heads_answers(checkpoint: VlmCheckpoint, folder: Path, name: str, pictures: list[Any]) -> list[str]:
    """As the folder says it, read as the engine reads it."""
    adapter, question = read_peft(folder, checkpoint.targets), MonitorQuestion(checkpoint, question_of(name))
    if adapter.head is None:
        raise ValueError(f"{folder}: has no task head")
    factors = {layer.removeprefix(LANGUAGE): (each.a, each.b) for layer, each in adapter.factors.items()}
    hidden = question.hidden(question.sequences(pictures), factors)
    scores = (hidden @ adapter.head.weight.T + adapter.head.bias)[:, 0].sigmoid()
    return [adapter.head.labels[bool(each >= adapter.head.threshold)] for each in scores]
