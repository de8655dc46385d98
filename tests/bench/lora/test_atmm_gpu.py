"""`auras bench lora-atmm --device cuda` without a GPU: kernels that compute on the CPU, and times that are given.

Guards: a table that has not the quickest; one that the server does not find; a tiling that does not fit, or computes
something else, and ends the search; a search that was cut short and names the best of a few; times with other work in
them; options of a CPU that are taken and do nothing.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from auras_ros.bench.lora import atmm, atmm_gpu
from auras_ros.bench.lora.atmm_gpu import PHASES, Gpu, Pair, StageTimer, TiledRun, search
from auras_ros.bench.lora.shapes import LoraCase
from auras_ros.cli import bench as cli
from auras_ros.device import DeviceError, Spans
from auras_ros.device.cuda import CudaDevice
from auras_ros.kernels.lora_index import GroupIndex, LayerPointers
from auras_ros.kernels.lora_table_file import gpu_name, read_tilings, write_table
from auras_ros.kernels.lora_tilings import CATALOGUE, EXPAND, SHRINK, TilingTable
from auras_ros.measure.minutes import Ends, OverError
from auras_ros.measure.window import Length
from auras_ros.report.result import Report
from tests.device.fake_cuda import install

NAME = gpu_name("Pretended", "0.0")
CASES = [LoraCase("tiny", "decode", 4, 2, 4), LoraCase("tiny", "prefill", 20, 3, 4)]
BEST = {SHRINK: CATALOGUE[SHRINK][4], EXPAND: CATALOGUE[EXPAND][2]}
SOME = ["--layers", "tiny", "--tokens", "4,20", "--ranks", "4", "--adapters", "2", "--rounds", "2", "--seconds", "0"]


class KernelError(Exception):
    """As Triton's."""


class NoRoomError(KernelError):
    """As Triton's."""


class Kernels:
    """Computes as `TritonLora`. large: blocks of so many rows have no room; wrong: these err. fails: a sum in blocks of
    this size cannot be compiled."""

    def __init__(
        self, index: GroupIndex, rank: int, parts: int, large: int = 1 << 10, wrong: int = 0, fails: int = 0
    ) -> None:
        self.index, self.large, self.wrong, self.fails = index, large, wrong, fails
        assert index.signs == (-1, 1)  # as the engine has it

    def add_(self, y: Tensor, x: Tensor, layer: LayerPointers, fixed: Pair) -> None:
        assert set(fixed) == set(PHASES)
        if any(each.block_m >= self.large for each in fixed.values()):
            raise NoRoomError("out of resource: shared memory")
        if fixed[SHRINK].block_k == self.fails:
            raise KernelError("cannot compile")
        groups, low = self.index.of(1), layer.bounds.tolist()
        for begin, end, slot in zip(groups.begins.tolist(), groups.ends.tolist(), groups.slots.tolist(), strict=True):
            a, b = layer._held[slot]
            rows, rank = self.index.order[begin:end].long(), b.shape[1]
            for part in range(layer.parts):
                inner = x[rows] @ a[part * rank : (part + 1) * rank].t()
                y[rows, low[part] : low[part + 1]] += inner @ b[low[part] : low[part + 1]].t()
        if any(each.block_m == self.wrong for each in fixed.values()):
            y += 1


class Times:
    """A stage takes 10 us, and one more for each of its two tilings that is not the best."""

    def __init__(self) -> None:
        self.pairs = dict[str, Pair]()
        self.closed = False

    def capture(self, name: str, body: Callable[[], None]) -> Any:
        body()
        self.pairs[name] = body.args[0]  # type: ignore[attr-defined]
        return name

    def took_us(self, stage: Any, length: Length) -> list[float]:
        pair = self.pairs[stage]
        return [10.0 + sum(pair[phase] != BEST[phase] for phase in PHASES)] * length.chunks

    def close(self) -> None:
        self.closed = True


def gpu(**kernels: int) -> Gpu:
    return Gpu(NAME, partial(Kernels, **kernels), KernelError, NoRoomError, "cpu", torch.float32)


def options(**others: Any) -> Namespace:
    return Namespace(seed=0, rounds=2, length=Length(chunks=2, seconds=0), **others)


def ends(seconds: float = 60.0) -> Ends:
    return Ends(time.monotonic() + seconds, time.monotonic() + seconds)


def searched(report: Report, gpu: Gpu, **others: Any) -> dict[Any, str]:
    return search(CASES, gpu, Times(), options(), report, lambda text: None, **{"ends": ends(), **others})  # type: ignore[arg-type]


def test_the_search_finds_the_quickest_of_each_kernel() -> None:
    report = Report("lora-atmm")
    entries = searched(report, gpu())
    for case in CASES:
        shapes = {phase: TiledRun(case, 0, gpu()).shape(phase) for phase in PHASES}
        assert shapes[SHRINK] == (SHRINK, case.tokens, 4, 16, 12, 2, case.adapters)
        assert {phase: entries[shapes[phase]] for phase in PHASES} == {p: each.name for p, each in BEST.items()}
        assert TilingTable(entries).choose(shapes[EXPAND]) == BEST[EXPAND]
    assert len(entries) == 4
    assert [row[SHRINK] for row in report.rows] == [BEST[SHRINK].name] * 2
    assert [row["us"] for row in report.rows] == [pytest.approx(10.0 / 8), pytest.approx(10.0 / 2)]
    assert "failed" not in report.more


def test_what_does_not_fit_is_left_out_and_what_errs_is_a_failure() -> None:
    report = Report("lora-atmm")
    entries = searched(report, gpu(large=64, wrong=32, fails=256))
    chosen = TilingTable(entries)
    assert all(chosen.choose(shape).block_m == 16 for shape in entries)
    assert all("out of resource" in each for each in report.more["left_out"])
    assert any("128x64x64 w8 s3 k1" in each for each in report.more["left_out"])
    failed = report.more["failed"]
    assert any("32x32x128 w4 s4 k1: differs from the reference" in each for each in failed)
    assert any("16x32x256 w4 s3 k1: cannot compile" in each for each in failed)


def test_a_search_that_is_cut_short_names_no_best_of_a_few() -> None:
    report = Report("lora-atmm")
    late = Ends(time.monotonic() + 60, time.monotonic() - 1)
    with pytest.raises(OverError):
        searched(report, gpu(), ends=late)
    assert not report.rows


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Times]:
    times = Times()
    monkeypatch.setattr(atmm_gpu, "this_gpu", gpu)
    monkeypatch.setattr(atmm_gpu, "timer_on", lambda kind: times)
    yield times
    assert times.closed


def test_a_table_is_searched_and_measured_with(
    pretended: Times, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, found = tmp_path / "t.json", tmp_path / "found.json"
    write_table(table, "another", {})
    assert cli.run(["lora-atmm", "--device", "cuda", *SOME, "--search", str(table)]) == 0
    assert read_tilings(table, NAME).choose(TiledRun(CASES[0], 0, gpu()).shape(SHRINK)) == BEST[SHRINK]
    assert set(json.loads(table.read_text())["devices"]) == {"another", NAME}
    capsys.readouterr()

    assert cli.run(["lora-atmm", "--device", "cuda", *SOME, "--table", str(table), "--json", str(found)]) == 0
    report = json.loads(found.read_text())
    assert report["device"] == NAME
    assert report["summary"]["shapes"] == 2
    for other in ("rule", "punica", "slora", "config_1", "config_2"):
        assert report["summary"][f"over_{other}"] == pytest.approx(1.2)
    assert [(row["tokens"], row[EXPAND]) for row in report["rows"]] == [(4, BEST[EXPAND].name), (20, BEST[EXPAND].name)]
    said = capsys.readouterr().out
    assert BEST[SHRINK].name in said
    assert "over_punica" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ways", "segmented"], "--ways: of a CPU"),
        (["--cores", "1"], "--cores: of a CPU"),
        (["--set-decodes", "3"], "--set-decodes: of a CPU"),
        (["--table", "none.json"], "--table: "),
    ],
)
def test_what_a_gpu_does_not_have_is_refused(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(atmm_gpu, "this_gpu", gpu)
    with pytest.raises(SystemExit):
        cli.run(["lora-atmm", "--device", "cuda", *arguments])
    assert said in capsys.readouterr().err


def test_another_gpus_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    write_table(path, "another", {})
    monkeypatch.setattr(atmm_gpu, "this_gpu", gpu)
    with pytest.raises(SystemExit):
        atmm._options(["--device", "cuda", "--table", str(path)])


def test_without_a_gpu_it_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError, match="device 'cuda'"):
        atmm_gpu.this_gpu()


def test_a_stage_is_timed_without_what_empties_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a stand-in GPU, where each kernel takes a millisecond."""
    fake, spans, done = install(monkeypatch), Spans(64), list[str]()
    device = CudaDevice(spans)
    other = torch.zeros(4, dtype=torch.uint8)
    timer = StageTimer(device, spans, other)

    def body() -> None:
        for _ in range(3):
            fake.kernel(lambda: done.append("run"))

    stage = timer.capture("three", body)
    done.clear()
    for count in (2, 5):
        assert timer.took_us(stage, Length(chunks=count, seconds=0)) == pytest.approx([3000.0] * count)
    assert len(done) == 3 * 7
    assert other.tolist() == [1] * 4
    timer.close()


@pytest.mark.gpu
def test_on_a_gpu_tilings_are_searched_and_measured_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="needs Triton: make test-triton")
    monkeypatch.setattr(atmm_gpu, "CATALOGUE", {phase: tilings[:2] for phase, tilings in CATALOGUE.items()})
    table = tmp_path / "t.json"
    assert cli.run(["lora-atmm", "--device", "cuda", *SOME, "--search", str(table)]) == 0
    assert cli.run(["lora-atmm", "--device", "cuda", *SOME, "--table", str(table)]) == 0
