"""Lift as a process of robosuite's environment, played from ours: the episodes are those that it has there.

Guards: an episode that is another one over the wire; a world that cannot be held until a policy's first chunk comes,
as it must be where the world does not wait; a process that cannot be made in the environment that
`auras doctor --sim lift --fix` makes.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from auras_ros.environments import ROBOSUITE
from tests.worlds.episodes import digest

if not ROBOSUITE.made:
    pytest.skip("needs robosuite's environment: make test-worlds", allow_module_level=True)
pytest.importorskip("torch", reason="is played from our own environment")

SEEDS = (3, 4, 3)
IN_PROCESS = f"""
from auras_ros.sim.robosuite.lift import LiftWorld
from tests.worlds.episodes import digest
print("digest", digest(LiftWorld(table_m_s=0.1), {SEEDS}))
"""


def test_episodes_are_the_same_over_the_wire() -> None:
    from auras_ros.sim.worlds import find

    world = find("lift:absolute=false,turns=true,table_m_s=0.1").make()
    try:
        found = digest(world, SEEDS)
    finally:
        world.close()
    command = [str(ROBOSUITE.python("lift")), "-c", IN_PROCESS]
    root = Path(__file__).parents[2]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=180, check=True).stdout
    assert f"digest {found}" in told


def test_it_is_held_until_the_first_chunk() -> None:
    from auras_ros.evaluate.episode_runner import EpisodeRunner, Task
    from auras_ros.policies.checkpoint import load

    task = Task("lift", 20)
    world = task.world()
    try:
        world.reset(3)
        before = world.state()
        runner = EpisodeRunner(load(Path("checkpoints/lift")), task, 3, world, plain=False, now_ns=0)
        for step in range(10):
            assert runner.tick(step * world.control_dt_ms * 1_000_000, 0) is None
        assert (runner.episode.steps, runner.episode.holds) == (10, 10)
        after = world.state()
        sensors = [each for each in before if each.startswith(("robot0_eef_pos", "robot0_gripper"))]
        assert max(abs(after[each] - before[each]) for each in sensors) < 0.005
    finally:
        world.close()
