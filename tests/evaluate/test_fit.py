"""Whether a policy can play a world, by what both declare."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from auras_ros.evaluate.fit import misfit
from auras_ros.nodes.actuator.settings import load_contract
from auras_ros.sim.pusht.world import PushTWorld

PUSHT = load_contract("pusht")


def test_a_policy_of_its_channels_period_and_cameras_plays_the_world() -> None:
    assert misfit(PUSHT, ["top"], PushTWorld) == ""
    assert misfit(PUSHT, [], PushTWorld) == ""


def test_what_differs_is_named() -> None:
    assert misfit(PUSHT, ["wrist"], PushTWorld) == "the world's cameras are top, the policy's wrist"
    slow = replace(PUSHT, dt_ms=200)
    assert misfit(slow, ["top"], PushTWorld) == "the world's step is 100 ms, the policy's 200"
    other = SimpleNamespace(channels=PushTWorld.channels[:1], control_dt_ms=100, cameras=())
    why = "the world's channels are ('agent_x',), the policy's ('agent_x', 'agent_y')"
    assert misfit(PUSHT, [], other) == why  # type: ignore[arg-type]
