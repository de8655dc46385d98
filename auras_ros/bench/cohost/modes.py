"""Where the policy and the model run in each mode of the bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from auras_ros.bench.cohost.loads import ProcessLoad, ThreadLoad, VlmLoad


@dataclass(frozen=True)
class CohostMode:
    """policy_cores: the first so many cores; the policy has one intra-op thread on them. vlm_cores: which of the first
    two the model has; vlm_threads: its intra-op threads. load: what it runs in; None: no model. grid_only: not measured
    with frames back to back. suffix: of the summary's keys."""

    name: str
    suffix: str
    policy_cores: int
    vlm_cores: tuple[int, ...] = ()
    vlm_threads: int = 1
    load: Callable[[Path, Sequence[int], int, int], VlmLoad] | None = None
    grid_only: bool = False


ALONE = CohostMode("alone", "_alone", 1)
BESIDE = (
    CohostMode("two_processes", "", 1, (1,), 1, ProcessLoad),
    CohostMode("two_processes_no_partition", "_no_partition", 2, (0, 1), 2, ProcessLoad),
    CohostMode("two_processes_one_thread", "_one_thread", 2, (0, 1), 1, ProcessLoad),
    CohostMode("one_process", "_one_process", 1, (1,), 1, ThreadLoad),
    CohostMode("one_process_no_partition", "_one_process_no_partition", 2, (0, 1), 2, ThreadLoad),
    CohostMode("one_core", "_one_core", 1, (0,), 1, ThreadLoad, grid_only=True),
    CohostMode("one_core_reservation", "_reservation", 1, (0,), 1, partial(ThreadLoad, reserved=True), grid_only=True),
)
