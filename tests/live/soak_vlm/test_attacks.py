"""Attacks on a real server: each does what its name says, others are answered, and what shuts them out is found."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from auras_ros.live.soak_vlm import under_attack
from auras_ros.live.soak_vlm.attack_summary import attack_report, attack_table
from auras_ros.live.soak_vlm.attacks import connections as attacks
from auras_ros.live.soak_vlm.attacks.known import ATTACKS
from auras_ros.live.soak_vlm.attacks.target import AttackTarget
from auras_ros.live.soak_vlm.client import http_bytes
from auras_ros.live.soak_vlm.hostile import TEXT
from auras_ros.live.soak_vlm.judge import BrokenPromises
from auras_ros.live.soak_vlm.under_attack import AttackResult, AttackSettings, ClientTimes, attack_server, judge_attack
from auras_ros.serve import bodies, connections
from tests.serve.serving import serving, until

TOKEN = "secret"
PLACES = under_attack.RUNNING + under_attack.WAITING


@dataclass(frozen=True)
class StoppedTarget(AttackTarget):
    """Of an attack that goes on until it is told to stop."""

    ended: threading.Event = field(default_factory=threading.Event)

    def is_running(self) -> bool:
        return not self.ended.is_set()


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("headers", 'auras_refused_total{status="431"}'),
        ("long_url", 'auras_refused_total{status="414"}'),
        ("slow_headers", "auras_connections_given_up_total"),
        ("slow_bodies", 'auras_refused_total{status="408"}'),
        ("idle_connections", "auras_connections_given_up_total"),
        ("grammars", 'auras_refused_total{status="400"}'),
        ("many_errors", 'auras_refused_total{status="400"}'),
        ("scans", 'auras_refused_total{status="400"}'),
    ],
)
def test_an_attack_is_refused_and_others_are_answered(
    folder: Path, name: str, counted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "grammars":
        pytest.importorskip("llguidance")
    monkeypatch.setattr(bodies, "GRACE_S", 1.0)
    monkeypatch.setattr(connections, "CONNECTIONS", 60)
    monkeypatch.setattr(attacks, "IDLE", 100)
    authorization = f"Bearer {TOKEN}"
    with serving(folder, token=TOKEN) as served:
        target = StoppedTarget(served.port, TOKEN, 0.0)

        def attack() -> None:
            while target.is_running():
                with contextlib.suppress(OSError):
                    ATTACKS[name](target)

        def count() -> float:
            try:
                text = served.get("/metrics", Authorization=authorization)[1]
            except ConnectionError:  # beside so many new connections, this one was the oldest that had said nothing
                return 0.0
            line = re.search(rf"^{re.escape(counted)} (\S+)$", text, re.MULTILINE)
            return float(line[1]) if line else 0.0

        attacking = threading.Thread(target=attack)
        attacking.start()
        try:
            until(lambda: count() >= 3)
            until(lambda: answers(lambda: served.get("/health")))
            question = {"prompt": "left", "max_tokens": 2}
            until(lambda: answers(lambda: served.post(TEXT, question, Authorization=authorization)))
        finally:
            target.ended.set()
            attacking.join()


def answers(ask: Callable[[], Any]) -> bool:
    """Whether the answer is 200. A client that was given up before it could ask, asks again."""
    try:
        status = ask()[0]
    except ConnectionError:
        return False
    assert status == 200
    return True


def take_every_place(target: AttackTarget) -> None:
    """An attack that no server can be expected to stand: it has the token, and asks as much as the server takes."""
    body = b'{"prompt": "left", "max_tokens": 4000, "ignore_eos": true}'
    raw = http_bytes(TEXT, body, token=target.token)
    with contextlib.ExitStack() as stack:
        while target.is_running():
            for _ in range(PLACES + 1):
                stack.enter_context(target.connect()).sendall(raw)
            time.sleep(0.1)


def test_a_client_that_is_shut_out_is_found(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In processes of their own, as `auras soak` runs them."""
    monkeypatch.setattr(under_attack, "ATTACKS", {"take_every_place": take_every_place})
    monkeypatch.setattr(under_attack, "FULL_S", 1.0)
    settings = AttackSettings(("take_every_place",), alone_s=1.0, attack_s=3.0)
    results, broken = attack_server(folder, settings, tmp_path / "log", lambda text: None, lambda: False)
    [result] = results
    assert broken.kinds["take_every_place: not answered"] > 0, broken.texts
    assert any("status 429" in text for text in broken.texts)
    assert result.alone.failures == []
    assert min(len(result.alone.answer_ms), len(result.alone.health_ms), len(result.attacked.health_ms)) > 0
    assert 0.0 < result.sigterm_s < 60.0
    assert result.rss_growth_mb > 0.0


def result_of(**others: float) -> AttackResult:
    figures = {"health": 10.0, "answer": 100.0, "rss": 10.0, "sigterm": 1.0} | others
    alone = ClientTimes([1.0] * 100, [100.0] * 9)
    attacked = ClientTimes([1.0] * 90 + [figures["health"]] * 10, [figures["answer"]] * 9)
    return AttackResult("headers", alone, attacked, figures["rss"], figures["sigterm"], is_core_shared=False)


@pytest.mark.parametrize(
    ("figures", "kinds"),
    [
        ({}, set()),
        ({"health": 50.0, "answer": 150.0, "rss": 200.0, "sigterm": 10.0}, set()),
        ({"health": 51.0}, {"headers: health_ms_p99"}),
        ({"answer": 151.0}, {"headers: victim_ratio"}),
        ({"rss": 201.0}, {"headers: rss_growth_mb"}),
        ({"sigterm": 10.1}, {"headers: sigterm_s"}),
    ],
)
def test_figures_beyond_the_bounds_are_broken(figures: dict[str, float], kinds: set[str]) -> None:
    judge_attack(result_of(**figures), broken := BrokenPromises())
    assert broken.kinds.keys() == kinds


def test_who_is_never_answered_is_broken_without_figures() -> None:
    result = AttackResult("headers", ClientTimes(), ClientTimes(failures=["/health: no end"]), 0.0, 1.0, False)
    judge_attack(result, broken := BrokenPromises())
    assert broken.kinds.keys() == {"headers: not answered", "headers: health_ms_p99", "headers: victim_ratio"}


def test_the_report_has_the_worst_of_each_figure() -> None:
    results = [result_of(health=20.0), result_of(answer=140.0, sigterm=3.0)]
    report = attack_report(results, BrokenPromises(), interrupted=False)
    assert {name: report.summary[name] for name in ("health_ms_p99", "victim_ratio", "rss_growth_mb", "sigterm_s")} == {
        "health_ms_p99": 20.0, "victim_ratio": 1.4, "rss_growth_mb": 10.0, "sigterm_s": 3.0,
    }  # fmt: skip
    table = attack_table(report)
    assert "no violation" in table
    assert "promised: /health p99 50 ms" in table
