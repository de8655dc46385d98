"""`auras doctor` on ROS 2: which one the processes of `auras run` use and why, whether they start, and who can call
their services.

A process of the same kind is started to find out (`attempt`); its answer is kept for both checks. Nothing of ROS is
imported here, because an installation can end the process that imports it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from auras_ros import installed_ros
from auras_ros.cli.doctor.finding import Finding, note, ok, problem
from auras_ros.installed_ros import CYCLONE

PINNED_CYCLONEDDS = "11.0.1"
START_S = 120.0  # a busy machine imports slowly
LAST_LINES = 4  # of what the process printed, beside the error
ABSENT = "No module named 'rclpy'"
OUR_SERVICES = "services of our own layer answer Cyclone DDS alone"
CHECK_VARIABLES = (
    "check ROS_DOMAIN_ID, ROS_AUTOMATIC_DISCOVERY_RANGE, ROS_STATIC_PEERS, CYCLONEDDS_URI, ROS_SECURITY_*, "
    "RMW_IMPLEMENTATION and the network line below"
)


@dataclass(frozen=True)
class Start:
    """What the process said before it ended, and how it ended."""

    backend: str = ""
    """'rclpy' or 'dds'; '' if it did not get so far."""
    reason: str = ""
    """Why this backend."""
    cyclonedds: str = ""
    """Its version, of our own layer."""
    rclpy: str = ""
    """Its version; the next three are of rclpy too."""
    distribution: str = ""
    rmw: str = ""
    warning: str = ""
    """That this combination was never run, and which were."""
    range: str = ""
    """The discovery range of the participant."""
    started: bool = False
    """Whether a participant was made."""
    error: str = ""
    """Why not."""
    kind: str = ""
    """The exception's name, if the error was one."""
    remedy: str = ""
    """The exception's own remedy, if it has one."""


@cache
def start() -> Start:
    """Start the process and read what it says. Cached: it takes a second."""
    command = [sys.executable, "-m", "auras_ros.cli.doctor.attempt"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=START_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Start(error=f"the process that tries it failed: {error}", kind=type(error).__name__)
    facts: dict[str, Any] = {}
    for line in ran.stdout.splitlines():
        facts |= _facts(line)
    printed = " | ".join(ran.stderr.strip().splitlines()[-LAST_LINES:])
    if "error" in facts:
        facts["error"] += f" (printed: {printed})" if printed else ""
        facts["started"] = False
    elif not facts.get("started") or ran.returncode:
        facts |= {"started": False, "error": f"the process {_end(ran.returncode)}: {printed or 'it printed nothing'}"}
    return Start(**facts)


def _facts(line: str) -> dict[str, Any]:
    """The object of one line; {} of any other line, which a library has printed."""
    try:
        facts = json.loads(line)
    except ValueError:
        return {}
    known = Start.__dataclass_fields__
    return {name: fact for name, fact in facts.items() if name in known} if isinstance(facts, dict) else {}


def _end(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"ended by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"ended by signal {-status}"


def ros() -> Finding:
    """Which ROS 2 a process of `auras run` uses, why, and whether it starts there."""
    if os.environ.get("AURAS_ROS_BACKEND", "") != "dds" and (folder := installed_ros.sourced_beside_wheels()):
        return problem("ROS 2", installed_ros.mixed(folder), installed_ros.MIXED_REMEDY)
    tried = start()
    if not tried.started:
        return _not_started(tried)
    text = f"{_name(tried)}, because {tried.reason}; domain {_domain()}, {tried.range}"
    if tried.warning:
        remedy = "before a robot depends on it, try it: auras soak --minutes 20"
        return note("ROS 2", f"{text}; {tried.warning}", remedy)
    if tried.backend == "dds" and "does not import" in tried.reason and ABSENT not in tried.reason:
        remedy = (
            "rclpy imports under the Python that it was built for alone (Jazzy: PYTHON=python3.12 make env); if our "
            "own layer is meant, say so: export AURAS_ROS_BACKEND=dds"
        )
        return note("ROS 2", text, remedy)
    return ok("ROS 2", text)


def _not_started(tried: Start) -> Finding:
    if tried.kind in ("ImportError", "ModuleNotFoundError"):
        remedy = f"source a ROS 2 installation, or: pip install cyclonedds=={PINNED_CYCLONEDDS} rosbags"
        return problem("ROS 2", f"no implementation found: {tried.error}", remedy)
    if tried.remedy:
        return problem("ROS 2", tried.error, tried.remedy)
    before = f"{_name(tried)}: " if tried.backend else ""
    chosen = os.environ.get("RMW_IMPLEMENTATION", "")
    rmws = installed_ros.available_rmws()
    if chosen and rmws and chosen not in rmws:
        remedy = f"RMW_IMPLEMENTATION is {chosen}, and installed are {', '.join(rmws)}: unset it, or install {chosen}"
        return problem("ROS 2", f"{before}no participant can be made: {tried.error}", remedy)
    return problem("ROS 2", f"{before}no participant can be made: {tried.error}", CHECK_VARIABLES)


def _name(tried: Start) -> str:
    if tried.backend == "rclpy":
        return f"rclpy {tried.rclpy} (distribution {tried.distribution}), RMW {tried.rmw}"
    return f"our own layer on Cyclone DDS {tried.cyclonedds}, without rclpy"


def _domain() -> str:
    return os.environ.get("ROS_DOMAIN_ID", "") or "0"


def middleware() -> Finding:
    """Who can call the services of our processes. Only an RMW that is installed is advised."""
    tried = start()
    if not tried.started:
        return note("RMW", "unknown, because no participant can be made", "as for ROS 2")
    if tried.backend == "rclpy":
        return _of_rclpy(tried.rmw)
    return _of_our_layer(os.environ.get("RMW_IMPLEMENTATION", ""), installed_ros.available_rmws())


def _of_rclpy(rmw: str) -> Finding:
    if rmw == CYCLONE:
        return ok("RMW", f"{rmw}: topics and services reach processes with it, and those of our own layer")
    return ok("RMW", f"{rmw}: topics and services reach processes with it; {OUR_SERVICES}")


def _of_our_layer(chosen: str, rmws: list[str]) -> Finding:
    """chosen: RMW_IMPLEMENTATION, which the tools of ROS 2 use; rmws: those that are installed here."""
    text = f"{OUR_SERVICES}: our layer and {CYCLONE}; topics reach every RMW that is a DDS"
    if chosen == CYCLONE or (not chosen and not rmws):
        return ok("RMW", text)
    here = f"ros2 in this shell uses {chosen or 'the default of its distribution'}"
    if CYCLONE in rmws:
        return note("RMW", f"{text}; {here}", f"export RMW_IMPLEMENTATION={CYCLONE} where services are called")
    if installed_ros.has_wheels():
        remedy = f"run the nodes under rclpy too (AURAS_ROS_BACKEND=rclpy); no wheel of PyPI has {CYCLONE}"
    else:
        remedy = (
            f"where services are called: sudo apt-get install ros-$ROS_DISTRO-rmw-cyclonedds-cpp, then export "
            f"RMW_IMPLEMENTATION={CYCLONE}; or run the nodes under rclpy too (AURAS_ROS_BACKEND=rclpy)"
        )
    return note("RMW", f"{text}; {here}, and {CYCLONE} is not installed", remedy)
