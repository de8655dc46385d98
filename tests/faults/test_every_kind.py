"""Faults of `auras soak`, each once on the whole loop in processes of its own: every promise is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from auras_ros.soak.faults import faults
from auras_ros.soak.scene import MS, Scene
from tests.faults.conftest import MAX_AGE_MS, RATE_HZ

BUSY = 3.0  # room for a machine that has other work, in the limits of what is only named
KINDS = ("overrun", "clock_set_back", "qos_mismatch", "image_corrupt", "image_wrong", "prompt_garbage", "prompt_huge",
         "noise", "actuator_killed")  # fmt: skip


@pytest.mark.slow
def test_the_loop_keeps_its_promises_under_each(loop: Callable[[], Scene]) -> None:
    scene, known = loop(), faults(MAX_AGE_MS, RATE_HZ)
    for kind in (each for each in KINDS if each in known):
        assert scene.steady(), (kind, scene.judge.violations)
        begin_ns, end_ns = known[kind].play(scene)
        assert end_ns is not None, f"{kind}: no {known[kind].promise}"
        limit_ms = known[kind].limit_ms
        assert limit_ms is None or (end_ns - begin_ns) / MS <= limit_ms * BUSY, kind
        assert scene.witness.driving or scene.drive(), kind
        assert scene.judge.violations == [], kind
