"""How peers are found: ROS's discovery variables turned into Cyclone DDS configuration.

ROS_DOMAIN_ID, ROS_AUTOMATIC_DISCOVERY_RANGE (SUBNET unless set), ROS_LOCALHOST_ONLY and ROS_STATIC_PEERS mean
what they mean in ROS 2; a user's CYCLONEDDS_URI is appended and so overrides what is written here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

MAX_DOMAIN_ID = 232
# ROS pings localhost participants 0 … 32; further ones still find ROS's, because discovery answers both ways.
MAX_PARTICIPANT_INDEX = 120
# One fragment for 65 kB instead of 1.3 kB: worth 30 % of an image's latency, and only loopback carries it whole.
LOOPBACK_GENERAL = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize>"
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")


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


def configuration(environment: Mapping[str, str] = os.environ) -> str:
    """The configuration for dds_create_domain: XML fragments joined by commas, later ones override."""
    reach = discovery_range(environment)
    fragments = [] if reach == "SYSTEM_DEFAULT" else [_fragment(reach, environment)]
    if user := environment.get("CYCLONEDDS_URI", ""):
        fragments.append(user)
    return ",".join(fragments)


def _fragment(reach: str, environment: Mapping[str, str]) -> str:
    peers = [peer for peer in environment.get("ROS_STATIC_PEERS", "").split(";") if peer]
    general = ""
    if reach == "LOCALHOST":
        # As rmw: no interface is named. A peer on eth0 and one on lo find each other only by luck, and between
        # processes of one host the kernel's loopback carries eth0's address too.
        general = f"<AllowMulticast>false</AllowMulticast>{LOOPBACK_GENERAL}"
    elif reach == "OFF":
        # A tag of its own hides the participant from every other process.
        return (f"<CycloneDDS><Domain><General><AllowMulticast>false</AllowMulticast></General>"
                f"<Discovery><Tag>auras_off_{os.getpid()}</Tag></Discovery></Domain></CycloneDDS>")  # fmt: skip
    # Peers on the same host are asked by unicast in every case: it finds those that are limited to localhost,
    # and a machine without multicast needs no setting.
    listed = "".join(f"<Peer address={quoteattr(peer)}/>" for peer in ["localhost", *peers])
    return (
        f"<CycloneDDS><Domain><General>{general}</General><Discovery>"
        f"<ParticipantIndex>auto</ParticipantIndex>"
        f"<MaxAutoParticipantIndex>{MAX_PARTICIPANT_INDEX}</MaxAutoParticipantIndex>"
        f"<Peers>{listed}</Peers></Discovery></Domain></CycloneDDS>"
    )
