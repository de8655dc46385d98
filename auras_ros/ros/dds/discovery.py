"""How peers are found: ROS's discovery variables turned into Cyclone DDS configuration.

ROS_DOMAIN_ID, ROS_AUTOMATIC_DISCOVERY_RANGE (SUBNET unless set), ROS_LOCALHOST_ONLY and ROS_STATIC_PEERS mean
what they mean in ROS 2; a user's CYCLONEDDS_URI is appended and so overrides what is written here.

Where LOCALHOST is said, nobody on another machine can reach us: see `loopback_alone`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

MAX_DOMAIN_ID = 232
# ROS pings localhost participants 0 … 32; further ones still find ROS's, because discovery answers both ways.
MAX_PARTICIPANT_INDEX = 120
# One fragment for 65 kB instead of 1.3 kB: worth 30 % of an image's latency, and only loopback carries it whole.
LOOPBACK_GENERAL = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize>"
# Cyclone DDS announces itself each 8 s, and from 11 on forgets after 30 s the addresses where nobody answered. A node
# that starts after ours is to be told within a second, however late: 1.5 ms of processor time a second for 121 of them.
ANNOUNCE = "<SPDPInterval>1s</SPDPInterval><InitialLocatorPruneDelay>inf</InitialLocatorPruneDelay>"
DISCOVERY_GROUP = "239.255.0.1"  # where DDS participants look for each other
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")
_HOST_NAME = re.compile(r"[A-Za-z0-9._-]+")  # what has a port, or is an address of IPv6, is left to Cyclone DDS


class ConfigurationError(ValueError):
    """The environment's discovery variables cannot be used; the message names the variable."""


def domain_id(environment: Mapping[str, str] = os.environ) -> int:
    """ROS_DOMAIN_ID, 0 where it is unset; ValueError where it is no number from 0 to 232."""
    text = environment.get("ROS_DOMAIN_ID", "") or "0"
    if not text.isascii() or not text.isdigit() or int(text) > MAX_DOMAIN_ID:
        raise ConfigurationError(f"ROS_DOMAIN_ID is {text!r}, expected a number from 0 to {MAX_DOMAIN_ID}")
    return int(text)


def discovery_range(environment: Mapping[str, str] = os.environ) -> str:
    """One of RANGES; ROS_LOCALHOST_ONLY=1 wins over ROS_AUTOMATIC_DISCOVERY_RANGE, as in Jazzy."""
    if environment.get("ROS_LOCALHOST_ONLY", "0") == "1":
        return "LOCALHOST"
    value = environment.get("ROS_AUTOMATIC_DISCOVERY_RANGE", "") or "SUBNET"
    if value not in RANGES:
        raise ConfigurationError(f"ROS_AUTOMATIC_DISCOVERY_RANGE is {value!r}, expected one of {', '.join(RANGES)}")
    return value


def loopback_alone(environment: Mapping[str, str] = os.environ) -> bool:
    """True where no other machine may reach us: LOCALHOST or OFF, and ROS_STATIC_PEERS names no other machine.

    A static peer is a word of its own in ROS 2: it is asked in LOCALHOST too, and so opens the network again.
    """
    reach = discovery_range(environment)
    return reach == "OFF" or (reach == "LOCALHOST" and all(map(_is_this_host, _static_peers(environment))))


def configuration(environment: Mapping[str, str] = os.environ) -> str:
    """The configuration for dds_create_domain: XML fragments joined by commas, later ones override."""
    ours, users = _fragment(discovery_range(environment), environment), environment.get("CYCLONEDDS_URI", "")
    return f"{ours},{users}" if users else ours


def _fragment(reach: str, environment: Mapping[str, str]) -> str:
    general = ""
    if loopback_alone(environment):
        # Announces 127.0.0.1 alone; participant.py keeps the network out. ROS's nodes stay on eth0: they are reached
        # there from lo, and reach lo from there, because the kernel carries what is for its own addresses itself.
        # lo has to be named: Cyclone DDS 11 drops announcements that come by an interface that it does not use, and
        # ROS's 0.10 sends its own to 127.0.0.1.
        general = f'<Interfaces><NetworkInterface name="lo"/></Interfaces>{LOOPBACK_GENERAL}'
    if reach in ("LOCALHOST", "OFF"):
        general += "<AllowMulticast>false</AllowMulticast>"
    if reach == "OFF":
        # A tag of its own hides the participant from every other process.
        discovery = f"<Tag>auras_off_{os.getpid()}</Tag>"
    elif reach == "SYSTEM_DEFAULT":
        discovery = ANNOUNCE  # who is told is Cyclone DDS's choice, or the user's
    else:
        # Peers on the same host are asked by unicast in every case: it finds those that are limited to localhost,
        # and a machine without multicast needs no setting.
        peers = "".join(f"<Peer address={quoteattr(each)}/>" for each in ["localhost", *_static_peers(environment)])
        if loopback_alone(environment):
            peers += _own_address_as_peer()
        discovery = (
            f"<ParticipantIndex>auto</ParticipantIndex>"
            f"<MaxAutoParticipantIndex>{MAX_PARTICIPANT_INDEX}</MaxAutoParticipantIndex>{ANNOUNCE}"
            f"<Peers>{peers}</Peers>"
        )
    return f"<CycloneDDS><Domain><General>{general}</General><Discovery>{discovery}</Discovery></Domain></CycloneDDS>"


def _static_peers(environment: Mapping[str, str]) -> list[str]:
    return [peer for peer in environment.get("ROS_STATIC_PEERS", "").split(";") if peer]


def check_peers(environment: Mapping[str, str] = os.environ) -> None:
    """Look up the static peers that are asked: over a name that nobody knows, Cyclone DDS ends the process (SIGABRT).
    Raises ConfigurationError for a name that does not exist, OSError where nobody can say so just now."""
    asked = _static_peers(environment) if discovery_range(environment) in ("SUBNET", "LOCALHOST") else []
    for peer in filter(_HOST_NAME.fullmatch, asked):
        try:
            socket.getaddrinfo(peer, None, socket.AF_INET)
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise
            raise ConfigurationError(f"ROS_STATIC_PEERS names {peer!r}: {error.strerror}") from error


def _own_address_as_peer() -> str:
    """This machine's address on the network, if it has one: where a Cyclone DDS 11 on eth0 listens to announcements.

    The look-up sends nothing, and what goes to an own address stays on this machine. One that starts after ours is
    answered; so those that are there already are told for some seconds, and an address that is later another's is left.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as looking:
        try:
            looking.connect((DISCOVERY_GROUP, 1))
        except OSError:
            return ""  # no network, so nobody is on it
        return f'<Peer address="{looking.getsockname()[0]}" PruneDelay="5s"/>'


def _is_this_host(peer: str) -> bool:
    """localhost or a loopback address. Another name may be anybody's."""
    try:
        return peer == "localhost" or ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
