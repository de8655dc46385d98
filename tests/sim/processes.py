"""Worlds of tests that run as a process of this very Python."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from auras_ros.child import process as child_process
from auras_ros.environments import OURS
from auras_ros.sim.process.world import ProcessWorld
from auras_ros.sim.world import Sim, World
from auras_ros.sim.worlds import SIMS, find

PATIENCE_S = 30.0


def as_process(text: str) -> Sim:
    """The simulator of this name, whose worlds are processes."""
    return replace(find(text), environment=OURS)


def all_as_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our worlds, wherever they are asked for by name."""
    for name in SIMS:
        monkeypatch.setitem(SIMS, name, as_process(name))


def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds that are made from now on are lost after two seconds without an answer."""
    monkeypatch.setattr(child_process, "LOOK_S", 0.1)
    monkeypatch.setattr(child_process, "START_LOOKS", 1200)
    monkeypatch.setattr(child_process, "ANSWER_LOOKS", 20)


def pid_of(world: World) -> int:
    assert isinstance(world, ProcessWorld)
    return world.process.pid


def kill(world: World, number: signal.Signals = signal.SIGKILL) -> None:
    """Nothing is waited for: the world finds out."""
    os.kill(pid_of(world), number)


@contextmanager
def ends(pid: int) -> Iterator[None]:
    """The process has ended soon after the block. It may be anybody's child."""
    handle = os.pidfd_open(pid)
    try:
        yield
        ready, _, _ = select.select([handle], [], [], PATIENCE_S)
        assert ready, f"process {pid} lives"
    finally:
        os.close(handle)
