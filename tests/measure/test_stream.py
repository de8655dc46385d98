"""Jobs that queue, how long each takes, and what is made of it.

Guards: a job skipped for a newer one, or done twice; a completion time that leaves out the waiting; what another stream
left behind counted.
"""

from __future__ import annotations

import threading
import time

import pytest

from auras_ros.measure.executors import Bench
from auras_ros.measure.stream import Completed, Queue, complete, saturate, spread_percent
from auras_ros.pipeline.modes import Executor
from auras_ros.pipeline.plan import Plan
from auras_ros.pipeline.request import Worker

MS = 1_000_000
PLANS = [
    "ddpm4",
    "ddpm4,mode=par,concurrency=2",
    "ddpm4,mode=auras,pp_generation=3",
    "ddpm4,mode=auras,pp_perception=2",
]


def test_jobs_are_taken_in_their_order_when_they_have_arrived(bench: Bench) -> None:
    queue = Queue(bench.feed, 100, 10, 3)
    assert queue(99) is None
    taken = [queue(now).origin.mono_ns for now in (100, 105, 131, 132, 500)]  # type: ignore[union-attr]
    assert taken == [100, 100, 110, 120, 120]  # where nobody waits the last one is still to be seen


def test_the_figures_of_a_run_are_plain_arithmetic() -> None:
    done = Completed(
        9, 5 * MS, tuple(range(9)), tuple(k * MS for k in (10, 10, 10, 20, 20, 20, 40, 40, 40)), (0, 10, 30, 40, 60)
    )
    fields = done.fields()
    assert fields["jct_ms"] == 20
    assert (fields["jct_ms_first"], fields["jct_ms_last"]) == (10, 40)
    assert fields["grows_ms"] == 30 / 6
    assert fields["rate_hz"] == pytest.approx(4e9 / 60)
    assert fields["spread_percent"] == pytest.approx(100 * 5 / 15)
    assert spread_percent((0, 10, 20, 30)) == 0
    assert spread_percent((0, 10)) is None
    assert Completed(3, MS, (), (), ()).fields()["jct_ms"] is None


@pytest.mark.parametrize("text", PLANS)
def test_every_mode_finishes_every_job_once(bench: Bench, text: str) -> None:
    """Twice on one executor, after a full one: what another stream left behind is not this one's."""
    executor = bench.prepare(Plan.parse(text))
    for jobs in (7, 5):
        assert len(saturate(executor, bench.feed, 6, 120.0)) == 6
        began_ns = time.monotonic_ns()
        done = complete(executor, bench.feed, 2 * MS, jobs, 120.0)
        assert len(done.jct_ns) == len(done.ended_ns) == jobs
        first_ns = done.arrived_ns[0]
        assert done.arrived_ns == tuple(range(first_ns, first_ns + 2 * MS * jobs, 2 * MS))
        assert first_ns >= began_ns
        assert all(jct_ns > 0 for jct_ns in done.jct_ns)


class Slow:
    """A worker whose work takes at least so long."""

    def __init__(self, worker: Worker, least_s: float) -> None:
        self._worker, self._least_s, self.name = worker, least_s, worker.name
        self.wants, self.begin, self.end = worker.wants, worker.begin, worker.end

    def run(self) -> None:
        threading.Event().wait(self._least_s)
        self._worker.run()


def slowed(executor: Executor, least_s: float) -> Executor:
    executor.workers = tuple(Slow(worker, least_s) for worker in executor.workers)
    return executor


def test_waiting_counts_and_more_workers_wait_less(bench: Bench) -> None:
    """Jobs come every 2 ms and take 30 ms each: the k-th waits for those before it, two at a time for two workers."""
    jobs, work_ms = 9, 30
    for workers in (1, 2):
        executor = slowed(bench.make(Plan("ddpm4", "par", concurrency=workers)), work_ms / 1e3)
        done = complete(executor, bench.feed, 2 * MS, jobs, 120.0)
        executor.close()
        for k, jct_ns in enumerate(done.jct_ns):
            assert jct_ns / MS >= (k // workers + 1) * work_ms - 2 * k - 1
        assert (done.fields()["grows_ms"] or 0) > 0


def test_a_stream_that_takes_too_long_ends_with_what_it_has(bench: Bench) -> None:
    for limit_s in (0.5, 4.0, 20.0):  # a busy machine may not get to the first
        executor = slowed(bench.make(Plan("ddpm4")), 0.05)
        done = complete(executor, bench.feed, MS, 1000, limit_s)
        executor.close()
        if done.jct_ns:
            break
    assert 0 < len(done.jct_ns) < 1000
    assert done.fields()["finished"] == len(done.jct_ns)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_worker_that_fails_ends_the_stream(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = bench.prepare(Plan("ddpm4"))

    def fail() -> None:
        raise ArithmeticError("broken on purpose")

    monkeypatch.setattr(executor.workers[0], "run", fail)
    with pytest.raises(RuntimeError, match="ddpm4: a worker failed"):
        complete(executor, bench.feed, MS, 5, 60.0)
