"""One soak of the wire: presses of a required button under each attack, or no press at all for a while.

A press is held for a second, and must latch within the silence limit. While it is held, nobody may release or arm; and
after it, nothing may release but the rule: the service release_stop, once the button is heard and released.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from auras_ros import resources
from auras_ros.live.soak.faults.loaded import busy
from auras_ros.live.soak.harness import MS, Interrupted, SoakHarness
from auras_ros.live.soak.judge import Judge
from auras_ros.live.soak.log_pipe import LogPipe
from auras_ros.live.soak.run import (
    OVERRIDES,
    STOP_P99_MS,
    command_limits,
    on_this_host_alone,
    wait_alone,
    wait_until_driving,
)
from auras_ros.live.soak.witness import Witness
from auras_ros.live.soak_wire.attacks import CASES, TOPIC, Target, WireCase
from auras_ros.live.soak_wire.button_process import ButtonProcess
from auras_ros.nodes.common.stop_signature import write_new_key
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.report.result import Say
from auras_ros.ros import BACKEND, LoggingSeverity, SignalHandlerOptions, init, try_shutdown
from auras_ros.ros.callbacks import Callbacks

SILENCE_MS = 500.0  # the default of emergency_stop_max_silence_ms
LATCH_MS = SILENCE_MS + 50.0
HELD_S = 1.0
PATIENCE_S = 3.0  # for a press that is late or lost: the time of the command counts, not when it was received
BEFORE_PRESS_S = 0.3  # at most, from the attack to the press
POLL_S = 0.5


@dataclass(frozen=True)
class WireSettings:
    """presses: of each case. watch_s: watch so long for stops that nobody asked for, instead. load: busy loops beside
    that. signed: button and actuator share a key. only: names of cases; all if empty."""

    presses: int = 50
    watch_s: float = 0.0
    load: int = 0
    signed: bool = True
    seed: int = 0
    only: tuple[str, ...] = ()

    @property
    def cases(self) -> list[WireCase]:
        wanted = [case for case in CASES if not self.only or case.name.replace(" ", "_") in self.only]
        return [case for case in wanted if self.signed or not case.needs_key]


@dataclass
class WirePress:
    """ms: from the press to the first stopped command, 0 if the attack itself had stopped the robot; None: lost."""

    case: str
    ms: float | None
    recovered_s: float


@dataclass
class WireResult:
    judge: Judge
    settings: WireSettings
    presses: list[WirePress] = field(default_factory=list)
    nuisance_stops: list[str] = field(default_factory=list)
    seconds: float = 0.0


def soak_wire(settings: WireSettings, log: Path, stop: Callable[[], bool], progress: Say) -> WireResult:
    """Returns what was found, earlier when `stop`. Raises SoakError, SupervisorError."""
    config = resources.find("config", "demo.yaml")
    judge = Judge(command_limits(config)[0])
    result = WireResult(judge, settings)
    on_this_host_alone()
    init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    with ExitStack() as stack:
        stack.callback(try_shutdown)
        witness = Witness(judge)
        stack.callback(witness.destroy_node)
        witness.get_logger().set_level(LoggingSeverity.FATAL)
        callbacks = stack.enter_context(closing(Callbacks(witness, partial(judge.violate, "callback failed"))))
        wait_alone(witness, callbacks)
        out = stack.enter_context(LogPipe(log))
        required: dict[str, Any] = {"require_emergency_stop": True, "emergency_stops": [TOPIC]}
        key_file = None
        if settings.signed:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="auras_soak_wire"))
            key_file = str(Path(folder) / "stop.key")
            write_new_key(key_file)
            required["emergency_stop_key_file"] = key_file
        parameters = OVERRIDES | {"actuator": OVERRIDES["actuator"] | required}
        supervisor = stack.enter_context(Supervisor(config, log=out.writer, parameters=parameters))
        button = stack.enter_context(ButtonProcess(TOPIC, key_file, out.writer))
        harness = stack.enter_context(
            closing(SoakHarness(witness, callbacks, supervisor, random.Random(settings.seed), stop, out))
        )
        run = WireRun(Target(harness, button, int(os.environ.get("ROS_DOMAIN_ID", "0") or 0)), result, progress)
        run.play()
    return result


class WireRun:
    """Plays what the settings ask for; `result` is what was found so far."""

    def __init__(self, target: Target, result: WireResult, progress: Say) -> None:
        self._target, self._harness, self._judge = target, target.harness, result.judge
        self._result, self._settings, self._progress = result, result.settings, progress

    def play(self) -> None:
        """From the start to the verdicts, whatever ends it in between."""
        harness = self._harness
        began_s = time.monotonic()
        try:
            self._progress("starting the loop")
            wait_until_driving(harness)
            began_s = time.monotonic()
            if self._settings.watch_s:
                self._watch()
            else:
                self._presses()
        except SupervisorError as error:
            self._judge.violate("process ended", str(error))
        except Interrupted:
            pass
        finally:
            self._result.seconds = time.monotonic() - began_s

    def _watch(self) -> None:
        """No press and no attack: every stop is one that nobody asked for."""
        harness, result = self._harness, self._result
        end_s = time.monotonic() + self._settings.watch_s
        with busy(self._settings.load) if self._settings.load else nullcontext():
            while (left_s := end_s - time.monotonic()) > 0:
                harness.pause(min(POLL_S, left_s))
                self._progress(f"{left_s:5.0f} s left, {len(result.nuisance_stops)} stops that nobody asked for")
                state = harness.witness.state
                if state.get("state") == "stopped":
                    result.nuisance_stops.append(str(state.get("reason")))
                    self._judge.violate("nuisance stop", str(state.get("reason")))
                if not harness.witness.driving:
                    harness.drive()

    def _presses(self) -> None:
        for case in self._settings.cases:
            for number in range(self._settings.presses):
                if not self._harness.steady():
                    return
                done = f"press {number + 1} of {self._settings.presses}, {self._judge.kinds.total()} violations"
                self._progress(f"{case.name}: {done}")
                self._press(case)
            times_ms = [press.ms for press in self._result.presses if press.case == case.name and press.ms is not None]
            if case.name == "no attack" and times_ms and (p99 := float(np.percentile(times_ms, 99))) > STOP_P99_MS:
                self._judge.violate("slow press", f"p99 {p99:.1f} ms, promised {STOP_P99_MS:g}")

    def _press(self, case: WireCase) -> None:
        """One press, held for a second, and driving again."""
        harness = self._harness
        began_ns = harness.now_ns()
        with ExitStack() as stack:
            if BACKEND == "rclpy" and case.hangs_fast_dds:
                stack.enter_context(harness.may_end("actuator"))
            self._attack(case, began_ns)

    def _attack(self, case: WireCase, began_ns: int) -> None:
        harness, button = self._harness, self._target.button
        with case.attack(self._target):
            if case.presses:
                harness.pause(harness.rng.uniform(0.0, BEFORE_PRESS_S))
            at_ns = harness.now_ns() if case.presses else began_ns
            if case.presses:
                button.say(pressed=True)
            stopped_ns = harness.first_of("stopped", began_ns, PATIENCE_S)
            ms = None if stopped_ns is None else max(0.0, (stopped_ns - at_ns) / MS)
            if ms is None or ms > LATCH_MS:
                text = "never" if ms is None else f"after {ms:.0f} ms, promised {LATCH_MS:g}"
                self._judge.violate("press lost" if ms is None else "press late", f"{case.name}: {text}")
            else:
                harness.pause(max(0.0, HELD_S - (harness.now_ns() - at_ns) / 1e9))
                self._stays(case)
            if case.presses:
                button.say(pressed=False)
        ended_s = time.monotonic()
        harness.drive()
        self._result.presses.append(WirePress(case.name, ms, time.monotonic() - ended_s))

    def _stays(self, case: WireCase) -> None:
        """While the button is held, or is not heard, nothing releases it."""
        harness = self._harness
        if harness.call("actuator/release_stop"):
            self._judge.violate("released while pressed", case.name)
        harness.call("actuator/disarm")
        if harness.arm():
            self._judge.violate("armed while pressed", case.name)
