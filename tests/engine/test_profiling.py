"""A device's profile: by an engine whose forwards take known times it gives those times back; by a real one every
phase runs what it says, the answers stay right, and nothing is left.

Guards: a decode that is counted as beside a stage although it was alone for a while; times of one split taken for
another's; a slowdown of many rows taken for that of one; a prefill's time with rows in it; requests, blocks or threads
that stay; a probe that is waited for, for ever.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from auras_ros.checkpoints.vlm.chat import VlmPrompt
from auras_ros.checkpoints.vlm.open import open_vlm
from auras_ros.checkpoints.vlm.pictures import PreparedImage
from auras_ros.clock import VirtualClock
from auras_ros.device.cpu import CpuDevice
from auras_ros.device.cpu_partition import CpuPartitions
from auras_ros.engine import simulation
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.probing import (
    PhaseTimes,
    ProbePhase,
    Prober,
    ProbeScheduler,
    ProbeTrial,
    phase_times,
)
from auras_ros.engine.profile import CorunTimes, StageProfile
from auras_ros.engine.profiling import (
    HYBRID,
    JOINED,
    PIECES,
    PREFILL,
    VISION,
    beside,
    decode,
    open_prober,
    profile_of,
    rounds,
    trials,
    trials_alone,
)
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import VlmRequest
from auras_ros.engine.scheduler import Dispatch, Stage
from auras_ros.engine.simulation import SimulatedForwards, make_simulated
from tests.checkpoints.vlm.folders import Written
from tests.engine.making import _small, answers, ended, engine_of
from tests.engine.simulated import MS, SMALL, decoding

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
KNOWN = replace(SMALL, prefill={**{size: 8.0 + size / 4 for size in PIECES}, 100: 40.0})
FAST_PREFILL = replace(
    KNOWN,
    prefill={**{size: 2.0 + size / 100 for size in PIECES}, 100: 6.0},
    corun={2: CorunTimes(90.0, 7.0, 40.0, 13.0), 6: CorunTimes(150.0, 12.0, 14.0, 12.5)},
    shared=CorunTimes(100.0, 9.0, 50.0, 20.0),
)  # a decode takes longer than a prefill


def simulated(profile: StageProfile, rows: int, probes: int, length: int = 0) -> Prober:
    """Of an engine on a virtual clock whose forwards take this profile's times. length: of prompt and answer."""
    clock, scheduler, numbers = VirtualClock(), ProbeScheduler(), count()
    forwards = SimulatedForwards(profile, clock)
    options = EngineOptions(running=rows + probes, prefix_cache=False, image_cache_mib=0, length=length)
    engine = make_simulated(scheduler, forwards, options, clock)

    def wait() -> None:
        end_ns = forwards.next_end_ns()
        assert end_ns is not None, "nothing runs, and somebody waits for it"
        clock.sleep_until_ns(end_ns)
        forwards.advance()

    def image_prompt() -> VlmPrompt:
        image = PreparedImage(torch.empty(0), (1, 1), 1, "", f"{next(numbers):064x}")
        return VlmPrompt(torch.ones(profile.prompt, dtype=torch.int64), (image,), torch.zeros(1, dtype=torch.int64))

    return Prober(engine, scheduler, forwards.log, wait, image_prompt)


def quiet(_: int) -> None: ...


@pytest.mark.parametrize(("known", "rows", "probes"), [(KNOWN, 4, 3), (KNOWN, 2, 2), (FAST_PREFILL, 3, 8)])
def test_an_engine_of_known_times_has_its_own_profile(known: StageProfile, rows: int, probes: int) -> None:
    prober = simulated(known, rows, probes)
    todo = [*trials(known.sizes, rows, probes, 10**4), *trials_alone(known.sizes, rows, probes)]
    found = list(rounds(prober, todo, 2, random.Random(1), quiet))
    measured = profile_of(found, device="made up", model="small", units=10, prompt=prober.prompt, rows=rows)
    assert_alike(measured, known)
    ended(prober.engine)
    for each in found:
        for size, times in known.corun.items():
            assert each[replace(VISION, split=size)].own_ms == pytest.approx([times.vision] * probes)
            assert each[decode(rows, size)].own_ms[0] == pytest.approx(
                times.decode_by_vision * known.decode_ms(rows) / known.decode
            )


def assert_alike(measured: StageProfile, known: StageProfile) -> None:
    for name in ("device", "model", "units", "prompt"):
        assert getattr(measured, name) == getattr(known, name)
    for name in ("vision", "decode", "decode_row", "token_row"):
        assert getattr(measured, name) == pytest.approx(getattr(known, name), rel=1e-4), name
    assert measured.prefill == pytest.approx(dict(known.prefill), rel=1e-4)
    assert measured.sizes == known.sizes
    for own, its in ((measured.shared, known.shared), *((measured.corun[s], known.corun[s]) for s in known.sizes)):
        assert vars(own) == pytest.approx(vars(its), rel=1e-3)


def of_decodes(*times: tuple[float, float, int]) -> list[tuple[Dispatch, int, int]]:
    """A log from begin, end, ms, and rows."""
    made = [(tuple(decoding(number) for number in range(rows)), a, b) for a, b, rows in times]
    return [
        (Dispatch("decode", requests, (1,) * len(requests)), round(a * MS), round(b * MS)) for requests, a, b in made
    ]


def of_stage(stage: Stage, *times: tuple[float, float]) -> list[tuple[Dispatch, int, int]]:
    return [(Dispatch(stage, (decoding(0),)), round(a * MS), round(b * MS)) for a, b in times]


def test_only_what_was_beside_the_other_stage_all_the_time_counts() -> None:
    """Two images from 0 to 100, 102 to 200 ms. Of the decodes the first began with them, two were within, one of them
    between the images, and the last one ended later; one had lost a row."""
    log = of_stage("vision", (0, 100), (102, 200)) + of_decodes((1, 90, 2), (90, 110, 2), (110, 150, 1), (160, 240, 2))
    found = phase_times(beside(VISION, 3), 2, log)
    assert found == PhaseTimes((100, 98), (89, 20), 200, 2, pytest.approx(3 + 40 / 54.5))


def test_an_image_that_decodes_did_not_outlast_does_not_count() -> None:
    log = of_stage("vision", (0, 100), (100, 200)) + of_decodes((0, 60, 2), (60, 120, 2))
    assert phase_times(beside(VISION, None), 2, log) == PhaseTimes((100,), (60, 60), 200, 2, 2)


def test_a_stage_alone_has_all_its_forwards() -> None:
    assert phase_times(VISION, 0, of_stage("vision", (0, 10), (12, 20))) == PhaseTimes((10, 8), (), 20, 2, 0)
    assert phase_times(decode(2), 2, of_decodes((5, 6, 2), (7, 9, 2))) == PhaseTimes((1, 2), (), 4, 2, 0)
    assert phase_times(VISION, 0, []) == PhaseTimes((), (), 0, 0, 0)


def test_what_is_never_beside_the_other_stage_is_named() -> None:
    """The fillers' answers are over before the first image is; a decode is longer than the prefills together."""
    prober = simulated(KNOWN, 2, 2, length=KNOWN.prompt + 3)
    with pytest.raises(RuntimeError, match=r"was beside the other one from its begin to its end \(.*'vision'.*split=4"):
        prober.run(ProbeTrial((beside(VISION, 4), beside(PREFILL, 4)), 2, 2))
    ended(prober.engine)
    prober = simulated(FAST_PREFILL, 2, 1)
    with pytest.raises(RuntimeError, match=r"'prefill', beside=True.*: more probes"):
        prober.run(ProbeTrial((beside(VISION, 2), beside(PREFILL, 2)), 2, 1))
    ended(prober.engine)


def test_requests_that_do_not_fit_are_refused_and_not_waited_for() -> None:
    with mock.patch.object(simulation, "PagedKVCache", partial(_small, 18)):  # of a prompt: 7
        prober = simulated(KNOWN, 2, 2)
    with pytest.raises(RuntimeError, match="the requests do not fit: too few blocks"):
        prober.run(ProbeTrial((beside(VISION, 2), beside(PREFILL, 2)), 2, 2))


@pytest.mark.parametrize(
    ("rows", "longest", "said"),
    [(1, 500, "rows: from 2 to 63, got 1"), (64, 500, "got 64"), (2, 63, "but 63 is the model's longest")],
)
def test_a_profile_that_could_not_be_made_is_refused(rows: int, longest: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        trials((), rows, 2, longest)


def test_the_first_round_warms_up_and_every_round_has_another_order() -> None:
    numbers, prober = list[int](), simulated(KNOWN, 2, 2)
    todo = trials(KNOWN.sizes, 2, 2, 10**4)
    found = list(rounds(prober, todo, 3, random.Random(0), numbers.append))
    assert numbers == [number for number in range(4) for _ in todo]
    assert len({tuple(each) for each in found}) == 3
    assert all(set(each) == set(found[0]) for each in found)


pytest.importorskip("transformers")
pytest.importorskip("PIL")

CORES = sorted(os.sched_getaffinity(0))[:2]
Watched = list[tuple[ProbePhase, int, list[Dispatch]]]


@contextmanager
def probing(path: Path, cores: Sequence[int]) -> Iterator[tuple[Prober, tuple[int, ...]]]:
    """With the splits of these cores."""
    device = CpuDevice()
    partitions = CpuPartitions(device, cores)
    prober = open_prober(open_vlm(path), device, partitions, rows=2, probes=12, image_px=40)
    try:
        yield prober, partitions.sizes
    finally:
        prober.close()
        device.close()


def watch(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Each phase that is run, with its rows and forwards."""
    seen: Watched = []

    def noted(phase: ProbePhase, rows: int, log: list[tuple[Dispatch, int, int]]) -> PhaseTimes:
        seen.append((phase, rows, [dispatch for dispatch, _, _ in log]))
        return phase_times(phase, rows, log)

    monkeypatch.setattr("auras_ros.engine.probing.phase_times", noted)
    return seen


@pytest.mark.parametrize("kind", ["smolvlm", "cogagent"])
@pytest.mark.parametrize("cores", [CORES[:1], pytest.param(CORES, marks=two_cores)], ids=["one", "two"])
def test_a_real_engine_runs_each_phase_and_has_a_profile(
    kind: str, cores: list[int], written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(kind).path
    seen, threads = watch(monkeypatch), set(threading.enumerate())
    with probing(path, cores) as (prober, splits):
        todo = [*trials(splits, 2, 12, prober.engine.length - 1), *trials_alone(splits, 2, 12)]
        found = list(rounds(prober, todo, 1, random.Random(0), quiet))
        ended(prober.engine)
    assert splits == ((1,) if len(cores) == 2 else ())
    assert set(threading.enumerate()) <= threads
    assert len(seen) >= 2 * sum(len(trial.phases) for trial in todo)
    assert {phase for phase, _, _ in seen} == {phase for trial in todo for phase in trial.phases}
    for phase, rows, log in seen:
        check_phase(phase, rows, log, prober.prompt)
    profile = profile_of(found, device="cpu", model=kind, units=len(cores), prompt=prober.prompt, rows=2)
    assert profile.sizes == splits
    assert set(profile.prefill) == {*PIECES, prober.prompt}


def check_phase(phase: ProbePhase, rows: int, log: list[Dispatch], prompt: int) -> None:
    """Only what the phase says, all of it, in its place."""
    own, decodes = ([each for each in log if (each.stage == phase.stage) is which] for which in (True, False))
    assert {each.stage for each in decodes} <= {"decode"}
    assert {each.split for each in log} == {phase.split}
    assert bool(decodes) is phase.beside
    assert all(len(each.requests) == rows for each in decodes)
    if phase.stage == "decode":
        assert (len(own), rows) == (16, phase.size)
        assert {len(each.requests) for each in own} == {rows}
        return
    assert len(own) == 12
    assert len({each.requests[-1].number for each in own}) == 12
    if phase.stage == "prefill":
        counts = (1,) * rows if phase.joined else ()
        assert {each.counts for each in own} == {(*counts, (phase.size or prompt) - len(counts))}


def test_answers_are_right_meanwhile(written: Callable[[str], Written], monkeypatch: pytest.MonkeyPatch) -> None:
    path, asked = written("llava").path, list[tuple[VlmRequest, Reply]]()
    with probing(path, CORES) as (prober, splits):
        submit = prober.engine.submit

        def noted(request: VlmRequest, *others: Any) -> Reply:
            asked.append((request, submit(request, *others)))
            return asked[-1][1]

        monkeypatch.setattr(prober.engine, "submit", noted)
        split = splits[0] if splits else None
        prober.run(ProbeTrial((beside(VISION, split), beside(PREFILL, split)), 2, 12))
        prober.run(ProbeTrial((HYBRID,), 2, 12, JOINED - 2))
    given = [reply.result(0).ids for _, reply in asked]
    assert sum(map(len, given)) > 2 * 12 + 2 * 12
    plain = engine_of(path, waiting=40)
    wanted = answers(plain, [replace(each, max_tokens=len(ids)) for (each, _), ids in zip(asked, given, strict=True)])
    plain.close()
    assert given == [each.ids for each in wanted]


def test_a_stage_that_fails_is_told(written: Callable[[str], Written]) -> None:
    def fails(dispatch: Dispatch) -> Any:
        raise FloatingPointError("not finite")

    with probing(written("llava").path, CORES[:1]) as (prober, _):
        prober.engine._forwards.workers["vision"] = fails
        with pytest.raises(RuntimeError, match="probing: vision failed: not finite"):
            prober.run(ProbeTrial((VISION,), probes=1))
