"""Reads a task head: a linear layer over the decoder's last hidden state, stored with the adapter that it was trained
with (VaLoRA 4.2.2), as task_head.json and task_head.safetensors beside PEFT's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.files import read_weights
from auras_ros.checkpoints.json_file import read_json
from auras_ros.values import shown

CONFIG, WEIGHTS = "task_head.json", "task_head.safetensors"
FILES = (CONFIG, WEIGHTS)
KINDS = ("classification", "binary", "count", "box", "action")
MOST_OUTPUTS, MOST_LABEL, CORNERS = 65_536, 256, 4


@dataclass(frozen=True, eq=False)
class TaskHead:
    """weight [outputs, width], bias [outputs], float32.

    classification: an output for each label. binary: one output, the score of the second of two labels. count: an
    output for each number from 0 on. box: for each of `boxes` its centre, width and height in shares of the image, and
    a score for each label. action: a number for each label, times `scale` plus `offset`. threshold: least score of a
    box, or of the second of two labels."""

    kind: str
    labels: tuple[str, ...]
    weight: Tensor
    bias: Tensor
    threshold: float = 0.5
    boxes: int = 0
    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()


def read_task_head(folder: Path, width: int) -> TaskHead | None:
    """None if the folder has none. Raises CheckpointError, naming the file and the key or tensor."""
    path = folder / CONFIG
    if not path.is_file():
        if (folder / WEIGHTS).is_file():
            raise CheckpointError(f"{path}: file not found, but {WEIGHTS} is there")
        return None
    with refusing(path, ValueError, TypeError):
        read = ConfigReader(read_json(path), "task_head")
        kind = read.only("kind", *KINDS) if read.get("kind") is not None else None
        if kind is None:
            raise read.error("kind", f"missing; one of {', '.join(KINDS)}")
        labels = _labels(read, kind)
        boxes = read.integer("boxes", 1, 1, MOST_OUTPUTS) if kind == "box" else 0
        outputs = {"binary": 1, "box": boxes * (CORNERS + len(labels))}.get(kind, len(labels))
        if outputs > MOST_OUTPUTS:
            raise read.error("boxes", f"{outputs} outputs are more than {MOST_OUTPUTS}")
        threshold = read.number("threshold", 0.5)
        if threshold > 1:
            raise read.error("threshold", f"{threshold:g} is above 1")
        numbers = kind == "action"
        scale = read.numbers("scale", len(labels), (1.0,) * len(labels)) if numbers else ()
        offset = read.numbers("offset", len(labels), (0.0,) * len(labels)) if numbers else ()
        read.finish(set())
    weight, bias = _weights(folder / WEIGHTS, outputs, width)
    return TaskHead(kind, labels, weight, bias, threshold, boxes, scale, offset)


def _labels(read: ConfigReader, kind: str) -> tuple[str, ...]:
    if kind == "count":
        return tuple(map(str, range(read.integer("most", None, 1, MOST_OUTPUTS - 1) + 1)))
    given = read.get("labels", ["no", "yes"] if kind == "binary" else None)
    if not isinstance(given, list) or not given or any(type(each) is not str or not each for each in given):
        raise read.error("labels", f"{shown(given)} is not a list of texts")
    if len(set(given)) < len(given) or max(map(len, given)) > MOST_LABEL:
        raise read.error("labels", f"one is there twice, or longer than {MOST_LABEL} characters")
    if kind == "binary" and len(given) != 2:
        raise read.error("labels", f"{len(given)} labels, expected two")
    return tuple(given)


def _weights(path: Path, outputs: int, width: int) -> tuple[Tensor, Tensor]:
    tensors = read_weights(path)
    for name, shape in (("weight", (outputs, width)), ("bias", (outputs,))):
        if name not in tensors:
            raise CheckpointError(f"{path}: tensor '{name}' is missing")
        if tensors[name].shape != shape or not tensors[name].is_floating_point():
            raise CheckpointError(
                f"{path}: tensor '{name}' is {tensors[name].dtype} {list(tensors[name].shape)}, expected floating point"
                f" numbers {list(shape)}"
            )
    if others := sorted(tensors.keys() - {"weight", "bias"}):
        raise CheckpointError(f"{path}: tensor '{others[0]}' belongs to no head")
    return tensors["weight"].float().clone(), tensors["bias"].float().clone()  # not the file's own pages
