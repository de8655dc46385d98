"""Schedulers by name: what each becomes, and what is refused before an engine could fail by it.

Guards: a split that no executor was prepared for; a profile of another device; a name or number that means nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from auras_ros.engine.baselines import ChunkScheduler, PfLimitScheduler
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.scheduler import InterleavedScheduler
from auras_ros.engine.schedulers import make_scheduler, needs_partitions, needs_profile
from tests.engine.simulated import SMALL


@pytest.mark.parametrize(
    ("name", "kind", "divides"),
    [
        ("interleaved", InterleavedScheduler, False),
        ("interleaved:64", InterleavedScheduler, False),
        ("chunk:64", ChunkScheduler, False),
        ("pf-limit", PfLimitScheduler, False),
        ("multi-stream", NovaScheduler, True),
        ("static:2", NovaScheduler, True),
        ("nova", NovaScheduler, True),
        ("marginal", NovaScheduler, True),
    ],
)
def test_a_name_is_a_scheduler(name: str, kind: type, divides: bool) -> None:
    options = EngineOptions(scheduler=name)
    assert isinstance(make_scheduler(options, SMALL.sizes, SMALL), kind)
    assert needs_partitions(name) == divides


@pytest.mark.parametrize(
    ("name", "sizes", "words"),
    [
        ("fastest", (1,), "'fastest' is none of interleaved"),
        ("nova:2", (1,), "'nova:2' is none of"),
        ("interleaved:-1", (1,), "'interleaved:-1' is none of"),
        ("chunk:0", (1,), "'chunk:0' is none of"),
        ("static:x", (1,), "'static:x' is none of"),
        ("static:2", (1,), "static:2: decode can have 1 units"),
        ("nova", (), "nova divides the cores, and one cannot be divided"),
    ],
)
def test_what_cannot_run_is_refused(name: str, sizes: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_scheduler(EngineOptions(scheduler=name), sizes)


def test_a_profile_is_asked_for_where_there_is_something_to_plan() -> None:
    options = EngineOptions(scheduler="nova")
    assert not needs_profile(options, (1,))
    assert not needs_profile(EngineOptions(scheduler="static"), (1, 2))
    assert needs_profile(replace(options, stage_profile="file"), (1, 2))
    with pytest.raises(ValueError, match="stage_profile: nova has 2 ways to divide the device"):
        needs_profile(options, (1, 2))


def test_a_profile_with_splits_that_are_not_prepared_is_refused() -> None:
    with pytest.raises(ValueError, match=r"it has a split of 6 units, this device \[2, 4\]"):
        make_scheduler(EngineOptions(scheduler="nova"), (2, 4), SMALL)
