"""What a checkpoint says about its inputs: cameras, colour order, crop, size, scale, joints, history.

Frozen and checked once where it enters; unknown keys are refused, because a misspelt crop is a crop that
does not happen. This module never touches a pixel: `preprocess` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .checks import (
    SpecError,
    check_choice,
    check_name,
    check_positive,
    is_int,
    is_number,
    known_keys,
    numbers,
    object_of,
)

COLORS = ("rgb", "bgr")
INTERPOLATIONS = ("area", "linear", "nearest", "cubic")
ORDERS = ("crop_then_resize", "resize_then_crop")
NORMALIZATIONS = ("none", "min_max", "mean_std")


@dataclass(frozen=True)
class Resize:
    """To `height` x `width`, with one of `INTERPOLATIONS` (OpenCV's meaning)."""

    height: int
    width: int
    interpolation: str = "area"

    def __post_init__(self) -> None:
        check_positive("resize", self, "height", "width")
        check_choice("resize", self, "interpolation", INTERPOLATIONS)


@dataclass(frozen=True)
class Crop:
    """A window of `height` x `width` at `top`, `left`; centred where they are None (odd rests: rounded
    down). Height and width None: the largest centred square."""

    height: int | None = None
    width: int | None = None
    top: int | None = None
    left: int | None = None

    def __post_init__(self) -> None:
        if (self.height is None) != (self.width is None) or (self.top is None) != (self.left is None):
            raise SpecError("crop: height and width, top and left are given in pairs")
        if self.height is None and self.top is not None:
            raise SpecError("crop: top: given without height and width")
        if self.height is not None:
            check_positive("crop", self, "height", "width")
        for name in ("top", "left"):
            value = getattr(self, name)
            if value is not None and (not is_int(value) or value < 0):
                raise SpecError(f"crop: {name}: {value!r} is not zero or more")

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """(top, left, height, width) in an image of that size. Raises SpecError where it does not fit."""
        side = min(height, width)
        high, wide = self.height or side, self.width or side
        top = (height - high) // 2 if self.top is None else self.top
        left = (width - wide) // 2 if self.left is None else self.left
        if top < 0 or left < 0 or top + high > height or left + wide > width:
            raise SpecError(f"crop: {high} x {wide} at ({top}, {left}) is not within {height} x {width}")
        return top, left, high, wide


@dataclass(frozen=True)
class CameraSpec:
    """One camera: the size its frames have (`height`, `width`) and what is done to them, in this order:
    colour order, crop and resize (`order`), then (pixel * scale - mean) / std for each colour.

    In JSON `crop` is an object, "center" (the largest square) or null. The result is [3, h, w].
    """

    name: str
    height: int
    width: int
    color: str = "rgb"
    resize: Resize | None = None
    crop: Crop | None = None
    order: str = "crop_then_resize"
    scale: float = 1.0 / 255.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    layout: str = "chw"

    def __post_init__(self) -> None:
        owner = f"camera {self.name!r}"
        check_name("camera", self.name)
        check_positive(owner, self, "height", "width")
        check_choice(owner, self, "color", COLORS)
        check_choice(owner, self, "order", ORDERS)
        check_choice(owner, self, "layout", ("chw",))
        if not is_number(self.scale) or self.scale <= 0:
            raise SpecError(f"{owner}: scale: {self.scale!r} is not above zero")
        for field in ("mean", "std"):
            object.__setattr__(self, field, numbers(owner, field, getattr(self, field), 3))
        if min(self.std) <= 0:
            raise SpecError(f"{owner}: std: {self.std} is not above zero")
        try:
            self.output_size  # noqa: B018  (raises where the crop does not fit)
        except SpecError as error:
            raise SpecError(f"{owner}: {error}") from None

    @property
    def output_size(self) -> tuple[int, int]:
        """(h, w) of the result."""
        size = (self.height, self.width)
        for step in self.order.split("_then_"):
            if step == "crop" and self.crop is not None:
                size = self.crop.window(*size)[2:]
            elif step == "resize" and self.resize is not None:
                size = (self.resize.height, self.resize.width)
        return size

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> CameraSpec:
        """Build from a JSON object."""
        values = object_of("camera", cls, raw)
        if values.get("resize") is not None:
            values["resize"] = Resize(**object_of("resize", Resize, values["resize"]))
        crop = values.get("crop")
        if crop is not None:
            values["crop"] = Crop() if crop == "center" else Crop(**object_of("crop", Crop, crop))
        return cls(**values)


@dataclass(frozen=True)
class StateSpec:
    """Joints in the policy's order and their normalisation, by the training data's statistics [joints].

    none: x. min_max: 2 (x - min) / (max - min) - 1, with `first` = min and `second` = max. mean_std:
    (x - mean) / std, with `first` = mean and `second` = std. In JSON:
    {"names": [...], "normalization": {"kind": "min_max", "min": [...], "max": [...]}}.
    """

    names: tuple[str, ...]
    kind: str = "none"
    first: tuple[float, ...] = ()
    second: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        for name in self.names:
            check_name("state", name)
        if not self.names or len(set(self.names)) != len(self.names):
            raise SpecError(f"state: names: empty or used more than once: {list(self.names)}")
        check_choice("state", self, "kind", NORMALIZATIONS)
        if self.kind == "none":
            return
        first, second = _STATE_KEYS[self.kind]
        object.__setattr__(self, "first", numbers("state", first, self.first, len(self.names)))
        object.__setattr__(self, "second", numbers("state", second, self.second, len(self.names)))
        for name, a, b in zip(self.names, self.first, self.second, strict=True):
            if (self.kind == "min_max" and b <= a) or (self.kind == "mean_std" and b <= 0):
                raise SpecError(f"state: joint {name!r}: {second}: {b!r} leaves no range ({first} {a!r})")

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> StateSpec:
        """Build from a JSON object."""
        known_keys("state", raw, {"names", "normalization"}, {"names"})
        rule = raw.get("normalization", {"kind": "none"})
        kind = rule.get("kind") if isinstance(rule, Mapping) else rule
        if kind not in NORMALIZATIONS:
            raise SpecError(f"state: normalization: kind: {kind!r} is not one of {', '.join(NORMALIZATIONS)}")
        keys = _STATE_KEYS[str(kind)]
        known_keys("state: normalization", rule, {"kind", *keys}, {"kind", *keys})
        if not isinstance(raw["names"], list | tuple):
            raise SpecError(f"state: names: expected a list, got {raw['names']!r}")
        return cls(tuple(raw["names"]), str(kind), *(rule[key] for key in keys))

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        values = dict(zip(_STATE_KEYS[self.kind], (list(self.first), list(self.second)), strict=False))
        return {"names": list(self.names), "normalization": {"kind": self.kind, **values}}


_STATE_KEYS: dict[str, tuple[str, ...]] = {
    "none": (),
    "min_max": ("min", "max"),
    "mean_std": ("mean", "std"),
}


@dataclass(frozen=True)
class ObservationSpec:
    """All inputs: cameras in order (of one result size), state or none, `history` instants `dt_ms` apart."""

    cameras: tuple[CameraSpec, ...]
    state: StateSpec | None
    history: int
    dt_ms: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "cameras", tuple(self.cameras))
        names = [camera.name for camera in self.cameras]
        if len(set(names)) != len(names):
            raise SpecError(f"observation: cameras: a name is used more than once: {names}")
        if not self.cameras and self.state is None:
            raise SpecError("observation: cameras: none, and no state either")
        sizes = {camera.name: camera.output_size for camera in self.cameras}
        if len(set(sizes.values())) > 1:
            raise SpecError(f"observation: cameras: results of different sizes: {sizes}")
        check_positive("observation", self, "history")
        if not is_number(self.dt_ms) or round(self.dt_ms * 1e6) < 1:
            raise SpecError(f"observation: dt_ms: {self.dt_ms!r} is not a time above zero")

    @property
    def dt_ns(self) -> int:
        """The policy step in nanoseconds."""
        return round(self.dt_ms * 1e6)

    @property
    def image_size(self) -> tuple[int, int]:
        """(h, w) of every camera's result; (0, 0) without cameras."""
        return self.cameras[0].output_size if self.cameras else (0, 0)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ObservationSpec:
        """Build from the JSON object {"cameras": [...], "state": {...}|null, "history", "dt_ms"}."""
        values = object_of("observation", cls, raw)
        cameras = values["cameras"]
        if not isinstance(cameras, list | tuple):
            raise SpecError("observation: cameras: expected a list")
        state = values["state"]
        return cls(
            tuple(CameraSpec.from_dict(camera) for camera in cameras),
            None if state is None else StateSpec.from_dict(state),
            values["history"],
            values["dt_ms"],
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads."""
        return {
            "cameras": [_plain(asdict(camera)) for camera in self.cameras],
            "state": None if self.state is None else self.state.to_dict(),
            "history": self.history,
            "dt_ms": self.dt_ms,
        }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
