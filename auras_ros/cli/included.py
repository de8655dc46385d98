"""The included policy of a world, which commands play where none is named."""

from __future__ import annotations

from auras_ros import resources
from auras_ros.checkpoints.manifest import MANIFEST
from auras_ros.sim.world import Sim
from auras_ros.sim.worlds import SIMS


def included(sim: Sim) -> str:
    """It has the name of the world's node. Raises ValueError if there is none."""
    if _is_included(sim):
        return sim.world.name
    worlds = ", ".join(name for name, each in SIMS.items() if _is_included(each))
    raise ValueError(f"sim: no policy for {sim.name} is included: give --checkpoint FOLDER, or one of {worlds}")


def _is_included(sim: Sim) -> bool:
    try:
        return (resources.find("checkpoints", sim.world.name) / MANIFEST).is_file()
    except FileNotFoundError:
        return False
