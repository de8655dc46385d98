"""Preprocessing does exactly what the checkpoint says, and its specification is checked by field."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from auras_ros.observation import (
    CameraSpec,
    Crop,
    FaultName,
    ObservationError,
    ObservationSpec,
    Preprocessor,
    Resize,
    SpecError,
    StateSpec,
)

CAMERA = {
    "name": "top",
    "height": 12,
    "width": 16,
    "color": "bgr",
    "resize": {"height": 4, "width": 5, "interpolation": "linear"},
    "crop": {"height": 8, "width": 10, "top": 1, "left": 2},
    "order": "crop_then_resize",
    "scale": 0.5,
    "mean": [1.0, 2.0, 3.0],
    "std": [0.5, 2.0, 4.0],
    "layout": "chw",
}
STATE = {"names": ["a", "b"], "normalization": {"kind": "min_max", "min": [0.0, -1.0], "max": [10.0, 1.0]}}
FULL = {"cameras": [CAMERA], "state": STATE, "history": 2, "dt_ms": 100}


def one(make: SimpleNamespace, image: np.ndarray, **camera: Any) -> np.ndarray:
    height, width = image.shape[:2]
    raw = {"name": "top", "height": height, "width": width, **camera}
    spec = ObservationSpec.from_dict({"cameras": [raw], "state": None, "history": 1, "dt_ms": 100})
    prepared = Preprocessor(spec)({"top": image})
    assert prepared.image.dtype == np.float32
    assert prepared.image.shape == (1, 3, *spec.image_size)
    assert prepared.state.shape == (0,)
    return prepared.image[0]


def test_the_documented_form_is_read_and_written_back() -> None:
    spec = ObservationSpec.from_dict(json.loads(json.dumps(FULL)))
    assert spec.to_dict() == FULL
    assert spec.image_size == (4, 5)
    assert spec.dt_ns == 100_000_000
    short = CameraSpec.from_dict({"name": "top", "height": 12, "width": 16, "crop": "center"})
    assert short.output_size == (12, 12)
    spec = ObservationSpec((short,), None, 1, 50)
    assert ObservationSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    for state in (StateSpec(("a",)), StateSpec(("a",), "mean_std", (1.0,), (2.0,))):
        assert StateSpec.from_dict(json.loads(json.dumps(state.to_dict()))) == state


def test_every_step_in_its_order(make: SimpleNamespace) -> None:
    image = make.noise(12, 16)
    spec = ObservationSpec.from_dict(FULL)
    prepared = Preprocessor(spec)({"top": image}, np.array([5.0, 1.0]))
    cropped = np.ascontiguousarray(image[1:9, 2:12, ::-1])
    resized = cv2.resize(cropped, (5, 4), interpolation=cv2.INTER_LINEAR).astype(float)
    expected = (resized * 0.5 - [1.0, 2.0, 3.0]) / [0.5, 2.0, 4.0]
    np.testing.assert_allclose(prepared.image[0], expected.transpose(2, 0, 1), rtol=1e-5, atol=1e-4)
    assert prepared.state.tolist() == [0.0, 1.0]
    assert prepared.state.dtype == np.float32


def test_by_default_pixels_are_rgb_in_zero_to_one(make: SimpleNamespace) -> None:
    image = make.noise(4, 6)
    np.testing.assert_allclose(one(make, image), image.transpose(2, 0, 1) / 255.0, rtol=1e-6)


def test_colour_order(make: SimpleNamespace) -> None:
    image = make.noise(4, 6)
    np.testing.assert_array_equal(one(make, image, color="bgr"), one(make, image)[::-1])


def test_crop_before_or_after_resize(make: SimpleNamespace) -> None:
    image = make.noise(8, 12)
    resize = {"height": 4, "width": 6, "interpolation": "nearest"}
    crop = {"height": 4, "width": 4}
    first = one(make, image, resize=resize, crop=crop)
    assert first.shape == (3, 4, 6)
    last = one(make, image, resize=resize, crop=crop, order="resize_then_crop", scale=1.0)
    np.testing.assert_array_equal(last, image[::2, ::2][:, 1:5].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("size", "expected"), [((7, 10), (slice(0, 7), slice(1, 8))), ((9, 5), (slice(2, 7), slice(0, 5)))]
)
def test_the_centre_is_the_largest_square(make: SimpleNamespace, size: Any, expected: Any) -> None:
    image = make.noise(*size)
    result = one(make, image, crop="center", scale=1.0)
    np.testing.assert_array_equal(result, image[expected].transpose(2, 0, 1))


@pytest.mark.parametrize("interpolation", ["area", "linear", "nearest", "cubic"])
def test_interpolations_are_opencvs(make: SimpleNamespace, interpolation: str) -> None:
    image = make.noise(9, 9)
    result = one(make, image, resize={"height": 4, "width": 4, "interpolation": interpolation}, scale=1.0)
    flag = getattr(cv2, f"INTER_{interpolation.upper()}")
    np.testing.assert_array_equal(result, cv2.resize(image, (4, 4), interpolation=flag).transpose(2, 0, 1))


def test_views_from_decoders_work_as_frames(make: SimpleNamespace) -> None:
    image = make.noise(9, 9)
    mirrored = np.ascontiguousarray(image[:, :, ::-1])[:, :, ::-1]
    resize = {"height": 4, "width": 4}
    np.testing.assert_array_equal(one(make, mirrored, resize=resize), one(make, image, resize=resize))


def test_cameras_keep_the_specs_order(make: SimpleNamespace) -> None:
    spec = make.spec(("left", "right"), state=False, scale=1.0)
    prepared = Preprocessor(spec)({"right": make.frame(2), "left": make.frame(1)})
    assert prepared.image[:, 0, 0, 0].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"kind": "none"}, [4.0, 8.0]),
        ({"kind": "min_max", "min": [0, 0], "max": [8, 32]}, [0.0, -0.5]),
        ({"kind": "mean_std", "mean": [1, 2], "std": [2, 3]}, [1.5, 2.0]),
    ],
)
def test_state_normalisations(rule: dict[str, Any], expected: list[float]) -> None:
    raw = {"cameras": [], "state": {"names": ["a", "b"], "normalization": rule}, "history": 1, "dt_ms": 100}
    prepared = Preprocessor(ObservationSpec.from_dict(raw))({}, np.array([4.0, 8.0]))
    assert prepared.state.tolist() == expected
    assert prepared.image.shape == (0, 3, 0, 0)


def refused(call: Any, *args: Any) -> tuple[FaultName, str]:
    with pytest.raises(ObservationError) as caught:
        call(*args)
    return caught.value.fault.name, caught.value.fault.source


def test_inputs_that_do_not_fit_are_refused_by_name(make: SimpleNamespace) -> None:
    prepare = Preprocessor(make.spec(("left", "right")))
    good = {"left": make.frame(), "right": make.frame()}
    state = np.zeros(2)
    assert refused(prepare, {"left": make.frame()}, state) == (FaultName.MISSING, "right")
    assert refused(prepare, {**good, "right": make.frame(0, 6, 4)}, state) == (FaultName.BAD_SIZE, "right")
    assert refused(prepare, {**good, "left": make.frame()[..., :1]}, state) == (FaultName.BAD_SIZE, "left")
    assert refused(prepare, {**good, "left": make.frame() * 1.0}, state) == (FaultName.BAD_DATA, "left")
    assert refused(prepare, good) == (FaultName.MISSING, "state")
    assert refused(prepare, good, np.zeros(3)) == (FaultName.BAD_STATE, "state")
    assert refused(prepare, good, np.array([0.0, np.nan])) == (FaultName.NON_FINITE, "state")
    assert refused(prepare.check_frame, "rear", make.frame()) == (FaultName.UNKNOWN_SOURCE, "rear")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": ""}, "name"),
        ({"height": 0}, "height"),
        ({"width": 1.5}, "width"),
        ({"color": "hsv"}, "color"),
        ({"order": "resize"}, "order"),
        ({"layout": "hwc"}, "layout"),
        ({"scale": 0}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"mean": [0, 0]}, "mean"),
        ({"std": [1, 1, 0]}, "std"),
        ({"std": [1, 1, float("nan")]}, "std"),
        ({"resize": {"height": 4}}, "resize: width: missing"),
        ({"resize": {"height": 4, "width": 4, "interpolation": "lanczos"}}, "resize: interpolation"),
        ({"resize": [4, 4]}, "resize: expected an object"),
        ({"crop": "left"}, "crop: expected an object"),
        ({"height": 10**400}, "height: a number of 1329 bits is more than 16384 pixels"),
        ({"resize": {"height": 4, "width": 10**9}}, "resize: width: a number of 30 bits is more than 16384"),
        ({"resize": {"height": 10**400, "width": 4, "pad": {"value": 0}}}, "resize: height: a number of 1329 bits"),
        ({"crop": {"height": 4, "width": 4, "top": 10**400, "left": 0}}, "crop: top: a number of 1329 bits"),
        ({"crop": {"height": 4}}, "crop: height and width"),
        ({"crop": {"top": 1, "left": 1}}, "crop: top"),
        ({"crop": {"height": 4, "width": 4, "top": -1, "left": 0}}, "crop: top"),
        ({"crop": {"height": 40, "width": 4}}, "'top': crop: 40 x 4"),
        ({"crop": {"height": 8, "width": 10, "top": 5, "left": 0}}, "not within 12 x 16"),
        ({"colour": "rgb"}, "unknown key 'colour'"),
    ],
)
def test_camera_fields_are_checked_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        CameraSpec.from_dict({**CAMERA, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"names": []}, "names"),
        ({"names": "ab"}, "names"),
        ({"names": ["a", "a"]}, "names"),
        ({"names": ["a", 5]}, "name"),
        ({"normalization": {"kind": "quantile"}}, "kind"),
        ({"normalization": None}, "kind"),
        ({"normalization": {"kind": "min_max", "min": [0, 0]}}, "max: missing"),
        ({"normalization": {"kind": "min_max", "min": [0, 0], "max": [1, 0]}}, "'b': max"),
        ({"normalization": {"kind": "mean_std", "mean": [0, 0], "std": [0, 1]}}, "'a': std"),
        ({"normalization": {"kind": "mean_std", "mean": [0], "std": [1, 1]}}, "mean: expected 2"),
        ({"normalization": {"kind": "none", "min": [0, 0]}}, "unknown key 'min'"),
        ({"joints": []}, "unknown key 'joints'"),
    ],
)
def test_state_fields_are_checked_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        StateSpec.from_dict({**STATE, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"cameras": [], "state": None}, "none, and no state"),
        ({"cameras": [CAMERA, CAMERA]}, "more than once"),
        ({"cameras": [CAMERA, {**CAMERA, "name": "b", "resize": None}]}, "different sizes"),
        ({"cameras": CAMERA}, "cameras: expected a list"),
        ({"history": 0}, "history"),
        ({"history": True}, "history"),
        ({"dt_ms": 0}, "dt_ms"),
        ({"dt_ms": float("inf")}, "dt_ms"),
        ({"fps": 10}, "unknown key 'fps'"),
    ],
)
def test_the_whole_is_checked(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        ObservationSpec.from_dict({**FULL, **changes})


@pytest.mark.parametrize("key", list(FULL))
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(SpecError, match=f"{key}: missing"):
        ObservationSpec.from_dict({name: value for name, value in FULL.items() if name != key})


def test_parts_are_checked_alone_too() -> None:
    with pytest.raises(SpecError, match="height"):
        Resize(0, 4)
    with pytest.raises(SpecError, match="width"):
        Crop(4, -4)


PAD = {"height": 6, "width": 6, "interpolation": "linear", "pad": {"value": 0.5}}


@pytest.mark.parametrize(
    "camera",
    [
        {"resize": {"height": 6, "width": 8, "interpolation": "area"}},
        {"resize": PAD},
        {"resize": {"height": 6, "width": 6}, "crop": "center"},
        {"resize": {"height": 6, "width": 8}, "crop": {"height": 4, "width": 5}, "order": "resize_then_crop"},
    ],
    ids=["stretched", "padded", "largest square", "cropped after it"],
)
def test_an_image_of_another_size_goes_through_the_checkpoint_s_own_resize(
    make: SimpleNamespace, camera: dict[str, Any]
) -> None:
    """As if the checkpoint had been written for a camera of that size: one resize, not two."""
    image = make.noise(30, 50)
    spec = ObservationSpec.from_dict(
        {"cameras": [{"name": "top", "height": 12, "width": 16, **camera}], "state": None, "history": 1, "dt_ms": 100}
    )
    resized = Preprocessor(spec, resizes=True)({"top": image}).image[0]
    np.testing.assert_array_equal(resized, one(make, image, **camera))
    with pytest.raises(ObservationError, match=r"shape \(30, 50, 3\), expected \(12, 16, 3\)"):
        Preprocessor(spec)({"top": image})


@pytest.mark.parametrize(
    ("size", "method"), [((30, 50), cv2.INTER_AREA), ((8, 10), cv2.INTER_LINEAR)], ids=["larger", "smaller"]
)
@pytest.mark.parametrize(
    "camera",
    [{}, {"crop": {"height": 4, "width": 5, "top": 1, "left": 2}, "resize": {"height": 6, "width": 8}}],
    ids=["no resize", "a crop that counts pixels first"],
)
def test_an_image_of_another_size_is_stretched_where_the_checkpoint_counts_pixels(
    make: SimpleNamespace, size: tuple[int, int], method: int, camera: dict[str, Any]
) -> None:
    image = make.noise(*size)
    spec = ObservationSpec.from_dict(
        {"cameras": [{"name": "top", "height": 12, "width": 16, **camera}], "state": None, "history": 1, "dt_ms": 100}
    )
    stretched = np.asarray(cv2.resize(image, (16, 12), interpolation=method))
    expected = one(make, stretched, **camera)
    np.testing.assert_array_equal(Preprocessor(spec, resizes=True)({"top": image}).image[0], expected)


def test_an_image_of_which_nothing_would_be_left_is_refused(make: SimpleNamespace) -> None:
    spec = ObservationSpec.from_dict(
        {
            "cameras": [{"name": "top", "height": 12, "width": 16, "resize": PAD}],
            "state": None,
            "history": 1,
            "dt_ms": 100,
        }
    )
    with pytest.raises(ObservationError, match="nothing is left of 2 x 400"):
        Preprocessor(spec, resizes=True).check_frame("top", make.noise(2, 400))
    for frame in (make.noise(12, 16)[:0], make.noise(12, 16)[..., :1], make.noise(12, 16)[0]):
        with pytest.raises(ObservationError, match="expected"):
            Preprocessor(spec, resizes=True).check_frame("top", frame)
