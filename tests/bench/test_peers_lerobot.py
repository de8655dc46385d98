"""LeRobot's part of `auras bench peers` with a peer that stands in for it; and with LeRobot, where there is one.

Guards: a figure of two policies that are not the same; a check that would pass whatever is computed; a compiled policy
that was never compared; torch.compile missing taken for a failure, or its time for a rate.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from auras_ros.bench.peers import command, lerobot
from auras_ros.bench.peers.contest import UnequalError
from auras_ros.measure.executors import Bench
from auras_ros.report.result import Report
from tests.bench.fake_lerobot import FakeLeRobot
from tests.policies.loaders.lerobot_tiny import tiny_backbones

__all__ = ["tiny_backbones"]

PYTHON = "AURAS_LEROBOT_PYTHON"
ARGV = ["--only=lerobot", "--pp-generation=2", "--rounds=1", "--seconds=0", "--chunks=2", "--device=cpu"]
HERE = [*ARGV, f"--lerobot-python={sys.executable}"]  # not asked: another stands in

pytestmark = pytest.mark.usefixtures("tiny_backbones")


def run(monkeypatch: pytest.MonkeyPatch, fake: FakeLeRobot, *more: str, measured: bool = False) -> Report:
    """measured: our own rates too; they take seconds."""
    monkeypatch.setattr(lerobot, "PeerProcess", fake)
    if not measured:
        monkeypatch.setattr(Bench, "rate", lambda *_: 4.0)
    return command.run([*HERE, *more], lambda text: None)


def test_all_four_are_compared_after_they_were_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLeRobot()
    report = run(monkeypatch, fake, "--rounds=2", measured=True)
    rows = {row["contender"]: row for row in report.rows}
    assert list(rows) == ["eager", "compiled", "seq", "auras"]
    assert fake.asked[:6] == ["hello", "make", "observe", "outputs", "compile", "outputs compiled"]
    assert sorted(fake.asked[6:]) == sorted(["time", "time compiled"] * 2 + ["close"])
    assert rows["eager"]["chunks_per_s"] == 2.0
    assert rows["compiled"]["chunks_per_s"] == 4.0
    assert rows["compiled"]["ratio"] == report.summary["lerobot_compiled_over_eager"] == 2.0
    assert rows["compiled"]["compile_s"] == 61.0
    for row in rows.values():
        assert row["max_difference"] < 1e-5
        assert row["n"] == 2
        assert row["p10"] <= row["chunks_per_s"] <= row["p90"]
    assert rows["seq"]["max_difference"] > 0
    assert rows["auras"]["plan"] == "ddpm20,mode=auras,pp_generation=2"
    assert rows["auras"]["ratio"] == report.summary["lerobot_auras_over_eager"] == rows["auras"]["chunks_per_s"] / 2
    assert rows["eager"]["torch"] == "2.10.0"
    assert rows["seq"]["torch"] == torch.__version__
    said = command.table(report)
    assert "compiled in 61 s (mode reduce-overhead), not counted" in said
    assert "lerobot 0.4.4 torch 2.10.0" in said


def shifted(chunks: Tensor) -> Tensor:
    """By two thousandths of the range of one action of one observation, and by less in another."""
    out = chunks.clone()
    out[1, 2, 0] += 0.01
    out[2, 0, 1] += 1e-4
    return out


def broken(chunks: Tensor) -> Tensor:
    return chunks.index_fill(1, torch.tensor([3]), float("nan"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            shifted,
            r"seq differs from LeRobot's eager policy by up to 0\.0\d+ of .* \(observation 1, action 2, channel 0",
        ),
        (broken, "two observations differ by nan of an action's range"),
        (lambda chunks: chunks[:, 1:], r"seq: chunks are \[3, 6, 3\], LeRobot's \[3, 5, 3\]"),
        (lambda chunks: chunks[:1].expand_as(chunks), "two observations differ by 0 of .* would prove nothing"),
    ],
)
def test_what_is_not_the_same_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Tensor], Tensor], said: str
) -> None:
    fake = FakeLeRobot(spoil)
    report = run(monkeypatch, fake)
    assert report.rows == []
    assert re.search(said, report.more["failed"][0])
    assert "time" not in fake.asked
    assert fake.asked[-1] == "close"


def test_a_number_that_is_none_is_no_equal_one() -> None:
    expected = torch.zeros(3, 6, 3, dtype=torch.float64)
    got = expected.clone()
    got[2, 1, 0] = float("nan")
    with pytest.raises(UnequalError, match=r"by up to nan of .* \(observation 2, action 1, channel 0\)"):
        lerobot.difference("auras", got, expected, torch.ones(3))
    assert lerobot.difference("auras", expected, expected, torch.ones(3)) == 0.0


def test_the_compiled_policy_is_compared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, asked = FakeLeRobot(), []

    def second(chunks: Tensor) -> Tensor:
        asked.append(1)
        return chunks + 0.1 * (len(asked) > 1)

    fake._spoil = second
    (said,) = run(monkeypatch, fake).more["failed"]
    assert "compiled differs from LeRobot's eager policy" in said


def test_no_compiler_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLeRobot(compiles=False)
    report = run(monkeypatch, fake)
    rows = {row["contender"]: row for row in report.rows}
    assert rows["compiled"]["chunks_per_s"] is None
    assert "not measured: torch.compile does not run there" in rows["compiled"]["why"]
    assert "no g++" in command.table(report)
    assert "time compiled" not in fake.asked
    assert "lerobot_auras_over_compiled" not in report.summary
    assert report.summary["lerobot_auras_over_eager"] > 0


def test_a_peer_that_takes_no_time_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLeRobot()
    fake.seconds[False] = 0.0
    report = run(monkeypatch, fake, "--no-compile")
    assert any("time: expected 2 requests or more, but their times are" in text for text in report.more["failed"])


def test_whole_rounds_count_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeLeRobot()
    timed = fake.time

    def time(chunks: int, seconds: float, compiled: bool) -> dict[str, object]:
        if fake.asked.count("time") > 1:
            raise KeyboardInterrupt
        return timed(chunks, seconds, compiled)

    monkeypatch.setattr(fake, "time", time)
    report = run(monkeypatch, fake, "--no-compile", "--rounds=5")
    assert [row["n"] for row in report.rows] == [1, 1, 1]
    assert report.more["interrupted"].startswith("interrupted while measuring lerobot")
    assert fake.asked[-1] == "close"


def test_more_stages_than_steps(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, FakeLeRobot(), "--pp-generation=21")
    assert "pp_generation: 21 stages for 20 generation steps" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} does not name the Python of a LeRobot environment")
def test_lerobot_itself(tmp_path: Path) -> None:
    argv = [*ARGV, "--shape=tiny", "--sampler=ddim10", f"--lerobot-python={os.environ[PYTHON]}"]
    report = command.run(argv, lambda text: None)
    assert [row["contender"] for row in report.rows] == ["eager", "compiled", "seq", "auras"]
    assert all(row["max_difference"] < 1e-4 for row in report.rows if row["chunks_per_s"])
    assert report.summary["lerobot_seq_over_eager"] > 0
    assert report.rows[0]["lerobot"] != "unknown"
