"""Fast DDS as camera images need it: a profile that ships in `config/fastdds`, taken where the user has set none.

With its own settings Fast DDS loses most images of 640x480: its shared-memory segment is smaller than one of them, and
its sockets hold less than a quarter. And with LOCALHOST it binds sockets on every network interface. `init` takes the
place of rclpy's and sets the profile before; docs/fastdds.md has the figures.

With LOCALHOST rmw_fastrtps adds transports of its own to those of a profile, and they are not confined. So there `init`
gives SUBNET to rclpy, and the profile keeps the network out. `check_confined` ends a node whose profile was not taken:
Fast DDS prints a file that it cannot read and goes on without it.

Another RMW, and our own layer, are left alone.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auras_ros import resources
from auras_ros.ros.backend import BACKEND
from auras_ros.ros.dead_segments import remove_dead_segments

RANGE = "ROS_AUTOMATIC_DISCOVERY_RANGE"
LOCALHOST_ONLY = "ROS_LOCALHOST_ONLY"
LOCALHOST_PROFILE = "fastdds/localhost.xml"
SUBNET_PROFILE = "fastdds/subnet.xml"
# Without shared memory. Fast DDS checks a peer's shared-memory port when it discovers the peer, which takes a third of
# a second if the peer is busy. Meanwhile no publisher of the process publishes, and under rclpy no Python runs at all.
WITHOUT_SHARED_MEMORY = {
    LOCALHOST_PROFILE: "fastdds/localhost_udp.xml",
    SUBNET_PROFILE: "fastdds/subnet_udp.xml",
}
# The variable that names a profile, and the file that is taken from the working directory, by Fast DDS's major version.
PROFILE_VARIABLE = {2: "FASTRTPS_DEFAULT_PROFILES_FILE", 3: "FASTDDS_DEFAULT_PROFILES_FILE"}
LOCAL_PROFILE = {2: "DEFAULT_FASTRTPS_PROFILES.xml", 3: "DEFAULT_FASTDDS_PROFILES.xml"}
TRANSPORTS_VARIABLE = "FASTDDS_BUILTIN_TRANSPORTS"
OURS_VARIABLE = "AURAS_ROS_FASTDDS_PROFILE"  # the profile that a process of ours has set, for its children to know
SERVER_VARIABLES = ("ROS_DISCOVERY_SERVER", "ROS2_EASY_MODE")  # discovery by a server, which may be another machine
FIRST_PORT = 7400  # of domain 0
PORTS_OF_A_DOMAIN = 250


@dataclass(frozen=True)
class ProfileChoice:
    """The profile for this process.

    profile: the file that Fast DDS shall read; None where it is left as it is.
    reason: why, as text.
    confines: whether it keeps the network out, so that rclpy has to be given SUBNET.
    """

    profile: Path | None
    reason: str
    confines: bool = False


@dataclass
class _Process:
    """What Fast DDS was given in this process. It reads profiles once, when its first participant is made.

    decided: whether `init` ran. shared_memory: whether it may be used. confined_domain: the ROS domain of the last
    confined `init`, or None.
    """

    decided: bool = False
    shared_memory: bool = True
    profile: Path | None = None
    confined_domain: int | None = None


_process = _Process()


def init(**options: Any) -> Any:
    """rclpy's `init`, with the profile for Fast DDS. Takes and returns what rclpy's does."""
    import rclpy

    version = fastdds_version()
    if not version:
        return rclpy.init(**options)
    remove_dead_segments()
    choice = _of_this_process(choose(version, shared_memory=_process.shared_memory))
    variable = PROFILE_VARIABLE[version]
    if choice.profile is not None:
        os.environ[variable] = str(choice.profile)
        os.environ[OURS_VARIABLE] = str(choice.profile)
    elif os.environ.get(variable, "") == os.environ.get(OURS_VARIABLE, ""):
        os.environ.pop(variable, None)  # a parent process has set it, for another range
    if not choice.confines:
        _process.confined_domain = None
        return rclpy.init(**options)
    domain = options.get("domain_id")
    _process.confined_domain = _domain_of_environment() if domain is None else domain
    with _subnet_range():
        return rclpy.init(**options)


def fastdds_version() -> int:
    """The major version of the Fast DDS that this process uses: 2 or 3, and 0 where it uses none."""
    if BACKEND != "rclpy":
        return 0
    from rclpy.utilities import get_rmw_implementation_identifier

    if not get_rmw_implementation_identifier().startswith("rmw_fastrtps"):  # it loads the RMW and so Fast DDS
        return 0
    return 3 if "/libfastdds.so" in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace") else 2


def avoid_shared_memory() -> None:
    """Called before `init` by a process that must never wait for another one, and that has no images."""
    _process.shared_memory = False


def choose(version: int, environment: Mapping[str, str] = os.environ, *, shared_memory: bool = True) -> ProfileChoice:
    """The profile for this environment. version: as `fastdds_version` returns it. shared_memory: whether the process
    may use it."""
    is_localhost = is_localhost_range(environment)
    if not version:
        return ProfileChoice(None, "this process does not use Fast DDS")
    if setting := users_setting(version, environment):
        return ProfileChoice(None, f"{setting} is set")
    if environment.get(RANGE, "") == "OFF" and not is_localhost:
        return ProfileChoice(None, f"{RANGE} is OFF")
    if is_localhost and not _peers_are_local(environment):
        return ProfileChoice(None, "ROS_STATIC_PEERS names other machines")
    name = LOCALHOST_PROFILE if is_localhost else SUBNET_PROFILE
    if not shared_memory:
        name = WITHOUT_SHARED_MEMORY[name]
    try:
        path = resources.find("config", name)
    except FileNotFoundError as error:
        return ProfileChoice(None, str(error))
    return ProfileChoice(path, f"config/{name}", confines=is_localhost)


def users_setting(version: int, environment: Mapping[str, str] = os.environ) -> str:
    """The setting of the user that Fast DDS follows in place of ours, such as the name of a variable; '' without one.

    A profile that a parent process of ours has set is no such setting. Nor is, with LOCALHOST, one that ships: only
    `init` can keep the sockets of rmw_fastrtps away.
    """
    is_localhost = is_localhost_range(environment)
    variables = [PROFILE_VARIABLE[2]] if version == 2 else [PROFILE_VARIABLE[3], PROFILE_VARIABLE[2]]
    for variable in variables:
        value = environment.get(variable, "")
        is_ours = value == environment.get(OURS_VARIABLE, "") or (is_localhost and is_shipped(value))
        if value and not is_ours:
            return variable
    if environment.get(TRANSPORTS_VARIABLE, "") and not is_localhost:  # with LOCALHOST it is ignored
        return TRANSPORTS_VARIABLE
    for variable in SERVER_VARIABLES:
        if environment.get(variable, ""):
            return variable
    skips = environment.get("SKIP_DEFAULT_XML_FILE", "").startswith("1")
    if not skips and Path(LOCAL_PROFILE[version]).is_file():
        return f"./{LOCAL_PROFILE[version]}"
    return ""


def is_shipped(profile: str) -> bool:
    """Whether this path is that of a profile that ships."""
    for name in (*WITHOUT_SHARED_MEMORY, *WITHOUT_SHARED_MEMORY.values()):
        try:
            shipped = resources.find("config", name)
        except FileNotFoundError:
            continue  # then nothing can be it
        if Path(profile).resolve() == shipped.resolve():
            return True
    return False


def is_localhost_range(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get(LOCALHOST_ONLY, "") == "1" or environment.get(RANGE, "") == "LOCALHOST"


def check_confined() -> None:
    """Raise RuntimeError where `init` confined this process to the machine, and Fast DDS is bound to more. To be asked
    after the first node was made, because that makes the participant."""
    domain = _process.confined_domain
    if domain is None:
        return
    exposed = exposed_sockets(domain)
    if exposed:
        raise RuntimeError(
            f"Fast DDS did not take {_process.profile}: with LOCALHOST it is bound to {', '.join(exposed)}; "
            f"its own message above says why. To use a profile of your own, name it in {PROFILE_VARIABLE[2]} "
            f"(Fast DDS 2) or {PROFILE_VARIABLE[3]} (Fast DDS 3)"
        )


def exposed_sockets(domain: int) -> list[str]:
    """The UDP sockets of this process on the ports of a ROS domain that other machines can reach, as address:port."""
    first_port = FIRST_PORT + PORTS_OF_A_DOMAIN * domain
    ports = range(first_port, first_port + PORTS_OF_A_DOMAIN)
    own = _own_sockets()
    exposed = []
    for line in Path("/proc/self/net/udp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        address_text, _, port_text = fields[1].partition(":")
        address = socket.inet_ntoa(bytes.fromhex(address_text)[::-1])
        port = int(port_text, 16)
        if fields[9] in own and port in ports and not ipaddress.ip_address(address).is_loopback:
            exposed.append(f"{address}:{port}")
    return sorted(exposed)


def _own_sockets() -> set[str]:
    """The inode numbers of this process's sockets, as text."""
    inodes = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # closed since: the one of the listing itself, or another thread's
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    return inodes


def _of_this_process(choice: ProfileChoice) -> ProfileChoice:
    """The choice, or one that leaves Fast DDS as it is where this process has given it another profile before."""
    if not _process.decided:
        _process.decided = True
        _process.profile = choice.profile
        return choice
    if choice.profile == _process.profile:
        return choice
    return ProfileChoice(None, f"this process has given Fast DDS {_process.profile} before")


def _peers_are_local(environment: Mapping[str, str]) -> bool:
    """Whether ROS_STATIC_PEERS names this machine alone, or nobody. With LOCALHOST too they are contacted."""
    peers = [peer for peer in environment.get("ROS_STATIC_PEERS", "").split(";") if peer]
    return all(_is_local(peer) for peer in peers)


def _is_local(peer: str) -> bool:
    """localhost or a loopback address. Any other name may belong to another machine."""
    try:
        return peer == "localhost" or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False


def _domain_of_environment() -> int:
    text = os.environ.get("ROS_DOMAIN_ID", "")
    return int(text) if text.isdecimal() else 0  # rclpy refuses what is no number


@contextmanager
def _subnet_range() -> Iterator[None]:
    """SUBNET in this process's environment, for as long as rclpy reads it."""
    before = {name: os.environ.pop(name, None) for name in (RANGE, LOCALHOST_ONLY)}
    os.environ[RANGE] = "SUBNET"
    try:
        yield
    finally:
        del os.environ[RANGE]
        for name, value in before.items():
            if value is not None:
                os.environ[name] = value
