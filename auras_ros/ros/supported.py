"""Which ROS 2 this package was run with: a table, and what is said of everything that is not in it.

What was never run is named when a process starts, and by `auras doctor`; what is known to break is refused. Nothing
here is about our own layer, which has one version of its library.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from auras_ros import installed_ros
from auras_ros.installed_ros import CYCLONE, FAST

from . import rclpy_logger
from .backend import BACKEND

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Run:
    """A combination that was run. rclpy: major.minor of its version."""

    distribution: str
    rclpy: str
    rmw: str
    by: str


RUNS = (
    Run("jazzy", "7.1", FAST, "the tests of this repository"),
    Run("kilted", "9.1", FAST, "the tests of this repository"),
    Run("jazzy", "7.1", CYCLONE, "one run of the whole loop (docs/ros2.md)"),
)

# rclpy's major.minor -> the distribution that has it.
DISTRIBUTIONS = {
    "1.0": "foxy",
    "1.9": "galactic",
    "3.3": "humble",
    "4.1": "iron",
    "7.1": "jazzy",
    "9.1": "kilted",
    "10.0": "lyrical",
}

_NO_EVENTS = "it has no rclpy.event_handler, so no node would hear of a missed deadline or a dead publisher"

# rclpy's major.minor -> the promise that it breaks.
BROKEN = {
    "1.0": _NO_EVENTS,
    "1.9": _NO_EVENTS,
    "3.3": _NO_EVENTS,
}

REMEDY = "Source ROS 2 Jazzy or Kilted, or set AURAS_ROS_BACKEND=dds for our own layer (pip install cyclonedds)"


class UnsupportedRosError(RuntimeError):
    """The ROS 2 of this process is known to break a promise."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}. {remedy}")
        self.reason = reason
        self.remedy = remedy


@dataclass(frozen=True)
class RosInUse:
    """What an rclpy process uses. Each is UNKNOWN where it cannot be told."""

    rclpy: str
    """Its version."""
    distribution: str
    """Its name in lower case."""
    rmw: str
    """The RMW that is loaded, whatever RMW_IMPLEMENTATION says."""

    def __str__(self) -> str:
        return f"rclpy {self.rclpy} ({self.distribution}) with {self.rmw}"


def in_use() -> RosInUse:
    """Never raises, because a name is not worth a robot that does not start."""
    version = rclpy_version()
    try:
        rmw = str(importlib.import_module("rclpy").get_rmw_implementation_identifier())
    except (AttributeError, RuntimeError):
        rmw = UNKNOWN
    return RosInUse(version, distribution(version), rmw)


def rclpy_version() -> str:
    """From the metadata beside the rclpy that is imported: another one may be installed elsewhere on the path. UNKNOWN
    without metadata."""
    folder = _rclpy_folder()
    if folder is None:
        return UNKNOWN
    for name in ("ros-rclpy", "rclpy"):  # the first is the pip wheel's, whose copy of the second may be older
        for package in metadata.distributions(name=name, path=[str(folder)]):
            return str(package.version)
    return UNKNOWN


def distribution(version: str, environment: Mapping[str, str] = os.environ) -> str:
    """ROS_DISTRO; without it the distribution of this version of rclpy; both, if they differ."""
    named = environment.get("ROS_DISTRO", "")
    inferred = distribution_of(version)
    if named and inferred not in (UNKNOWN, named):
        return f"{named} by ROS_DISTRO, {inferred} by rclpy's version"
    return named or inferred


def distribution_of(version: str) -> str:
    """The distribution of this version of rclpy, by DISTRIBUTIONS; else by the name of the pip wheel beside it."""
    if known := DISTRIBUTIONS.get(minor(version)):
        return known
    folder = _rclpy_folder()
    for wheel in folder.glob("ros_*_rclpy-*.dist-info") if folder else []:
        return wheel.name.split("_")[1]
    return UNKNOWN


def minor(version: str) -> str:
    """'7.1' of '7.1.6'."""
    return ".".join(version.split(".")[:2])


def warning(used: RosInUse) -> str:
    """'' if it was run, else a sentence that names it and what was run."""
    if any((minor(used.rclpy), used.rmw) == (run.rclpy, run.rmw) for run in RUNS):
        return ""
    runs = ", ".join(f"{run.distribution} (rclpy {run.rclpy}) with {run.rmw}" for run in RUNS)
    return f"{used} was never run with this package, which was run with {runs}"


def refuse_broken() -> None:
    """Raises UnsupportedRosError if this process's rclpy is known to break a promise."""
    version = rclpy_version()
    if reason := BROKEN.get(minor(version)):
        raise UnsupportedRosError(_unusable(version, reason), REMEDY)


def lacking(error: Exception) -> UnsupportedRosError:
    """What to raise if this process's rclpy has not all that the nodes use."""
    return UnsupportedRosError(_unusable(rclpy_version(), str(error)), REMEDY)


def _unusable(version: str, reason: str) -> str:
    return f"rclpy {version} ({distribution_of(version)}) cannot be used: {reason}"


def check() -> str:
    """What a process says when it starts: '' or a warning. Raises UnsupportedRosError if it must not start."""
    if BACKEND == "dds":
        return ""
    if folder := installed_ros.sourced_beside_wheels():
        raise UnsupportedRosError(installed_ros.mixed(folder), installed_ros.MIXED_REMEDY)
    warnings = [warning(in_use()), rclpy_logger.warning()]
    return "; ".join(text for text in warnings if text)


def _rclpy_folder() -> Path | None:
    """The folder that rclpy is imported from; None if it comes from no file."""
    file = getattr(importlib.import_module("rclpy"), "__file__", None)
    return Path(file).parent.parent if file else None
