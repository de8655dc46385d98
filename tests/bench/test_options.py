"""Options that benches share: what cannot be meant is refused by name, before anything is measured."""

from __future__ import annotations

import argparse

import pytest

from auras_ros.bench.options import add_minutes, add_windows, check_cores, listed
from auras_ros.cli import main as cli
from auras_ros.cli.bench import BENCHES
from auras_ros.measure.cores import available, suffix


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="auras bench x")
    add_windows(made)
    add_minutes(made, 10.0)
    made.add_argument("--concurrency", type=listed(int))
    made.add_argument("--alpha", type=listed(float))
    return made


def test_amounts_and_lists_are_read(parser: argparse.ArgumentParser) -> None:
    options = parser.parse_args(["--minutes=0.5", "--seconds=0", "--concurrency=1,2", "--alpha=0,0.5"])
    assert (options.minutes, options.seconds, options.concurrency, options.alpha) == (0.5, 0.0, [1, 2], [0.0, 0.5])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--minutes=-1", "--minutes: expected a number of at least 0, got '-1'"),
        ("--minutes=inf", "--minutes: expected a number of at least 0, got 'inf'"),
        ("--seconds=nan", "--seconds: expected a number of at least 0, got 'nan'"),
        ("--seconds=soon", "--seconds: expected a number of at least 0, got 'soon'"),
        ("--concurrency=a,b", "--concurrency: expected whole numbers separated by commas, got 'a,b'"),
        ("--concurrency=1.5", "--concurrency: expected whole numbers"),
        ("--alpha=", "--alpha: expected numbers separated by commas, got ''"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([given])
    assert ended.value.code == 2
    assert f"auras bench x: error: argument {said}" in capsys.readouterr().err


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_is_bounded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["bench", name, "--minutes=-1"])
    assert refused.value.code == 2
    assert "--minutes: expected a number of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", name, "--help"])
    assert not ended.value.code
    assert f"auras bench {name}" in capsys.readouterr().out


def test_a_bench_that_has_two_forms_explains_the_one_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", "nova-load", "--device", "cpu", "--help"])
    assert "--schedulers" in capsys.readouterr().out


def test_the_fair_comparison_comes_first_and_then_all_cores() -> None:
    parser, most = argparse.ArgumentParser(), available()
    assert check_cores(parser, None, "cpu") == list(dict.fromkeys([1, most]))
    assert check_cores(parser, ["all"], "cpu") == check_cores(parser, None, "cuda") == [most]
    assert [suffix(cores, [1, 16]) for cores in (1, 16)] == ["", "_cores_16"]


@pytest.mark.parametrize("word", ["0", "-1", "1.5", "many", "100000"])
def test_cores_that_are_not_there_are_refused(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        check_cores(argparse.ArgumentParser(), [word], "cpu")
    assert f"got '{word}'" in capsys.readouterr().err
