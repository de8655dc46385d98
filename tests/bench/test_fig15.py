"""`auras bench fig15` on tiny networks: what it compares and what it reports. The figures themselves are a bench's."""

from __future__ import annotations

import pytest
import torch

from auras_ros.bench import fig15
from auras_ros.bench.feed import random_feed
from auras_ros.bench.fig15 import vision_language_policy
from auras_ros.bench.pipeline_rate import Bench
from auras_ros.pipeline.plan import Plan


def test_the_report_has_a_row_for_each_size() -> None:
    argv = ["--model", "rt2-tiny", "--prefix", "6,12", "--tokens", "2,7", "--rounds", "2", "--device", "cpu"]
    report = fig15.run(argv, lambda text: None)
    compared = [(row["compared"], row["prefix"], row["tokens"]) for row in report.rows]
    assert compared == [
        *(("auras over seq", prefix, tokens) for prefix in (6, 12) for tokens in (2, 7)),
        *(("reuse over none", prefix, 7) for prefix in (6, 12)),
    ]
    assert [row["other"] for row in report.rows[-2:]] == ["quick,mode=auras,pp_generation=7,reuse=exact"] * 2
    for row in report.rows:
        assert row["ratio"] == row["other_per_s"] / row["base_per_s"]
        assert row["low"] <= row["high"]
        assert row["rounds"] == 2
    ratios = {"auras_over_seq_7", "reuse_over_none"}
    assert set(report.summary) == ratios | {f"{name}_prefix_12" for name in ratios}
    assert f"auras_over_seq_7 {report.summary['auras_over_seq_7']:.2f}" in fig15.table(report)


def test_both_modes_compute_the_same_tokens() -> None:
    """What is compared: one observation, held still until its request is done, gives the same chunk in both modes."""
    policy = vision_language_policy("rt2-tiny", prefix=12, tokens=4)
    bench = Bench(policy, "cpu", seed=0, most=1)
    seen, chunks = random_feed(policy, 3)(1), []
    for plan in (Plan(), Plan(mode="auras", pp_generation=4)):
        executor = bench.make(plan)
        (strand,) = executor.strands
        for _ in range(plan.latency_frames):
            strand.begin(seen, 1)
            strand.run()
            emission = strand.end(1)
        assert emission is not None
        chunks.append(emission.actions)
    assert chunks[0].shape == (1, 1, 4)
    assert torch.equal(*chunks)
    bench.close()


def test_one_camera_stands_still_and_the_other_does_not() -> None:
    policy = vision_language_policy("rt2-tiny", prefix=12, tokens=2, cameras=2)
    feed = fig15.one_still(policy, 0)
    one, other = feed(1), feed(2)
    assert torch.equal(one.images[:, :, 0], other.images[:, :, 0])
    assert not torch.equal(one.images[:, :, 1], other.images[:, :, 1])
    assert policy.perceive(one.images, one.state).shape[1] == sum(policy.segments) == 12


@pytest.mark.parametrize("model", ["rt2-tiny", "openvla-tiny"])
def test_the_prefix_is_as_long_as_it_says(model: str) -> None:
    for prefix in (6, 12, 64):
        policy = vision_language_policy(model, prefix, 2)
        images, state = policy.example(3, torch.Generator().manual_seed(0))
        assert policy.perceive(images, state).shape[:2] == (3, prefix)


def test_modes_that_give_other_tokens_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(bench: Bench, *plans: Plan) -> None:
        raise RuntimeError("they differ")

    monkeypatch.setattr(fig15, "check_same", refuse)
    with pytest.raises(RuntimeError, match="they differ"):
        fig15.run(["--model", "openvla-tiny", "--prefix=6", "--tokens=2", "--rounds=1", "--device=cpu"], print)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--tokens", "65"], "--tokens: a plan has 1 to 64 stages"),
        (["--prefix", "1"], "--prefix must be at least 2"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--model", "gpt"], "invalid choice: 'gpt'"),
    ],
)
def test_options_that_cannot_be_used(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fig15.run(argv, print)
    assert said in capsys.readouterr().err
