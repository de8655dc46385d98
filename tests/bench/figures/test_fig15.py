"""`auras bench fig15` on tiny networks: what it compares and what it reports. The figures themselves are a bench's."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from auras_ros.bench.figures import fig15
from auras_ros.bench.figures.fig15 import REUSE_ROW, STEPS_ROW, TOKENS_ROW
from auras_ros.bench.policies import build
from auras_ros.measure import compare, rounds
from auras_ros.measure.executors import Bench
from auras_ros.measure.feed import random_feed
from auras_ros.measure.minutes import CUT
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.autoregressive import AutoregressivePolicy

SHORT = ["--rounds=2", "--chunks=1", "--seconds=0", "--device=cpu", "--cores=1"]
TOKENS = ["--model", "rt2-tiny", "--prefix", "6,12", "--tokens", "2,7"]


def test_the_report_has_a_row_for_each_size() -> None:
    report = fig15.run(["--half=tokens,reuse", *TOKENS, *SHORT], lambda text: None)
    compared = [(row["compared"], row["prefix"], row["iterations"]) for row in report.rows]
    assert compared == [
        *((TOKENS_ROW, prefix, tokens) for prefix in (6, 12) for tokens in (2, 7)),
        *((REUSE_ROW, prefix, 7) for prefix in (6, 12)),
    ]
    assert [row["other"] for row in report.rows[-2:]] == ["mode=auras,pp_generation=7,reuse=exact"] * 2
    for row in report.rows:
        assert row["low"] <= row["ratio"] <= row["high"]
        assert (row["rounds"], row["cores"]) == (2, 1)
    ratios = {"auras_over_seq_7", "reuse_over_none"}
    assert set(report.summary) == ratios | {f"{name}_prefix_12" for name in ratios}
    assert f"auras_over_seq_7 {report.summary['auras_over_seq_7']:.2f}" in fig15.table(report)


def test_denoising_steps_are_its_other_half(tiny: str, tmp_path: Path) -> None:
    """Never more stages than steps; each number of steps under a key of its own."""
    argv = ["--half=diffusion", f"--diffusion={tiny}", "--steps=2,6", "--stages=4", *SHORT]
    report = fig15.run(argv, lambda text: None)
    found = [(row["compared"], row["iterations"], Plan.parse(row["other"]).pp_generation) for row in report.rows]
    assert found == [(STEPS_ROW, 2, 2), (STEPS_ROW, 6, 4)]
    assert report.summary.keys() == {"auras_over_seq_steps_2", "auras_over_seq_steps_6"}
    picture = tmp_path / "15.png"
    fig15.draw(report, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_ratio_is_the_median_of_those_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is slow in one round, for both: a ratio of medians would have said 4."""
    rates = {"seq": [1.0, 1.0, 5.0], "auras": [2.0, 4.0, 10.0]}
    monkeypatch.setattr(Bench, "rate", lambda self, variant, length: rates[variant.plan.mode].pop(0))
    argv = ["--half=tokens", "--model=rt2-tiny", "--prefix=6", "--tokens=7", *SHORT, "--rounds=3"]
    report = fig15.run(argv, lambda text: None)
    assert report.summary == {"auras_over_seq_7": 2.0}
    assert report.rows[0]["base_per_s"] == 1.0
    assert report.rows[0]["other_per_s"] == 4.0


def test_the_minutes_are_those_of_the_whole_figure() -> None:
    """They were of each comparison: sixteen of a minute each and more ran on for a quarter of an hour and longer."""
    report = fig15.run(["--half=tokens", *TOKENS, *SHORT, "--minutes=0"], lambda text: None)
    assert report.rows == []
    assert [each.split(":")[0] for each in report.more["left_out"]] == [
        f"rt2-tiny, prefix {prefix}, {tokens} tokens on 1 core" for prefix in (6, 12) for tokens in (2, 7)
    ]
    with pytest.raises(ValueError, match="nothing was measured"):
        fig15.draw(report, Path("15.png"))


def test_a_comparison_that_seq_has_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a failure: nothing to compare with."""
    right = compare.check_same

    def slow(bench: Bench, *plans: Plan) -> None:
        right(bench, *plans)
        monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: math.inf))

    monkeypatch.setattr(compare, "check_same", slow)
    argv = ["--half=tokens", "--model=rt2-tiny", "--prefix=6", "--tokens=2", *SHORT]
    report = fig15.run(argv, lambda text: None)
    assert "failed" not in report.more
    assert report.more["left_out"][-1] == f"rt2-tiny, prefix 6, 2 tokens on 1 core: {CUT}"


def test_both_modes_compute_the_same_tokens() -> None:
    """What is compared: one observation, held still until its request is done, gives the same chunk in both modes."""
    policy = build("rt2-tiny", prefix=12, tokens=4).policy
    bench = Bench(policy, "cpu", seed=0, most=1)
    seen, chunks = random_feed(policy, 3)(1), []
    for plan in (Plan(), Plan(mode="auras", pp_generation=4)):
        executor = bench.make(plan)
        (worker,) = executor.workers
        for _ in range(plan.latency_frames):
            worker.begin(seen, 1)
            worker.run()
            emission = worker.end(1)
        assert emission is not None
        chunks.append(emission.actions)
    assert chunks[0].shape == (1, 1, 4)
    assert torch.equal(*chunks)
    bench.close()


def test_one_camera_stands_still_and_the_other_does_not() -> None:
    policy = build("rt2-tiny", prefix=12, tokens=2, cameras=2).policy
    assert isinstance(policy, AutoregressivePolicy)
    feed = fig15.one_still(policy, 0)
    one, other = feed(1), feed(2)
    assert torch.equal(one.images[:, :, 0], other.images[:, :, 0])
    assert not torch.equal(one.images[:, :, 1], other.images[:, :, 1])
    assert policy.perceive(one.images, one.state).shape[1] == sum(policy.segments) == 12


@pytest.mark.parametrize("model", ["rt2-tiny", "openvla-tiny"])
def test_the_prefix_is_as_long_as_it_says(model: str) -> None:
    for prefix in (6, 12, 64):
        policy = build(model, prefix=prefix, tokens=2).policy
        images, state = policy.example(3, torch.Generator().manual_seed(0))
        assert policy.perceive(images, state).shape[:2] == (3, prefix)


def test_modes_that_give_other_tokens_are_not_compared_and_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    right = compare.check_same

    def refuse(bench: Bench, *plans: Plan) -> None:
        if plans[1].pp_generation == 2:
            raise RuntimeError("they differ")
        right(bench, *plans)

    monkeypatch.setattr(compare, "check_same", refuse)
    argv = ["--half=tokens", "--model=openvla-tiny", "--prefix=6", "--tokens=2,3", *SHORT]
    report = fig15.run(argv, lambda text: None)
    assert report.more["failed"] == ["openvla-tiny, prefix 6, 2 tokens on 1 core: they differ"]
    assert [row["iterations"] for row in report.rows] == [3]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--tokens", "65"], "--tokens: a plan has 1 to 64 stages"),
        (["--prefix", "1"], "--prefix must be at least 2"),
        (["--prefix", "64,2"], "--prefix must be at least 3 for the two cameras of --half reuse"),
        (["--steps", "1"], "--steps must be at least 2"),
        (["--half", "both"], "--half: 'both' is not known; known: tokens, diffusion, reuse"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--model", "gpt"], "invalid choice: 'gpt'"),
    ],
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fig15.run(argv, print)
    assert said in capsys.readouterr().err
