"""Whose chunks are taken: order, epochs, sessions, origins, form."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from auras_ros.action import ChunkRefusal, SafetyState
from tests.action.drive import refusal, run

MS = 1_000_000
STEP = 100 * MS
UP = list(range(8))  # a chunk whose value is its index


def test_duplicates_older_origins_and_older_requests_are_refused(make: SimpleNamespace) -> None:
    stream = make.armed()
    run(stream, STEP, 2 * STEP)
    assert stream.offer(make.chunk(UP, STEP, request=5), 2 * STEP).ok
    assert refusal(stream.offer(make.chunk(UP, STEP, request=5), 2 * STEP)) is ChunkRefusal.DUPLICATE
    assert refusal(stream.offer(make.chunk(UP, STEP, request=4), 2 * STEP)) is ChunkRefusal.OUT_OF_ORDER
    assert refusal(stream.offer(make.chunk(UP, 0, request=9), 2 * STEP)) is ChunkRefusal.OUT_OF_ORDER
    assert stream.offer(make.chunk(UP, STEP, request=6), 2 * STEP).ok
    assert stream.counters()["refused"] == {"duplicate": 1, "out_of_order": 2}
    assert stream.counters()["accepted"] == 2


def test_an_older_epoch_is_refused_and_a_newer_one_wins(make: SimpleNamespace) -> None:
    stream = make.armed()
    run(stream, STEP)
    assert stream.offer(make.chunk(UP, STEP, epoch=1), STEP).ok
    assert refusal(stream.offer(make.chunk(UP, STEP + 1, epoch=0), STEP + 2)) is ChunkRefusal.OLD_EPOCH
    assert stream.offer(make.chunk(UP, 0, epoch=2), STEP + 2).ok


def test_another_session_is_refused_until_rearmed(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, 0, session="a"), 1)
    run(stream, STEP)
    verdict = stream.offer(make.chunk(UP, STEP, session="b"), STEP + 1)
    assert refusal(verdict) is ChunkRefusal.OTHER_SESSION
    assert "arm again" in verdict.detail
    assert stream.session == "a"
    stream.hold(STEP + 2)
    assert refusal(stream.offer(make.chunk(UP, STEP, session="b"), STEP + 3)) is ChunkRefusal.OTHER_SESSION
    assert stream.arm(STEP + 4).ok
    assert stream.offer(make.chunk(UP, STEP, session="b"), STEP + 5).ok
    assert stream.session == "b"


def test_reset_forgets_session_and_order_and_holds(make: SimpleNamespace) -> None:
    stream = make.armed()
    stream.offer(make.chunk(UP, STEP // 2, session="a", epoch=4), STEP - 1)
    run(stream, STEP)
    stream.reset(STEP + 1, "episode over")
    assert (stream.state, stream.reason) == (SafetyState.HOLDING, "episode over")
    assert run(stream, 2 * STEP) == [0]
    assert stream.offer(make.chunk(UP, STEP, session="b", epoch=0), 2 * STEP + 1).ok


def test_origins_that_cannot_be_placed_are_refused(make: SimpleNamespace) -> None:
    stream = make.armed(max_chunk_age_ms=500)
    for k in range(1, 11):
        stream.tick(k * STEP)
    now = 10 * STEP
    assert refusal(stream.offer(make.chunk(UP, now + 1), now)) is ChunkRefusal.FUTURE_ORIGIN
    assert refusal(stream.offer(make.chunk(UP, now - 5 * STEP - 1), now)) is ChunkRefusal.TOO_OLD
    assert stream.offer(make.chunk(UP, now - 5 * STEP), now).ok
    late = make.stream()
    late.tick(now)
    late.arm(now)
    assert refusal(late.offer(make.chunk(UP, now - 1), now)) is ChunkRefusal.UNKNOWN_ORIGIN


def test_a_chunk_wholly_in_the_past_is_refused(make: SimpleNamespace) -> None:
    stream = make.armed()
    run(stream, STEP, 2 * STEP)
    assert refusal(stream.offer(make.chunk([1, 2, 3], 0), 2 * STEP + 1)) is ChunkRefusal.PAST
    assert stream.offer(make.chunk([1, 2, 3, 4], 0), 2 * STEP + 1).ok


def test_a_chunk_of_another_form_or_host_is_refused(make: SimpleNamespace) -> None:
    stream = make.armed(host="here")
    assert refusal(stream.offer(make.chunk(np.zeros((4, 2)), 0, host="here"), 1)) is ChunkRefusal.SHAPE
    assert refusal(stream.offer(make.chunk(UP, 0, host="there"), 1)) is ChunkRefusal.OTHER_HOST
    assert stream.offer(make.chunk(UP, 0, host="here"), 1).ok
    relative = make.armed(make.contract(make.channel(kind="delta_origin")))
    assert refusal(relative.offer(make.chunk(UP, 0), 1)) is ChunkRefusal.SHAPE
    assert relative.offer(make.chunk(UP, 0, reference=[10.0]), 1).ok
    assert run(relative, STEP) == [11]
