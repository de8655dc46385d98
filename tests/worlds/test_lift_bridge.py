"""Lift behind its bridge, on the paused clock: over real topics it is the world that lockstep plays, bit for bit.

Guards: an action that is taken twice or not at all; a picture of another step or another camera than it is said to be;
a calibration that is not the camera's; a world as a process whose task nobody is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from auras_ros.environments import ROBOSUITE

if not ROBOSUITE.made:
    pytest.skip("needs robosuite's environment: make test-worlds", allow_module_level=True)
pytest.importorskip("torch", reason="is played from our own environment")

from auras_ros.ros import init, try_shutdown
from auras_ros.ros.image import stamp_ns
from auras_ros.ros.msg import CameraInfo, Image, String
from auras_ros.sim.bridge.node import LATCHED
from auras_ros.sim.worlds import find
from tests.sim.bridge.test_topics import SEEN, Bridges, Watcher, bridge

__all__ = ["bridge"]  # a fixture
SIM, SEED, STEPS = "lift:table_m_s=0.1", 4, 12
PATIENCE_S = 180.0  # a world's process may start slowly
CODE = f"import sys; from auras_ros.sim.bridge import node; sys.argv[1:1] = ['--sim', '{SIM}']; sys.exit(node.main())"
AGENT, HAND = find(SIM).world.cameras


class LiftWatcher(Watcher):
    """Sees Lift's second camera, the calibration of both and the prompt too."""

    def __init__(self) -> None:
        super().__init__("lift", AGENT.name, ",".join(each.name for each in find(SIM).world.channels))
        self.patience_s = PATIENCE_S
        self.of_hand: dict[int, Any] = {}
        self.calibrations: dict[str, Any] = {}
        self.prompts: list[str] = []
        node = self.node
        node.create_subscription(Image, f"camera/{HAND.name}/image_raw", self._on_hand, SEEN)
        for each in (AGENT, HAND):
            node.create_subscription(CameraInfo, f"camera/{each.name}/camera_info", self._on_calibration, SEEN)
        node.create_subscription(String, "prompt", lambda message: self.prompts.append(message.data), LATCHED)

    def _on_hand(self, message: Any) -> None:
        pixels = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
        self.of_hand[stamp_ns(message)] = pixels.copy()

    def _on_calibration(self, message: Any) -> None:
        self.calibrations[message.header.frame_id] = message

    def shown(self, step: int) -> list[Any]:
        """What the world tells and shows after so many steps, all of one stamp."""

        def stamps() -> set[int]:
            of_step = {each["stamp_ns"] for each in self.status if each["step"] == step}
            return of_step & set(self.joints) & set(self.images) & set(self.of_hand)

        self.until(lambda: bool(stamps()), f"step {step} with both pictures")
        at = max(stamps())
        joints, (told,) = self.joints[at], [each for each in self.status if each["stamp_ns"] == at]
        state = dict(zip(joints.name, map(float, joints.position), strict=True))
        pictures = [self.images[at].tobytes(), self.of_hand[at].tobytes()]
        return [state, *pictures, told["reward"], told["success"], told["sub_goals"], told["seed"]]


@pytest.fixture
def watcher(ros_domain_id: int) -> Iterator[LiftWatcher]:
    init(args=[])
    made = LiftWatcher()
    yield made
    made.node.destroy_node()
    try_shutdown()


def in_lockstep(actions: np.ndarray) -> list[list[Any]]:
    """The same over the wire."""
    world = find(SIM).make()
    try:
        world.reset(SEED)
        reward, success, sub_goals = 0.0, False, dict.fromkeys(world.sub_goals, 0.0)
        told = []
        for action in (None, *actions):
            if action is not None:
                result = world.step(action)
                reward, success, sub_goals = result.reward, result.success, dict(result.sub_goals)
            pictures = [world.image(each.name, each.height, each.width).tobytes() for each in (AGENT, HAND)]
            told.append([dict(world.state()), *pictures, reward, success, sub_goals, SEED])
        return told
    finally:
        world.close()


def test_an_episode_through_the_bridge_is_that_of_lockstep(watcher: LiftWatcher, bridge: Bridges) -> None:
    bridge("paused:=true", f"seed:={SEED}", code=CODE)
    low, high = np.array([(each.low, each.high) for each in find(SIM).world.channels]).T
    actions = np.random.default_rng(SEED).uniform(low, high, (STEPS, len(low)))
    watcher.connected()
    through = [watcher.shown(0)]
    for step, action in enumerate(actions, 1):
        watcher.act(action.tolist())
        through.append(watcher.shown(step))
    assert len({picture for told in through for picture in told[1:3]}) == 2 * (STEPS + 1)  # every picture is another
    for step, (heard, played) in enumerate(zip(through, in_lockstep(actions), strict=True)):
        assert heard == played, f"step {step}"
    assert watcher.last["refused"] == {}
    assert watcher.prompts == [find(SIM).world.instruction]
    for camera in (AGENT, HAND):
        assert camera.intrinsics is not None
        fx, fy, cx, cy = camera.intrinsics
        told = watcher.calibrations[f"camera_{camera.name}"]
        assert (told.width, told.height) == (camera.width, camera.height)
        assert list(told.k) == [fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0]
