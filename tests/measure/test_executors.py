"""Executors that stay warm give chunks at a rate, whichever the mode."""

from __future__ import annotations

import pytest

from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant
from auras_ros.measure.window import Length
from auras_ros.pipeline.plan import Plan

SHORT = Length(chunks=1, seconds=0.0, limit_s=60.0)


@pytest.mark.parametrize("text", ["ddpm4", "ddpm4,mode=dec", "ddpm4,mode=par,concurrency=2", "ddpm4,mode=auras"])
def test_every_mode_gives_chunks_at_a_rate(bench: Bench, text: str) -> None:
    variant = Variant(Plan.parse(text))
    assert bench.rate(variant, SHORT) > 0
    assert bench.rate(variant, SHORT) > 0  # and goes on where it ended


def test_par_is_not_held_back_and_its_counts_share_one_executor(bench: Bench) -> None:
    """Requests are not spaced (the baseline would be handicapped), and par of two has two workers of three."""
    two, three = (bench.prepare(Plan("ddpm4", "par", concurrency=count)) for count in (2, 3))
    assert [worker.name for worker in two.workers] == ["worker0", "worker1"]
    assert two.workers == three.workers[:2]
    assert two.ledger.interval_ns == three.ledger.interval_ns == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_ends_the_measurement(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = bench.prepare(Plan("ddpm4"))

    def fail() -> None:
        raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(executor.workers[0], "run", fail)
    with pytest.raises(RuntimeError, match="ddpm4: a worker failed"):
        bench.rate(Variant(Plan("ddpm4")), SHORT)
