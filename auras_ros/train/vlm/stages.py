"""The stages of the small vision-language model: pictures, vision, answers.

Each leaves a file in the work folder; a run that was interrupted goes on after the last finished one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from auras_ros.models.idefics3 import Idefics3Config, build_idefics3
from auras_ros.models.vlm import TiledVlm
from auras_ros.report.result import Say, write_whole
from auras_ros.train.loops import Curve
from auras_ros.train.vlm.conversation import Conversations
from auras_ros.train.vlm.folder import make_tokenizer, sizes
from auras_ros.train.vlm.learning import Batches, Student, quick_half, train_answers, train_vision
from auras_ros.train.vlm.pictures import render

SEEDS, MOST_SEED = 1_000_000, 4000  # scenes of each training seed; all lie below `questions.HELD_OUT`


@dataclass(frozen=True)
class VlmSchedule:
    """How much of everything; `smoke` is for tests of the machinery, its model is useless."""

    pictures: int = 40_000
    vision_steps: int = 1200
    answer_steps: int = 1600

    @classmethod
    def smoke(cls) -> VlmSchedule:
        return cls(40, 2, 2)


@dataclass(frozen=True, eq=False)
class TrainedVlm:
    """What training leaves. half: whether it multiplied in bfloat16."""

    model: TiledVlm
    config: Idefics3Config
    tokenizer: Any
    curve: Curve
    half: bool


def train_vlm(work: Path, seed: int, schedule: VlmSchedule, progress: Say) -> TrainedVlm:
    """All stages; those that are done already are read."""
    if not 0 <= seed <= MOST_SEED:
        raise ValueError(f"seed: {seed} is not in [0, {MOST_SEED}]: its scenes would be held-out ones")
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    curve_file = work / "curve.json"
    curve = Curve(json.loads(curve_file.read_text()) if curve_file.exists() else [])
    tokenizer = make_tokenizer()
    config = sizes(tokenizer.get_vocab_size())
    half = quick_half()
    batches = Batches(render(work / "pictures", schedule.pictures, SEEDS * (seed + 1), progress), half)
    conversations = Conversations(tokenizer, config.tokens)

    def stage(name: str, student: Student, train: Callable[[], nn.Module]) -> None:
        """The student as this stage leaves it: trained, or read where that is done already."""
        path = work / f"{name}.safetensors"
        if not path.exists():
            curve.stage(name)
            weights = train().state_dict()
            write_whole(curve_file, json.dumps(curve.rows))
            temporary = path.with_suffix(".partial")
            save_file({key: tensor.contiguous() for key, tensor in weights.items()}, temporary)
            temporary.replace(path)
        student.load_state_dict(load_file(path))

    torch.manual_seed(seed)
    student = Student(build_idefics3(config))
    stage("vision", student, lambda: train_vision(student, batches, schedule.vision_steps, curve, progress))
    torch.manual_seed(seed + 1)
    steps = schedule.answer_steps
    stage("answers", student, lambda: train_answers(student, conversations, batches, steps, curve, progress))
    return TrainedVlm(student.model.eval(), config, tokenizer, curve, half)
