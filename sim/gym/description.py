"""A file that says what a Gymnasium environment is as a world: which of its numbers is a state, an action, success.

Spaces have no names, no units and no control period, so a person writes them once (`config/gym/*.yaml`). Only the file
is read here; `world` compares it with the environment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from auras_ros import parameter_file, resources
from auras_ros.number_checks import is_number
from auras_ros.parameters import ParameterError
from auras_ros.sim.world import ActionChannel, WorldCamera
from auras_ros.spelling import nearest

FOLDER = "gym"  # of config/
MOST_DT_MS = 60_000
RENDER = "render"  # the picture of the environment's `render`
HEADS = ("observation", "info", "reward", "terminated", "truncated", RENDER)
PART = re.compile(r"\.([A-Za-z_]\w*)|\[(-?\d+)\]")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")  # also a part of a topic's name


@dataclass(frozen=True)
class GymValue:
    """Where a value is in what an environment returns, such as observation.agent_pos[0], info.coverage, reward."""

    text: str
    path: tuple[str | int, ...]

    @classmethod
    def parse(cls, text: Any) -> GymValue:
        """Raises ValueError."""
        head = str(text).partition("[")[0].partition(".")[0]
        rest = str(text)[len(head) :]
        if head not in HEADS or PART.sub("", rest):
            raise ValueError(f"'{text}' is not a source: one of {', '.join(HEADS)}, with .name or [index] behind it")
        parts = [key or int(index) for key, index in PART.findall(rest)]
        return cls(str(text), (head, *parts))

    def find(self, parts: Mapping[str, Any]) -> Any:
        """The value. Raises ValueError if it is not there."""
        found: Any = parts
        for part in self.path:
            try:
                found = found[part]
            except (KeyError, IndexError, TypeError):
                raise ValueError(f"{self.text}: there is no '{part}' in it") from None
        return found

    def number(self, parts: Mapping[str, Any]) -> float:
        """The value as a finite number. Raises ValueError."""
        found = self.find(parts)
        try:
            number = float(found)
        except (TypeError, ValueError):
            raise ValueError(f"{self.text}: is not a number: {found!s:.80}") from None
        if not math.isfinite(number):
            raise ValueError(f"{self.text}: is {number}")
        return number


@dataclass(frozen=True)
class GymShare:
    """A number that is 0 at `low` and 1 at `high`."""

    source: GymValue
    low: float
    high: float

    def of(self, parts: Mapping[str, Any]) -> float:
        return min(1.0, max(0.0, (self.source.number(parts) - self.low) / (self.high - self.low)))


@dataclass(frozen=True)
class GymCondition:
    """True where a number, or true and false as 1 and 0, is at least `least`."""

    source: GymValue
    least: float

    def holds(self, parts: Mapping[str, Any]) -> bool:
        return self.source.number(parts) >= self.least


@dataclass(frozen=True)
class GymDescription:
    """module: imported first, because it registers the environment. make: more arguments of `gymnasium.make`."""

    id: str
    module: str
    make: Mapping[str, Any]
    control_dt_ms: int
    instruction: str
    cameras: tuple[tuple[WorldCamera, GymValue], ...]
    state: Mapping[str, GymValue]
    channels: tuple[ActionChannel, ...]
    success: GymCondition
    reward: GymShare
    sub_goals: Mapping[str, GymShare]

    @property
    def renders(self) -> bool:
        """Whether a camera is the environment's `render`."""
        return any(source.path == (RENDER,) for _, source in self.cameras)


def shipped() -> tuple[str, ...]:
    """The names of the descriptions that come with us."""
    return tuple(sorted(path.stem for path in resources.find("config", FOLDER).glob("*.yaml")))


@lru_cache(maxsize=64)
def read(task: str) -> GymDescription:
    """A file (*.yaml), or one of `shipped` by the environment's id. Raises ParameterError by name."""
    path = Path(task).expanduser()
    if path.suffix != ".yaml":
        name = task.replace("/", "_")
        if name not in shipped():
            ids = {each.lower(): each for each in (read(one).id for one in shipped())}
            meant = ids.get(nearest(task, ids), "")
            hint = f"did you mean {meant}?" if meant else f"known: {', '.join(ids.values())}"
            raise ParameterError(f"gym: no description of '{task}' (one of your own is a file, *.yaml); {hint}")
        path = resources.find("config", f"{FOLDER}/{name}.yaml")
    try:
        given, _ = parameter_file.read(path)  # it refuses aliases, keys that stand there twice, and what is no file
    except OSError as error:
        raise ParameterError(f"gym: {path}: {error}") from error
    except parameter_file.ParameterFileError as error:
        raise ParameterError(f"gym: {error}") from error
    return _DescriptionReading(path, given).description()


class _DescriptionReading:
    """One file. Everything raises ParameterError, naming file and key."""

    def __init__(self, path: Path, document: Any) -> None:
        self._path, self._document = path, document

    def description(self) -> GymDescription:
        keys = {"id": str, "control_dt_ms": int, "cameras": dict, "actions": list, "success": dict}
        optional = {"import": str, "make": dict, "instruction": str, "state": dict, "reward": dict, "sub_goals": dict}
        values = self._object("", self._document, keys, optional)
        if values["control_dt_ms"] < 1:
            raise self._wrong("control_dt_ms", "must be at least 1")
        if values["control_dt_ms"] > MOST_DT_MS:
            raise self._wrong("control_dt_ms", f"must be at most {MOST_DT_MS}")
        if not values["cameras"] or not values["actions"]:
            raise self._wrong("cameras" if not values["cameras"] else "actions", "expected at least one")
        named = {key: values.get(key, {}) for key in ("cameras", "state", "sub_goals")}
        for key, those in named.items():
            for name in those:
                self._name(key, name)
        return GymDescription(
            id=values["id"],
            module=values.get("import", ""),
            make=values.get("make", {}),
            control_dt_ms=values["control_dt_ms"],
            instruction=values.get("instruction", ""),
            cameras=tuple(self._camera(name, each) for name, each in named["cameras"].items()),
            state={name: self._source(f"state: {name}", each) for name, each in named["state"].items()},
            channels=self._channels(values["actions"]),
            success=self._condition("success", values["success"]),
            reward=self._share("reward", values.get("reward", {"from": "reward"})),
            sub_goals={name: self._share(f"sub_goals: {name}", each) for name, each in named["sub_goals"].items()},
        )

    def _camera(self, name: str, given: Any) -> tuple[WorldCamera, GymValue]:
        key = f"cameras: {name}"
        values = self._object(key, given, {"from": str, "height": int, "width": int}, {"intrinsics": list})
        if not (1 <= values["height"] <= 8192 and 1 <= values["width"] <= 8192):
            raise self._wrong(key, "height and width are 1 to 8192 px")
        intrinsics = self._intrinsics(key, values["intrinsics"]) if "intrinsics" in values else None
        camera = WorldCamera(name, values["width"], values["height"], intrinsics)
        return camera, self._source(key, values["from"])

    def _intrinsics(self, key: str, given: list[Any]) -> tuple[float, float, float, float]:
        if len(given) == 4 and all(type(each) in (int, float) and math.isfinite(each) for each in given):
            fx, fy, cx, cy = map(float, given)
            if min(fx, fy) > 0.0:
                return fx, fy, cx, cy
        raise self._wrong(key, f"intrinsics: expected [fx, fy, cx, cy], px, with fx and fy above 0, got {given!r:.80}")

    def _channels(self, given: list[Any]) -> tuple[ActionChannel, ...]:
        made = []
        for place, each in enumerate(given):
            key = f"actions[{place}]"
            values = self._object(key, each, {"name": str, "low": float, "high": float}, {"unit": str})
            self._name(key, values["name"])
            if not values["low"] < values["high"]:
                raise self._wrong(key, f"low {values['low']} is not below high {values['high']}")
            made.append(ActionChannel(values["name"], values.get("unit", ""), values["low"], values["high"]))
        if len({each.name for each in made}) < len(made):
            raise self._wrong("actions", "a name is given twice")
        return tuple(made)

    def _share(self, key: str, given: Any) -> GymShare:
        values = self._object(key, given, {"from": str}, {"low": float, "high": float})
        low, high = values.get("low", 0.0), values.get("high", 1.0)
        if low == high:
            raise self._wrong(key, "low and high are equal")
        return GymShare(self._source(key, values["from"]), low, high)

    def _condition(self, key: str, given: Any) -> GymCondition:
        values = self._object(key, given, {"from": str}, {"at_least": float})
        return GymCondition(self._source(key, values["from"]), values.get("at_least", 1.0))

    def _source(self, key: str, text: Any) -> GymValue:
        try:
            return GymValue.parse(text)
        except ValueError as error:
            raise self._wrong(key, str(error)) from error

    def _name(self, key: str, name: Any) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self._wrong(key, f"{name!r} is not a name of letters, digits and _")

    def _object(
        self, key: str, given: Any, keys: Mapping[str, type], optional: Mapping[str, type] | None = None
    ) -> dict[str, Any]:
        """With these keys and no others, whose values have these types; whole numbers are numbers too."""
        known = {**keys, **(optional or {})}
        if not isinstance(given, dict):
            raise self._wrong(key, f"expected {', '.join(keys)}, got {given!r:.80}")
        for name in given:
            if name not in known:
                meant = nearest(str(name), known)
                raise self._wrong(key, f"key '{name}' is unknown; known: {', '.join(known)}{meant and f' ({meant}?)'}")
        for name in keys:
            if name not in given:
                raise self._wrong(key, f"{name} is missing")
        made = {}
        for name, raw in given.items():
            value = raw
            if known[name] is float and is_number(raw):  # a whole number may be beyond all floating point ones
                value = float(raw)
            if type(value) is not known[name] or (isinstance(value, float) and not math.isfinite(value)):
                raise self._wrong(key, f"{name}: expected {known[name].__name__}, got {value!r:.80}")
            made[name] = value
        return made

    def _wrong(self, key: str, text: str) -> ParameterError:
        return ParameterError(f"gym: {self._path}: {f'{key}: ' if key else ''}{text}")
