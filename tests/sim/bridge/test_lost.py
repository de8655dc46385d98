"""The bridge of a world whose process dies: its episode ends with the reason, and the next begins in a new process.

Guards: a bridge that goes on publishing a world that is gone; a node that dies with its simulator's process without a
word; a setting that the new world does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.clock import VirtualClock
from auras_ros.ros import Parameter, init, try_shutdown
from auras_ros.ros.srv import Trigger
from auras_ros.sim.bridge.node import SimBridge
from auras_ros.sim.bridge.settings import BridgeSettings
from auras_ros.sim.world import WorldLostError
from auras_ros.sim.worlds import find
from tests.another_package import WORLD, install
from tests.sim.processes import as_process, ends, kill, pid_of

DT_NS = 100_000_000


@pytest.fixture
def bridge(ros_domain_id: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimBridge]:
    install(WORLD, tmp_path, monkeypatch)
    init(args=[])
    made = SimBridge(as_process("reach:point_step_m=0.02"), VirtualClock(1_000))
    yield made
    made.destroy_node()
    try_shutdown()


@pytest.fixture
def sent(bridge: SimBridge) -> dict[str, list[Any]]:
    """What it publishes, by topic."""
    found: dict[str, list[Any]] = {"status": [], "joints": [], "image": []}
    for name in ("status", "joints"):
        setattr(bridge, f"_{name}", SimpleNamespace(publish=found[name].append))
    bridge._cameras = [replace(bridge._cameras[0], image=SimpleNamespace(publish=found["image"].append))]
    return found


def statuses(sent: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [json.loads(each.data) for each in sent["status"]]


def test_a_killed_world_costs_its_episode_alone(
    bridge: SimBridge, sent: dict[str, list[Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert bridge.set_parameters([Parameter("point_step_m", value=0.1)])[0].successful
    bridge._tick(DT_NS)
    bridge._game.offer([0.5, 0.5], DT_NS)
    bridge._tick(2 * DT_NS)
    first = bridge._game.world
    with ends(pid_of(first)):
        kill(first)
    bridge._tick(3 * DT_NS)
    assert len(sent["status"]) == len(sent["joints"]) == len(sent["image"]) == 2  # nothing of a world that is gone
    assert "episode 0 is lost: reach: the world's process was ended by SIGKILL (step)" in capfd.readouterr().err
    bridge._tick(4 * DT_NS)
    before, after = statuses(sent)[1:]
    assert (before["episode"], before["step"], before["lost"]) == (0, 1, "")
    assert (after["episode"], after["seed"], after["step"], after["waiting"]) == (1, 1, 0, True)
    assert after["lost"].startswith("reach: the world's process was ended by SIGKILL")
    assert not after["success"]
    as_it_was_set = find("reach:point_step_m=0.1").make()  # not as it was started
    as_it_was_set.reset(1)
    bridge._game.offer([0.5, 0.5], 5 * DT_NS)
    bridge._tick(5 * DT_NS)
    assert statuses(sent)[-1]["reward"] == as_it_was_set.step(np.array([0.5, 0.5])).reward
    bridge._game.reset()
    assert bridge._game.status.lost == ""


def test_who_asks_meanwhile_is_told(bridge: SimBridge) -> None:
    """By the reset service and on setting a parameter; the next tick starts the world again."""
    kill(bridge._game.world)
    answer = bridge._on_reset(Trigger.Request(), Trigger.Response())
    assert not answer.success
    assert "reach: the world's process was ended by SIGKILL (reset)" in answer.message
    result = bridge.set_parameters([Parameter("point_step_m", value=0.1)])[0]
    assert not result.successful
    assert "SIGKILL" in result.reason
    bridge._tick(DT_NS)
    answer = bridge._on_reset(Trigger.Request(), Trigger.Response())
    assert json.loads(answer.message) == {"episode": 2, "seed": 2}


def test_a_world_that_cannot_be_started_again_ends_the_node(bridge: SimBridge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends by this error; the supervisor starts the node again, after a growing delay."""

    def make(self: BridgeSettings) -> None:
        raise WorldLostError("reach: the world's process ended with status 1 (make)")

    kill(bridge._game.world)
    monkeypatch.setattr(BridgeSettings, "make", make)
    with pytest.raises(WorldLostError, match="ended with status 1"):
        bridge._tick(DT_NS)
