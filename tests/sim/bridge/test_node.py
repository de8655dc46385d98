"""The bridge's node in this process, on a virtual clock: the grid, the parameters, and what is not computed."""

from __future__ import annotations

import gc
import json
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.clock import VirtualClock
from auras_ros.parameters import ParameterError
from auras_ros.ros import Parameter, init, spin_once, try_shutdown
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.srv import Trigger
from auras_ros.sim.bridge import node as bridge_module
from auras_ros.sim.bridge.node import SimBridge
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.worlds import find

DT_NS = 100_000_000
PUSHT = find("pusht")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_000)


@pytest.fixture
def bridge(ros_domain_id: int, clock: VirtualClock) -> Iterator[SimBridge]:
    init(args=[])
    made = SimBridge(PUSHT, clock)
    yield made
    made.destroy_node()
    try_shutdown()


def ticks(bridge: SimBridge, clock: VirtualClock, costs_ns: list[int], monkeypatch: Any) -> list[int]:
    """Run one tick for each cost; returns the grid times."""
    seen: list[int] = []

    def tick(grid_ns: int) -> None:
        seen.append(grid_ns)
        clock.advance(costs_ns[len(seen) - 1])
        if len(seen) == len(costs_ns):
            bridge.halt()

    monkeypatch.setattr(bridge, "_tick", tick)
    bridge.run()
    return seen


def test_ticks_stay_on_the_grid_and_missed_ones_are_skipped(
    bridge: SimBridge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a world that makes up for lost time, and against a grid that drifts with the load."""
    start_ns = clock.now_ns()
    seen = ticks(bridge, clock, [DT_NS // 3, 2 * DT_NS + DT_NS // 2, 5, DT_NS - 1, 0], monkeypatch)
    assert [(at - start_ns) / DT_NS for at in seen] == [1, 2, 5, 6, 7]
    assert bridge._missed == 2


def test_a_shift_moves_the_ticks_and_costs_none(
    bridge: SimBridge, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_ns, seen = clock.now_ns(), list[float]()

    def tick(at_ns: int) -> None:
        seen.append((at_ns - start_ns) / DT_NS)
        if len(seen) in (2, 4):
            assert bridge.set_parameters([Parameter("shift_ms", value=40.0 if len(seen) == 2 else 0.0)])[0].successful
        if len(seen) == 6:
            bridge.halt()

    monkeypatch.setattr(bridge, "_tick", tick)
    bridge.run()
    assert seen == [1, 2, 3.4, 4.4, 5, 6]
    assert bridge._missed == 0
    assert not bridge.set_parameters([Parameter("shift_ms", value=100.0)])[0].successful


def test_nothing_is_compressed_for_nobody(bridge: SimBridge) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compressed without a subscriber")

    bridge._cameras = [replace(bridge._cameras[0], encode=refuse)]
    bridge._tick(DT_NS)


def set_seed(bridge: SimBridge, value: Any) -> Any:
    return bridge.set_parameters([Parameter("seed", value=value)])[0]


def test_the_seed_parameter_is_the_seed_of_the_next_reset(bridge: SimBridge) -> None:
    assert set_seed(bridge, 77).successful
    answer = bridge._on_reset(Trigger.Request(), Trigger.Response())
    assert json.loads(answer.message) == {"episode": 1, "seed": 77}
    answer = bridge._on_reset(Trigger.Request(), Trigger.Response())
    assert json.loads(answer.message)["seed"] == 78


@pytest.mark.parametrize("value", [-1, 2**31, "seven"])
def test_a_bad_seed_is_refused_and_changes_nothing(bridge: SimBridge, value: Any) -> None:
    assert not set_seed(bridge, value).successful
    assert bridge.get_parameter("seed").value == 0
    assert json.loads(bridge._on_reset(Trigger.Request(), Trigger.Response()).message)["seed"] == 1


def test_a_running_table_keeps_its_rules(bridge: SimBridge) -> None:
    result = bridge.set_parameters([Parameter("max_steps", value=5)])[0]
    assert not result.successful
    assert bridge.get_parameter("max_steps").value == 300


def test_what_the_world_refuses_is_refused(bridge: SimBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that stands still cannot be given a speed: the world alone knows."""

    def refuse(option: str, value: Any) -> None:
        raise ValueError(f"pusht: {option}: not on this table")

    monkeypatch.setattr(bridge._game.world, "disturb", refuse)
    result = set_things(bridge, json.dumps([THING]))
    assert (result.successful, result.reason) == (False, "pusht: things: not on this table")
    assert bridge.get_parameter("things").value == ""


THING = {"x": 224, "y": 288, "radius": 18, "rgb": [220, 40, 40]}


def set_things(bridge: SimBridge, value: Any) -> Any:
    return bridge.set_parameters([Parameter("things", value=value)])[0]


def test_things_are_in_the_picture_until_they_are_taken_away(bridge: SimBridge) -> None:
    images: list[Any] = []
    bridge._cameras = [replace(bridge._cameras[0], image=SimpleNamespace(publish=images.append))]
    for text in ("", json.dumps([THING]), ""):
        assert set_things(bridge, text).successful
        bridge._tick(DT_NS)
    before, shown, after = (np.array(each.data, np.uint8).reshape(96, 96, 3) for each in images)
    assert shown[54, 40].tolist() == [255, 48, 48]  # the renderer draws its inside lighter
    changed = (shown != before).any(-1)
    assert 0 < changed.sum() < 80
    assert np.array_equal(before, after)


@pytest.mark.parametrize(
    "text",
    ["{", "{}", "[1]", json.dumps([THING] * 65), json.dumps([THING | {"z": 1}]), json.dumps([THING | {"x": "left"}]),
     json.dumps([THING | {"radius": 0}]), json.dumps([THING | {"y": float("nan")}]),
     json.dumps([THING | {"rgb": [0, 0, 256]}]), json.dumps([THING | {"rgb": "red"}])],
)  # fmt: skip
def test_what_is_no_list_of_things_is_refused_and_changes_nothing(bridge: SimBridge, text: str) -> None:
    assert set_things(bridge, json.dumps([THING])).successful
    result = set_things(bridge, text)
    assert not result.successful
    assert result.reason.startswith("pusht: things")
    assert len(bridge._game.world.things) == 1


def test_things_change_nothing_but_the_picture() -> None:
    """The pusher drives through them, and the tee is pushed through them."""
    things = [THING | {"x": x, "y": y} for x in (150, 250, 350) for y in (150, 250, 350)]
    plain, full = PushTWorld(), PushTWorld(things=json.dumps(things))
    for world in (plain, full):
        world.reset(3)
    for step in range(20):
        target = full.tee[:2] + (5.0 * step, 0.0)
        assert plain.step(target) == full.step(target)
        assert not np.array_equal(plain.image(), full.image())
        assert np.array_equal(plain.tee, full.tee)
        assert np.array_equal(plain.agent, full.agent)


class Recorder:
    """Stands where a publisher stood."""

    def __init__(self, name: str, order: list[tuple[str, Any]]) -> None:
        self.name, self.order = name, order

    def publish(self, message: Any) -> None:
        self.order.append((self.name, message))


def test_the_clock_comes_first_and_the_state_before_its_image(ros_domain_id: int, clock: VirtualClock) -> None:
    """Guards against an image from the future, whose age is negative, and one whose state is not there yet."""
    init(args=[])
    bridge = SimBridge(PUSHT, clock, parameter_overrides=[Parameter("publish_clock", value=True)])
    order: list[tuple[str, Any]] = []
    for name in ("_time", "_joints", "_status"):
        setattr(bridge, name, Recorder(name, order))
    images = {name: Recorder(f"_{name}", order) for name in ("info", "image")}
    bridge._cameras = [replace(bridge._cameras[0], **images)]
    try:
        bridge._tick(DT_NS)
        bridge._tick(2 * DT_NS)
    finally:
        bridge.destroy_node()
        try_shutdown()
    assert [name for name, _ in order] == ["_time", "_joints", "_info", "_image", "_status"] * 2
    stamps = [stamp_ns(order[at][1].clock if at in (0, 5) else order[at][1]) for at in (0, 1, 2, 3, 5, 6, 7, 8)]
    assert stamps == [DT_NS] * 4 + [2 * DT_NS] * 4


def test_tables_that_were_reset_do_not_pile_up(
    ros_domain_id: int, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a cycle of objects with its physics in it; the collector by itself waits for thousands of them."""
    monkeypatch.setattr(bridge_module, "COLLECT_PERIOD_S", 0.05)
    gc.disable()
    init(args=[])
    bridge = SimBridge(PUSHT, clock)
    try:
        spaces = []
        for _ in range(5):
            spaces.append(weakref.ref(bridge._game.world._env.space))
            bridge._game.reset()
        assert all(space() is not None for space in spaces)
        end_s = time.monotonic() + 20.0
        while any(space() is not None for space in spaces) and time.monotonic() < end_s:
            spin_once(bridge, timeout_sec=0.1)
        assert [space() for space in spaces] == [None] * 5
    finally:
        gc.enable()
        bridge.destroy_node()
        try_shutdown()


def test_a_name_that_is_nearly_one_of_its_own_is_refused(ros_domain_id: int) -> None:
    """Guards: a drift that was misspelt, and a table that stands still without a word."""
    init(args=["--ros-args", "-p", "dirft_px:=0.5"])
    try:
        with pytest.raises(ParameterError, match="pusht: no parameter 'dirft_px'; did you mean drift_px"):
            SimBridge(PUSHT)
    finally:
        try_shutdown()


def test_another_name_is_said_and_left_out(ros_domain_id: int, capfd: pytest.CaptureFixture[str]) -> None:
    """It may come from a section for every node (`/**`)."""
    init(args=["--ros-args", "-p", "robot_ip:=here"])
    SimBridge(PUSHT).destroy_node()
    try_shutdown()
    assert "unknown parameter 'robot_ip' ignored" in capfd.readouterr().err
