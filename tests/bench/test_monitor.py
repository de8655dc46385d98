"""`auras bench monitor`: what it makes of what it hears, and where it puts a thing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from auras_ros.bench import monitor
from auras_ros.measure.minutes import Ends
from auras_ros.report.result import Report
from auras_ros.ros.msg import String
from auras_ros.sim.pusht.things import read_things
from auras_ros.sim.pusht.world import PushTWorld
from auras_ros.train.vlm.scenes import clearance

MS = 1_000_000
ARRIVES = 3  # the table, after two on which a thing is put


@pytest.mark.parametrize("arguments", [["--tables", "0"], ["--goals=-1"], ["--seed=-1"], ["--seconds", "0"]])
def test_what_measures_nothing_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        monitor.run(arguments, print)
    assert arguments[0].split("=")[0] in capsys.readouterr().err


def test_a_thing_lies_in_the_way_and_is_seen_there() -> None:
    world, found = PushTWorld(), 0
    for seed in range(30):
        world.reset(seed)
        world.things = ()
        place = monitor.free_place(world.image())
        if place is None:
            continue
        found += 1
        thing = {"x": place[0], "y": place[1], "radius": monitor.RADIUS_PX, "rgb": list(monitor.RGB)}
        assert not monitor.shows(world.image(), place)
        world.things = read_things(json.dumps([thing]))
        assert monitor.shows(world.image(), place)
        assert clearance(world.tee, world.things[0]) < 0
        assert np.hypot(*(world.agent - place)) > monitor.RADIUS_PX + 15
    assert found >= 20


def test_times_are_summed_up_and_what_did_not_come_is_counted() -> None:
    times: list[tuple[float | None, ...]] = [
        (100.0, 120.0, 90.0, 300.0), (200.0, 240.0, 95.0, None), (None, None, None, None)
    ]  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"standing": "way", **dict(zip(monitor.MEASURES, each, strict=True))} for each in times
    ]
    rows += [{**row, "standing": "goal", "arrived": number < 2} for number, row in enumerate(rows)]
    found = monitor.summarised(rows)
    assert (found["tables"], found["missed"], found["not_moved_again"]) == (3, 1, 1)
    assert (found["goal_tables"], found["goal_arrived"], found["goal_missed"], found["goal_not_moved_again"]) == (
        3,
        2,
        0,
        1,
    )
    for prefix in ("", "goal_"):
        assert (found[f"{prefix}hold_ms_p50"], found[f"{prefix}hold_ms_max"], found[f"{prefix}hold_ms_n"]) == (
            180,
            240,
            2,
        )
        assert (found[f"{prefix}move_ms_p50"], found[f"{prefix}move_ms_n"]) == (300.0, 1)
    assert monitor.summarised([]) == {"tables": 0, "goal_tables": 0, "goal_arrived": 0}


class Played:
    """A node and a table in which everything happens as time is spun: 120 ms to an answer, 130 to a command. A table
    is done after two seconds, one of them with the tee on its goal."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on: dict[str, Callable[[Any], None]] = {}
        self.now_ns, self.changed_ns, self.things = 10**12, 0, ""
        self.episode, self.begun_ns = 0, self.now_ns
        clock = SimpleNamespace(monotonic_ns=lambda: self.now_ns, time_ns=lambda: self.now_ns)
        monkeypatch.setattr(monitor, "time", clock)
        monkeypatch.setattr(monitor, "raw_pixels", lambda message: message.pixels)
        monkeypatch.setattr(monitor, "stamp_ns", lambda message: message.stamp)
        monkeypatch.setattr(monitor, "read_action", lambda message: (None, message))
        monkeypatch.setattr(monitor, "set_on_table", self.set_on_table)
        monkeypatch.setattr(monitor, "running", self.running)
        monkeypatch.setattr(monitor, "listening", self.listening)
        self.world = PushTWorld()
        self.world.reset(1)

    @contextmanager
    def listening(self, name: str) -> Iterator[Played]:
        yield self

    @contextmanager
    def running(self, node: Any, config: Path, overrides: Any, end_s: float) -> Iterator[Any]:
        yield self.spin

    def create_subscription(self, kind: Any, topic: str, call: Callable[[Any], None], qos: Any) -> None:
        self.on[topic] = call

    def create_client(self, kind: Any, name: str) -> Any:
        done = SimpleNamespace(done=lambda: True, result=lambda: SimpleNamespace(success=True))

        def reset(request: Any) -> Any:
            self.episode, self.begun_ns = self.episode + 1, self.now_ns
            return done

        return SimpleNamespace(service_is_ready=lambda: True, call_async=reset)

    def set_on_table(self, spin: Any, table: Any, name: str, value: Any, shown: str) -> None:
        assert name == "things"
        self.world.things, self.changed_ns = read_things(value.string_value), self.now_ns

    def spin(self, done: Callable[[], bool], seconds: float) -> None:
        until_ns = self.now_ns + round(seconds * 1e9)
        while not done() and self.now_ns < until_ns:
            self.now_ns += 10 * MS
            since_ms, blocked = (self.now_ns - self.changed_ns) / MS, bool(self.world.things)
            played_ms = (self.now_ns - self.begun_ns) / MS
            on_goal = self.episode == ARRIVES
            if self.now_ns % (100 * MS) == 0:
                self.on["camera/top/image_raw"](SimpleNamespace(pixels=self.world.image(), stamp=self.now_ns))
                over = played_ms >= 2000
                status = {"episode": self.episode, "done": over, "success": over and on_goal}
                times = {"stamp_ns": self.now_ns, "mono_ns": self.now_ns}
                self.on["pusht/status"](String(data=json.dumps(status | times)))
            for standing, yes in (
                ("way", blocked is (since_ms >= 120)), ("goal", on_goal and played_ms >= 2120)
            ):  # fmt: skip
                label = "yes" if yes else "no"
                fields = {"standing": standing, "result": {"label": label}, "image": {"stamp_ns": self.now_ns}}
                self.on["answer"](String(data=json.dumps(fields)))
            holds = blocked is (since_ms >= 130) or (on_goal and played_ms >= 2130)
            source = "hold" if holds else "chunk"
            self.on["action"](SimpleNamespace(mono_ns=self.now_ns, source=source))
            self.on["actuator/state"](String(data=json.dumps({"state": "armed"})))


def test_a_table_is_played_and_its_times_count_from_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    played, report = Played(monkeypatch), Report("monitor")
    options = SimpleNamespace(tables=2, goals=2, seed=0, seconds=5.0)
    monitor._tables(options, report, lambda text: None, Ends(math.inf, math.inf))
    ways, goals = ([row for row in report.rows if row["standing"] == name] for name in ("way", "goal"))
    assert (len(ways), [row["arrived"] for row in goals]) == (2, [True, False])
    for row in [*ways, goals[0]]:
        assert row["cores"] >= 1
        assert all(0 <= row[name] <= 130 for name in monitor.MEASURES), row
        assert row["hold_ms"] - row["answer_ms"] == pytest.approx(10.0)
    assert all(goals[1][name] is None for name in monitor.MEASURES)
    assert played.world.things == ()
