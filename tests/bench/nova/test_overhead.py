"""`auras bench nova-overhead`: who is handed what, and what is made of the times.

Guards: a forward that is counted as changed on the part of before; an overhead with the forward in it; rows without
their cores; parts, threads or an owner that are left.
"""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.bench.nova import overhead
from auras_ros.cli import bench as cli
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cpu_partition import CpuPartitions
from auras_ros.engine.build import make_partitions
from tests.device.fake_cuda import install
from tests.device.fake_driver import install_driver

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


class Handed:
    """Notes which part got each forward; its overhead is its number."""

    def __init__(self, number: int, log: list[int]) -> None:
        self.number, self._log = number, log

    def hand_over(self) -> tuple[float, float]:
        self._log.append(self.number)
        return float(self.number), 100.0


def test_same_is_the_part_of_before_and_another_is_another() -> None:
    log = list[int]()
    parts: Any = [Handed(number, log) for number in range(3)]
    took = overhead._hand_over(parts, 200, random.Random(1), math.inf)
    warm = 3 * overhead.WARM_UP_RUNS
    pairs = list(zip(log[warm - 1 :], log[warm:], strict=False))
    assert len(pairs) == 200
    assert [float(now) for before, now in pairs if now == before] == [each for each, _ in took[False]]
    assert [float(now) for before, now in pairs if now != before] == [each for each, _ in took[True]]
    assert {now for _, now in pairs} == {0, 1, 2}
    assert min(len(each) for each in took.values()) > 60


@two_cores
def test_the_overhead_is_what_the_forward_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that moves on by 7, 1000 and 5 us, as the four times are read."""
    times = iter([0, 7_000, 1_007_000, 1_012_000])
    device = CpuDevice()
    partitions = CpuPartitions(device, sorted(os.sched_getaffinity(0))[:2])
    prepared = overhead.PreparedPart(device, partitions.first(1), 4)
    with monkeypatch.context() as patch:
        patch.setattr(overhead, "time", SimpleNamespace(monotonic_ns=lambda: next(times)))
        assert prepared.hand_over() == (12.0, 1000.0)
    partitions.close()
    device.close()


@two_cores
def test_the_bench_writes_rows_a_cdf_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, drawn = tmp_path / "o.json", tmp_path / "o.png"
    arguments = ["--device", "cpu", "--sizes", "1", "--forwards", "100", "--width", "4"]
    assert cli.run(["nova-overhead", *arguments, "--json", str(file), "--picture", str(drawn)]) == 0
    report = json.loads(file.read_text())
    assert [(row["part"], row["parts"]) for row in report["rows"]] == [("same", 3), ("another", 3)]
    assert sum(row["n"] for row in report["rows"]) == 100
    for row in report["rows"]:
        cdf = report["cdf"][row["part"]]
        assert cdf == sorted(cdf)
        assert cdf[50] == row["overhead_us_p50"] == report["summary"][f"{row['part']}_us_p50"] > 0
        assert row["cores"] == row["units"] == len(os.sched_getaffinity(0))
    change = report["summary"]["another_us_p50"] - report["summary"]["same_us_p50"]
    assert report["summary"]["change_us_p50"] == change
    assert drawn.stat().st_size > 0
    said = capsys.readouterr().out
    assert "another part" in said
    assert "Nova section V-G" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sizes", "900"], "a part of 900 of "),
        (["--forwards", "9"], "--forwards must be at least 100, got 9"),
        (["--sizes", "one"], "expected whole numbers separated by commas"),
    ],
)
@two_cores
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.run(["nova-overhead", "--device", "cpu", *arguments])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_one_core_has_no_two_parts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(overhead, "available", lambda: 1)
    with pytest.raises(SystemExit):
        cli.run(["nova-overhead", "--device", "cpu"])
    assert "two cores are needed for two parts" in capsys.readouterr().err


def test_on_a_gpu_its_sms_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in: the parts are green contexts, and nothing is left of them."""
    from auras_ros.device.cuda import CudaDevice

    gpu = install(monkeypatch)
    driver = install_driver(monkeypatch, gpu)
    partitions = make_partitions(CudaDevice(), overhead.SIZES["cuda"], "auras bench nova-overhead")
    assert (partitions.units, partitions.sizes) == (132, (16, 32, 64))
    partitions.close()
    assert driver.left() == []
