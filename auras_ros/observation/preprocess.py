"""Images and joint positions to network inputs, exactly as the checkpoint says.

Training, evaluation and the nodes call this one function, so that a policy gets the same inputs at run time as in
training. An image of another size is refused, unless the caller allows resizing: then by the checkpoint's own resize if
that comes first, else to the size that the checkpoint says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import bicubic
from .camera import CameraSpec, Resize
from .checks import SpecError
from .fault import FaultName, ObservationError
from .images import ImageArray
from .spec import ObservationSpec
from .state import StateArray

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Prepared:
    """`image` float32 [cameras, channels, h, w] in the spec's camera order; `state` float32 [joints], may be empty."""

    image: Float32Array
    state: Float32Array


class Preprocessor:
    """See the module's docstring. Stateless; safe to share. resizes: whether images of another size are resized."""

    def __init__(self, spec: ObservationSpec, *, resizes: bool = False) -> None:
        self.spec = spec
        self.resizes = resizes
        self._cameras = {camera.name: camera for camera in spec.cameras}
        self._factors = {camera.name: _factors(camera) for camera in spec.cameras}
        self._state = _state_factors(spec)

    def __call__(self, images: Mapping[str, ImageArray], state: StateArray | None = None) -> Prepared:
        """One instant: `images` by camera name, uint8 RGB [height, width, 3]; `state` [joints] in the spec's
        order. Raises ObservationError naming camera or state."""
        height, width = self.spec.image_size
        image = np.empty((len(self._cameras), self.spec.channels, height, width), dtype=np.float32)
        for row, name in enumerate(self._cameras):
            if name not in images:
                raise ObservationError(FaultName.MISSING, name, "no frame given")
            image[row] = self.image(name, images[name])
        return Prepared(image, self.state(state))

    def check_frame(self, name: str, frame: ImageArray) -> None:
        """Raise ObservationError unless the image is what the spec says this camera delivers, or can be resized."""
        camera = self._cameras.get(name)
        if camera is None:
            known = ", ".join(self._cameras) or "none"
            raise ObservationError(FaultName.UNKNOWN_SOURCE, name, f"not a camera of the policy ({known})")
        if frame.dtype != np.uint8:
            raise ObservationError(FaultName.BAD_DATA, name, f"dtype {frame.dtype}, expected uint8")
        expected = (camera.height, camera.width, 3)
        if frame.shape == expected:
            return
        if not self.resizes or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
            raise ObservationError(FaultName.BAD_SIZE, name, f"shape {frame.shape}, expected {expected}")
        if not resizes_first(camera):
            return
        try:
            replace(camera, height=frame.shape[0], width=frame.shape[1])
        except SpecError as error:  # nothing would be left of it
            raise ObservationError(FaultName.BAD_SIZE, name, f"shape {frame.shape}: {error}") from error

    def image(self, name: str, frame: ImageArray) -> Float32Array:
        """One camera's image, uint8 RGB [height, width, 3], as float32 [channels, h, w]. Raises ObservationError."""
        self.check_frame(name, frame)
        camera = self._cameras[name]
        pixels = _fitted(frame, camera)
        pixels = pixels[:, :, ::-1] if camera.color == "bgr" else pixels
        for step in camera.order.split("_then_"):
            pixels = _crop(pixels, camera) if step == "crop" else _resize(pixels, camera.resize)
        colors = _zoom(pixels, camera.zoom).transpose(2, 0, 1)
        parts = [colors * gain + offset for gain, offset in self._factors[name]]
        return _padded(parts[0] if len(parts) == 1 else np.concatenate(parts), camera.resize)

    def state(self, positions: StateArray | None) -> Float32Array:
        """Joint positions [joints] in the spec's order, normalised, float32. Raises ObservationError."""
        wanted = 0 if self.spec.state is None else len(self.spec.state.names)
        if wanted == 0:
            return np.zeros(0, dtype=np.float32)
        if positions is None:
            raise ObservationError(FaultName.MISSING, "state", "no positions given")
        with np.errstate(over="ignore"):  # infinity is refused below
            # Rounded as in the training data: of a joint that never moved, any difference is divided by nearly nothing.
            values = np.asarray(positions, dtype=np.float32).astype(np.float64)
        if values.shape != (wanted,):
            detail = f"shape {values.shape}, expected ({wanted},)"
            raise ObservationError(FaultName.BAD_STATE, "state", detail)
        if not np.isfinite(values).all():
            raise ObservationError(FaultName.NON_FINITE, "state", "a position is not finite")
        offset, divisor, shift = self._state
        return ((values - offset) / divisor + shift).astype(np.float32)


def resizes_first(camera: CameraSpec) -> bool:
    """Whether the checkpoint's own steps take an image of any size: they resize it before anything counts its pixels,
    or cut out the largest square before."""
    if camera.resize is None:
        return False
    return camera.crop is None or camera.crop.height is None or camera.order == "resize_then_crop"


def _fitted(frame: ImageArray, camera: CameraSpec) -> ImageArray:
    """An image of any size for the checkpoint's own steps: as it is if they resize it first, else stretched to the size
    that the checkpoint says."""
    size = (camera.height, camera.width)
    if frame.shape[:2] == size or resizes_first(camera):
        return frame
    import cv2

    shrinks = frame.shape[0] >= camera.height and frame.shape[1] >= camera.width
    method = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(np.ascontiguousarray(frame), size[::-1], interpolation=method), dtype=np.uint8)


def _factors(camera: CameraSpec) -> list[tuple[Float32Array, Float32Array]]:
    """Each (pixel * scale - mean) / std as gain and offset [3, 1, 1], computed in float64, kept in float32."""
    made = []
    for rule in camera.normalizations:
        mean, std = (np.array(values).reshape(3, 1, 1) for values in (rule.mean, rule.std))
        made.append(((camera.scale / std).astype(np.float32), (-mean / std).astype(np.float32)))
    return made


def _state_factors(spec: ObservationSpec) -> tuple[StateArray, StateArray, float]:
    if spec.state is None or spec.state.kind == "none":
        return np.zeros(1), np.ones(1), 0.0
    first, second = np.array(spec.state.first), np.array(spec.state.second)
    if spec.state.kind == "min_max":
        return first, (second - first) / 2.0, -1.0
    return first, second, 0.0


def _crop(pixels: ImageArray, camera: CameraSpec) -> ImageArray:
    if camera.crop is None:
        return pixels
    top, left, height, width = camera.crop.window(pixels.shape[0], pixels.shape[1])
    return pixels[top : top + height, left : left + width]


def _resize(pixels: ImageArray, resize: Resize | None) -> Any:
    """uint8 [h, w, 3]; float32 if the interpolation keeps fractions of a grey level."""
    if resize is None:
        return pixels
    height, width = resize.inner(*pixels.shape[:2])
    if pixels.shape[:2] == (height, width):
        return pixels
    if resize.interpolation == "pillow_bicubic":
        return bicubic.resize(pixels, height, width)
    import cv2

    kind = np.float32 if resize.interpolation == "linear_float" else np.uint8
    method = getattr(cv2, f"INTER_{resize.interpolation.removesuffix('_float').upper()}")
    made = cv2.resize(np.ascontiguousarray(pixels, dtype=kind), (width, height), interpolation=method)
    return np.asarray(made, dtype=kind)


def _zoom(pixels: Any, share: float) -> Any:
    """See `CameraSpec`. TensorFlow's `crop_and_resize` of the centred box, and its conversion to whole grey levels."""
    if share == 1:
        return pixels
    side = float(np.sqrt(np.float32(share)))
    picture = pixels.astype(np.float32)
    for axis in (0, 1):
        last = picture.shape[axis] - 1
        at = np.linspace((1 - side) / 2 * last, (1 + side) / 2 * last, last + 1)
        low = np.floor(at).astype(np.intp)
        rest = (at - low).astype(np.float32).reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        before, after = picture.take(low, axis), picture.take(np.minimum(low + 1, last), axis)
        picture = before + (after - before) * rest
    return np.floor(picture * np.float32(255.5 / 255.0)).clip(0, 255).astype(np.uint8)


def _padded(result: Float32Array, resize: Resize | None) -> Float32Array:
    """The image [channels, h, w] at its place in the padded result."""
    if resize is None or resize.pad is None or result.shape[1:] == (resize.height, resize.width):
        return result
    height, width = result.shape[1:]
    top, left = resize.corner(height, width)
    whole = np.full((len(result), resize.height, resize.width), resize.pad.value, dtype=np.float32)
    whole[:, top : top + height, left : left + width] = result
    return whole
