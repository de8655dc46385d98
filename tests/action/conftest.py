"""Builders that the tests of this room share: short ways to say a contract, a chunk, a stream."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.action import ActionStream, ActionStreamOptions, Channel, Chunk, Contract, Provenance

MS = 1_000_000


def channel(name: str = "x", kind: str = "absolute", **changes: Any) -> Channel:
    """One channel in [-100, 100]; moving kinds hold at zero, others at the last command."""
    moving = kind in ("velocity", "delta_previous")
    raw = {"name": name, "unit": "px", "kind": kind, "lower": -100.0, "upper": 100.0}
    return Channel.from_dict({**raw, "hold": "zero" if moving else "last", **changes})


def contract(*channels: Channel, dt_ms: float = 100.0) -> Contract:
    return Contract(channels or (channel(),), dt_ms)


def chunk(actions: Any, origin_ns: int, *, reference: Any = None, session: str = "s", **source: Any) -> Chunk:
    """A chunk of [horizon] (one channel) or [horizon, channels] whose two origins are the same number."""
    values = np.asarray(actions, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    return Chunk(values, Provenance(origin_ns, origin_ns, session=session, **source), reference)


def stream(
    rules: Contract | None = None, tick_ns: int = 100 * MS, host: str | None = None, **options: Any
) -> ActionStream:
    return ActionStream(rules or contract(), ActionStreamOptions(tick_ns, **options), host)


def armed(rules: Contract | None = None, *, tick_ms: int = 100, current: Any = None, **options: Any) -> ActionStream:
    """A stream that ticked once, at time 0, and was armed right after."""
    made = stream(rules, tick_ms * MS, **options)
    made.tick(0)
    assert made.arm(0, current).ok
    return made


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    return SimpleNamespace(channel=channel, contract=contract, chunk=chunk, stream=stream, armed=armed, MS=MS)
