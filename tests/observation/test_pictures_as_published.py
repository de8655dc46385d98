"""Pictures are made as the published code of a policy makes them: Pillow's bicubic, padding, zoom, two normalisations.

Guards: a grey level of difference to Pillow; a border on the other side, or of another value; a zoom that moves.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from auras_ros.observation import CameraSpec, ObservationSpec, Preprocessor, SpecError, bicubic

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
HALF = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}


def result(image: np.ndarray, **camera: Any) -> np.ndarray:
    raw = {"name": "top", "height": image.shape[0], "width": image.shape[1], **camera}
    spec = ObservationSpec.from_dict({"cameras": [raw], "state": None, "history": 1, "dt_ms": 100})
    made = Preprocessor(spec)({"top": image}).image
    assert made.shape == (1, spec.channels, *spec.image_size)
    assert made.dtype == np.float32
    return made[0]


@pytest.mark.parametrize(
    ("size", "to"),
    [
        ((480, 640), (224, 224)),
        ((256, 256), (224, 224)),
        ((100, 37), (224, 224)),
        ((224, 300), (224, 224)),
        ((5, 7), (3, 2)),
        ((33, 21), (57, 20)),
        ((1, 1), (4, 5)),
    ],
)
@pytest.mark.parametrize("sharp", [False, True])
def test_bicubic_is_pillows_in_every_grey_level(
    make: SimpleNamespace, size: tuple[int, int], to: tuple[int, int], sharp: bool
) -> None:
    """Sharp pictures overshoot, so that the clipping of both passes shows."""
    pillow = pytest.importorskip("PIL.Image")
    image = make.noise(*size)
    image = (image > 127).astype(np.uint8) * 255 if sharp else image
    expected = np.asarray(pillow.fromarray(image).resize((to[1], to[0]), pillow.Resampling.BICUBIC))
    np.testing.assert_array_equal(bicubic.resize(image, *to), expected)
    resize = {"height": to[0], "width": to[1], "interpolation": "pillow_bicubic"}
    np.testing.assert_array_equal(result(image, resize=resize, scale=1.0), expected.transpose(2, 0, 1))


def test_bicubic_of_the_same_size_is_the_picture(make: SimpleNamespace) -> None:
    image = make.noise(6, 8)
    np.testing.assert_array_equal(bicubic.resize(image, 6, 8), image)


def letterboxed(image: np.ndarray, height: int, width: int, value: float, place: str) -> np.ndarray:
    """openpi's and SmolVLA's way, by torch: [0, 1] pictures, bilinear, brought to [-1, 1]; then the border."""
    picture = torch.from_numpy(image).permute(2, 0, 1)[None] / 255.0
    ratio = max(image.shape[1] / width, image.shape[0] / height)
    size = int(image.shape[0] / ratio), int(image.shape[1] / ratio)
    picture = F.interpolate(picture, size=size, mode="bilinear", align_corners=False) * 2 - 1
    down, right = height - size[0], width - size[1]
    before = (down // 2, right // 2) if place == "centre" else (down, right)
    border = (before[1], right - before[1], before[0], down - before[0])
    return np.asarray(F.pad(picture, border, value=value)[0])


@pytest.mark.parametrize("size", [(48, 64), (64, 48), (31, 77), (9, 200), (20, 20), (7, 5), (28, 24)])
@pytest.mark.parametrize(("place", "value"), [("centre", -3.0), ("end", -1.0)])
def test_padding_keeps_the_aspect_ratio(make: SimpleNamespace, size: tuple[int, int], place: str, value: float) -> None:
    image = make.noise(*size)
    resize = {"height": 28, "width": 24, "interpolation": "linear_float", "pad": {"value": value, "place": place}}
    made = result(image, resize=resize, **HALF)
    np.testing.assert_allclose(made, letterboxed(image, 28, 24, value, place), atol=2e-5)
    ratio = max(size[0] / 28, size[1] / 24)
    picture = int(size[0] / ratio) * int(size[1] / ratio)
    assert (made == value).all(0).sum() >= 28 * 24 - picture


def test_linear_float_keeps_fractions_of_a_grey_level() -> None:
    image = np.array([[[0] * 3, [1] * 3]], dtype=np.uint8).repeat(2, 0)
    made = result(image, resize={"height": 2, "width": 4, "interpolation": "linear_float"}, scale=1.0)
    np.testing.assert_allclose(made[0, 0], [0, 0.25, 0.75, 1], atol=1e-6)


def zoomed(image: np.ndarray, share: float) -> np.ndarray:
    """TensorFlow's `crop_and_resize` of the centred box and `convert_image_dtype`, pixel by pixel."""
    side, made = np.sqrt(share), np.empty(image.shape)
    for y, x in np.ndindex(image.shape[:2]):
        at = [((1 - side) / 2 + side * i / (n - 1)) * (n - 1) for i, n in zip((y, x), image.shape, strict=False)]
        (low, left), (down, right) = np.floor(at).astype(int), np.mod(at, 1)
        corners = image[low : low + 2, left : left + 2].astype(float) / 255
        made[y, x] = np.einsum("ijc,i,j->c", corners, [1 - down, down], [1 - right, right])
    return np.floor(made * 255.5)


@pytest.mark.parametrize("share", [0.6, 0.9])
def test_a_zoom_shows_the_middle_as_tensorflow_samples_it(make: SimpleNamespace, share: float) -> None:
    """Where a value lies on the edge of two grey levels rounding may choose the other."""
    image = make.noise(11, 15)
    off = np.abs(result(image, zoom=share, scale=1.0).transpose(1, 2, 0) - zoomed(image, share))
    assert off.max() <= 1
    assert (off > 0).mean() < 0.01
    assert np.array_equal(result(image, zoom=1.0, scale=1.0), image.transpose(2, 0, 1))


def test_a_zoom_of_one_grey_is_that_grey(make: SimpleNamespace) -> None:
    for grey in (0, 1, 127, 254, 255):
        assert (result(make.frame(grey, 9, 9), zoom=0.9, scale=1.0) == grey).all()


def test_several_normalisations_of_one_picture_are_stacked_by_channel(make: SimpleNamespace) -> None:
    image = make.noise(8, 8)
    made = result(image, **IMAGENET, stacked=[HALF])
    assert made.shape == (6, 8, 8)
    np.testing.assert_array_equal(made[:3], result(image, **IMAGENET))
    np.testing.assert_array_equal(made[3:], result(image, **HALF))
    pixel = image[2, 5, 0] / 255
    assert made[0, 2, 5] == pytest.approx((pixel - 0.485) / 0.229, abs=1e-5)
    assert made[3, 2, 5] == pytest.approx(2 * pixel - 1, abs=1e-5)


def test_the_new_keys_are_written_only_where_they_do_something() -> None:
    plain = CameraSpec.from_dict({"name": "top", "height": 8, "width": 8, "resize": {"height": 4, "width": 4}})
    assert not {"zoom", "stacked"} & plain.to_dict().keys()
    assert "pad" not in plain.to_dict()["resize"]
    raw = {"name": "top", "height": 8, "width": 9, "resize": {"height": 4, "width": 4, "pad": {"value": -1.0}}}
    full = CameraSpec.from_dict({**raw, "stacked": [IMAGENET, HALF]})
    assert full.channels == 9
    assert CameraSpec.from_dict(json.loads(json.dumps(full.to_dict()))) == full
    zoomed = CameraSpec.from_dict({"name": "top", "height": 8, "width": 9, "zoom": 0.9})
    assert CameraSpec.from_dict(json.loads(json.dumps(zoomed.to_dict()))) == zoomed


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"zoom": 0}, "zoom: 0 is not a share"),
        ({"zoom": 1.1}, "zoom: 1.1"),
        ({"zoom": float("nan")}, "zoom"),
        ({"stacked": HALF}, "stacked: expected a list"),
        ({"stacked": [{"mean": [0, 0]}]}, "normalization: mean"),
        ({"stacked": [{"std": [1, 0, 1]}]}, "normalization: std"),
        ({"stacked": [{"gain": 1}]}, "stacked: unknown key 'gain'"),
        ({"resize": {"height": 4, "width": 4, "pad": {"value": 0, "place": "start"}}}, "pad: place: 'start'"),
        ({"resize": {"height": 4, "width": 4, "pad": {}}}, "pad: value: missing"),
        ({"resize": {"height": 4, "width": 4, "pad": {"value": float("inf")}}}, "pad: value"),
        ({"resize": {"height": 4, "width": 4, "pad": {"value": 0}}, "zoom": 0.9}, "pad: not supported with a zoom"),
        (
            {"resize": {"height": 4, "width": 4, "pad": {"value": 0}}, "crop": "center", "order": "resize_then_crop"},
            "pad: not supported with a crop after",
        ),
        ({"width": 900, "resize": {"height": 4, "width": 4, "pad": {"value": 0}}}, "pad: nothing is left of 8 x 900"),
    ],
)
def test_what_is_asked_of_a_picture_is_checked_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        CameraSpec.from_dict({"name": "top", "height": 8, "width": 9, **changes})


def test_cameras_of_different_channels_are_refused() -> None:
    cameras = [{"name": name, "height": 8, "width": 8, "stacked": more} for name, more in (("a", []), ("b", [HALF]))]
    with pytest.raises(SpecError, match=r"stacked: results of different channels: \{'a': 3, 'b': 6\}"):
        ObservationSpec.from_dict({"cameras": cameras, "state": None, "history": 1, "dt_ms": 100})
