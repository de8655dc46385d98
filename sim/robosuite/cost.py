"""`python -m auras_ros.sim.robosuite.cost`: CPU time of a step of robosuite's worlds, by how many cameras are drawn.

It runs where robosuite is installed: of ours it needs numpy alone.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from auras_ros.sim.robosuite.lift import LiftWorld
from auras_ros.sim.robosuite.tasks import CanWorld, SquareWorld, ToolHangWorld, TransportWorld
from auras_ros.sim.robosuite.world import MOST_CAMERAS
from auras_ros.sim.world import World

WORLDS = (LiftWorld, CanWorld, SquareWorld, ToolHangWorld, TransportWorld)
STEPS, RESETS, SEEDS = 60, 5, 100


def main(argv: list[str]) -> int:
    """A line for each world. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as-robosuite", action="store_true", help="draw as robosuite does (fast_rendering=false)")
    options = parser.parse_args(argv)
    for kind in WORLDS:
        world = kind(cameras=MOST_CAMERAS, fast_rendering=not options.as_robosuite)
        costs = [f"{looks} cameras {_step_ms(world, looks):.1f} ms" for looks in range(len(world.cameras) + 1)]
        print(f"{kind.name}: reset {_reset_ms(world):.1f} ms; step with {', '.join(costs)}", flush=True)
        world.close()
    return 0


def _step_ms(world: World, looks: int) -> float:
    """Of a step, its state and so many images, on average; ms of all threads of this process."""
    world.reset(0)
    centre = np.array([(each.low + each.high) / 2 for each in world.channels])
    for each in world.cameras[:looks]:
        world.image(each.name, each.height, each.width)  # the first one opens OpenGL
    began_s = time.process_time()
    for _ in range(STEPS):
        world.step(centre)
        world.state()
        for each in world.cameras[:looks]:
            world.image(each.name, each.height, each.width)
    return 1e3 * (time.process_time() - began_s) / STEPS


def _reset_ms(world: World) -> float:
    began_s = time.process_time()
    for seed in range(SEEDS, SEEDS + RESETS):
        world.reset(seed)
    return 1e3 * (time.process_time() - began_s) / RESETS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
