"""What a checkpoint says about one camera: colour order, crop, size, padding, zoom, scale and normalisation.

Frozen and checked once, at construction; unknown keys are refused. This module never touches a pixel: `preprocess`
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .checks import SpecError, check_choice, check_name, check_positive, is_int, is_number, numbers, object_of

COLORS = ("rgb", "bgr")
INTERPOLATIONS = ("area", "linear", "nearest", "cubic", "linear_float", "pillow_bicubic")
ORDERS = ("crop_then_resize", "resize_then_crop")
PLACES = ("centre", "end")
MOST_PX = 16_384  # of one side: more than any camera has


@dataclass(frozen=True)
class Pad:
    """The image keeps its aspect ratio; the rest of the result holds `value`, after normalisation.

    place: where the image lies. centre: in the middle, with an odd rest at the right and below (openpi, pi0). end: at
    the right and at the bottom (SmolVLA).
    """

    value: float
    place: str = "centre"

    def __post_init__(self) -> None:
        if not is_number(self.value):
            raise SpecError(f"pad: value: {self.value!r} is not a finite number")
        check_choice("pad", self, "place", PLACES)


@dataclass(frozen=True)
class Resize:
    """To `height` x `width`, with one of `INTERPOLATIONS`.

    area, linear, nearest and cubic are OpenCV's. linear_float is OpenCV's linear, but keeps fractions of a grey level
    (torch's `interpolate`, bilinear, without antialiasing). pillow_bicubic: `observation.bicubic`. pad: None stretches
    the image.
    """

    height: int
    width: int
    interpolation: str = "area"
    pad: Pad | None = None

    def __post_init__(self) -> None:
        _check_sides("resize", self)
        check_choice("resize", self, "interpolation", INTERPOLATIONS)

    def inner(self, height: int, width: int) -> tuple[int, int]:
        """(h, w) of an image of this size after resizing and before padding. Raises SpecError if nothing is left."""
        if self.pad is None:
            return self.height, self.width
        ratio = max(width / self.width, height / self.height)
        size = int(height / ratio), int(width / ratio)
        if min(size) < 1:
            raise SpecError(f"resize: pad: nothing is left of {height} x {width} in {self.height} x {self.width}")
        return size

    def corner(self, height: int, width: int) -> tuple[int, int]:
        """(top, left) of an image of `inner` size within the result."""
        rest = self.height - height, self.width - width
        if self.pad is None or self.pad.place == "end":
            return rest
        return rest[0] // 2, rest[1] // 2

    @classmethod
    def from_dict(cls, raw: Any) -> Resize:
        """Build from a JSON object."""
        values = object_of("resize", cls, raw)
        if values.get("pad") is not None:
            values["pad"] = Pad(**object_of("pad", Pad, values["pad"]))
        return cls(**values)


@dataclass(frozen=True)
class Crop:
    """A window of `height` x `width` at `top`, `left`; if these are None, centred (odd rests: rounded down). Height and
    width None: the largest centred square."""

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
            _check_sides("crop", self)
        for name in ("top", "left"):
            value = getattr(self, name)
            if value is not None and (not is_int(value) or not 0 <= value <= MOST_PX):
                raise SpecError(f"crop: {name}: {_shown(value)} is not zero to {MOST_PX}")

    def window(self, height: int, width: int) -> tuple[int, int, int, int]:
        """(top, left, height, width) in an image of that size. Raises SpecError if it does not fit."""
        side = min(height, width)
        high, wide = self.height or side, self.width or side
        top = (height - high) // 2 if self.top is None else self.top
        left = (width - wide) // 2 if self.left is None else self.left
        if top < 0 or left < 0 or top + high > height or left + wide > width:
            raise SpecError(f"crop: {high} x {wide} at ({top}, {left}) is not within {height} x {width}")
        return top, left, high, wide


@dataclass(frozen=True)
class ImageNormalization:
    """(pixel * scale - mean) / std for each colour."""

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        _check_normalization("normalization", self)


@dataclass(frozen=True)
class CameraSpec:
    """One camera: the size of its images (`height`, `width`) and how they are processed, in this order: colour order,
    crop and resize (`order`), zoom, then (pixel * scale - mean) / std for each colour.

    zoom: the share of the image's area, at the centre, that is stretched to the whole (bilinear, corner to corner,
    whole grey levels; OpenVLA's evaluation uses 0.9); 1 is the whole image. stacked: further normalisations of the same
    image (OpenVLA's second encoder has its own). In JSON `crop` is an object, "center" (the largest square) or null.
    The result is [channels, h, w].
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
    zoom: float = 1.0
    stacked: tuple[ImageNormalization, ...] = ()

    def __post_init__(self) -> None:
        owner = f"camera {self.name!r}"
        check_name("camera", self.name)
        _check_sides(owner, self)
        check_choice(owner, self, "color", COLORS)
        check_choice(owner, self, "order", ORDERS)
        check_choice(owner, self, "layout", ("chw",))
        if not is_number(self.scale) or self.scale <= 0:
            raise SpecError(f"{owner}: scale: {self.scale!r} is not above zero")
        if not is_number(self.zoom) or not 0 < self.zoom <= 1:
            raise SpecError(f"{owner}: zoom: {self.zoom!r} is not a share of the area, above 0 and up to 1")
        _check_normalization(owner, self)
        object.__setattr__(self, "stacked", tuple(self.stacked))
        self._check_pad(owner)
        try:
            self.output_size  # noqa: B018  (raises if the crop does not fit)
        except SpecError as error:
            raise SpecError(f"{owner}: {error}") from None

    def _check_pad(self, owner: str) -> None:
        """Padding is the last step: nothing crops or stretches it."""
        if self.resize is None or self.resize.pad is None:
            return
        if self.crop is not None and self.order == "resize_then_crop":
            raise SpecError(f"{owner}: pad: not supported with a crop after the resize")
        if self.zoom != 1:
            raise SpecError(f"{owner}: pad: not supported with a zoom")

    @property
    def channels(self) -> int:
        """Channels of the result: three for each normalisation."""
        return 3 * (1 + len(self.stacked))

    @property
    def normalizations(self) -> tuple[ImageNormalization, ...]:
        """All of them, in the order of the result's channels."""
        return (ImageNormalization(self.mean, self.std), *self.stacked)

    @property
    def output_size(self) -> tuple[int, int]:
        """(h, w) of the result."""
        size = (self.height, self.width)
        for step in self.order.split("_then_"):
            if step == "crop" and self.crop is not None:
                size = self.crop.window(*size)[2:]
            elif step == "resize" and self.resize is not None:
                self.resize.inner(*size)  # raises if nothing is left
                size = (self.resize.height, self.resize.width)
        return size

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> CameraSpec:
        """Build from a JSON object."""
        values = object_of("camera", cls, raw)
        if values.get("resize") is not None:
            values["resize"] = Resize.from_dict(values["resize"])
        crop = values.get("crop")
        if crop is not None:
            values["crop"] = Crop() if crop == "center" else Crop(**object_of("crop", Crop, crop))
        stacked = values.get("stacked", ())
        if not isinstance(stacked, list | tuple):
            raise SpecError(f"camera: stacked: expected a list, got {stacked!r}")
        values["stacked"] = tuple(
            ImageNormalization(**object_of("stacked", ImageNormalization, each)) for each in stacked
        )
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `from_dict` reads. Keys that the first manifests did not have are left out if they
        change nothing."""
        return asdict(self, dict_factory=_plain)


_LATER: dict[str, Any] = {"zoom": 1.0, "stacked": [], "pad": None}


def _check_sides(owner: str, spec: Resize | Crop | CameraSpec) -> None:
    for name in ("height", "width"):
        value = getattr(spec, name)
        if is_int(value) and value > MOST_PX:
            raise SpecError(f"{owner}: {name}: {_shown(value)} is more than {MOST_PX} pixels")
    check_positive(owner, spec, "height", "width")


def _shown(value: object) -> str:
    """Python does not print integers of thousands of digits."""
    return f"a number of {value.bit_length()} bits" if isinstance(value, int) and value > MOST_PX else repr(value)


def _check_normalization(owner: str, spec: ImageNormalization | CameraSpec) -> None:
    for field in ("mean", "std"):
        object.__setattr__(spec, field, numbers(owner, field, getattr(spec, field), 3))
    if min(spec.std) <= 0:
        raise SpecError(f"{owner}: std: {spec.std} is not above zero")


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields as JSON values."""
    made = {name: list(value) if isinstance(value, tuple) else value for name, value in fields}
    return {name: value for name, value in made.items() if name not in _LATER or value != _LATER[name]}
