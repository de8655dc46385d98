"""How peers are found: ROS's discovery variables turned into Cyclone DDS configuration.

ROS_DOMAIN_ID, ROS_AUTOMATIC_DISCOVERY_RANGE (SUBNET unless set), ROS_LOCALHOST_ONLY and ROS_STATIC_PEERS mean
what they mean in ROS 2; a user's CYCLONEDDS_URI is appended and so overrides what is written here. Interfaces are
added to ours; `participant.py` leaves our `lo` out if the user's configuration names it too.

With LOCALHOST no process on another machine can reach us: see `loopback_alone`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

from auras_ros.ros.ranges import ConfigurationError, discovery_range

MAX_DOMAIN_ID = 232
# ROS pings localhost participants 0 … 32; later ones still find ROS's, because discovery replies in both directions.
MAX_PARTICIPANT_INDEX = 120
LOOPBACK_INTERFACE = '<Interfaces><NetworkInterface name="lo"/></Interfaces>'
# One fragment for 65 kB instead of 1.3 kB: saves 30 % of an image's latency, and only loopback carries it unsplit.
LOOPBACK_GENERAL = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize>"
# Cyclone DDS announces itself every 8 s, and since 11 drops an address after 30 s without an answer. A node that starts
# after ours must hear of it within a second, however late, also if it misses an announcement: 4 ms of processor time a
# second for 121 addresses.
ANNOUNCE = "<SPDPInterval>400ms</SPDPInterval><InitialLocatorPruneDelay>inf</InitialLocatorPruneDelay>"
# Fast DDS (2.14 and 3.2 at least) ignores the end of an endpoint of Cyclone DDS 11 that has no key hash: it lists the
# endpoint, and keeps its memory, as long as our participant lives.
INTERNAL = "<Internal><GenerateKeyhash>true</GenerateKeyhash></Internal>"
DISCOVERY_GROUP = "239.255.0.1"  # where DDS participants look for each other
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")  # a peer with a port, or an IPv6 address, is left to Cyclone DDS


def domain_id(environment: Mapping[str, str] = os.environ) -> int:
    """ROS_DOMAIN_ID, 0 if it is unset. Raises ValueError if it is not a number from 0 to 232."""
    text = environment.get("ROS_DOMAIN_ID", "") or "0"
    if not text.isascii() or not text.isdigit() or int(text) > MAX_DOMAIN_ID:
        raise ConfigurationError(f"ROS_DOMAIN_ID is {text!r}, expected a number from 0 to {MAX_DOMAIN_ID}")
    return int(text)


def loopback_alone(environment: Mapping[str, str] = os.environ) -> bool:
    """True if no other machine may reach us: LOCALHOST or OFF, and ROS_STATIC_PEERS names no other machine.

    In ROS 2 static peers are contacted with LOCALHOST too, so they open the network again.
    """
    reach = discovery_range(environment)
    return reach == "OFF" or (reach == "LOCALHOST" and all(map(_is_this_host, _static_peers(environment))))


def configuration(environment: Mapping[str, str] = os.environ, *, names_loopback: bool = True) -> str:
    """The configuration for dds_create_domain: XML fragments joined by commas, the later ones override.
    names_loopback: whether ours names `lo` where no other machine may reach us; False if the user's names it."""
    ours = _fragment(discovery_range(environment), environment, names_loopback)
    users = environment.get("CYCLONEDDS_URI", "")
    return f"{ours},{users}" if users else ours


def _fragment(reach: str, environment: Mapping[str, str], names_loopback: bool) -> str:
    general = ""
    if loopback_alone(environment):
        # Announces only 127.0.0.1; participant.py keeps the network out. ROS's nodes stay on eth0: they are reached
        # there from lo, and reach lo from there, because the kernel itself delivers packets for its own addresses.
        # lo has to be named: Cyclone DDS 11 drops announcements that arrive on an interface that it does not use, and
        # ROS's 0.10 sends its announcements to 127.0.0.1.
        general = f"{LOOPBACK_INTERFACE if names_loopback else ''}{LOOPBACK_GENERAL}"
    if reach in ("LOCALHOST", "OFF"):
        general += "<AllowMulticast>false</AllowMulticast>"
    if reach == "OFF":
        # A unique tag hides the participant from every other process.
        discovery = f"<Tag>auras_off_{os.getpid()}</Tag>"
    elif reach == "SYSTEM_DEFAULT":
        discovery = ANNOUNCE  # Cyclone DDS, or the user, chooses who receives announcements
    else:
        # Peers on the same host are always contacted by unicast: this finds those that are limited to localhost,
        # and a machine without multicast needs no setting.
        peers = "".join(f"<Peer address={quoteattr(each)}/>" for each in ["localhost", *_static_peers(environment)])
        if loopback_alone(environment):
            peers += _own_address_as_peer()
        discovery = (
            f"<ParticipantIndex>auto</ParticipantIndex>"
            f"<MaxAutoParticipantIndex>{MAX_PARTICIPANT_INDEX}</MaxAutoParticipantIndex>{ANNOUNCE}"
            f"<Peers>{peers}</Peers>"
        )
    return (
        f"<CycloneDDS><Domain><General>{general}</General><Discovery>{discovery}</Discovery>{INTERNAL}"
        "</Domain></CycloneDDS>"
    )


def _static_peers(environment: Mapping[str, str]) -> list[str]:
    return [peer for peer in environment.get("ROS_STATIC_PEERS", "").split(";") if peer]


def check_peers(environment: Mapping[str, str] = os.environ) -> None:
    """Look up the static peers: Cyclone DDS ends the process (SIGABRT) over a name that does not resolve. Raises
    ConfigurationError for such a name, OSError if it cannot be looked up now."""
    asked = _static_peers(environment) if discovery_range(environment) in ("SUBNET", "LOCALHOST") else []
    for peer in filter(_HOST_NAME.fullmatch, asked):
        try:
            socket.getaddrinfo(peer, None, socket.AF_INET)
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise
            raise ConfigurationError(f"ROS_STATIC_PEERS names {peer!r}: {error.strerror}") from error


def _own_address_as_peer() -> str:
    """This machine's address on the network, if it has one: there a Cyclone DDS 11 on eth0 listens to announcements.

    The look-up sends nothing, and packets to our own address stay on this machine. A process that starts after ours is
    answered anyway; so we announce there for only a few seconds, because the address may later be another machine's.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as looking:
        try:
            looking.connect((DISCOVERY_GROUP, 1))
        except OSError:
            return ""  # no network, so no peer is on it
        return f'<Peer address="{looking.getsockname()[0]}" PruneDelay="5s"/>'


def _is_this_host(peer: str) -> bool:
    """localhost or a loopback address. Any other name may belong to another machine."""
    try:
        return peer == "localhost" or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
