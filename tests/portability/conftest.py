"""The real nodes as processes, in ROS domains of this folder's own. Test and nodes use the same ROS: our layer in
`make test`, the rclpy of a distribution in `make test-rclpy`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.nodes import wire
from tests.nodes.conftest import actuator, checkpoint, children, contract, digest, fake, robot, vlm_folder, watch

__all__ = ["actuator", "checkpoint", "children", "contract", "digest", "fake", "robot", "vlm_folder", "watch"]
DOMAINS = range(50, 60)
_next_domain = itertools.cycle(DOMAINS)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(wire, "DOMAINS", DOMAINS)
    monkeypatch.setattr(wire, "_next_domain", _next_domain)
    with wire.own_domain() as number:
        yield number
