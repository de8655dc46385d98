"""Through the bridge, over real topics, on the paused clock: the episodes of lockstep, bit for bit.

Guards: an action that is taken twice or not at all; an image of another step than its state; a world that is another
one behind its bridge.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from auras_ros.evaluate.episode_runner import Task
from auras_ros.evaluate.lockstep import play
from auras_ros.evaluate.paused import Paused
from auras_ros.evaluate.world_pool import WorldPool
from auras_ros.pipeline.plan import Plan
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import Image
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.sim.world import StepResult
from tests.evaluate.tables import tiny_checkpoint
from tests.sim.bridge.test_topics import SEEN, Bridges, Watcher, bridge, watcher

__all__ = ["bridge", "watcher"]  # fixtures
SIM, STEPS, SEED = "pusht-drift", 9, 4


class WorldOverTopics(PushTWorld):
    """Push-T as somebody sees it who has its bridge's topics alone. One episode."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher, self._step, self._stamp = watcher, 0, 0
        self._images: dict[int, NDArray[np.uint8]] = {}
        watcher.node.create_subscription(Image, "camera/viewer/image_raw", self._on_image, SEEN)

    def _on_image(self, message: Any) -> None:
        pixels = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
        self._images[stamp_ns(message)] = pixels

    def reset(self, seed: int) -> None:
        self._watcher.connected()
        self._watcher.until(lambda: self._shown("waiting", True), "the world before its first action")
        assert self._watcher.last["seed"] == seed

    def step(self, action: NDArray[np.float64]) -> StepResult:
        self._watcher.act(action.tolist())
        self._step += 1
        self._watcher.until(lambda: self._shown("step", self._step), f"step {self._step}")
        told = self._watcher.last
        return StepResult(told["reward"], told["success"], told["sub_goals"])

    def _shown(self, name: str, value: Any) -> bool:
        """Whether a tick of this step was heard with its image and its joint states."""
        watcher = self._watcher
        stamps = {each["stamp_ns"] for each in watcher.status if each[name] == value}
        self._stamp = max(stamps & set(self._images) & set(watcher.joints), default=0)
        return self._stamp != 0 and watcher.last[name] == value

    def state(self) -> dict[str, float]:
        told = self._watcher.joints[self._stamp]
        return dict(zip(told.name, map(float, told.position), strict=True))

    def image(self, camera: str = "top", height: int = 96, width: int = 96) -> NDArray[np.uint8]:
        shown = self._images[self._stamp]
        assert shown.shape == (height, width, 3)
        return shown

    def close(self) -> None:
        pass


CODE = """
import sys
from auras_ros.sim import worlds
from auras_ros.sim.bridge import node
from tests.sim.processes import as_process
if {process}:
    worlds.SIMS[{sim!r}] = as_process({sim!r})
sys.argv[1:1] = ["--sim", {sim!r}]
sys.exit(node.main())
"""


@pytest.mark.parametrize("process", [False, True], ids=["in process", "over the wire"])
def test_an_episode_through_the_bridge_is_that_of_lockstep(watcher: Watcher, bridge: Bridges, process: bool) -> None:
    """The viewer has the size that the tiny policy takes."""
    bridge("paused:=true", f"seed:={SEED}", "viewer_px:=24", code=CODE.format(process=process, sim=SIM))
    checkpoint, plan = tiny_checkpoint(), Plan.parse("quick,pp_generation=2", mode="auras")
    pool = WorldPool(lambda: WorldOverTopics(watcher))
    through = play(checkpoint, plan, [SEED], Task(SIM, STEPS), Paused(3), worlds=pool)
    assert through == play(checkpoint, plan, [SEED], Task(SIM, STEPS), Paused(3))
    assert through.steps == STEPS
