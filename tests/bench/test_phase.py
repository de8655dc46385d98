"""`auras bench phase`: what it makes of what it hears; and, in virtual time, that it shows what the lock wins."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from auras_ros.bench import phase
from auras_ros.bench.processes import ANSWER_S
from auras_ros.cli import main as cli
from auras_ros.live.loop import START_S, Spin
from auras_ros.nodes.common.config import ConfigError
from auras_ros.pipeline.phase import PhaseLock
from auras_ros.ros.msg import (
    DiagnosticArray,
    DiagnosticStatus,
    Image,
    KeyValue,
    SetParametersResult,
    String,
)
from auras_ros.ros.srv import SetParameters
from tests.pipeline import in_phase
from tests.pipeline.in_phase import MS, Camera

NOTHING = [
    ["--seconds", "0"],
    ["--seconds", "nan"],
    ["--seeds", "0"],
    ["--shifts", "100"],
    ["--shifts=-1"],
    ["--shifts=nan"],
]


@pytest.mark.parametrize("arguments", NOTHING)
def test_what_measures_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        phase.run(arguments, print)
    assert arguments[0].split("=")[0] in capsys.readouterr().err


def heard(age_ms: int, count: int = 30) -> tuple[list[dict[str, int]], list[tuple[int, int]]]:
    """Frames each 400 ms whose image was taken `age_ms` before; images each 100 ms that are 6 ms on their way."""
    chunks = []
    for frame in range(count):
        latched_ns = 400 * frame * MS
        chunks.append(
            {
                "origin_mono_ns": latched_ns - age_ms * MS,
                "latched_ns": latched_ns,
                "published_ns": latched_ns + 150 * MS,
            }
        )
    return chunks, [(100 * image * MS, (100 * image + 6) * MS) for image in range(4 * count)]


def test_figures_are_counted_from_the_images_stamp() -> None:
    row = phase.measured(*heard(9), missed=1, seconds=12.0)
    assert (row["image_age_ms_p50"], row["image_age_ms_p90"], row["staleness_ms_p50"]) == (9.0, 9.0, 159.0)
    assert (row["transport_ms_p50"], row["camera_period_ms"]) == (6.0, 100.0)
    assert row["excess_periods_p90"] == pytest.approx(0.03)
    assert (row["chunks_per_s"], row["missed_ticks"], row["n"]) == (2.5, 1, 30)


def test_an_episode_that_saw_next_to_nothing_is_none() -> None:
    with pytest.raises(RuntimeError, match="9 chunks"):
        phase.measured(*heard(9, count=9), missed=0, seconds=4.0)


def row(config: str, seed: int, lock: bool, staleness_ms: float, shift_ms: float = 10.0) -> dict[str, Any]:
    figures = {"image_age_ms_p90": 1.0, "excess_periods_p90": 0.1, "chunks_per_s": 2.5}
    staleness = {"staleness_ms_p50": staleness_ms, "staleness_ms_p90": 2 * staleness_ms}
    return {"config": config, "shift_ms": shift_ms, "seed": seed, "phase_lock": lock, **staleness, **figures}


def test_a_gain_is_that_of_a_pair_and_the_config_that_gains_least_counts() -> None:
    rows = [row("a.yaml", 0, False, 250.0), row("a.yaml", 0, True, 160.0), row("a.yaml", 1, False, 170.0)]
    rows += [row("b.yaml", 0, True, 160.0), row("b.yaml", 0, False, 240.0)]
    summary = phase.summarised(rows)
    assert summary["staleness_gain_ms_p50_a"] == 90.0
    assert summary["staleness_gain_ms_p50"] == summary["staleness_gain_ms_p50_b"] == 80.0
    assert (summary["staleness_gain_ms_p90_a"], summary["staleness_gain_ms_p90"]) == (180.0, 160.0)
    assert summary["pairs"] == 2
    assert summary["staleness_ms_p50_off"] == 240.0
    assert phase.summarised([]) == {}


def test_the_gain_is_that_of_the_smallest_shift_and_the_mean_is_said_beside_it() -> None:
    rows = [row("a.yaml", 0, False, 170.0), row("a.yaml", 0, True, 80.0)]
    rows += [row("a.yaml", 0, False, 110.0, 70.0), row("a.yaml", 0, True, 80.0, 70.0)]
    summary = phase.summarised(rows[::-1])
    assert (summary["staleness_gain_ms_p50_a_10ms"], summary["staleness_gain_ms_p50_a_70ms"]) == (90.0, 30.0)
    assert (summary["staleness_gain_ms_p50"], summary["staleness_gain_ms_p50_mean"]) == (90.0, 60.0)


def test_an_episode_that_fails_is_named_and_the_others_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, float, int, bool]] = []

    def episode(config: Path, shift_ms: float, seed: int, lock: bool, seconds: float, end_s: float) -> dict[str, float]:
        order.append((config.name, shift_ms, seed, lock))
        if (seed, lock) == (1, True):
            raise RuntimeError("not armed")
        return phase.measured(*heard(9 if lock else 105), missed=0, seconds=seconds)

    monkeypatch.setattr(phase, "_episode", episode)
    report = phase.run(["--seeds=2", "--shifts=10", "--config=pusht.yaml"], lambda text: None)
    assert order == [
        ("pusht.yaml", 10.0, 0, False),
        ("pusht.yaml", 10.0, 0, True),
        ("pusht.yaml", 10.0, 1, True),
        ("pusht.yaml", 10.0, 1, False),
    ]
    assert "pusht.yaml, shift 10 ms, seed 1, phase_lock on: not armed" in report.more["failed"]
    assert len(report.rows) == 3
    assert report.summary["staleness_gain_ms_p50"] == 96.0


def test_a_config_that_cannot_be_read_leaves_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def episode(config: Path, shift_ms: float, seed: int, lock: bool, seconds: float, end_s: float) -> dict[str, float]:
        if config.name == "mine.yaml":
            raise ConfigError("mine.yaml: no such parameter")
        return phase.measured(*heard(9 if lock else 105), missed=0, seconds=seconds)

    monkeypatch.setattr(phase, "_episode", episode)
    mine = tmp_path / "mine.yaml"
    with pytest.raises(SystemExit):
        phase.run([f"--config=pusht.yaml,{mine}"], lambda text: None)
    assert f"--config: config {mine}: no such file" in capsys.readouterr().err
    mine.write_text("")
    report = phase.run(["--seeds=1", "--shifts=10", f"--config=pusht.yaml,{mine}"], lambda text: None)
    assert len(report.rows) == 2
    assert report.more["failed"] == [
        f"mine.yaml, shift 10 ms, seed 0, phase_lock {word}: mine.yaml: no such parameter" for word in ("off", "on")
    ]


# -- the command, and one episode of it, without processes ------------------------------------------------


def in_virtual_time(
    config: Path, shift_ms: float, seed: int, lock: bool, seconds: float, end_s: float
) -> dict[str, float]:
    """The agent's own lock before a camera of 10 Hz that is shifted after 5 s; frames of 400 ms begin with an image."""
    camera = Camera(100.0, jitter_ms=2.0, gone=(5001.0, 5002.0), back_ms=shift_ms)
    played = in_phase.play([camera], 400.0, [120.0], 60.0, lock=lock, seed=seed).after(10_000.0)
    chunks = [
        {"origin_mono_ns": taken, "latched_ns": start, "published_ns": start + 120 * MS}
        for taken, start in zip(played.taken, played.starts, strict=True)
    ]
    images = [(taken, came) for came, taken, _ in islice(camera.images("0", seed), 60, 200)]
    return phase.measured(chunks, images, played.skipped, seconds)


def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(phase, "_episode", in_virtual_time)
    path = tmp_path / "phase.json"
    assert cli.main(["bench", "phase", "--seeds=2", "--shifts=10,70", "--config=pusht.yaml", "--json", str(path)]) == 0
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def test_the_command_shows_what_the_lock_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As long as an image lies there until its frame starts, at no tick's cost."""
    report = bench(tmp_path, monkeypatch)
    summary = report["summary"]
    assert [each["phase_lock"] for each in report["rows"]] == 2 * [False, True] + 2 * [True, False]
    assert summary["pairs"] == 4
    assert summary["staleness_gain_ms_p50"] == summary["staleness_gain_ms_p50_pusht"] > 80.0
    assert 15.0 < summary["staleness_gain_ms_p50_pusht_70ms"] < 45.0
    assert 50.0 < summary["staleness_gain_ms_p50_mean"] < 70.0
    assert summary["excess_periods_p90_on"] < 0.1 < 0.5 < summary["excess_periods_p90_off"]
    assert {each["missed_ticks"] for each in report["rows"]} == {0}
    assert "staleness_gain_ms_p50" in capsys.readouterr().out


def test_a_lock_that_does_nothing_wins_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the figure is for: it shows that."""
    monkeypatch.setattr(PhaseLock, "wait_ns", lambda self, now_ns: 0)
    monkeypatch.setattr(PhaseLock, "_move", lambda self, by_ns: None)
    assert abs(bench(tmp_path, monkeypatch)["summary"]["staleness_gain_ms_p50"]) < 1.0


class Table:
    """In place of the table's service: it answers at once, or never."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.refuses, self.answers = "", True

    def service_is_ready(self) -> bool:
        return True

    def call_async(self, request: Any) -> Table:
        self.asked += [(each.name, each.value.double_value) for each in request.parameters]
        return self

    def done(self) -> bool:
        return self.answers

    def result(self) -> Any:
        answer = SetParameters.Response()
        answer.results = [SetParametersResult(successful=not self.refuses, reason=self.refuses)]
        return answer


class Heard:
    """In place of a node: who listens to which topic."""

    def __init__(self) -> None:
        self.on: dict[str, Callable[[Any], None]] = {}
        self.table = Table()

    def create_client(self, kind: Any, name: str) -> Table:
        assert name == "pusht/set_parameters"
        return self.table

    def create_subscription(self, kind: Any, topic: str, callback: Callable[[Any], None], qos: Any) -> None:
        self.on[topic] = callback


def diagnostics(name: str, **values: int) -> DiagnosticArray:
    pairs = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
    return DiagnosticArray(status=[DiagnosticStatus(name=name, values=pairs)])


def test_missed_ticks_go_on_where_another_plan_begins_to_count() -> None:
    """It said -5 where an overloaded agent had taken its fallback plan."""
    node = Heard()
    listener = phase._Listener(node)  # type: ignore[arg-type]
    for counted in (0, 7, 7, 2, 3):
        node.on["/diagnostics"](diagnostics("agent: frames", missed_ticks=counted))
    assert listener.missed_ticks.total() == 10


def test_an_episode_counts_what_was_heard_after_it_had_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    node, asked, started = Heard(), list[float](), list[dict[str, Any]]()

    @contextmanager
    def listening(name: str) -> Iterator[Heard]:
        yield node

    @contextmanager
    def running(given: Heard, config: Path, overrides: dict[str, Any], end_s: float) -> Iterator[Spin]:
        started.append(overrides)

        def spin(done: Callable[[], bool], seconds: float) -> None:
            node.on["actuator/state"](String(data=json.dumps({"state": "armed"})))
            age_ms = 9 if asked[-1:] == [phase.SETTLE_S] else 300  # of what comes before it counts
            chunks, images = heard(age_ms)
            for chunk in chunks:
                node.on["provenance"](diagnostics("agent", **chunk))
            for stamp_ns, _ in images:
                image = Image()
                image.header.stamp.sec, image.header.stamp.nanosec = divmod(stamp_ns, 10**9)
                node.on["camera/top/image_raw"](image)
            node.on["/diagnostics"](diagnostics("agent: frames", missed_ticks=5 + len(asked)))
            asked.append(seconds)

        yield spin

    monkeypatch.setattr(phase, "listening", listening)
    monkeypatch.setattr(phase, "running", running)
    row = phase._episode(Path("pusht.yaml"), 40.0, 3, True, 12.0, math.inf)
    assert asked == [START_S, ANSWER_S, ANSWER_S, phase.SETTLE_S, 12.0]
    assert node.table.asked == [("shift_ms", 40.0)]
    assert started == [{"agent": {"phase_lock": True}, "actuator": {"arm_on_start": True}, "pusht": {"seed": 3}}]
    assert (row["image_age_ms_p50"], row["n"], row["missed_ticks"], row["camera_period_ms"]) == (9.0, 30, 1, 100.0)


@pytest.mark.parametrize(("refuses", "answers", "why"), [("not now", True, "not now"), ("", False, "no answer")])
def test_a_table_that_does_not_take_the_shift_is_said(refuses: str, answers: bool, why: str) -> None:
    table = Table()
    table.refuses, table.answers = refuses, answers
    with pytest.raises(RuntimeError, match=f"shift_ms 40: {why}"):
        phase._shift(lambda done, seconds: None, table, 40.0)
