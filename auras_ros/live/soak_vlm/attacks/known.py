"""All attacks by name. An attack is added by writing a function and naming it here."""

from __future__ import annotations

from collections.abc import Mapping

from auras_ros.live.soak_vlm.attacks.bodies import grammars, many_errors, scans
from auras_ros.live.soak_vlm.attacks.connections import (
    headers,
    idle_connections,
    long_url,
    slow_bodies,
    slow_headers,
)
from auras_ros.live.soak_vlm.attacks.target import Attack

ATTACKS: Mapping[str, Attack] = {
    "headers": headers,
    "long_url": long_url,
    "slow_headers": slow_headers,
    "slow_bodies": slow_bodies,
    "idle_connections": idle_connections,
    "grammars": grammars,
    "many_errors": many_errors,
    "scans": scans,
}
