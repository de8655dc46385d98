"""Engines of tiny folders with as few blocks as a test wants, and what must hold of one when nothing is asked of it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.clock import VirtualClock
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cpu_partition import CpuPartitions
from auras_ros.engine import build
from auras_ros.engine.build import make_engine
from auras_ros.engine.engine import Engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import Answer, VlmRequest
from auras_ros.models.paged_kv import SPARE, PagedKVCache
from tests.checkpoints.vlm.folders import image
from tests.device.null_device import NullDevice, NullPartitions

PATIENCE_S, UNITS = 60.0, 8


class NoTime(dict[Any, int]):
    """Stages that take none."""

    def get(self, *_: Any) -> int:
        return 0


def engine_of(path: Path, blocks: int | None = None, **others: Any) -> Engine:
    """blocks: that sequences can own; by default what the options give. others: options, `device`, `clock` and
    `scheduler` of `make_engine`, `own_threads`: each stage has a thread, on the first core, and `splits`: parts of the
    null device, which run in this thread."""
    parts = {name: others.pop(name) for name in ("device", "clock") if name in others}
    if not isinstance(others.get("scheduler", ""), str):
        parts["scheduler"] = others.pop("scheduler")
    if others.pop("own_threads", False):
        device = parts.setdefault("device", CpuDevice())
        parts["partitions"] = CpuPartitions(device, sorted(os.sched_getaffinity(0))[:1])
    if sizes := others.pop("splits", ()):
        device = parts.setdefault("device", NullDevice(VirtualClock(), NoTime()))
        parts["partitions"] = NullPartitions(device, UNITS, sizes)
    with mock.patch.object(build, "PagedKVCache", partial(_small, blocks)):
        return make_engine(open_vlm(path), EngineOptions(**others), **parts)


def _small(blocks: int | None, layers: int, most: int, *sizes: int, **others: Any) -> PagedKVCache:
    return PagedKVCache(layers, most if blocks is None else blocks + 1, *sizes, **others)


def chat(checkpoint: VlmCheckpoint, text: str, sizes: Sequence[tuple[int, int]] = (), seed: int = 0) -> VlmPrompt:
    """A conversation of one text after images of these sizes."""
    images = [image(*size, seed=seed + place) for place, size in enumerate(sizes)]
    parts: list[dict[str, Any]] = [{"type": "image"} for _ in images] + [{"type": "text", "text": text}]
    return checkpoint.prompts.chat([{"role": "user", "content": parts}], images)


def finish(engine: Engine) -> None:
    """Steps until nothing runs or waits. Fails where an engine without threads stands still."""
    until = time.monotonic() + PATIENCE_S
    while engine.running or engine.waiting:
        assert time.monotonic() < until, "the engine does not come to an end"
        if not engine.step():
            loading = engine.adapters is not None and engine.adapters.loading
            assert engine._running or loading, "requests wait, and nothing is done for them"
            engine._intake.wait(1.0)
    engine.step()


def answers(engine: Engine, requests: Sequence[VlmRequest]) -> list[Answer]:
    """All at once."""
    replies = [engine.submit(request) for request in requests]
    finish(engine)
    return [reply.result(0) for reply in replies]


def ended(engine: Engine, replies: Sequence[Reply] = ()) -> None:
    """Every request has ended, and has given back what it had."""
    for reply in replies:
        reply.result(0)
    assert (engine.running, engine.waiting, engine.open, engine.blocks_in_use) == (0, 0, 0, 0)
    pool = engine._tables._pool
    owned = [block for block, owners in enumerate(pool._owners) if owners]
    assert len(owned) == engine._tables.reserved  # what adapters have
    assert sorted([*pool._empty, *pool._late, *pool._unused, *owned]) == list(range(SPARE + 1, pool.size + 1))
    assert bool(torch.isfinite(engine._cache.store).all())
