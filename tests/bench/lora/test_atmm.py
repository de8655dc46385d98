"""`auras bench lora-atmm`: what is searched, what is measured, and what is made of the rounds.

Guards: a table that is measured with what it was searched in; a way that is dropped because the machine was slow in its
turn; a best way that was lucky in the rounds that it is judged by; an operator that computes something else and is
quick; rows without cores; a baseline that is not in the summary.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from auras_ros.bench.lora import atmm, timing
from auras_ros.bench.lora.atmm_summary import best_ratio, case_rows, single, summary
from auras_ros.bench.lora.baselines import BASELINES
from auras_ros.bench.lora.search import Profile
from auras_ros.bench.lora.shapes import FEW, LAYERS, CaseRun, LoraCase, cases
from auras_ros.bench.lora.timing import CaseWindows
from auras_ros.cli import bench as cli
from auras_ros.kernels.lora_table import FixedWay, WayChooser
from auras_ros.kernels.lora_table_file import cpu_name, read_table, write_table
from auras_ros.kernels.lora_ways import WAYS
from auras_ros.measure.window import Length

TINY = ["--layers", "tiny", "--tokens", "1,4,20", "--ranks", "4", "--adapters", "1,2", "--seconds", "0"]
OPERATORS = {*WAYS, *BASELINES, "atmm"}


@pytest.fixture(autouse=True)
def one_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_UPS", 1)


def test_a_table_is_searched_and_measured_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched, ways = tmp_path / "s.json", tmp_path / "ways.json"
    assert cli.run(["lora-atmm", *TINY, "--rounds", "2", "--search", str(ways), "--json", str(searched)]) == 0
    report = json.loads(searched.read_text())
    assert [(row["phase"], row["tokens"], row["adapters"]) for row in report["rows"]] == [
        ("decode", 1, 1), ("decode", 4, 1), ("decode", 4, 2), ("prefill", 20, 1), ("prefill", 20, 2)
    ]  # fmt: skip
    assert report["summary"]["shapes"] == 5 == len(read_table(ways, cpu_name(1)))
    assert sum(report["summary"][f"shapes_{way.replace('-', '_')}"] for way in WAYS) == 5
    assert report["summary"]["search_s"] > 0

    measured, drawn = tmp_path / "m.json", tmp_path / "m.png"
    arguments = ["--table", str(ways), "--rounds", "4", "--json", str(measured), "--picture", str(drawn)]
    assert cli.run(["lora-atmm", *TINY, *arguments]) == 0
    report = json.loads(measured.read_text())
    assert {row["operator"] for row in report["rows"]} == OPERATORS
    assert len(report["rows"]) == 5 * len(OPERATORS)
    assert all(row["cores"] == 1 and row["rounds"] == 4 and row["us"] > 0 for row in report["rows"])
    entries = read_table(ways, cpu_name(1))
    chosen = [row["way"] for row in report["rows"] if row["operator"] == "atmm"]
    assert sorted(chosen) == sorted(entries.values())
    keys = {"worst_ratio", "gain_over_single", "lookup_us", *(f"over_{name}" for name in BASELINES)}
    keys |= {f"fluctuation_over_{name}" for name in BASELINES} | {f"over_{name}_decode" for name in BASELINES}
    assert keys <= report["summary"].keys()
    assert [row["paper"] for row in report["paper"]][:3] == [3.4, 2.3, 2.7]
    assert report["table_1"][0]["ours"] == "not measured"
    assert drawn.stat().st_size > 0
    said = capsys.readouterr().out
    assert "Punica (16, 64, 64, 16, 16, 64)" in said
    assert "the best single way" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--search", "a.json", "--table", "b.json"], "--search and --table: one of them"),
        (["--tokens", "0"], "must be at least 1, got 0"),
        (["--layers", "large"], "'large' is not known"),
        (["--rounds", "1"], "--rounds must be at least 2, got 1"),
        (["--cores", "9999"], "--cores: from 1 to the "),
        (["--search", "no/such/folder.json"], "--search: no folder no/such"),
        (["--table", "none.json"], "--table: "),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.run(["lora-atmm", *arguments])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_another_machines_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path / "ways.json", "another, 1 thread", {})
    with pytest.raises(SystemExit):
        cli.run(["lora-atmm", "--table", str(tmp_path / "ways.json")])
    assert f"has no table of {cpu_name(1)}" in capsys.readouterr().err


def test_the_range_is_limited_by_memory_tokens_and_phase() -> None:
    found = list(cases(["tiny", "gate_up-896"], [1, 16, 32], [8, 64], [1, 8], 100.0))
    assert {case.phase for case in found if case.tokens <= 16} == {"decode"}
    assert {case.phase for case in found if case.tokens > 16} == {"prefill"}
    assert all(case.adapters <= case.tokens and case.mib <= 100 for case in found)
    assert {(case.layer, case.rank, case.adapters) for case in found if case.rank == 64 and case.tokens == 16} == {
        ("tiny", 64, 1), ("tiny", 64, 8), ("gate_up-896", 64, 1)
    }  # fmt: skip


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_run_has_the_rows_ranks_and_sizes_of_its_case(phase: str) -> None:
    case = LoraCase("qkv-896", phase, 8, 4, 6)
    run = CaseRun(case, seed=1)
    assert case.ranks == [6, 3, 6, 3]
    assert run.shape == (phase, 8, 6, 896, 1152, 3, 4)
    rows = run.rows()
    assert sorted(row for each in rows.groups for row in range(each.begin, each.end)) == list(range(8))
    if phase == "decode":
        assert rows.order is not None
        assert rows.order.tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
        assert len(run.layers) == FEW
    assert run.bounds == (0, 896, 1024, 1152)
    assert LAYERS["qkv-896"] == (896, (896, 128, 128))


def test_an_operator_that_computes_something_else_is_not_timed() -> None:
    run = CaseRun(LoraCase("tiny", "decode", 4, 2, 4), seed=0)
    wrong: dict[str, Any] = {"zeros": lambda *_: None, "nan": lambda y, *_: y.fill_(torch.nan)}
    ways = {"segmented": WAYS["segmented"], **wrong}
    windows = CaseWindows(run, {name: FixedWay(way) for name, way in ways.items()})
    with torch.inference_mode():
        windows.prepare("segmented")
        for name in wrong:
            with pytest.raises(RuntimeError, match="differs from the reference"):
                windows.prepare(name)
        assert windows.rate("segmented", Length(chunks=2, seconds=0)) > 0
    assert len(windows.layer_us["segmented"]) == 2


class Timed(CaseWindows):
    """A forward takes 2 us for each layer, and 10 us more for each of which copies are made."""

    def _forward_ns(self, chooser: WayChooser) -> int:
        before = [len(factors._copies) for _, _, factors in self._run.layers]
        self._run.forward(chooser)
        after = [len(factors._copies) for _, _, factors in self._run.layers]
        return 2000 * len(before) + 10_000 * sum(now > then for then, now in zip(before, after, strict=True))


@pytest.mark.parametrize(("phase", "tokens", "us"), [("decode", 8, 10 / 4), ("prefill", 32, 10.0)])
def test_a_way_is_charged_for_the_copies_that_another_set_of_adapters_needs(phase: str, tokens: int, us: float) -> None:
    """Not for those of one adapter or of all, and a system that has them ready is not."""
    run, ways = CaseRun(LoraCase("tiny", phase, tokens, 4, 4), seed=0), {**WAYS, "einsum": BASELINES["einsum"]}
    windows = Timed(run, {name: FixedWay(way) for name, way in ways.items()}, set_decodes=4, ready=BASELINES)
    charged = {"joint", "joint-packed", "joint-mixed", "padded"}
    with torch.inference_mode():
        for name in ways:
            windows.prepare(name)
            rate = windows.rate(name, Length(chunks=2, seconds=0))
            assert 1e6 / rate == pytest.approx(2 + (us if name in charged else 0)), name


def test_the_best_way_is_named_by_rounds_that_it_is_not_judged_by() -> None:
    """Two ways that are equal but for luck: each is lucky in every other round. The rounds in which they are judged
    find them as quick as ATMM, where the best of the same rounds would be twice as quick."""
    rates = {"atmm": [1.0] * 8, "segmented": [2.0, 1.0] * 4, "joint": [1.0, 2.0] * 4, "einsum": [9.0] * 8}
    assert best_ratio(rates) == 1.0


def test_the_search_keeps_what_was_near_the_best_in_any_round() -> None:
    rates = {"joint": [2.0, 2.0, 2.0], "padded": [1.0, 1.0, 1.9], "segmented": [1.6, 1.6, 1.6], "einsum": [9.0] * 3}
    assert profile(rates).near == ["joint", "padded"]


def test_the_search_chooses_by_ratios_within_a_round_of_several_passes() -> None:
    """The machine is three times as quick in a round: by medians of rates `padded` would be the best."""
    tried = {"joint": [1.0] * 3, "padded": [1.1] * 3, "segmented": [0.5] * 3}
    passes = [{"joint": [1.1, 3.3, 1.0], "padded": [1.0, 3.0, 2.0]}] * 2
    assert profile(tried).best == "padded"
    found = profile(tried, *passes)
    assert found.best == "joint"
    assert found.median_us == {"joint": 1e6 / 1.1, "padded": 1e6 / 2.0, "segmented": 2e6}
    assert profile(tried, {}).best == "padded"  # the minutes were over
    only = {way: values for way, values in tried.items() if way == "joint"}
    assert profile(only).best == "joint"


def profile(*rates: dict[str, list[float]]) -> Profile:
    case = LoraCase("tiny", "decode", 4, 2, 4)
    return Profile(case, CaseRun(case, seed=0).shape, list(rates))


def test_a_shape_that_comes_out_far_from_its_best_is_measured_again_after_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ratios, looked = [0.9, 1.0, 0.96, 0.99, 0.98, 0.95, 0.99], list[int]()

    class Windows(CaseWindows):
        def contest(self, names: Sequence[str], *others: Any, finer: bool = False) -> dict[str, list[float]]:
            if not finer:
                self.layer_us.update({name: [1.0] for name in names})
                return {name: [1.0] * 2 for name in names}
            looked.append(self._run.case.tokens)
            return {name: [ratios.pop(0) if name == "atmm" else 1.0] * 2 for name in names}

    monkeypatch.setattr(atmm, "CaseWindows", Windows)
    path = tmp_path / "m.json"
    assert cli.run(["lora-atmm", *TINY, "--tokens", "1,4,16", "--adapters", "1", "--json", str(path)]) == 0
    assert looked == [1, 4, 16, 1, 16, 1, 16]
    report = json.loads(path.read_text())
    own = [row for row in report["rows"] if row["operator"] == "atmm"]
    assert [(row["first_ratio"], row["best_ratio"]) for row in own] == [(0.9, 0.95), (1.0, 1.0), (0.96, 0.98)]
    assert (report["summary"]["first_ratio"], report["summary"]["worst_ratio"]) == (0.9, 0.95)


def test_figures_are_ratios_within_a_round() -> None:
    case = LoraCase("tiny", "decode", 4, 2, 4)
    speed = dict.fromkeys(OPERATORS, 1.0) | {"joint": 4.0, "atmm": 4.0, "einsum": 2.0, "padded": 2.0}
    drift = [1.0, 3.0, 2.0, 5.0]  # the machine's
    rates = {name: [each * value for each in drift] for name, value in speed.items()}
    us = {name: [1e6 / rate for rate in values] for name, values in rates.items()}
    other = {**rates, "joint": rates["slora"], "atmm": rates["padded"]}
    rows = case_rows(case, 1, "joint", rates, us, 1.3) + case_rows(
        LoraCase("tiny", "prefill", 64, 2, 4), 1, "padded", other, us, 1.0
    )
    found = summary(rows)
    assert found["worst_ratio"] == pytest.approx(1.0)
    assert found["over_joint"] == pytest.approx(2**0.5)
    assert found["gain_over_single"] == pytest.approx(2**0.5)
    assert found["over_einsum"] == pytest.approx(2**0.5)
    assert found["over_einsum_decode"] == pytest.approx(2.0)
    assert found["over_slora"] == pytest.approx(8**0.5)
    assert single(rows) in {"joint", "padded"}
    assert found["fluctuation_over_slora"] == pytest.approx(1.0)
