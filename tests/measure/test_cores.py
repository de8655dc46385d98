"""Equal cores on both sides of a ratio.

Guards: a second core for auras, whose perception has a thread of its own at fetch_offset -1, beside seq on one; a row
that does not say on how many cores it was measured.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from auras_ros.measure.cores import available, on_cores, threads_tried, unnamed
from auras_ros.measure.executors import Bench
from auras_ros.measure.forms import Variant
from auras_ros.measure.window import Length
from auras_ros.pipeline.plan import Plan
from auras_ros.policies.architectures import make_policy

several = pytest.mark.skipif(available() < 2, reason="one core: there is nothing to be unequal with")


@several
def test_threads_that_begin_meanwhile_stay_on_the_cores() -> None:
    before, seen = os.sched_getaffinity(0), list[set[int]]()
    with on_cores(1):
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert seen == [{min(before)}]
    assert os.sched_getaffinity(0) == before
    with pytest.raises(ValueError, match="cores: from 1 to the"), on_cores(len(before) + 1):
        pass


@several
@pytest.mark.parametrize("plan", ["ddpm4", "ddpm4,mode=auras,pp_generation=2,fetch_offset=-1", "ddpm4,mode=dec"])
def test_every_thread_of_a_bench_has_its_cores_and_no_other(
    plan: str, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a policy's network runs, perception's own thread among them."""
    policy = make_policy(tiny, seed=0, steps=4)
    ran: dict[str, set[int]] = {}

    def noted(right: Callable[..., object]) -> Callable[..., object]:
        def run(*args: object, **rest: object) -> object:
            ran[threading.current_thread().name] = os.sched_getaffinity(0)
            return right(*args, **rest)

        return run

    for name in ("encoder", "network"):
        module = getattr(policy, name)
        monkeypatch.setattr(module, "forward", noted(module.forward))
    bench = Bench(policy, "cpu", 0, most=1, cores=1)
    variant = Variant(Plan.parse(plan))
    bench.prepare(variant.plan)
    ran.clear()  # warm-up runs here
    assert bench.rate(variant, Length(chunks=1, seconds=0.0, limit_s=60.0)) > 0
    bench.close()
    assert len(ran) == (1 if plan == "ddpm4" else 2)
    assert all(cores == {min(os.sched_getaffinity(0))} for cores in ran.values()), ran


def test_threads_are_tried_up_to_all_cores() -> None:
    assert [threads_tried(cores, "cpu") for cores in (1, 2, 6)] == [(1,), (1, 2), (1, 2, 4, 6)]
    assert threads_tried(16, "cuda") == (1,)


def test_a_row_without_its_cores_is_found() -> None:
    assert unnamed([{"cores": 1}, {"cores": 2}]) == ""
    assert unnamed([{"cores": 1}, {"rate": 2.0}, {"cores": None}]) == "rows without cores: 1, 2"
