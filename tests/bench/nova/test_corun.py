"""`auras bench nova-corun`: what is made of the rounds, what is refused, one run, and the products of figure 4.

Guards: a gain over a handicapped sequence; one side's times taken for the other's; ratios of different rounds; a
profile that the engine does not take; rows without their cores; what only a GPU can show, shown without one.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.bench.nova import corun, linears
from auras_ros.bench.nova.corun_rows import corun_rows, corun_summary
from auras_ros.cli import bench as cli
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cpu_partition import CpuPartitions
from auras_ros.device.cuda_partition import SM_SIZES
from auras_ros.engine.build import make_partitions
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.probing import PhaseTimes, ProbePhase
from auras_ros.engine.profile import read_profile
from auras_ros.engine.profiling import PREFILL, VISION, beside, decode, rounds, trials, trials_alone
from auras_ros.engine.schedulers import make_scheduler
from tests.checkpoints.vlm.folders import write
from tests.device.fake_cuda import install
from tests.device.fake_driver import install_driver
from tests.engine.test_profiling import KNOWN, quiet, simulated

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def alone(ms: float) -> PhaseTimes:
    """Two forwards, with a millisecond between them."""
    return PhaseTimes((ms, ms), (), 2 * ms + 1, 2, 0)


def a_round(slow: float = 1.0) -> dict[ProbePhase, PhaseTimes]:
    """slow: how much slower the machine is."""
    vision, prefill = beside(VISION, 1), beside(PREFILL, 1)
    found = {
        VISION: alone(29.5),
        ProbePhase("vision", split=1): alone(19.5),  # quicker than on the whole device
        PREFILL: alone(9.5),
        ProbePhase("prefill", split=1): alone(15.5),
        decode(2): alone(3.5),
        decode(2, 1): alone(4.5),
        vision: PhaseTimes((39, 41), (5, 5, 8), 80, 2, 20.0),
        beside(VISION, None): PhaseTimes((39,), (14,), 100, 2, 5.0),
        prefill: PhaseTimes((19,), (7,), 40, 2, 5.0),
        beside(PREFILL, None): PhaseTimes((19,), (7,), 25, 2, 2.5),
    }
    return {
        phase: PhaseTimes(
            tuple(slow * each for each in times.own_ms), tuple(slow * each for each in times.decode_ms),
            slow * times.span_ms, times.forwards, times.decodes,
        )
        for phase, times in found.items()
    }  # fmt: skip


def test_gains_are_over_each_stage_alone_in_its_quickest_form() -> None:
    rows = corun_rows([a_round(), a_round(3.0), a_round(0.5)], rows=2)
    assert [(row["pair"], row["units"]) for row in rows] == [
        ("vision", None), ("vision", 1), ("prefill", None), ("prefill", 1),
    ]  # fmt: skip
    shared, split, _, prefill = rows
    assert (shared["alone_units"], shared["decode_alone_units"], prefill["alone_units"]) == (1, None, None)
    assert split["gain"] == split["gain_low"] == split["gain_high"] == pytest.approx((2 * 20 + 20 * 4) / 80)
    assert shared["gain"] == pytest.approx((2 * 20 + 5 * 4) / 100)
    assert prefill["gain"] == pytest.approx((2 * 10 + 5 * 4) / 40)
    assert split["latency_percent"] == pytest.approx(100 * (40 / 19.5 - 1))
    assert split["decode_latency_percent"] == pytest.approx(100 * (5 / 3.5 - 1))
    assert (split["alone_ms"], split["beside_ms"], split["decode_beside_ms"]) == (19.5, 40, 5)
    assert (shared["decode_beside_ms"], shared["latency_percent"], prefill["decode_latency_percent"]) == (14, 100, 100)


def test_the_summary_has_the_best_split_of_each_pair() -> None:
    rows: list[dict[str, Any]] = [
        {"pair": pair, "units": units, "gain": gain, "latency_percent": gain + 1, "decode_latency_percent": 9}
        for pair, units, gain in [
            ("vision", None, 1.5), ("vision", 8, 1.2), ("vision", 16, 1.4), ("prefill", None, 0.9), ("prefill", 8, 1.1),
        ]
    ]  # fmt: skip
    assert corun_summary(rows) == {
        "shared_vision_decode_gain": 1.5,
        "vision_decode_gain": 1.4,
        "vision_decode_units": 16,
        "vision_decode_vision_latency_percent": 2.4,
        "vision_decode_decode_latency_percent": 9,
        "shared_prefill_decode_gain": 0.9,
        "prefill_decode_gain": 1.1,
        "prefill_decode_units": 8,
        "prefill_decode_prefill_latency_percent": 2.1,
        "prefill_decode_decode_latency_percent": 9,
        "vision_gain_over_prefill_gain": pytest.approx(1.4 / 1.1),
    }
    assert corun_summary([row for row in rows if row["units"] is None]).keys() == {
        "shared_vision_decode_gain",
        "shared_prefill_decode_gain",
    }


def test_on_an_engine_of_known_times_gains_are_the_sums_of_the_speeds() -> None:
    prober = simulated(KNOWN, 4, 4)
    todo = [*trials(KNOWN.sizes, 4, 4, 10**4), *trials_alone(KNOWN.sizes, 4, 4)]
    rows = corun_rows(list(rounds(prober, todo, 1, random.Random(0), quiet)), rows=4)
    assert [(row["pair"], row["units"]) for row in rows] == [
        (pair, units) for pair in ("vision", "prefill") for units in (None, 2, 4, 6)
    ]
    for row in rows:
        times = KNOWN.shared if row["units"] is None else KNOWN.corun[row["units"]]
        own = getattr(times, row["pair"]) / (KNOWN.vision if row["pair"] == "vision" else KNOWN.prefill[KNOWN.prompt])
        its = getattr(times, f"decode_by_{row['pair']}") / KNOWN.decode
        assert row["gain"] == pytest.approx(1 / own + 1 / its, rel=1e-3)
        assert row["latency_percent"] == pytest.approx(100 * (own - 1), abs=0.1)
        assert row["decode_latency_percent"] == pytest.approx(100 * (its - 1), abs=0.1)


@two_cores
def test_the_bench_writes_rows_a_picture_and_a_profile_for_the_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("PIL")
    write("smolvlm", tmp_path / "folder")
    file, drawn, profile = tmp_path / "c.json", tmp_path / "c.png", tmp_path / "p.json"
    short = ["--device", "cpu", "--cores", "2", "--rows", "2", "--rounds", "2", "--probes", "12", "--image-px", "40"]
    written = ["--profile", str(profile), "--json", str(file), "--picture", str(drawn)]
    assert cli.run(["nova-corun", str(tmp_path / "folder"), *short, *written]) == 0
    report = json.loads(file.read_text())
    assert [(row["pair"], row["units"], row["of"], row["cores"]) for row in report["rows"]] == [
        (pair, units, 2, 2) for pair in ("vision", "prefill") for units in (None, 1)
    ]
    read = read_profile(profile)
    assert (read.model, read.units, read.sizes) == ("folder", 2, (1,))
    assert report["profile"]["vision"] == read.vision == report["summary"]["vision_ms"]
    make_scheduler(EngineOptions(scheduler="nova", stage_profile=str(profile), tbt_ms=10**6), (1, 2), read)
    figures = {"vision_decode_gain", "prefill_decode_gain", "shared_vision_decode_gain", "decode_ms"}
    assert figures <= set(report["summary"])
    assert not any(name.startswith("linear") for name in report["summary"])
    linear = [row for row in report["paper"] if row["where"] == "table IV"]
    assert len(linear) == 12
    assert all(row["ours"] is None for row in linear)
    assert drawn.stat().st_size > 0
    assert "1 of 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cores", "1"], "--cores: two cores at least, of the "),
        (["--cores", "900"], "of this process, got 900"),
        (["--rows", "1"], "--rows must be at least 2, got 1"),
        (["--profile", "nowhere/p.json"], "--profile: no folder nowhere"),
        (["nowhere"], "folder: checkpoint 'nowhere': no such folder in "),
        (["./nowhere"], "folder: checkpoint folder not found: nowhere"),
        (["pusht"], "no config.json"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.run(["nova-corun", "--device", "cpu", *arguments])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


@two_cores
def test_a_prompt_that_leaves_no_room_is_a_failure_that_is_told(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("PIL")
    write("llava", tmp_path, text_config={"max_position_embeddings": 60})
    report = corun.run([str(tmp_path), "--device", "cpu"], lambda _: None)
    assert report.rows == []
    assert "a prefill of 64 tokens is needed, but 59 is the model's longest" in report.more["failed"][0]


@two_cores
def test_products_run_alone_and_together_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[int, ...]]()
    product = torch.mm

    def noted(x: torch.Tensor, weight: torch.Tensor, **others: Any) -> torch.Tensor:
        seen.append((*x.shape, weight.shape[1]))
        return product(x, weight, **others)

    monkeypatch.setattr(torch, "mm", noted)
    sizes = linears.LinearSizes((2, 3, 4), (5, 6, 7), decodes=6, visions=2, dtype=torch.float32)
    device = CpuDevice()
    partitions = CpuPartitions(device, sorted(os.sched_getaffinity(0))[:2])
    prepared = linears.PreparedLinears(device, partitions, sizes)
    found = list(linears.rounds(prepared, 2, random.Random(0), quiet))
    partitions.close()
    device.close()
    both = ("decode", "vision")
    assert [set(each) for each in found] == 2 * [{(both[:1], None), (both[1:], None), (both, None), (both, 1)}]
    assert seen.count((2, 3, 4)) == 3 * 3 * 6  # rounds, cases
    assert seen.count((5, 6, 7)) == 3 * 3 * 2
    assert all(set(took) == set(case[0]) and min(took.values()) > 0 for each in found for case, took in each.items())


def test_products_gain_where_both_are_done_sooner_together() -> None:
    def took(slow: float) -> linears.Took:
        both = ("decode", "vision")
        cases: dict[linears.Case, dict[str, float]] = {
            (("decode",), None): {"decode": 700}, (("vision",), None): {"vision": 600},
            (both, None): {"decode": 1250, "vision": 650}, (both, 8): {"decode": 2000, "vision": 700},
            (both, 16): {"decode": 1000, "vision": 900}, (both, 24): {"decode": 900, "vision": 1040},
        }  # fmt: skip
        return {case: {name: slow * ms for name, ms in times.items()} for case, times in cases.items()}

    rows = linears.linear_rows([took(1.0), took(2.0), took(1.5)], cores=3)
    assert [(row["units"], row["gain"]) for row in rows] == [(None, 1.04), (8, 0.65), (16, 1.3), (24, 1.25)]
    assert all(row["cores"] == 3 for row in rows)
    assert linears.linear_summary(rows, linears.LinearSizes()) == {
        "linear_decode_ms": 1050, "linear_vision_ms": 900, "linear_sequential_ms": 1950,
        "linear_decode_each_ms": 0.525, "linear_vision_each_ms": 4.5,
        "linear_shared_decode_ms": 1875, "linear_shared_vision_ms": 975,
        "linear_gain_units_least": 16, "linear_gain_units_most": 24,
    }  # fmt: skip


def test_on_a_gpu_its_sms_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the stand-in."""
    from auras_ros.device.cuda import CudaDevice

    driver = install_driver(monkeypatch, install(monkeypatch))
    partitions = make_partitions(CudaDevice())
    assert (partitions.units, partitions.sizes) == (132, SM_SIZES)
    partitions.close()
    assert driver.left() == []


@pytest.mark.gpu
def test_a_gpu_has_a_profile(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("PIL")
    write("llava", tmp_path)
    short = ["--device", "cuda", "--rows", "2", "--rounds", "1", "--probes", "6", "--image-px", "40"]
    report = corun.run([str(tmp_path), *short], lambda _: None)
    assert "failed" not in report.more
    assert report.more["profile"]["corun"]
    assert report.summary["linear_decode_ms"] > 0
    assert {row["pair"] for row in report.rows} == {"vision", "prefill", "linears"}
