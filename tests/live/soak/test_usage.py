"""Memory, descriptors and threads of processes: growth is found, noise is not, and the error says how sure it is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from auras_ros.live.soak.control_node import NAME, ControlNode
from auras_ros.live.soak.usage import BIN_S, SETTLED_S, Reading, Usage, read, slope
from auras_ros.ros import Node, init, try_shutdown


def life(kib_per_min: float, level: float, seconds: float, noise: float = 0.0, seed: int = 0) -> list[Reading]:
    """A reading a second; memory settles first."""
    rng = np.random.default_rng(seed)
    found = []
    for at_s in np.arange(0.0, seconds):
        taking = 1e5 * max(0.0, SETTLED_S - at_s)
        kib = level - taking + kib_per_min * at_s / 60.0 + noise * rng.standard_normal()
        found.append(Reading(1000.0 + at_s, kib, 10, 5))
    return found


def test_the_slope_is_found_once_a_life_has_settled() -> None:
    found = slope([life(600.0, 1e6, SETTLED_S + 100.0)])
    assert found is not None
    assert found.kib_per_min == pytest.approx(600.0, rel=1e-6)
    assert found.error == pytest.approx(0.0, abs=1e-3)
    assert (found.bins, found.lives) == (int(100.0 / BIN_S), 1)


def test_each_life_has_a_level_of_its_own() -> None:
    found = slope([life(60.0, 1e6, SETTLED_S + 60.0), life(60.0, 5e5, SETTLED_S + 80.0), life(0.0, 1.0, SETTLED_S)])
    assert found is not None
    assert found.kib_per_min == pytest.approx(60.0, rel=1e-6)
    assert found.lives == 2


def test_what_was_taken_before_it_settled_is_no_growth() -> None:
    step_s, flat = 1080.0 + SETTLED_S, life(0.0, 1e6, SETTLED_S + 280.0)
    step = [Reading(each.at_s, each.kib + 2048.0 * (each.at_s > step_s), 10, 5) for each in flat]
    usage = Usage({7: step})
    found = usage.slope()
    assert found is not None
    assert found.kib_per_min > 100.0
    usage.since_s = step_s + 1.0
    found = usage.slope()
    assert found is not None
    assert found.kib_per_min == pytest.approx(0.0, abs=1e-6)
    usage.since_s = 1270.0 + SETTLED_S
    assert usage.slope() is None


def test_the_error_covers_what_noise_does() -> None:
    """Of flat memories under noise, the slope lies within two errors in about 95 of 100."""
    slopes = [slope([life(0.0, 1e6, SETTLED_S + 180.0, noise=500.0, seed=seed)]) for seed in range(200)]
    within = [abs(each.kib_per_min) <= 2 * each.error for each in slopes if each is not None]
    assert len(within) == 200
    assert 0.88 < np.mean(within) < 0.99


def test_the_error_covers_steps_that_last() -> None:
    """A memory that wanders, each level near the one before, looks like growth to whoever takes bins as independent."""
    within = []
    for seed in range(200):
        rng, level, wander = np.random.default_rng(seed), 0.0, []
        for at_s in range(int(SETTLED_S) + 380):
            level = 0.95 * level + 100.0 * rng.standard_normal()
            wander.append(Reading(float(at_s), 1e6 + level, 10, 5))
        found = slope([wander])
        assert found is not None
        within.append(abs(found.kib_per_min) <= 3 * found.error)
    assert np.mean(within) > 0.95


def test_too_short_a_life_tells_nothing() -> None:
    assert slope([]) is None
    assert slope([life(600.0, 1e6, SETTLED_S + 3 * BIN_S)]) is None


def test_descriptors_that_rise_are_told_from_those_that_come_and_go() -> None:
    usage = Usage()
    usage.lives[1] = [Reading(float(s), 1.0, 10 + 30 * (s % 2), 5 + s // 30) for s in range(120)]
    usage.lives[2] = [Reading(float(s), 1.0, 99, 99) for s in range(30)]
    assert usage.risen("descriptors") == (10, 10)
    assert usage.risen("threads") == (5, 7)
    assert Usage().risen("threads") is None


def test_memory_above_a_controls_is_of_the_same_time() -> None:
    """Steps that both make are no growth; the control's readings come at times of their own."""
    step_s = 1000.0 + SETTLED_S + 100.0
    own = [Reading(each.at_s, each.kib + 800.0 * (each.at_s > step_s), 10, 5) for each in life(60.0, 1e6, 900.0)]
    control = [Reading(1000.25 + s, 5e3 + 800.0 * (1000.25 + s > step_s), 4, 2) for s in range(900)]
    found = Usage({7: own}, 1.0).above(Usage({8: control}))
    assert found.since_s == 1.0
    assert [(each.descriptors, each.threads) for each in found.lives[7][:2]] == [(10, 5), (10, 5)]
    slope_above = found.slope()
    assert slope_above is not None
    assert slope_above.kib_per_min == pytest.approx(60.0, rel=0.05)
    assert Usage({7: own}).above(Usage()).lives == {7: own}


def test_the_control_is_a_node_that_is_discovered_and_ends(ros_domain_id: int) -> None:
    init(args=[])
    node = Node("watching")
    try:
        with ControlNode() as control:
            end_s = time.monotonic() + 30.0
            while NAME not in node.get_node_names():
                assert time.monotonic() < end_s
                time.sleep(0.05)
            assert read(control.pid, 1.0) is not None
        assert read(control.pid, 2.0) is None
    finally:
        node.destroy_node()
        try_shutdown()


def test_a_process_is_read_from_outside_until_it_ends() -> None:
    begin = "import threading; b = bytearray(b'x') * (64 << 20); f = open('/dev/null')"
    wait = "t = threading.Thread(target=input); t.start(); print(flush=True); t.join()"
    with subprocess.Popen(
        [sys.executable, "-c", f"{begin}; {wait}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        found = read(child.pid, 7.0)
        assert found is not None
        assert found.at_s == 7.0
        assert 64 << 10 < found.kib < 128 << 10
        assert found.threads == 2
        assert found.descriptors == len(os.listdir(f"/proc/{child.pid}/fd")) >= 4
        child.communicate(b"\n")
    assert read(child.pid, 8.0) is None


def test_one_that_ended_and_was_not_reaped_is_no_reading(tmp_path: Path) -> None:
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "statm").write_text("0 0 0 0 0 0 0\n")
    usage = Usage()
    assert read(7, 0.0, tmp_path) is None
    usage.look(2**22 + 1, 0.0)
    assert usage.lives == {}
