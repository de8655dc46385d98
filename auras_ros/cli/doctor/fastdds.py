"""`auras doctor` on Fast DDS: the profile of our processes, what a camera's driver needs, and who can read images."""

from __future__ import annotations

import os
from pathlib import Path

from auras_ros import resources
from auras_ros.cli.doctor.finding import Check, Finding, note, ok
from auras_ros.nodes.common import discovery

NAME = "Fast DDS"
READABLE = "every local user can read images in /dev/shm (mode 0644)"
LOSES = "without such a profile a writer loses most raw images of 640x480"


def fast_dds() -> Finding:
    """Whether images arrive over Fast DDS. The writer's side decides, and a camera's driver is no process of ours."""
    try:
        from auras_ros.ros import fastdds  # late: doctor runs where no ROS 2 can be used too
    except (ImportError, ValueError, RuntimeError):
        return ok(NAME, "no ROS 2 can be used here: see its own line")
    version = fastdds.fastdds_version()
    if not version:
        return ok(NAME, "this process does not use it")
    environment = dict(os.environ)
    if not discovery.is_set():
        environment[discovery.VARIABLE] = discovery.DEFAULT  # as `auras run` does
    choice = fastdds.choose(version, environment)
    variable = fastdds.PROFILE_VARIABLE[version]
    users = os.environ.get(variable, "")
    is_ours = users == os.environ.get(fastdds.OURS_VARIABLE, "")  # set in this process, for the participant of a check
    if users and not is_ours and fastdds.is_shipped(users):
        return ok(NAME, f"{users} for everything that this shell starts; {READABLE}")
    if choice.profile is None:
        text = f"no profile of ours, because {choice.reason}; {LOSES}; {READABLE}"
        return note(NAME, text, f"compare yours with {_shipped(environment)}; docs/fastdds.md")
    text = f"{choice.reason} for auras alone, and a camera's driver needs it too: {LOSES}; {READABLE}"
    remedy = f"where the driver is started: export {variable}={choice.profile}"
    if choice.confines:
        remedy += f" (without {discovery.VARIABLE}: the profile itself keeps the network out)"
    return note(NAME, text, remedy)


def _shipped(environment: dict[str, str]) -> Path | str:
    """The profile that ships for this range."""
    from auras_ros.ros import fastdds

    is_localhost = fastdds.is_localhost_range(environment)
    name = fastdds.LOCALHOST_PROFILE if is_localhost else fastdds.SUBNET_PROFILE
    try:
        return resources.find("config", name)
    except FileNotFoundError:
        return f"config/{name}"  # the check of the files says that they are missing


CHECKS: tuple[Check, ...] = (fast_dds,)
