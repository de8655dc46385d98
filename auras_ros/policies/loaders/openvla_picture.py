"""OpenVLA's image processor as a camera of our manifest: resize, crop, two normalisations.

Its settings are in preprocessor_config.json; a folder without one has OpenVLA's published settings. The processor
writes derived values there (`tvf_...`) and applies those when it is read again, so they decide: the published
statistics are rounded to bfloat16. The crop in evaluations of fine-tuned models (0.9 of the area) is in no file:
robot.json gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from auras_ros.checkpoints.errors import CheckpointError
from auras_ros.checkpoints.json_file import read_json
from auras_ros.policies.loaders.robot import Robot

FILE = "preprocessor_config.json"
FEATURE = "image"
STRATEGIES = ("resize-naive", "resize-crop", "letterbox")
PUBLISHED = [
    {"mean": [0.484375, 0.455078125, 0.40625], "std": [0.228515625, 0.2236328125, 0.224609375]},
    {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
]
BICUBIC = 3  # Pillow's number


def camera(source: Path, config: Mapping[str, Any], px: int, robot: Robot) -> dict[str, Any]:
    """`observation.cameras[0]` of the manifest. px: side of the networks' input image."""
    file = source / FILE
    values = read_json(file) if file.is_file() else {}
    strategy = values.get("image_resize_strategy", config.get("image_resize_strategy", "letterbox"))
    _check(values, px, strategy, file)
    if config.get("image_resize_strategy", strategy) != strategy:
        raise CheckpointError(
            f"{file}: image_resize_strategy: {strategy!r}, but config.json has {config['image_resize_strategy']!r}"
        )
    first, second = _rules(values, file)
    seen = robot.camera(FEATURE, px, px)
    made = {
        "name": seen.name,
        "height": seen.height,
        "width": seen.width,
        **_size(strategy, seen.height, seen.width, px, file if values else source / "config.json"),
        **first,
        "stacked": [second],
    }
    return made if zoom(robot) is None else {**made, "zoom": zoom(robot)}


def _check(values: Mapping[str, Any], px: int, strategy: Any, file: Path) -> None:
    """Check values of preprocessor_config.json of which only one is supported."""
    for key, supported in (
        ("use_fused_vision_backbone", True),
        ("interpolations", ["bicubic", "bicubic"]),
        ("input_sizes", [[3, px, px]] * 2),
        ("tvf_crop_params", [{"output_size": [px, px]}] * 2),
        ("tvf_do_letterbox", strategy == "letterbox"),
    ):
        if values.get(key, supported) != supported:
            raise CheckpointError(f"{file}: {key}: {values[key]!r} is not supported; expected {supported!r}")
    if "tvf_resize_params" in values:
        _check_resizes(values["tvf_resize_params"], px, strategy, file)


def _check_resizes(resizes: Any, px: int, strategy: Any, file: Path) -> None:
    """Check the size to which each encoder's image is resized: the square, as two sides; by its shorter side, as one
    number, if the middle is cut out; either if it is square already. Always bicubic with antialiasing."""
    sizes: Any = {"resize-naive": [[px, px]], "resize-crop": [px, [px]]}.get(str(strategy), [[px, px], px])
    if not isinstance(resizes, list) or len(resizes) != 2 or not all(isinstance(each, dict) for each in resizes):
        raise CheckpointError(f"{file}: tvf_resize_params: {resizes!r} is not a list of two objects")
    supported: dict[str, list[Any]] = {
        "size": sizes,
        "interpolation": [BICUBIC],
        "antialias": [True],
        "max_size": [None],
    }
    for resize in resizes:
        for key in sorted(resize.keys() - supported.keys()):
            raise CheckpointError(f"{file}: tvf_resize_params: key '{key}' is unknown")
        for key, values in supported.items():
            given = resize.get(key, values[0])
            if not any(given == value and type(given) is type(value) for value in values):
                there = " or ".join(map(repr, values))
                raise CheckpointError(
                    f"{file}: tvf_resize_params: {key}: {given!r} is not supported with {strategy!r}; expected {there}"
                )


def _rules(values: Mapping[str, Any], file: Path) -> list[dict[str, Any]]:
    """Mean and std of each encoder's pixels. Raises CheckpointError."""
    means, stds = values.get("means"), values.get("stds")
    if "tvf_normalize_params" in values:
        rules = values["tvf_normalize_params"]
    elif means is not None or stds is not None:
        rules = None
        if isinstance(means, list) and isinstance(stds, list) and len(means) == len(stds):
            rules = [{"mean": mean, "std": std} for mean, std in zip(means, stds, strict=True)]
    else:
        rules = PUBLISHED
    if not isinstance(rules, list) or len(rules) != 2 or not all(isinstance(each, dict) for each in rules):
        raise CheckpointError(f"{file}: normalisation: {rules!r} is not that of two encoders")
    for each in rules:
        if not {"mean", "std"} <= each.keys():
            raise CheckpointError(f"{file}: normalisation: {each!r} has no mean and std")
    return [{"mean": each["mean"], "std": each["std"]} for each in rules]


def zoom(robot: Robot) -> float | None:
    """The share of the image's area that is used. Raises CheckpointError."""
    value = robot.openvla.get("zoom")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1):
        raise CheckpointError(f"{robot.path}: openvla: zoom: {value!r} is not a share of the area, above 0 and up to 1")
    return None if value is None else float(value)


def _size(strategy: Any, height: int, width: int, px: int, file: Path) -> dict[str, Any]:
    """resize-naive stretches; resize-crop scales the shorter side to px and takes the middle; letterbox pads with the
    mean's colour before it resizes, which does nothing if the image is square."""
    told = f"{file}: image_resize_strategy: {strategy!r} is"
    if strategy not in STRATEGIES:
        raise CheckpointError(f"{told} not supported; expected {', '.join(STRATEGIES)}")
    if strategy == "letterbox" and height != width:
        raise CheckpointError(f"{told} supported for square images, and robot.json's are {height} x {width}")
    if strategy != "resize-crop" or height == width:
        return {"resize": {"height": px, "width": px, "interpolation": "pillow_bicubic"}}
    short = min(height, width)
    high, wide = (px if side == short else int(px * side / short) for side in (height, width))
    top, left = (round((side - px) / 2.0) for side in (high, wide))
    return {
        "resize": {"height": high, "width": wide, "interpolation": "pillow_bicubic"},
        "crop": {"height": px, "width": px, "top": top, "left": left},
        "order": "resize_then_crop",
    }
