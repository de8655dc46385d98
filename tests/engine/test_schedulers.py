"""Schedulers by name: what each becomes, and what is refused before an engine could fail by it.

Guards: a split that no executor was prepared for; a profile of another device; a name or number that means nothing.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from auras_ros.clock import VirtualClock
from auras_ros.device.lane import DeviceError
from auras_ros.engine import build
from auras_ros.engine.baselines import ChunkScheduler, PfLimitScheduler
from auras_ros.engine.nova import NovaScheduler
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.scheduler import InterleavedScheduler
from auras_ros.engine.schedulers import make_scheduler, needs_partitions, needs_profile
from tests.device.fake_cuda import install
from tests.device.fake_driver import install_driver
from tests.device.null_device import NullDevice, NullPartitions
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "another"}, "is of 'another', not of 'm'"),
        ({"units": 16}, "is of a device of 16 units, this one has 8"),
        ({}, ""),
    ],
)
def test_a_profile_of_another_model_or_device_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    file = tmp_path / "p.json"
    replace(SMALL, **{"model": "m", "units": 8} | changes).write(file)
    partitions = NullPartitions(NullDevice(VirtualClock(), {}), 8, SMALL.sizes)
    options = EngineOptions(scheduler="nova", stage_profile=str(file))
    if words:
        with pytest.raises(ValueError, match=f"stage_profile: {file} {words}"):
            build._scheduler(options, partitions, "m")
    else:
        assert isinstance(build._scheduler(options, partitions, "m"), NovaScheduler)


def test_a_small_gpu_is_divided_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in, with 24 SMs."""
    from auras_ros.device.cuda import CudaDevice

    driver = install_driver(monkeypatch, install(monkeypatch), sms=24)
    partitions = build.make_partitions(CudaDevice())
    assert (partitions.units, partitions.sizes) == (24, (8, 16))
    partitions.close()
    assert driver.left() == []


def test_a_device_that_there_is_not_is_refused() -> None:
    with pytest.raises(DeviceError, match="device 'tpu': must be one of auto, cpu, cuda"):
        build.make_engine(cast(Any, None), EngineOptions(device="tpu"))
