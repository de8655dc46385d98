"""Images as transformers' own processors prepare them, and what is refused.

Guards: rounding of a size in another direction; tiles in another order; a colour's mean on another colour; an image
that no model was trained with reaching one.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

from auras_ros.checkpoints.config_reader import ConfigReader
from auras_ros.checkpoints.vlm import cogagent, idefics3, llava, qwen_vl
from auras_ros.checkpoints.vlm.pictures import Idefics3Processor, PictureError, PreparedImage
from tests.checkpoints.vlm.folders import CONFIGS, PROCESSORS, SPECIAL, TILES, image

pytest.importorskip("PIL")

READ = {"smolvlm": idefics3.read, "llava": llava.read, "qwen2_5_vl": qwen_vl.read, "cogagent": cogagent.read}
SIZES = [(32, 32), (40, 60), (60, 40), (25, 70), (90, 31), (64, 64), (100, 33), (7, 9), (33, 64)]


def processor(kind: str, **values: Any) -> Any:
    ids = {token: place for place, token in enumerate([*SPECIAL[kind], *TILES])}
    return READ[kind](ConfigReader(CONFIGS[kind](ids), "config")).processor(ConfigReader(values, "preprocessor"))


def published(name: str, **values: Any) -> Any:
    pytest.importorskip("transformers")
    module = __import__(f"transformers.models.{name}.image_processing_pil_{name}", fromlist=["_"])
    classes = {"idefics3": "Idefics3", "llava": "Llava", "qwen2_vl": "Qwen2VL"}
    return getattr(module, f"{classes[name]}ImageProcessorPil")(**values)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("splitting", [True, False])
def test_idefics3_tiles(size: tuple[int, int], splitting: bool) -> None:
    values = {
        "size": {"longest_edge": 80}, "max_image_size": {"longest_edge": 32}, "do_image_splitting": splitting,
        "image_mean": [0.1, 0.5, 0.7], "image_std": [0.3, 0.5, 0.6],
    }  # fmt: skip
    made = processor("smolvlm", **values)(image(*size))
    given = published("idefics3", **values)([[image(*size)]], return_tensors="pt", return_row_col_info=True)
    torch.testing.assert_close(made.pixels, given["pixel_values"][0].float(), atol=1e-6, rtol=0)
    assert made.grid == (len(made.pixels), 1)
    assert made.text.count("<image>") == made.tokens == 4 * len(made.pixels)
    assert made.text == _expanded(given["rows"][0][0], given["cols"][0][0])


def _expanded(rows: int, columns: int) -> str:
    """transformers' text of an image."""
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string

    return str(get_image_prompt_string(rows, columns, 4, "<fake_token_around_image>", "<image>", "<global-img>"))


@pytest.mark.parametrize("size", SIZES)
def test_llava_crops_the_centre(size: tuple[int, int]) -> None:
    values = {"size": {"shortest_edge": 34}, "crop_size": {"height": 28, "width": 28}}
    made = processor("llava", **values)(image(*size))
    given = published("llava", **values)(image(*size), return_tensors="pt")
    torch.testing.assert_close(made.pixels, given["pixel_values"].float(), atol=1e-6, rtol=0)
    assert made.text == "<image>" * made.tokens == "<image>" * 16


@pytest.mark.parametrize("size", [*SIZES, (300, 200), (5, 6), (8, 1500)])
def test_qwen_patches(size: tuple[int, int]) -> None:
    values = {"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 4096}}
    made = processor("qwen2_5_vl", **values)(image(*size))
    given = published("qwen2_vl", **values)(image(*size), return_tensors="pt")
    assert [1, *made.grid] == given["image_grid_thw"][0].tolist()
    frames = given["pixel_values"].float().unflatten(1, (3, 2, 16))
    torch.testing.assert_close(made.pixels.unflatten(1, (3, 16)), frames[:, :, 0], atol=1e-6, rtol=0)
    assert made.text.count("<|image_pad|>") == made.tokens == made.grid[0] * made.grid[1] // 4


def test_the_digest_names_the_image() -> None:
    made: list[PreparedImage] = [
        processor("cogagent")(each) for each in (image(40, 40), image(40, 40), image(40, 40, 1))
    ]
    assert made[0].digest == made[1].digest != made[2].digest


REFUSED: dict[str, tuple[Any, str]] = {
    "float": (np.zeros((8, 8, 3), np.float32), r"float32 \[8, 8, 3\], expected uint8"),
    "grey": (np.zeros((8, 8), np.uint8), r"uint8 \[8, 8\], expected"),
    "empty": (np.zeros((0, 8, 3), np.uint8), "8 x 0 pixels"),
    "a-line": (np.zeros((1, 201, 3), np.uint8), "201 x 1 pixels: one side is more than 200 times the other"),
    "none": (None, "image: NoneType"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", READ)
def test_what_is_not_an_image_is_refused(kind: str, name: str) -> None:
    given, said = REFUSED[name]
    with pytest.raises(PictureError, match=said):
        processor(kind, **PROCESSORS[kind])(given)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown": ("smolvlm", {"do_resise": True}, "preprocessor.do_resise: is unknown; did you mean do_resize"),
    "no-resize": ("llava", {"do_resize": False}, "preprocessor.do_resize: False is not supported"),
    "another-tile": ("smolvlm", {"max_image_size": {"longest_edge": 48}}, "48 pixels, but the vision model takes 32"),
    "huge": ("smolvlm", {"size": {"longest_edge": 5000}}, "size.longest_edge: 5000 is not from 1 to 4096"),
    "std": ("llava", {"image_std": [0.1, 0, 0.1]}, "preprocessor.image_std: 0 is less than 1e-06"),
    "mean": ("llava", {"image_mean": [0.1, 0.2]}, r"preprocessor.image_mean: \[0.1, 0.2\] is not a list of 3 numbers"),
    "resample": ("llava", {"resample": 0}, "preprocessor.resample: 0 is not supported"),
    "crop": ("llava", {"crop_size": {"height": 20, "width": 28}}, r"\[20, 28\] pixels, but the vision model takes 28"),
    "size-key": ("llava", {"size": {"shortest_edge": 34, "longest": 3}}, "preprocessor.size.longest: is unknown"),
    "patch": ("qwen2_5_vl", {"patch_size": 14}, "preprocessor.patch_size: 14 is not supported; expected 4"),
    "endless-range": ("qwen2_5_vl", {"patch_size": 4, "max_pixels": 10**12}, "max_pixels: 1000000000000 is not from 1"),
    "endless-side": ("llava", {"size": {"shortest_edge": 10**6}}, "shortest_edge: 1000000 is not from 1 to 4096"),
    "range": ("qwen2_5_vl", {"patch_size": 4, "min_pixels": 9999, "max_pixels": 64}, "9999 to 64 pixels"),
    "square": ("cogagent", {"size": {"height": 32, "width": 31}}, r"\[32, 31\] pixels"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_processor_that_does_not_fit_the_model_is_refused_by_key(name: str) -> None:
    kind, values, said = WRONG[name]
    with pytest.raises(ValueError, match=said):
        processor(kind, **values)


def test_a_published_smolvlm_file_is_taken() -> None:
    """SmolVLM2-500M's own keys, with the size of the tiny model."""
    values = {
        "do_convert_rgb": True, "do_image_splitting": True, "do_normalize": True, "do_pad": True, "do_rescale": True,
        "do_resize": True, "image_mean": [0.5] * 3, "image_processor_type": "SmolVLMImageProcessor",
        "image_std": [0.5] * 3, "max_image_size": {"longest_edge": 32}, "processor_class": "SmolVLMProcessor",
        "resample": 1, "rescale_factor": 0.00392156862745098, "size": {"longest_edge": 128},
        "crop_size": None, "_valid_processor_keys": ["images"],
        "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 32}},
    }  # fmt: skip
    assert isinstance(processor("smolvlm", **values), Idefics3Processor)


def test_pillow_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(PictureError, match=r"auras_ros\[vlm\]"):
        processor("cogagent")(image(40, 40))
