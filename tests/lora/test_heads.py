"""Task heads: read from a folder, and what they make of a hidden state.

Guards: a head of another model or task that is taken; outputs in another order; numbers that are not finite.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.task_head import read_task_head
from auras_ros.lora.heads import DetectedBox, HeadResult, head_result

WIDTH = 4


def write(folder: Path, weight: Any, bias: Any, **config: Any) -> Path:
    (folder / "task_head.json").write_text(json.dumps(config))
    save_file({"weight": torch.tensor(weight), "bias": torch.tensor(bias)}, folder / "task_head.safetensors")
    return folder


def result(folder: Path, hidden: list[float]) -> HeadResult:
    head = read_task_head(folder, WIDTH)
    assert head is not None
    return head_result(head, torch.tensor(hidden))


def rows(count: int) -> list[list[float]]:
    """Output i is number i of the hidden state."""
    return torch.eye(WIDTH)[:count].tolist()


def test_a_class_is_the_likeliest_label(tmp_path: Path) -> None:
    write(tmp_path, rows(3), [0.0, 0.0, 1.0], kind="classification", labels=["walk", "run", "fall"])
    found = result(tmp_path, [0.0, 1.0, 1.0, 9.0])
    assert (found.label, found.text) == ("fall", "fall")
    assert found.score == pytest.approx(float(torch.tensor([0.0, 1.0, 2.0]).softmax(0)[2]))


@pytest.mark.parametrize(("state", "label", "score"), [(2.0, "yes", 0.8808), (0.5, "no", 0.3775), (-1.0, "no", 0.7311)])
def test_a_binary_head_says_yes_from_its_threshold_on(tmp_path: Path, state: float, label: str, score: float) -> None:
    write(tmp_path, rows(1), [0.0], kind="binary", threshold=0.7)
    found = result(tmp_path, [state, 0.0, 0.0, 0.0])
    assert (found.label, found.score) == (label, pytest.approx(score, abs=1e-4))


def test_a_count_is_a_number(tmp_path: Path) -> None:
    write(tmp_path, rows(4), [0.0] * 4, kind="count", most=3)
    found = result(tmp_path, [0.0, 0.0, 5.0, 1.0])
    assert (found.label, found.values, found.text) == ("2", (2.0,), "2")


def test_boxes_from_their_threshold_on_the_likeliest_first(tmp_path: Path) -> None:
    """Two boxes of two labels; each number is the hidden state's first one times a factor."""
    factors = [0, 0, 0, 0, 1, 2, 1, -1, 2, -2, 3, 0]
    weight = [[float(each), 0.0, 0.0, 0.0] for each in factors]
    write(tmp_path, weight, [0.0] * 12, kind="box", boxes=2, labels=["car", "tree"], threshold=0.6)
    found = result(tmp_path, [1.0, 0.0, 0.0, 0.0])
    share = [float(torch.tensor(each).sigmoid()) for each in (3.0, 1.0, -1.0, 2.0, -2.0)]
    assert found.boxes == (
        DetectedBox("car", *map(pytest.approx, share)),  # type: ignore[arg-type]
        DetectedBox("tree", pytest.approx(share[3]), 0.5, 0.5, 0.5, 0.5),  # type: ignore[arg-type]
    )
    assert found.text == "car 0.95; tree 0.88"
    assert result(tmp_path, [-3.0, 0.0, 0.0, 0.0]).boxes == ()


def test_an_action_is_scaled_as_it_was_trained(tmp_path: Path) -> None:
    write(tmp_path, rows(2), [0.0, 1.0], kind="action", labels=["x", "y"], scale=[2.0, 0.5], offset=[0.0, -1.0])
    found = result(tmp_path, [3.0, 1.0, 0.0, 0.0])
    assert (found.values, found.text) == ((6.0, 0.0), "6 0")


def test_outputs_that_are_no_numbers_are_an_error(tmp_path: Path) -> None:
    write(tmp_path, rows(2), [0.0, 0.0], kind="classification", labels=["a", "b"])
    with pytest.raises(FloatingPointError, match="the task head's outputs are not finite"):
        result(tmp_path, [float("nan"), 0.0, 0.0, 0.0])


def test_a_folder_without_a_head_has_none(tmp_path: Path) -> None:
    assert read_task_head(tmp_path, WIDTH) is None


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"labels": ["a", "b"]}, "task_head.kind: missing"),
        ({"kind": "poem", "labels": ["a", "b"]}, "task_head.kind: 'poem' is not supported"),
        ({"kind": "classification"}, "task_head.labels: None is not a list of texts"),
        ({"kind": "classification", "labels": ["a", "a"]}, "task_head.labels: one is there twice"),
        ({"kind": "classification", "labels": ["a", 2]}, "task_head.labels: ['a', 2] is not a list of texts"),
        ({"kind": "binary", "labels": ["a", "b", "c"]}, "task_head.labels: 3 labels, expected two"),
        ({"kind": "classification", "labels": ["a", "b"], "colour": 1}, "task_head.colour: is unknown"),
        ({"kind": "classification", "labels": ["a", "b"], "threshold": 2.0}, "task_head.threshold: 2 is above 1"),
        ({"kind": "action", "labels": ["a", "b"], "scale": [1.0]}, "task_head.scale: [1.0] is not a list of 2 numbers"),
        ({"kind": "count", "most": 1 << 30}, "task_head.most:"),
        ({"kind": "box", "labels": ["a"] * 1, "boxes": 60_000}, "task_head.boxes: 300000 outputs"),
        ({"kind": "classification", "labels": ["a", "b", "c"]}, "tensor 'weight' is torch.float32 [2, 4], expected"),
    ],
)
def test_what_is_no_head_is_refused_by_name(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    write(tmp_path, rows(2), [0.0, 0.0], **config)
    with pytest.raises(CheckpointError) as refused:
        read_task_head(tmp_path, WIDTH)
    assert str(tmp_path) in str(refused.value)
    assert said in str(refused.value)


def test_a_head_without_its_description_or_its_weights_is_refused(tmp_path: Path) -> None:
    write(tmp_path, rows(2), [0.0, 0.0], kind="classification", labels=["a", "b"])
    (tmp_path / "task_head.json").rename(tmp_path / "other.json")
    with pytest.raises(CheckpointError, match=r"task_head\.json: file not found, but task_head\.safetensors is there"):
        read_task_head(tmp_path, WIDTH)
    (tmp_path / "other.json").rename(tmp_path / "task_head.json")
    (tmp_path / "task_head.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"task_head\.safetensors: file not found"):
        read_task_head(tmp_path, WIDTH)
