"""`auras train pusht-vlm`: the stages put together to a model folder, its evaluation and its record."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from auras_ros.report.result import Say
from auras_ros.train.export import origin, put_in_place, write_record
from auras_ros.train.vlm.evaluation import evaluate_vlm
from auras_ros.train.vlm.folder import write_folder
from auras_ros.train.vlm.stages import VlmSchedule, train_vlm


def make_vlm(out: Path, work: Path, seed: int, schedule: VlmSchedule, questions: int, progress: Say) -> dict[str, Any]:
    """Train the model, write its folder to `out`, evaluate it; returns the record beside it. questions: of each type.

    A folder that is already there is replaced once the new one is whole; its evaluation follows.
    """
    trained = train_vlm(work, seed, schedule, progress)
    fresh = out.with_name(out.name + ".partial")
    write_folder(fresh, trained.model, trained.config, trained.tokenizer)
    put_in_place(fresh, out)
    record: dict[str, Any] = {
        **origin(seed),
        "schedule": asdict(schedule),
        "multiplied_in": "bfloat16" if trained.half else "float32",
        "parameters": sum(each.numel() for each in trained.model.parameters()),
        "evaluation": f"auras train pusht-vlm --out {out.name} --evaluate",
        "answers": evaluate_vlm(out, questions, progress),
    }
    write_record(out, record, trained.curve)
    return record
