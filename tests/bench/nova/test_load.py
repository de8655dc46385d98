"""`auras bench nova-load`, `nova-adaptive` and `nova-burst` as a user runs them, on short traces.

Guards: baselines that are compared though the profile is not the paper's device; results that another run would not
give; a wrong option or file that is noticed after the work.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench.nova import a6000, adaptive, burst, runs, table5
from auras_ros.bench.nova.contenders import Contender, DeviceSetup
from auras_ros.bench.nova.timeline import TimelineForward, by_units, pending_steps
from auras_ros.cli import bench as cli

SHORT = ["--requests", "4", "--seeds", "2", "--processes", "1"]


def report_of(name: str, folder: Path, *more: str) -> Any:
    file, drawn = folder / f"{name}.json", folder / f"{name}.png"
    assert cli.run([name, *SHORT, *more, "--json", str(file), "--picture", str(drawn)]) == 0
    assert drawn.read_bytes().startswith(b"\x89PNG")
    return json.loads(file.read_text())


def of(report: Any, measure: str) -> list[dict[str, Any]]:
    return [row for row in report["rows"] if row["measure"] == measure]


def test_load_has_a_row_for_every_rate_and_setting_and_gives_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of("nova-load", tmp_path, "--rates", "0.4,0.5")
    rows = of(report, "load")
    settings = [row["setting"] for row in rows if row["rate"] == 0.5]
    assert len(rows) == 2 * len(settings) == 2 * len(set(settings)) == 84
    assert {"nova", "nova 8/8", "nova 120", "marginal", "interleaved", "multi-stream", "pf-limit 5", "chunk 128"} < set(
        settings
    )
    for row in rows:
        assert (row["requests"], row["n"], row["rate_hz"]) == (4, 2, row["rate"])
        assert row["mean_e2e_s_low"] <= row["mean_e2e_s"] <= row["mean_e2e_s_high"]
    assert [row["rate_hz"] for row in of(report, "table5")] == [0.4, 0.5]
    assert {*report["summary"]} >= {"mean_e2e_gain", "max_e2e_gain", "throughput_ratio", "worst_mean_e2e_gain_low"}
    assert report["summary"]["table5_worst_error"] < table5.MOST_ERROR
    said = capsys.readouterr().out
    assert "over the best baseline, tuned" in said
    assert "over the best static split" in said
    slowest = [row["mean_e2e_s"] for row in rows if row["rate"] == 0.5 and row["scheduler"] == "multi-stream"]
    assert f"{min(slowest):.2f} to {max(slowest):.2f}" in said
    assert "Table V: rate" in said
    again = report_of("nova-load", tmp_path, "--rates", "0.5")
    assert of(again, "load") == [row for row in rows if row["rate"] == 0.5]


def test_no_baseline_runs_where_the_times_are_not_table_vs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(table5, "MOST_ERROR", 1e-6)
    file = tmp_path / "l.json"
    assert cli.run(["nova-load", *SHORT, "--rates", "0.3", "--json", str(file)]) == 1
    assert "failed: table V: a mean processing time differs by" in capsys.readouterr().err
    report = json.loads(file.read_text())
    assert {row["measure"] for row in report["rows"]} == {"table5"}
    assert "mean_e2e_gain" not in report["summary"]


def test_a_profiles_file_is_loaded_to_its_own_saturation(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    a6000.profile().write(file)
    changed = json.loads(file.read_text()) | {"device": "another", "vision": 375.9}
    file.write_text(json.dumps(changed))
    report = report_of("nova-load", tmp_path, "--rates", "0.5", "--profile", str(file))
    assert {row["profile"] for row in of(report, "load")} == {"another"}
    assert of(report, "load")[0]["rate_hz"] == pytest.approx(0.5 * 1e3 / (375.9 + 324.1))
    assert of(report, "table5") == []
    assert [row["setting"] for row in of(report, "load") if row["scheduler"] == "multi-stream"] == ["multi-stream"]


def test_the_sensitivity_has_a_row_for_each_parameter_less_and_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two parameters; with the second one no split keeps the bound, so it is left out by name."""
    own = a6000.Parameters()
    slow = a6000.Parameters(decode=200.0)
    variants = [("vision", 0.8, a6000.Parameters(vision=0.8 * own.vision)), ("decode", 7.0, slow)]
    monkeypatch.setattr(a6000.Parameters, "varied", lambda self, share: iter(variants))
    report = report_of("nova-load", tmp_path, "--rates", "0.5", "--sensitivity", "--sensitivity-seeds", "2")
    rows = of(report, "sensitivity")
    assert [(row["parameter"], row["factor"]) for row in rows] == [("none", 1.0), ("vision", 0.8)]
    assert rows[0]["mean_e2e_gain"] == pytest.approx(report["summary"]["mean_e2e_gain"])
    assert report["summary"]["mean_e2e_gain_low"] == min(row["mean_e2e_gain"] for row in rows)
    assert report["left_out"] == [
        "decode x 7: planner: with no split a decode takes 80 ms or less beside another stage"
    ]


@pytest.mark.parametrize("name", ["nova-load", "nova-adaptive", "nova-burst"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--profile", "/nowhere.json"], "--profile: /nowhere.json: not a profile:"),
        (["--tbt-ms", "20"], "--profile: planner: with no split a decode takes 20 ms or less"),
        (["--rates", "0"], "--rates: from above 0 to 100, got 0"),
        (["--seeds", "1"], "--seeds must be at least 2, got 1"),
        (["--requests", "1"], "--requests must be at least 2, got 1"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    name: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.run([name, *arguments])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_the_sensitivity_is_of_the_papers_parameters_and_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "profile.json"
    a6000.profile().write(file)
    for arguments, said in (
        (["--profile", str(file)], f"the parameters are those of a6000, got --profile {file}"),
        (["--rates", "0.8"], "it needs a rate from 0.3 to 0.6"),
    ):
        with pytest.raises(SystemExit):
            cli.run(["nova-load", "--sensitivity", *arguments])
        assert f"--sensitivity: {said}" in capsys.readouterr().err


def test_adaptive_has_the_frontier_the_static_splits_and_the_steps(tmp_path: Path) -> None:
    report = report_of("nova-adaptive", tmp_path, "--rates", "0.6")
    frontier = of(report, "frontier")
    assert [row["s0"] for row in frontier] == [True, *[False] * (len(frontier) - 1)]
    assert min(row["by_vision"] for row in frontier) == report["summary"]["s_min"] == a6000.S_MIN
    assert len(report["pairs"]) == len(a6000.profile().sizes) ** 2
    splits = {row["split"]: row for row in of(report, "static")}
    assert {"nova", "static 24/30", "static 20/24", "static 16/18", "static 12/12"} < {*splits}
    assert splits["nova"]["ratio"] == 1.0
    assert len(of(report, "beta")) == 16
    nova = next(row for row in of(report, "beta") if (row["beta_vision"], row["beta_prefill"]) == (4, 6))
    assert nova["mean_e2e_s"] == splits["nova"]["mean_e2e_s"]


def test_adaptive_is_compared_with_each_rates_best_split_and_with_one_for_all() -> None:
    def static(rate: float, split: str, ratio: float) -> dict[str, Any]:
        return {"measure": "static", "rate": rate, "split": split, "ratio": ratio}

    rows = [static(0.3, "nova", 1.0), static(0.3, "many", 1.02), static(0.3, "few", 0.9)]
    rows += [static(0.9, "nova", 1.0), static(0.9, "many", 0.7), static(0.9, "few", 0.97)]
    assert adaptive.static_summary(rows, "many") == pytest.approx(
        {
            "adaptive_over_best_static_worst": -0.02,
            "adaptive_over_s0_most": 0.3,
            "adaptive_over_one_static": 0.1,
        }
    )


def test_a_bursty_trace_is_scaled_and_keeps_its_mean_rate() -> None:
    slow, quick = burst.bursty(0.3, 4000, 5), burst.bursty(0.6, 4000, 5)
    assert slow == burst.bursty(0.3, 4000, 5)
    assert [each.at_s for each in slow] == pytest.approx([2 * each.at_s for each in quick])
    assert 4000 / quick[-1].at_s == pytest.approx(0.6, rel=0.15)


def test_burst_has_a_timeline_and_tuned_baselines(tmp_path: Path) -> None:
    report = report_of("nova-burst", tmp_path, "--rates", "0.5", "--requests", "12")
    families = [row["scheduler"] for row in of(report, "load")]
    assert families == ["nova", "marginal", "pf-limit", "chunk", "multi-stream", "interleaved"]
    timeline = report["timeline"]
    assert max(pending for _, pending in timeline["pending"]) == report["summary"]["pending_most"]
    assert {stage for stage, *_ in timeline["forwards"]} == {"vision", "prefill", "decode"}
    assert of(report, "timeline")[0]["units"] == report["summary"]["units_fewest"]


def test_the_baselines_of_a_burst_have_their_best_settings() -> None:
    names = [("pf-limit", 2), ("pf-limit", 5), ("chunk", 128), ("chunk", 256), ("multi-stream", 2)]
    found: runs.Results = {
        (0.6, Contender(family, (setting,))): [{"mean_e2e_s": float(setting)}] for family, setting in names
    }
    assert [each.name for each in burst.tuned_of(found)] == ["pf-limit 2", "chunk 128", "multi-stream 2"]


def test_decodes_count_with_the_vision_beside_which_they_began() -> None:
    def forward(stage: str, began_s: float, ended_s: float, units: int | None) -> TimelineForward:
        return TimelineForward(stage, began_s, ended_s, units, 3)

    rows = by_units(
        [
            forward("decode", 0.0, 0.03, None),
            forward("vision", 1.0, 2.0, 24),
            forward("decode", 1.0, 1.05, 24),
            forward("decode", 1.5, 1.57, 24),
            forward("prefill", 2.0, 2.5, 24),
            forward("decode", 2.1, 2.9, 24),
            forward("vision", 3.0, 3.8, 12),
        ]
    )
    assert [(row["units"], row["visions"], row["decodes"], row["decode_ms"]) for row in rows] == [
        (12, 1, 0, None),
        (24, 1, 2, pytest.approx(60)),
    ]


def test_pending_requests_are_those_without_a_first_token() -> None:
    setup = DeviceSetup(a6000.profile(), 80.0)
    served, _ = runs.simulate(Contender("nova").make(setup), setup.profile, runs.poisson(0.5, 5, 1), runs.OPTIONS)
    steps = pending_steps(served)
    assert steps[0] == (pytest.approx(served[0].arrival.at_s, abs=1e-6), 1)
    assert steps[-1] == (max(each.usage.timings.first_token_ns for each in served) / 1e9, 0)
