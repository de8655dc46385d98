"""`auras_ros.load_vlm(...).ask(...)`: what the engine answers to the same prompt, and errors that name the thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import auras_ros
from auras_ros import resources
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.direct.vlm import DirectVlm
from auras_ros.train.vlm.evaluation import ask

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python.md"
QUESTION = "Is the tee on its goal?"


@pytest.fixture(scope="module")
def vlm() -> Iterator[DirectVlm]:
    with auras_ros.load_vlm("pusht-vlm", adapters={"goal": "pusht-monitor/goal"}) as made:
        yield made


@pytest.fixture(scope="module")
def picture() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (96, 96, 3), np.uint8)


def test_it_answers_what_the_model_generates(vlm: DirectVlm, picture: np.ndarray) -> None:
    """Without the engine, whose answers are the model's own."""
    (wanted,) = ask(open_vlm(resources.checkpoint("pusht-vlm"), "float32"), [picture], [QUESTION])
    assert vlm.ask(picture, QUESTION, temperature=0.0, max_tokens=8).strip().startswith(wanted)
    answer = vlm.answer(vlm.prompt(picture, QUESTION), temperature=0.0, max_tokens=8)
    assert answer.text.strip().startswith(wanted)
    assert len(answer.tokens) > 0


def test_a_picture_is_a_file_an_array_or_a_pillow_image(vlm: DirectVlm, picture: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "frame.png"
    Image.fromarray(picture).save(path)
    wanted = vlm.ask(picture, QUESTION, temperature=0.0)
    for given in (path, str(path), Image.fromarray(picture), [picture], [path]):
        assert vlm.ask(given, QUESTION, temperature=0.0) == wanted
    assert len(vlm.prompt([picture, path], QUESTION).images) == 2
    assert len(vlm.prompt(None, QUESTION).images) == 0


def test_an_adapter_a_schema_and_a_length_are_kept(vlm: DirectVlm, picture: np.ndarray) -> None:
    assert vlm.ask(picture, QUESTION, adapter="goal") in ("yes", "no")
    answer = vlm.answer(vlm.prompt(picture, QUESTION), max_tokens=1, temperature=0.0)
    assert (answer.finish, len(answer.tokens)) == ("length", 1)
    schema = {"type": "object", "properties": {"left": {"type": "boolean"}}, "required": ["left"]}
    schema["additionalProperties"] = False
    said = json.loads(vlm.ask(picture, QUESTION, json_schema=schema, temperature=0.0))
    assert set(said) == {"left"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (np.zeros((96, 96), np.uint8), r"image: uint8 \[96, 96\], expected uint8 RGB"),
        (np.zeros((96, 96, 3), np.float32), r"image: float32 \[96, 96, 3\]"),
        (np.zeros((96, 96, 4), np.uint8), r"convert\('RGB'\)"),
    ],
)
def test_what_is_no_picture_is_named(vlm: DirectVlm, given: np.ndarray, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        vlm.ask(given, QUESTION)


def test_what_cannot_be_asked_is_named(vlm: DirectVlm, picture: np.ndarray, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=str(broken)):
        vlm.ask(broken, QUESTION)
    with pytest.raises(FileNotFoundError):
        vlm.ask(tmp_path / "none.png", QUESTION)
    with pytest.raises(ValueError, match="adapter"):
        vlm.ask(picture, QUESTION, adapter="way")
    with pytest.raises(ValueError, match="max_tokens"):
        vlm.ask(picture, QUESTION, max_tokens=0)
    with pytest.raises(ValueError, match="temperature"):
        vlm.ask(picture, QUESTION, temperature=-1.0)


def test_the_page_names_what_there_is() -> None:
    assert 'auras_ros.load_vlm("pusht-vlm")' in PAGE.read_text()
    with pytest.raises(FileNotFoundError, match="did you mean pusht-vlm"):
        auras_ros.load_vlm("pusht-vlmm")


def test_after_close_it_says_so(picture: np.ndarray) -> None:
    vlm = auras_ros.load_vlm("pusht-vlm")
    prompt = vlm.prompt(picture, QUESTION)
    vlm.close()
    with pytest.raises(RuntimeError):
        vlm.answer(prompt)
