"""Worlds that are played in again: to make one may take seconds, and a process.

That the same seed gives the same episode, whatever was played before, is a world's promise (docs/worlds.md).
"""

from __future__ import annotations

from collections.abc import Callable

from auras_ros.sim.world import World, WorldLostError

STARTS = 2  # new worlds that may be lost before an episode has begun


class WorldPool:
    """make: a new world. Between episodes they are here, during one they are their runner's."""

    def __init__(self, make: Callable[[], World]) -> None:
        self._make = make
        self._idle: list[World] = []

    def begin(self, seed: int) -> World:
        """A world at the start of this episode. One that is lost before is replaced, since nothing was played in it
        yet. Raises WorldLostError if that happens to new ones too, and what `make` raises."""
        while self._idle:
            try:
                return _reset(self._idle.pop(), seed)
            except WorldLostError:
                continue
        for _ in range(STARTS - 1):
            try:
                return _reset(self._make(), seed)
            except WorldLostError:
                continue
        return _reset(self._make(), seed)

    def end(self, world: World) -> None:
        """Its episode is over."""
        self._idle.append(world)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _reset(world: World, seed: int) -> World:
    try:
        world.reset(seed)
    except BaseException:
        world.close()
        raise
    return world
