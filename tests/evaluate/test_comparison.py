"""Rows, table, picture and JSON of an evaluation whose episodes are written down by hand.

Guards: modes compared on other seeds than seq's; a rate, an age or a share computed over the wrong whole; parts of
different evaluations joined; a partial result that does not say so.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from auras_ros.evaluate.comparison import rows, summary
from auras_ros.evaluate.outcome import EpisodeRecord, ModeResult
from auras_ros.evaluate.parts import EvaluationPart, merge
from auras_ros.evaluate.settings import EvaluationSettings, SettingsError
from auras_ros.evaluate.show import draw, table
from auras_ros.measure.durations import FrameDuration
from auras_ros.report.statistics import paired_difference, wilson

MEASURED = {
    "seq": FrameDuration(0.36, 24, 0.35, 0.4),
    "par": FrameDuration(0.5, 40, 0.4, 0.7),
    "auras": FrameDuration(0.08),
}
SETTINGS = EvaluationSettings(
    "pusht@0123",
    "ddpm100,pp_generation=2",
    sim="pusht-drift",
    modes=("seq", "par", "auras"),
    clocks=("paused", "charged"),
).charging({key: duration.seconds for key, duration in MEASURED.items()})


def outcome(successes: str, steps: list[int], frames: int = 10, first_seed: int = 0, **more: Any) -> ModeResult:
    episodes = [
        EpisodeRecord(first_seed + i, success == "1", n, frames + i, 5, 4, 1, {"coverage": 0.5 + i / 100})
        for i, (success, n) in enumerate(zip(successes, steps, strict=True))
    ]
    return ModeResult(episodes, **({"staleness": [0, 2, 6, 2], "age_ns": [100_000_000]} | more))


def outcomes(first_seed: int = 0) -> dict[tuple[str, str], ModeResult]:
    seq = outcome("1100", [100, 120, 300, 300], first_seed=first_seed)
    auras = outcome("1011", [80, 300, 90, 110], 40, first_seed, staleness=[5, 5], age_ns=[2_000_000_000, 0])
    late = outcome("0000", [300] * 4, first_seed=first_seed)
    each = {"seq": seq, "par": late, "par-aligned": seq, "auras": auras}
    return {(clock, name): made for clock in SETTINGS.clocks for name, made in each.items()}


def row(mode: str, clock: str = "charged", settings: EvaluationSettings = SETTINGS) -> dict[str, Any]:
    return next(r for r in rows(settings, outcomes()) if (r["mode"], r["clock"]) == (mode, clock))


def test_a_row_for_each_mode_and_clock_par_plain_and_aligned() -> None:
    made = [(r["clock"], r["mode"]) for r in rows(SETTINGS, outcomes())]
    assert made == [(clock, mode) for clock in ("paused", "charged") for mode in ("seq", "par", "par-aligned", "auras")]


def test_success_with_its_interval_and_the_paired_difference_to_seq() -> None:
    auras = row("auras")
    assert (auras["success"], auras["successes"], auras["episodes"]) == (0.75, 3, 4)
    assert (auras["low"], auras["high"]) == wilson(3, 4)
    assert (auras["diff"], auras["diff_low"], auras["diff_high"]) == paired_difference(1, 2, 1, 0)
    assert [row("seq")[key] for key in ("diff", "diff_low", "diff_high")] == [0, 0, 0]


def test_rates_ages_and_shares() -> None:
    auras = row("auras")
    assert auras["chunks_per_s"] == pytest.approx(20 / 58)  # 5 chunks of each of 4 in 580 steps of 0.1 s
    assert (auras["staleness_ms_mean"], auras["staleness_ms_p99"]) == (50, 100)
    assert (auras["context_age_ms_0"], auras["context_age_ms_1"]) == (100, 0)
    assert auras["hold_share"] == pytest.approx(16 / 580)
    assert auras["refused"] == 4
    assert (auras["frame_ms"], row("auras", "paused")["frame_ms"]) == (80, 400)
    assert (auras["plan"], row("par")["plan"]) == (
        "ddpm100,mode=auras,pp_generation=2",
        "ddpm100,mode=par,concurrency=2",
    )


def test_steps_and_frames_to_success_over_episodes_that_succeed_in_both() -> None:
    """Auras 4.2.4: only seed 0 does."""
    auras = row("auras")
    assert auras["steps_to_success"] == 90
    assert (auras["both_succeed"], auras["steps_both"], auras["steps_both_seq"]) == (1, 80, 100)
    assert (auras["frames_both"], auras["frames_both_seq"]) == (40, 10)
    late = row("par")
    assert late["both_succeed"] == 0
    assert [late[key] for key in ("steps_to_success", "steps_both", "frames_both_seq")] == [None] * 3


def test_without_seq_nothing_is_compared() -> None:
    settings = replace(SETTINGS, modes=("auras",))
    alone = row("auras", settings=settings)
    assert alone["diff"] == 0.25  # seq is among the outcomes here
    only = {key: made for key, made in outcomes().items() if key[1] == "auras"}
    made = rows(settings, only)
    assert [made[0][key] for key in ("diff", "diff_low", "both_succeed", "steps_both")] == [None] * 4
    assert "auras_paused_minus_seq" not in summary(made)
    assert " - " in table(made).splitlines()[1]


def test_modes_played_on_other_seeds_are_not_compared() -> None:
    mixed = outcomes() | {("charged", "auras"): outcome("1011", [80, 300, 90, 110], first_seed=1)}
    with pytest.raises(ValueError, match="not played on the same seeds"):
        rows(SETTINGS, mixed)


def test_episodes_are_paired_by_seed_wherever_they_stand() -> None:
    turned = outcomes()
    turned["charged", "seq"].episodes.reverse()
    assert next(r for r in rows(SETTINGS, turned) if r["mode"] == "auras" and r["clock"] == "charged") == row("auras")


def test_the_summary_is_flat_numbers() -> None:
    found = summary(rows(SETTINGS, outcomes()))
    assert found["auras_charged_minus_seq"] == 0.25
    assert found["auras_charged_minus_seq_low"] == paired_difference(1, 2, 1, 0)[1]
    assert found["success_par_aligned_paused"] == 0.5
    assert all(isinstance(value, float) for value in found.values())


def test_the_table_has_a_line_a_row_and_says_what_it_is_about() -> None:
    lines = table(rows(SETTINGS, outcomes())).splitlines()
    assert len(lines) == 9
    assert len({len(line.rstrip()) <= len(lines[0]) for line in lines}) == 1
    assert lines[0].split()[:3] == ["clock", "mode", "success"]
    assert lines[-1].split()[:3] == ["charged", "auras", "75.0%"]
    assert "+25.0" in lines[-1]
    assert "100 to 0" in lines[-1]  # context ms, first stage and last
    assert "40 / 10" in lines[-1]  # frames until success, beside those of seq


def test_the_picture_shows_every_row(tmp_path: Path) -> None:
    """Not what it looks like, only that nothing is left out: each clock adds its panels, each mode its ink."""
    made = rows(SETTINGS, outcomes())
    draw(made, "all", tmp_path / "all.png")
    draw(made[:4], "one clock", tmp_path / "one.png")
    draw(made[:3], "no auras", tmp_path / "fewer.png")
    full, one, fewer = (imread(tmp_path / f"{name}.png")[..., :3] for name in ("all", "one", "fewer"))
    assert full.shape[0] > 1.6 * one.shape[0]
    blue = [np.abs(image - np.array([0x1F, 0x77, 0xB4]) / 255).max(-1) < 0.02 for image in (one, fewer)]
    assert blue[0].sum() > 1000
    assert blue[1].sum() == 0


# -- JSON and parts ---------------------------------------------------------------------------------------


def written(tmp_path: Path, part: EvaluationPart, name: str) -> Path:
    part.report().write(tmp_path / name)
    return tmp_path / name


def part(first_seed: int = 0, **changes: Any) -> EvaluationPart:
    return replace(EvaluationPart(SETTINGS, outcomes(first_seed), MEASURED), **changes)


def test_the_report_has_rows_and_beside_them_what_can_be_joined(tmp_path: Path) -> None:
    read = json.loads(written(tmp_path, part(), "a.json").read_text())
    assert read["name"] == "eval"
    assert len(read["rows"]) == 8
    assert {"mode", "clock", "success", "low", "high", "diff", "diff_low"} <= read["rows"][0].keys()
    assert all(not isinstance(value, list | dict) for r in read["rows"] for value in r.values())
    assert "partial" not in read
    assert read["durations"]["seq"] == {"seconds": 0.36, "n": 24, "p10_s": 0.35, "p90_s": 0.4}
    assert read["settings"]["success_coverage"] == 0.9
    assert read["seeds"] == "0 1 2 3"
    assert read["episodes"]["charged/auras"]["success"] == "1011"
    assert read["episodes"]["charged/auras"]["steps"] == "80 300 90 110"


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    given = part()
    assert EvaluationPart.load(written(tmp_path, given, "a.json")) == given


def test_statistics_are_read_again_to_the_last_digit(tmp_path: Path) -> None:
    """An episode without one, as one that lost its world at once, still has none."""
    given, last = part(), [{"qpos": 0.1 + 0.2, "count": 7.0}, {"qpos": -1e-9}, {}, {"count": 0.0}]
    played = given.outcomes["charged", "auras"]
    played.episodes = [replace(each, last=its) for each, its in zip(played.episodes, last, strict=True)]
    read = written(tmp_path, given, "a.json")
    assert json.loads(read.read_text())["episodes"]["charged/auras"]["last_count"] == "7.0 nan nan 0.0"
    assert EvaluationPart.load(read) == given


def test_parts_joined_are_the_whole(tmp_path: Path) -> None:
    """Whatever their order; the report is the same to the last digit."""
    whole = {key: ModeResult.join([made, outcomes(4)[key]]) for key, made in outcomes().items()}
    files = [written(tmp_path, part(first), f"{first}.json") for first in (4, 0)]
    joined = merge([EvaluationPart.load(path) for path in files])
    assert joined == EvaluationPart(SETTINGS, whole, MEASURED)
    assert joined.report().rows == rows(SETTINGS, whole)
    assert joined.seeds == list(range(8))
    assert whole["charged", "auras"].staleness == [10, 10]
    assert whole["charged", "auras"].age_ns == [4_000_000_000, 0]


def test_a_partial_result_says_so_until_its_seeds_are_played(tmp_path: Path) -> None:
    cut = EvaluationPart.load(written(tmp_path, part(partial=True), "a.json"))
    assert json.loads((tmp_path / "a.json").read_text())["partial"] is True
    assert cut.partial
    assert not merge([cut, part(4)]).partial
    assert merge([part(0), part(8)]).partial


def test_a_seed_that_is_in_two_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="seed 2 is in more than one part"):
        merge([part(0), part(2)])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sim": "pusht-drift:drift_px=1.0"}, "parts differ in drift_px: 0.5 and 1.0"),
        ({"plan": "quick"}, "parts differ in plan"),
        ({"checkpoint": "other"}, "parts differ in checkpoint: pusht@0123 and other"),
        ({"frame_steps": 6}, "parts differ in frame_steps: 4 and 6"),
        (
            {"durations_s": {**SETTINGS.durations_s, "seq": 0.37}},
            r"parts differ in durations_s.seq: 0.36 and 0.37; .*--durations",
        ),
    ],
)
def test_parts_of_different_evaluations_are_refused_by_name(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        merge([part(0), part(4, settings=replace(SETTINGS, **changes))])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda raw: raw.pop("settings"),
        lambda raw: raw["settings"].update(colour="red"),
        lambda raw: raw["episodes"].pop("paused/seq"),
        lambda raw: raw["episodes"]["paused/seq"].update(steps="1 2"),
        lambda raw: raw["episodes"]["paused/seq"].update(steps="1 2 x 4"),
    ],
)
def test_a_report_that_is_not_whole_is_refused_with_its_name(tmp_path: Path, spoil: Any) -> None:
    path = written(tmp_path, part(), "a.json")
    raw = json.loads(path.read_text())
    spoil(raw)
    path.write_text(json.dumps(raw))
    with pytest.raises(SettingsError, match=r"a\.json: not a report of `auras eval`: "):
        EvaluationPart.load(path)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("rows: 3")
    with pytest.raises(SettingsError, match=r"a\.json: not a report"):
        EvaluationPart.load(tmp_path / "a.json")
