"""What is made of the runs: gains on the best baseline, their extremes, table V. By hand-made figures.

Guards: a baseline with a setting that is not its best; gains beyond the paper's rates in the paper's figures; our own
rule's worst rate taken from Nova's.
"""

from __future__ import annotations

from typing import Any

import pytest

from auras_ros.bench.nova import a6000, sensitivity, table5
from auras_ros.bench.nova.contenders import Contender
from auras_ros.bench.nova.gains import best, gain_rows, gain_summary
from auras_ros.bench.nova.runs import Results

NOVA, PF2, PF5 = Contender("nova"), Contender("pf-limit", (2,)), Contender("pf-limit", (5,))
CHUNK = Contender("chunk", (128,))


def runs(means: tuple[float, float], longest: tuple[float, float], rate: float = 0.5) -> list[dict[str, float]]:
    """Of two traces."""
    pairs = zip(means, longest, strict=True)
    return [{"mean_e2e_s": mean, "max_e2e_s": most, "throughput_hz": rate} for mean, most in pairs]


FOUND: Results = {
    (0.3, NOVA): runs((3.0, 4.0), (8.0, 8.0), 0.30),
    (0.3, PF2): runs((4.0, 5.0), (20.0, 20.0), 0.29),
    (0.3, PF5): runs((5.0, 6.0), (10.0, 10.0), 0.32),
    (0.3, CHUNK): runs((5.0, 5.0), (12.0, 12.0), 0.31),
    (0.3, Contender("interleaved")): runs((1.0, 1.0), (1.0, 1.0), 9.0),
}


def test_each_metric_has_the_baseline_that_is_best_in_it() -> None:
    tried = [PF2, PF5, CHUNK]
    chosen = {name: best(FOUND, 0.3, name, tried) for name in ("mean_e2e_s", "max_e2e_s", "throughput_hz")}
    assert chosen == {"mean_e2e_s": PF2, "max_e2e_s": PF5, "throughput_hz": PF5}


def test_a_gain_is_on_the_best_baseline_and_on_the_best_with_the_papers_settings() -> None:
    rows = {(row["settings"], row["metric"]): row for row in gain_rows(FOUND, 0.3, "nova")}
    tuned, paper = rows["best", "mean_e2e_s"], rows["paper", "mean_e2e_s"]
    assert (tuned["baseline"], paper["baseline"]) == ("pf-limit 2", "chunk 128")
    assert tuned["ratio_of_means"] == pytest.approx(3.5 / 4.5)
    assert tuned["ratio"] == pytest.approx((3 / 4 + 4 / 5) / 2)
    assert tuned["ratio_high"] - tuned["ratio"] == pytest.approx(12.7062 * 0.05 / 2**0.5 / 2**0.5)
    assert rows["best", "max_e2e_s"]["ratio"] == rows["best", "max_e2e_s"]["ratio_high"] == 0.8
    assert rows["best", "throughput_hz"]["ratio_of_means"] == pytest.approx(0.30 / 0.32)
    assert {row["n"] for row in rows.values()} == {2}


def gain(rate: float, ratio: float, **more: Any) -> dict[str, Any]:
    row = {"measure": "gain", "rate": rate, "scheduler": "nova", "settings": "best", "metric": "mean_e2e_s"}
    ratios = {"ratio_of_means": ratio, "ratio": ratio + 0.01, "ratio_high": ratio + 0.05}
    return {**row, **ratios, **more}


def test_the_papers_figures_are_of_its_rates_and_the_worst_of_all() -> None:
    rows = [gain(0.3, 0.9), gain(0.6, 0.8), gain(0.7, 0.5), gain(0.9, 1.1)]
    rows += [gain(0.5, 0.7, metric="max_e2e_s"), gain(0.5, 0.98, metric="throughput_hz")]
    rows += [gain(0.4, 0.99, metric="throughput_hz"), gain(0.7, 0.5, metric="throughput_hz")]
    rows += [gain(0.3, 0.6, settings="paper"), {"measure": "load", "rate": 0.3}]
    assert gain_summary(rows, "own") == pytest.approx(
        {
            "mean_e2e_gain": 0.2,
            "max_e2e_gain": 0.3,
            "throughput_ratio": 0.98,
            "mean_e2e_gain_paper_settings": 0.4,
        }
    )


def test_the_worst_gain_is_our_own_rules() -> None:
    rows = [gain(0.3, 0.9), gain(0.9, 1.1), gain(0.3, 0.95, scheduler="own"), gain(0.9, 0.96, scheduler="own")]
    found = gain_summary(rows, "own")
    assert found["mean_e2e_gain"] == pytest.approx(0.1)
    assert found["mean_e2e_gain_ours"] == pytest.approx(0.05)
    assert found["worst_mean_e2e_gain"] == pytest.approx(0.03)
    assert found["worst_mean_e2e_gain_low"] < found["worst_mean_e2e_gain"]


def test_table_v_stands_beside_the_simulated_queue() -> None:
    """Service of exactly 1.5 s: an M/D/1 queue, whose mean wait is half of an M/M/1's."""
    own = [{"processing_s": 1.5, "processing_square_s2": 2.25, "delay_s": delay_s} for delay_s in (0.4, 0.5, 0.9)]
    row = table5.row(0.3, own)
    assert row["error"] == pytest.approx(1.5 / 1.39 - 1) == table5.worst_error([row])
    assert row["theory_s"] == pytest.approx(0.3 * 1.5 / (1 - 0.45) * 1.5 / 2)
    assert (row["delay_s_least"], row["delay_s_most"], row["paper_delay_s"]) == (0.4, 0.9, a6000.DELAY_S[0])
    assert (row["below_paper"], row["n"]) == (2, 3)
    assert table5.row(0.8, own)["theory_s"] is None


def test_the_range_of_a_gain_is_over_all_variants() -> None:
    rows = [{"measure": "sensitivity", **dict.fromkeys(sensitivity.GAINS, value)} for value in (0.1, 0.3, 0.2)]
    found = sensitivity.ranges([*rows, {"measure": "load"}])
    assert (found["mean_e2e_gain_low"], found["max_e2e_gain_high"]) == (0.1, 0.3)


def test_each_parameter_varies_alone() -> None:
    own = a6000.Parameters()
    variants = list(own.varied(0.2))
    assert {name for name, _, _ in variants} == set(vars(own))
    for name, factor, parameters in variants:
        changed = {each for each in vars(own) if getattr(own, each) != getattr(parameters, each)}
        assert changed == {name}
        wanted = factor * getattr(own, name)
        assert getattr(parameters, name) == pytest.approx(max(wanted, 1.0) if name in a6000.SLOWDOWNS else wanted)
