"""Every mode in time, against a model that derives by itself when frames start: grids, overruns, stalls and epochs.

`test_modes_property` chooses the moments of begin, run and end by chance. Here they follow from how long frames last:
the executor's workers are driven by the frame clock, the model (`timeline.Walked`) counts instants. Compared is when
each frame started and what it saw, when each chunk left and what its steps used, and how many ticks were missed.
"""

from __future__ import annotations

import random

from hypothesis import event, given, note, settings
from hypothesis import strategies as st

from auras_ros.pipeline.plan import Plan
from tests.pipeline.recording import BLOCKS
from tests.pipeline.timeline import UNIT_NS, Account, Left, Script, Walked, played

every_time_the_same = settings(derandomize=True, deadline=None, max_examples=60)
seeds = st.integers(0, 2**32 - 1)


def plan_of(choose: random.Random, mode: str, period: int) -> Plan:
    stages = {
        "pp_perception": choose.randint(1, BLOCKS),
        "pp_generation": choose.randint(1, 6),
        "fetch_offset": choose.choice([0, -1]),
        "alpha": choose.choice([0.0, 0.5, 1.0]),
        "batched": choose.random() < 0.5,
    }
    own = {"auras": stages, "par": {"concurrency": choose.randint(1, 4)}}
    return Plan(mode=mode, frame_period_ms=period * UNIT_NS / 1e6, **own.get(mode, {}))  # type: ignore[arg-type]


def camera(choose: random.Random, instants: int) -> list[int | None]:
    """A new observation every few instants, with stalls, with times when there is none, and with gaps in the stamps."""
    seen: list[int | None] = []
    newest, every = 1, choose.randint(1, 5)
    while len(seen) < instants:
        stays = choose.choice([every] * 8 + [choose.randint(10, 30)])
        seen += [None if choose.random() < 0.06 else newest] * stays
        newest += choose.choice([1] * 8 + [2, 30])
    return seen[:instants]


def durations(choose: random.Random, period: int, count: int) -> list[int]:
    """Most frames are over before the next tick; some end on one, some run over one or more."""
    usual = max(period, 4)
    sorts = [lambda: choose.randint(1, usual)] * 4 + [lambda: usual, lambda: choose.randint(usual, 3 * usual)]
    return [choose.choice(sorts)() for _ in range(count)]


def script_of(seed: int, mode: str) -> Script:
    choose = random.Random(seed)
    period = choose.choice([0, 2, 5, 8])
    plan = plan_of(choose, mode, period)
    instants = choose.randint(20, 240 if mode == "auras" else 120)
    workers = plan.concurrency if mode == "par" else 2 if mode == "dec" else 1
    late = [0] * 8 + [1, period, period + 1]
    return Script(
        plan=plan,
        steps=plan.pp_generation + choose.randint(0, 3),
        seen=camera(choose, instants),
        resets={choose.randrange(instants): choose.choice([None, 0, 1000]) for _ in range(choose.choice([0, 1, 2]))},
        runs=[durations(choose, period, 2 * instants) for _ in range(workers)],
        late=[[choose.choice(late) for _ in range(2 * instants + 2)] for _ in range(workers)],
        stale=choose.choice([None, None, 10]),
    )


def check(seed: int, mode: str) -> None:
    script = script_of(seed, mode)
    note(f"{script.plan}, period {script.period}, resets {script.resets}, stale {script.stale}")
    note(f"seen {script.seen}")
    rules, real = Walked(script).account, played(script, random.Random(seed))
    assert real.starts == rules.starts
    assert real.left == rules.left
    assert real.missed == rules.missed
    event(f"{min(len(real.left), 5)} or more left, {min(sum(real.missed), 3)} or more ticks missed")


@every_time_the_same
@given(seeds)
def test_auras_in_time(seed: int) -> None:
    """Rules 1 to 5 and 9."""
    check(seed, "auras")


@every_time_the_same
@given(seeds)
def test_seq_in_time(seed: int) -> None:
    """Rules 1, 4 and 9."""
    check(seed, "seq")


@every_time_the_same
@given(seeds)
def test_dec_in_time(seed: int) -> None:
    """Rules 1, 4, 9 and 11: each of its workers has a grid of its own."""
    check(seed, "dec")


@every_time_the_same
@given(seeds)
def test_par_in_time(seed: int) -> None:
    """Rules 4, 9 and 11: no grid, but an interval between requests; workers run beside each other."""
    check(seed, "par")


def test_a_script_worked_out_by_hand() -> None:
    """Period 4; the second frame runs over the ticks at 8 and 12, the third wakes 5 late, over the one at 20.

    So the frames start at 0, 4, 16 + 5 and 24, the last as soon as there is a tick and something to see.
    """
    seen = [1] * 4 + [2] * 12 + [3] * 8 + [4] * 4
    plan = Plan(mode="seq", frame_period_ms=4 * UNIT_NS / 1e6)
    script = Script(plan, 2, seen, {}, [[2, 9, 2, 2]], [[0, 0, 5, *[0] * 60]])
    expected = Account(
        starts=[(0, 0, 1), (0, 4, 2), (0, 21, 3), (0, 24, 4)],
        left=[
            Left(2, 0, 0, 0, (1, 1)),
            Left(13, 1, 0, 1, (2, 2)),
            Left(23, 2, 0, 2, (3, 3)),
            Left(26, 3, 0, 3, (4, 4)),
        ],
        missed=[2 + 1],
    )
    assert Walked(script).account == expected
    assert played(script, random.Random(0)) == expected
