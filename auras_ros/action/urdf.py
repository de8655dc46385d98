"""Joint limits from a robot description (URDF), and a contract tightened by them.

A robot description has better limits than a checkpoint; but it comes over a topic, so it is read as hostile
text: bounded in size and depth, without DOCTYPE and so without entities, and every number of a joint is
checked to be one. A description can only tighten a contract, never widen it. This module never looks at
links, meshes or frames.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from xml.parsers import expat

from .contract import SET_POINTS, Channel, ChannelKind, Contract, ContractError

MAX_CHARS = 4 * 1024 * 1024
MAX_DEPTH = 64
SHOWN_CHARS = 80  # of a name, in errors
_LIMITED = ("revolute", "prismatic")
_OTHERS = ("fixed", "floating", "planar")
# Unit -> its size in rad or m, the units of a description.
_ANGLES = {"rad": 1.0, "deg": math.pi / 180.0}
_LENGTHS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3}


@dataclass(frozen=True)
class JointLimit:
    """Limits of a joint in rad or m, rad/s or m/s, N·m or N; inf if it has none. `mimics`: the joint that it
    follows; such a joint cannot be commanded."""

    type: str
    lower: float = -math.inf
    upper: float = math.inf
    velocity: float = math.inf
    effort: float = math.inf
    mimics: str = ""


def joint_limits(xml: str) -> dict[str, JointLimit]:
    """The limits of every revolute, continuous and prismatic joint of a robot description, by joint name.

    A continuous joint has no position limits. Raises ContractError: not text, too long, not XML, a DOCTYPE, no
    <robot>; for a joint, its name and the field that is missing, not finite or contradicts another.
    """
    if not isinstance(xml, str):
        raise ContractError(f"robot description: expected text, got {type(xml).__name__}")
    if len(xml) > MAX_CHARS:
        raise ContractError(f"robot description: {len(xml)} characters, at most {MAX_CHARS}")
    reader = _UrdfReader()
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = _refuse_doctype
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    try:
        parser.Parse(xml, True)
    except UnicodeEncodeError as error:
        raise ContractError(f"robot description: not encodable as UTF-8: {error.reason}") from error
    except expat.ExpatError as error:
        raise ContractError(f"robot description: not XML: {error}") from error
    return reader.limits


def _refuse_doctype(*_: object) -> None:
    raise ContractError("robot description: has a DOCTYPE; entities are not read")


class _UrdfReader:
    """Collects /robot/joint. Joints elsewhere (in <ros2_control>, <transmission>) are ignored."""

    def __init__(self) -> None:
        self.limits: dict[str, JointLimit] = {}
        self._names: set[str] = set()  # of all joints, also of those without limits
        self._path: list[str] = []
        self._joint: dict[str, str] = {}
        self._parts: dict[str, dict[str, str]] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self._path and tag != "robot":
            raise ContractError(f"robot description: starts with <{tag[:40]}>, expected <robot>")
        if len(self._path) >= MAX_DEPTH:
            raise ContractError(f"robot description: elements nested more than {MAX_DEPTH} deep")
        self._path.append(tag)
        if self._path == ["robot", "joint"]:
            self._joint, self._parts = attributes, {}
        elif self._path[:2] == ["robot", "joint"] and len(self._path) == 3:
            if tag in self._parts and tag in ("limit", "mimic"):
                raise self._error(tag, "given twice")
            self._parts[tag] = attributes

    def end(self, tag: str) -> None:
        if self._path == ["robot", "joint"]:
            self._add()
        self._path.pop()

    def _add(self) -> None:
        name, kind = self._joint.get("name", ""), self._joint.get("type", "")
        if not name:
            raise ContractError("robot description: a joint without a name")
        if kind not in (*_LIMITED, *_OTHERS, "continuous"):
            raise self._error("type", f"{kind[:40]!r} is not a joint type")
        if name in self._names:
            raise self._error("name", "used more than once")
        self._names.add(name)
        if kind in _OTHERS:
            return
        limit = JointLimit(kind, **self._numbers(kind), mimics=self._mimics())
        if limit.lower > limit.upper:
            raise self._error("limit", f"lower {limit.lower:g} is above upper {limit.upper:g}")
        self.limits[name] = limit

    def _numbers(self, kind: str) -> dict[str, float]:
        """The numbers of <limit>, as far as it has any."""
        if kind == "continuous" and "limit" not in self._parts:
            return {}
        positions = () if kind == "continuous" else ("lower", "upper")
        found = {field: self._number(field, 0.0) for field in positions}  # 0 is URDF's own default
        found |= {field: self._number(field, None) for field in ("velocity", "effort")}
        for field in ("velocity", "effort"):
            if found[field] < 0:
                raise self._error(f"limit {field}", f"{found[field]:g} is below zero")
        return found

    def _mimics(self) -> str:
        if "mimic" not in self._parts:
            return ""
        followed = self._parts["mimic"].get("joint", "")
        if not followed:
            raise self._error("mimic joint", "missing")
        return followed[:SHOWN_CHARS]  # only errors show it, and the actuator must not read megabytes of it

    def _number(self, field: str, default: float | None) -> float:
        if "limit" not in self._parts:
            raise self._error("limit", "missing")
        text = self._parts["limit"].get(field)
        if text is None:
            if default is None:
                raise self._error(f"limit {field}", "missing")
            return default
        try:
            # URDF has C's numbers: Python's also take underscores and the digits of other scripts.
            value = float(text) if len(text) <= 64 and "_" not in text and text.isascii() else math.nan
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self._error(f"limit {field}", f"{text[:40]!r} is not a finite number")
        return value

    def _error(self, field: str, text: str) -> ContractError:
        return ContractError(f"robot description: joint {self._joint.get('name', '')[:SHOWN_CHARS]!r}: {field}: {text}")


def tighten(contract: Contract, limits: Mapping[str, JointLimit]) -> Contract:
    """The contract, with each channel that is named like a joint limited to that joint's limits too.

    Set points: position, and velocity as `max_rate`. Velocities: the joint's velocity in both directions;
    increments: as `max_rate`. The position of these two is not known, so position limits cannot apply. Units may
    be rad, deg, m, cm or mm (velocities: per s). Raises ContractError, naming the channel: another unit, a joint
    that mimics another, no overlap with the contract's limits.
    """
    return replace(
        contract, channels=tuple(_tightened(channel, limits.get(channel.name)) for channel in contract.channels)
    )


def full_turns(contract: Contract, limits: Mapping[str, JointLimit]) -> list[float]:
    """For each channel, a full turn of its joint in the channel's unit; infinity if the joint is not continuous. A
    driver may report a continuous joint within one turn: beyond pi it continues at -pi."""
    found = [(channel, limits.get(channel.name)) for channel in contract.channels]
    return [
        math.tau / _unit(channel, limit) if limit and limit.type == "continuous" else math.inf
        for channel, limit in found
    ]


def unlimited(contract: Contract, limits: Mapping[str, JointLimit]) -> str:
    """The first set point channel (grippers too) whose joint has no limits here; empty if all have."""
    missing = (each.name for each in contract.channels if each.kind in SET_POINTS and each.name not in limits)
    return next(missing, "")


def _tightened(channel: Channel, limit: JointLimit | None) -> Channel:
    if limit is None:
        return channel
    if limit.mimics:
        raise _channel_error(channel, f"its joint mimics {limit.mimics!r} and cannot be commanded")
    unit = _unit(channel, limit)
    velocity = limit.velocity / unit
    if velocity == 0.0:
        raise _channel_error(channel, "its joint's velocity limit is 0: nothing may move")
    lower, upper, rate = channel.lower, channel.upper, channel.max_rate
    if channel.kind is ChannelKind.VELOCITY:
        lower, upper = max(lower, -velocity), min(upper, velocity)
    else:
        rate = min(velocity, math.inf if rate is None else rate)
    if channel.kind in SET_POINTS:
        lower, upper = max(lower, limit.lower / unit), min(upper, limit.upper / unit)
    if lower >= upper:
        joint = f"[{limit.lower / unit:g}, {limit.upper / unit:g}]"
        raise _channel_error(
            channel, f"[{channel.lower:g}, {channel.upper:g}] does not overlap its joint's limits {joint}"
        )
    try:
        return replace(channel, lower=lower, upper=upper, max_rate=None if rate == math.inf else rate)
    except ContractError as error:
        raise ContractError(f"robot description: {error}") from error


def _unit(channel: Channel, limit: JointLimit) -> float:
    known = _LENGTHS if limit.type == "prismatic" else _ANGLES
    unit = channel.unit
    if channel.kind is ChannelKind.VELOCITY:
        known = {f"{name}/s": size for name, size in known.items()}
    if unit not in known:
        raise _channel_error(channel, f"unit {unit!r} does not fit its joint, use {' or '.join(known)}")
    return known[unit]


def _channel_error(channel: Channel, text: str) -> ContractError:
    return ContractError(f"robot description: channel {channel.name!r}: {text}")


def main(joints: Sequence[str]) -> None:
    """Read a description from standard input; write the limits of these joints, or the error, as JSON to standard
    output.

    Run in a process of its own, because parsing foreign XML must not delay the actuator.
    """
    try:
        text = sys.stdin.buffer.read(4 * MAX_CHARS + 1).decode("utf-8")
        found = joint_limits(text)
        answer: dict[str, object] = {"limits": {name: asdict(found[name]) for name in joints if name in found}}
    except UnicodeDecodeError as error:
        answer = {"error": f"robot description: not UTF-8: {error.reason}"}
    except ContractError as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)
