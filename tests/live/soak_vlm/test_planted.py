"""Faults planted in a real server, each of which the soak must find and name; and none where there is none."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from auras_ros.engine.options import EngineOptions
from auras_ros.engine.tables import BlockTables
from auras_ros.live.soak_vlm import asks, mix, run
from auras_ros.live.soak_vlm.asks import Trial
from auras_ros.live.soak_vlm.hostile import hostile
from auras_ros.live.soak_vlm.mix import VlmSoak, VlmSoakSettings
from auras_ros.live.soak_vlm.overload import overloaded
from auras_ros.live.soak_vlm.run import soak_server
from auras_ros.serve import connections, service
from auras_ros.serve.forms import AnswerWriter
from auras_ros.serve.pieces import Pieces
from tests.serve.serving import serving

EVERY = 23  # the fault comes once for so many


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mix, "KNOWN", 12)


@contextmanager
def soaking(folder: Path, requests: int = 80, patience_s: float = 30.0) -> Iterator[VlmSoak]:
    settings = VlmSoakSettings(requests, 0, 4, 4, patience_s, overload_s=2.0, grammar=False)
    options = EngineOptions(kv_mib=1, running=4, waiting=4, chunked=True)
    with serving(folder, options, body_mib=1) as served:
        yield VlmSoak(served.port, os.getpid(), settings, lambda text: None, lambda: False)


def found(soak: VlmSoak) -> dict[str, int]:
    asyncio.run(soak.mixed())
    return dict(soak.broken.kinds)


def test_a_sound_server_breaks_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory is that of the tests too."""
    monkeypatch.setattr(mix, "judge_rise", lambda *_: None)
    with soaking(folder) as soak:
        assert found(soak) == {}, soak.broken.texts
        assert sum(map(len, soak.result.times.values())) == 80 + soak.result.known
        assert soak.result.answers > soak.result.known / 2


def test_every_hostile_kind_is_refused(folder: Path) -> None:
    with soaking(folder) as soak:

        async def all_of(turn: int) -> None:
            for number, (name, bad) in enumerate(hostile(random.Random(turn), 1).items()):
                await soak._one(Trial(number, name, bad.raw, hostile=bad))
            await soak.settled()

        for turn in range(3):
            asyncio.run(all_of(turn))
        assert soak.broken.texts == []


def test_an_answer_of_another_request_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while the answers are learnt, and so often that some of those that are asked alone again are swapped: of a
    request in the mix the client may go, or the deadline come."""
    real, turns, kept = AnswerWriter.whole, itertools.count(1), list[Any]()

    def swapped(self: AnswerWriter, answers: Any) -> bytes:
        kept.append(answers)
        turn = next(turns)
        return real(self, kept[-2] if turn > 2 * mix.KNOWN and turn % 3 == 0 else answers)

    monkeypatch.setattr(AnswerWriter, "whole", swapped)
    with soaking(folder) as soak:
        assert found(soak)["wrong answer"] > 0
    assert soak.broken.requests[0]["bytes_latin1"].startswith("POST /v1/")


def test_a_block_that_stays_allocated_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, turns = BlockTables.give_back, itertools.count(1)

    def leaking(self: BlockTables, active: Any, forget: bool = False) -> None:
        if next(turns) % EVERY == 0:
            active.table = active.table[1:]
        real(self, active, forget)

    monkeypatch.setattr(BlockTables, "give_back", leaking)
    with soaking(folder, patience_s=2.0) as soak:
        assert found(soak)["left behind"] > 0
    assert any("blocks_in_use_ratio" in text for text in soak.broken.texts)


def test_a_request_that_never_ends_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody leaves: of a client that goes no end is missed, and which requests lose theirs is a matter of time."""
    monkeypatch.setattr(asks, "SHARES", {"whole": 1.0})
    real, turns, kept = Pieces.__call__, itertools.count(1), list[Any]()

    def losing(self: Pieces, index: int, piece: Any) -> None:
        if piece.finish is None or next(turns) not in (40, 47, 54):
            real(self, index, piece)
        else:
            kept.append((self, index, piece))

    monkeypatch.setattr(Pieces, "__call__", losing)
    with soaking(folder, patience_s=2.0) as soak:
        kinds = found(soak)
        for each in kept:
            real(*each)  # or the server would wait for them at its end
    assert kinds["never ended"] > 0


def test_a_place_that_is_never_given_back_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, turns = service.ModelService.place, itertools.count(1)

    @contextmanager
    def lost(self: service.ModelService) -> Iterator[service.Place]:
        with real(self) as place:
            self.preparing += next(turns) == 2 * EVERY
            yield place

    monkeypatch.setattr(service.ModelService, "place", lost)
    with soaking(folder, patience_s=2.0) as soak:
        assert found(soak)["left behind"] > 0
    assert any("requests_preparing 1" in text for text in soak.broken.texts)


def test_a_hostile_request_that_is_taken_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgiving(body: bytes, kind: Any) -> Any:
        try:
            return real(body, kind)
        except service.ApiError:
            return real(b'{"prompt": "a", "max_tokens": 1}', kind)

    real = service.read_fields
    monkeypatch.setattr(service, "read_fields", forgiving)
    with soaking(folder) as soak:
        assert found(soak)["not refused"] > 0


def test_an_overload_is_refused_with_its_reason_and_right_answers(folder: Path) -> None:
    with soaking(folder) as soak:
        asyncio.run(overloaded(soak))
    load = soak.result.overload
    assert load is not None
    assert not soak.broken.kinds.keys() - {"late", "refused late", "not offered"}, soak.broken.texts
    assert min(len(load.admitted_ms), len(load.refused_ms), len(load.full_ms)) > 0
    assert load.offered_hz > load.capacity_hz


def test_refusals_that_keep_all_connections_open_are_late_ones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The web server turns others away then, before they have asked."""
    monkeypatch.setattr(connections, "CONNECTIONS", 6)
    with soaking(folder) as soak:
        asyncio.run(overloaded(soak))
    assert "refused late" in soak.broken.kinds
    assert "wrong answer" not in soak.broken.kinds


def test_a_server_that_is_gone_is_a_broken_promise(folder: Path) -> None:
    with soaking(folder) as soak:
        pass
    asyncio.run(soak_server(soak))
    assert soak.broken.kinds == {"process ended": 1}


def test_a_server_that_dies_is_a_broken_promise(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def kill(soak: VlmSoak) -> None:
        os.kill(soak.process, signal.SIGKILL)

    monkeypatch.setattr(run, "soak_server", kill)
    result = run.soak_vlm(folder, 1, 1, VlmSoakSettings(), tmp_path / "log", lambda text: None, lambda: False)
    assert result.broken.texts == ["process ended: the server ended with status -9"]
