"""robot.json: what no foreign checkpoint contains, and the runtime must know before it moves anything.

Names, units, kinds and limits of the actions, the joints' names, the cameras' names and true sizes, the policy step. A
person who knows the robot writes it; nothing in here is guessed. This module reads no weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auras_ros.action import Contract, ContractError
from auras_ros.checkpoints.errors import CheckpointError, refusing
from auras_ros.checkpoints.manifest import PAGE, read_robot

TEXT_BYTES = 16384  # the largest value of the agent's `prompt_limit_bytes`
CAMERA_KEYS = {"name", "height", "width"}


@dataclass(frozen=True)
class Camera:
    """A camera of the checkpoint on this robot: its topic's name and the true size of its images."""

    name: str
    height: int
    width: int


@dataclass(frozen=True)
class Robot:
    """See the module's docstring. Channels and joints are in the checkpoint's order.

    cameras: by the checkpoint's feature, or the last part of its name. unnorm_key: the data set whose statistics are
    used, if a checkpoint has several. openvla: settings for that loader only. lerobot_version: the LeRobot that
    trained a folder, where the folder does not tell.
    """

    path: Path
    dt_ms: float
    contract: Contract
    state: tuple[str, ...] | None = None
    cameras: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prompt: str | None = None
    plans: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unnorm_key: str | None = None
    name: str | None = None
    openvla: Mapping[str, Any] = field(default_factory=dict)
    lerobot_version: str | None = None

    @classmethod
    def load(cls, path: Path) -> Robot:
        """Read robot.json. Raises CheckpointError, naming the file and the key."""
        if not path.is_file():
            raise CheckpointError(
                f"{path}: file not found; a checkpoint of another library needs it: it says what the actions and the "
                f"state mean on this robot (names, units, limits) and how often the policy acts, see {PAGE}"
            )
        return cls.read(read_robot(path), path)

    @classmethod
    def read(cls, raw: Mapping[str, Any], path: Path) -> Robot:
        """The same of its JSON object. path: its place, for errors."""
        return cls(
            path,
            raw["dt_ms"],
            _contract(raw, path),
            _names(raw.get("state"), path),
            _cameras(raw.get("cameras", {}), path),
            _text(raw, "prompt", path),
            _plans(raw.get("plans", {}), path),
            _text(raw, "unnorm_key", path),
            _text(raw, "name", path),
            _object(raw.get("openvla", {}), "openvla", path),
            _text(raw, "lerobot_version", path),
        )

    def camera(self, feature: str, height: int, width: int) -> Camera:
        """The camera for a feature of the checkpoint, whose images had this size in training."""
        short = feature.rpartition(".")[2]
        told = self.cameras.get(feature, self.cameras.get(short, {}))
        return Camera(told.get("name", short), told.get("height", height), told.get("width", width))

    def names(self, feature: str) -> bool:
        """Whether the file names the robot's camera for a feature."""
        return "name" in self.cameras.get(feature, self.cameras.get(feature.rpartition(".")[2], {}))

    def check(self, *, actions: int, state: int | None, cameras: Collection[str], source: Path | str) -> None:
        """Check that the counts are the checkpoint's and that it has every camera named here. state: numbers of the
        robot's state, None if the policy takes none. Raises CheckpointError."""
        if len(self.contract.names) != actions:
            raise CheckpointError(
                f"{self.path}: action: {len(self.contract.names)} channels ({', '.join(self.contract.names)}), but "
                f"{source} has {actions} actions"
            )
        named = 0 if self.state is None else len(self.state)
        if named != (state or 0):
            joints = "none" if self.state is None else ", ".join(self.state)
            raise CheckpointError(f"{self.path}: state: {named} names ({joints}), but {source} has {state or 0}")
        known = {*cameras, *(feature.rpartition(".")[2] for feature in cameras)}
        for name in sorted(self.cameras.keys() - known):
            listed = ", ".join(cameras) or "none"
            raise CheckpointError(f"{self.path}: cameras: '{name}' is not a camera of {source}: {listed}")
        for feature in cameras:
            short = feature.rpartition(".")[2]
            if short not in cameras and {short, feature} <= self.cameras.keys():
                raise CheckpointError(f"{self.path}: cameras: '{feature}' and '{short}' are one camera, given twice")


def _object(raw: Any, key: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise CheckpointError(f"{path}: {key}: expected an object, got {raw!r}")
    return raw


def _contract(raw: Mapping[str, Any], path: Path) -> Contract:
    action = _object(raw["action"], "action", path)
    if "dt_ms" in action and action["dt_ms"] != raw["dt_ms"]:
        raise CheckpointError(f"{path}: action: dt_ms: {action['dt_ms']!r} is not the policy step, {raw['dt_ms']!r}")
    with refusing(f"{path}: action", ContractError):
        return Contract.from_dict({**action, "dt_ms": raw["dt_ms"]})


def _names(raw: Any, path: Path) -> tuple[str, ...] | None:
    if raw is None:
        return None
    if not isinstance(raw, list) or not raw or not all(isinstance(name, str) and name for name in raw):
        raise CheckpointError(f"{path}: state: expected a list of joint names or null, got {raw!r}")
    if len(set(raw)) != len(raw):
        raise CheckpointError(f"{path}: state: a joint is named more than once: {', '.join(raw)}")
    return tuple(raw)


def _cameras(raw: Any, path: Path) -> Mapping[str, Mapping[str, Any]]:
    cameras = {key: dict(_object(told, f"cameras: {key}", path)) for key, told in _object(raw, "cameras", path).items()}
    for key, told in cameras.items():
        for unknown in sorted(told.keys() - CAMERA_KEYS):
            raise CheckpointError(f"{path}: cameras: {key}: key '{unknown}' is unknown; known: name, height, width")
        if "name" in told and (not isinstance(told["name"], str) or not told["name"]):
            raise CheckpointError(f"{path}: cameras: {key}: name: {told['name']!r} is not a name")
        if ("height" in told) != ("width" in told):
            raise CheckpointError(f"{path}: cameras: {key}: height and width are given in pairs")
        for side in ("height", "width"):
            if side in told and (type(told[side]) is not int or told[side] < 1):
                raise CheckpointError(f"{path}: cameras: {key}: {side}: {told[side]!r} is not a size in pixels")
    return cameras


def _plans(raw: Any, path: Path) -> Mapping[str, Mapping[str, Any]]:
    return {name: _object(plan, f"plans: {name}", path) for name, plan in _object(raw, "plans", path).items()}


def _text(raw: Mapping[str, Any], key: str, path: Path) -> str | None:
    value = raw.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise CheckpointError(f"{path}: {key}: expected text, got {value!r}")
    with refusing(f"{path}: {key}: not valid text", UnicodeEncodeError):  # a lone surrogate, which JSON can contain
        size = len(value.encode())
    if size > TEXT_BYTES:
        raise CheckpointError(f"{path}: {key}: {size} bytes, expected {TEXT_BYTES} at most")
    return value
