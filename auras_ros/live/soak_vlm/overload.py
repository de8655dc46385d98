"""Ten times the requests that the server can answer: most are refused at once, the others are not late.

What the server can answer is measured first: as many clients as it takes, each asking again when it has its answer, so
that it is full and refuses nobody. However many ask, no more than these are in it: an admitted request waits for no
more others than there. What may take longer is that nine others are refused meanwhile. The promise is that this takes
half of the server's time at most, so the bound is twice the p99 of the full server. A refusal is decided before the
request is read, and is promised within REFUSED_MS: it waits for the interpreter's lock, not for a place.
"""

from __future__ import annotations

import asyncio
import itertools
import time

from auras_ros.live.soak_vlm.asks import KnownAsk, asks
from auras_ros.live.soak_vlm.client import WireAnswer, exchange
from auras_ros.live.soak_vlm.judge import FULL, BrokenPromises, refusal_text, wrong_answer
from auras_ros.live.soak_vlm.mix import LONG, OverloadResult, VlmSoak

TIMES, ROOM = 10.0, 2.0
REFUSED_MS = 250.0
TURNED_AWAY = b"connections_full"  # in the refusal of a server with as many connections as it may have
OFFERED_SHARE = 0.9  # a client that offers less proves less


async def overloaded(soak: VlmSoak) -> None:
    """The result is in the soak's."""
    settings = soak.settings
    known = await soak.learnt(asks(settings.seed, LONG, grammar=False, long=True))
    capacity_hz, full_ms = await _full(soak, known)
    await soak.settled()
    if not full_ms:
        soak.broken.add("not answered", f"nothing within {settings.overload_s:g} s, by a full server")
        return
    result = OverloadResult(capacity_hz, full_ms, ROOM * p99(full_ms))
    soak.result.overload = result
    turns, begin_s, wanted_hz = itertools.cycle(known), time.monotonic(), TIMES * capacity_hz
    sent = list[asyncio.Task[None]]()
    while (now_s := time.monotonic() - begin_s) < settings.overload_s and not soak.stopped():
        while len(sent) < now_s * wanted_hz:
            sent.append(asyncio.create_task(_one(soak, next(turns), result)))
        await asyncio.sleep(1 / wanted_hz)
    result.offered_hz = len(sent) / now_s
    await asyncio.gather(*sent)
    await soak.settled()
    judge_times(result, soak.broken)


async def _full(soak: VlmSoak, known: list[KnownAsk]) -> tuple[float, list[float]]:
    """Answers a second in a closed loop, and their times, ms, after a quarter of the time."""
    turns, done, begin_s = itertools.cycle(known), list[tuple[float, float]](), time.monotonic()
    warm_s, end_s = begin_s + soak.settings.overload_s / 4, begin_s + soak.settings.overload_s

    async def client() -> None:
        while time.monotonic() < end_s:
            if (came := await _asked(soak, next(turns))) is not None and time.monotonic() > warm_s:
                done.append((time.monotonic(), came.ms))

    await asyncio.gather(*(client() for _ in range(soak.settings.limit)))
    counted = [ms for at_s, ms in done if at_s <= end_s] or [ms for _, ms in done]
    return len(counted) / (end_s - warm_s), [ms for _, ms in done]


async def _one(soak: VlmSoak, ask: KnownAsk, result: OverloadResult) -> None:
    came = await _asked(soak, ask)
    if came is not None and came.status == FULL:
        result.refused_ms.append(came.ms)
        if "full" not in refusal_text(came):
            soak.broken.add("refused without a reason", repr(came.body[:200]))
    elif came is not None:
        result.admitted_ms.append(came.ms)


async def _asked(soak: VlmSoak, ask: KnownAsk) -> WireAnswer | None:
    """None if it did not end."""
    try:
        came = await exchange(soak.port, ask.raw(), soak.settings.patience_s)
    except OSError as error:  # TimeoutError too
        soak.broken.add("never ended" if isinstance(error, TimeoutError) else "no connection", f"{ask.name}: {error}")
        return None
    if came.status == 0 or TURNED_AWAY in came.body:
        soak.broken.add("refused late", f"{ask.name}: so many wait to be refused that the server takes no connection")
        return None
    if came.status != FULL and (why := wrong_answer(ask, came, streamed=False)):
        soak.broken.add("wrong answer", f"long {ask.name}: {why}")
    return came


def judge_times(result: OverloadResult, broken: BrokenPromises) -> None:
    """The times, and whether so much was offered."""
    wanted_hz = TIMES * result.capacity_hz
    if result.offered_hz < OFFERED_SHARE * wanted_hz:
        broken.add("not offered", f"{result.offered_hz:.0f} of {wanted_hz:.0f} requests a second: a busy machine")
    for kind, times, bound_ms in (
        ("late", result.admitted_ms, result.bound_ms), ("refused late", result.refused_ms, REFUSED_MS),
    ):  # fmt: skip
        if not times:
            broken.add(kind, "none, so there is no time")
        elif (found := p99(times)) > bound_ms:
            broken.add(kind, f"p99 {found:.0f} ms of {len(times)}, promised are {bound_ms:.0f}")


def p99(times: list[float]) -> float:
    return sorted(times)[-(-99 * len(times) // 100) - 1]
