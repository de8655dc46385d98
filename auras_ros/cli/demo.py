"""`auras demo`: the complete closed loop on Push-T over real topics, scored by a referee, filmed and measured."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from auras_ros import resources
from auras_ros.cli.demo_options import DemoOptions, overrides, parse
from auras_ros.cli.progress import Progress
from auras_ros.clock import MonotonicClock
from auras_ros.live.referee.film import RATE_HZ, Film
from auras_ros.live.referee.pictures import HEIGHT_PX, WIDTH_PX
from auras_ros.live.referee.referee import Referee, RefereePhase
from auras_ros.live.referee.summary import figures, table
from auras_ros.live.referee.video import VideoFile
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import read_config
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.pipeline.plan import Plan
from auras_ros.report.result import Report

STARTUP_S = 30.0  # longest time without a new topic or service
AGENT_STARTUP_S = 90.0  # the same if only the agent is missing: it loads, checks and warms up the policy
INTERRUPTED = 130
LOG_LINES = 15
QUICKEST = Plan("quick")  # the shipped policy's fastest plan, if the requested one is too slow on this machine


class DemoError(RuntimeError):
    """The demo cannot continue; the message has the reason and where to look."""


def run(argv: list[str]) -> int:
    options = parse(argv)
    discovery.apply_range(read_config(resources.find("config", "demo.yaml")))  # by default not on a robot's network
    options.out.mkdir(parents=True, exist_ok=True)
    stopping: list[int] = []
    with _signals_noted(stopping):
        return _Demo(options, stopping).run()


class _Demo:
    """One run: start, play, stop, write the results. All available results are written, however the run ends."""

    def __init__(self, options: DemoOptions, stopping: list[int]) -> None:
        from auras_ros.nodes.actuator.settings import load_contract

        self._options, self._stopping, self._progress = options, stopping, Progress(quiet_s=5.0)
        self._config = resources.find("config", "demo.yaml")
        self._overrides = overrides(options)
        config = read_config(self._config)
        actuator = config.section("actuator")
        self._rate_hz, self._contract = float(actuator["rate_hz"]), load_contract(actuator["checkpoint"])
        pusht = {**config.section("pusht"), **self._overrides["pusht"]}
        self._row = {"plan": str(options.plan), "drift_px": float(pusht["drift_px"])}
        self._video: VideoFile | None = None
        self._film: Film | None = None
        if options.video:
            self._video = VideoFile(options.out / "demo.mp4", RATE_HZ, WIDTH_PX, HEIGHT_PX)
            self._film = Film(self._video, float(pusht["success_coverage"]), str(options.plan))

    def run(self) -> int:
        from auras_ros.live.referee.node import RefereeNode
        from auras_ros.ros import SignalHandlerOptions, init, try_shutdown

        init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        error = ""
        try:
            node = RefereeNode(self._contract, self._rate_hz, self._film, MonotonicClock())
            try:
                self._play(node)
            except DemoError as failure:
                error = str(failure)
            finally:
                self._progress.done()
                node.finish()
                node.destroy_node()
                if self._video is not None:
                    self._video.close()
        finally:
            try_shutdown()
        if node.referee is not None:
            self._write(node.referee, node)
            error = error or node.referee.fault
        elif not error:
            print("stopped before the first episode", flush=True)
        if error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            return 1
        return INTERRUPTED if self._stopping else 0

    # -- playing ------------------------------------------------------------------------------------------

    def _play(self, node: Any) -> None:
        from auras_ros.ros.callbacks import Callbacks

        callbacks = Callbacks(node)
        log_path = self._options.out / "log.txt"
        try:
            with log_path.open("w", encoding="utf-8") as log:
                supervisor = Supervisor(self._config, log=log, parameters=self._overrides)
                with supervisor:
                    turn = self._turns(callbacks, supervisor)
                    if self._await_all(node, turn):
                        self._referee(node, turn)
                    self._progress.done()
        except SupervisorError as error:
            raise DemoError(f"{error}\n{_tail(log_path)}") from error
        except DemoError as error:
            raise DemoError(f"{error}\n{_tail(log_path)}") from error
        finally:
            callbacks.close()

    def _turns(self, callbacks: Any, supervisor: Supervisor) -> Callable[[], bool]:
        """A function that runs a callback and checks the processes. It returns False once the demo should stop, and
        raises DemoError."""

        def turn() -> bool:
            if not callbacks.turn():
                raise DemoError("the referee receives nothing any more; see its messages above")
            for news in supervisor.poll():
                self._progress.done()
                print(f"[supervisor] {news}", flush=True)
            if "agent" in supervisor.too_slow and self._options.plan != QUICKEST:
                self._take(QUICKEST, supervisor)
            return not self._stopping

        return turn

    def _take(self, plan: Plan, supervisor: Supervisor) -> None:
        """Use another plan from the agent's next start on, because the requested one is too slow here."""
        print(f"plan '{self._options.plan}' is too slow for this machine just now: using '{plan}'", flush=True)
        self._options = replace(self._options, plan=plan)
        self._row["plan"] = str(plan)
        if self._film is not None:
            self._film.plan = str(plan)
        supervisor.override("agent", overrides(self._options)["agent"])

    def _await_all(self, node: Any, turn: Callable[[], bool]) -> bool:
        """Wait for every topic and service. Returns False if asked to stop. Raises DemoError naming what is missing."""
        from auras_ros.live.referee.node import ACTION, FROM_AGENT

        clock = MonotonicClock()
        missing, since_ns = node.missing(), clock.now_ns()
        while missing:
            if not turn():
                return False
            still = node.missing()
            waited_s = (clock.now_ns() - since_ns) / 1e9
            if len(still) < len(missing):
                since_ns = clock.now_ns()
            missing = still
            patience_s = AGENT_STARTUP_S if set(missing) <= set(FROM_AGENT) else STARTUP_S
            if missing and waited_s > patience_s:
                raise DemoError(f"nothing was received for {patience_s:g} s on: {', '.join(missing)}")
            if missing:
                self._progress.say(f"starting, {waited_s:.0f} s; waiting for {', '.join(missing)}")
        self._progress.done()
        if node.count_publishers(ACTION) > 1:
            raise DemoError("another node publishes actions here: set ROS_DOMAIN_ID to another number")
        return True

    def _referee(self, node: Any, turn: Callable[[], bool]) -> None:
        referee = node.begin(self._options.rules)
        node.step()
        while referee.phase is not RefereePhase.FINISHED and turn():
            node.step()
            self._progress.say(progress_line(referee, MonotonicClock().now_ns()))

    # -- results ------------------------------------------------------------------------------------------

    def _write(self, referee: Referee, node: Any) -> None:
        """Write summary, report and timeline of the episodes so far."""
        options, measures = self._options, node.measures
        drift = f", drift {self._row['drift_px']:g} px a step" if self._row["drift_px"] else ""
        title = f"Push-T over ROS 2 topics, plan {options.plan}{drift}"
        print(f"\n{title}\n{table(referee, measures, node.deadline_ms)}", flush=True)
        extra = {**self._row, "scheduling": measures.scheduling}
        rows = [{**episode.row(), **extra} for episode in referee.episodes]
        report = Report("demo", rows, figures(referee, measures))
        written = [options.out / "demo.json"] + ([options.json] if options.json else [])
        for path in written:
            report.write(path)
        if self._video is not None and self._video.frames:
            written.append(self._video.path)
        if _timeline(measures, options.out / "timeline.png", title):
            written.append(options.out / "timeline.png")
        print(f"  {'files':<16} {', '.join(str(path) for path in [*written, options.out / 'log.txt'])}", flush=True)


def progress_line(referee: Referee, now_ns: int) -> str:
    """Elapsed time, successes so far, episode, seed, step, coverage and state."""
    elapsed_s = 0.0 if referee.began_ns is None else (now_ns - referee.began_ns) / 1e9
    line = f"{elapsed_s:4.0f} s  {referee.successes} of {len(referee.episodes)} succeeded"
    status = referee.status
    if not referee.playing or status is None:
        return f"{line}  {referee.phase.value}"
    where = f"episode {status.episode}  seed {status.seed}  step {status.step}  coverage {status.coverage:.2f}"
    return f"{line}  {where}  {referee.actuator}"


def _timeline(measures: Any, path: Path, title: str) -> bool:
    try:
        from auras_ros.live.referee.timeline import draw_timeline
    except ModuleNotFoundError as error:
        print(f"no timeline: {error}; pip install 'auras_ros[plot]'", file=sys.stderr)
        return False
    return draw_timeline(measures, path, title)


def _tail(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as log:
        lines = deque(log, maxlen=LOG_LINES)
    return f"the last lines of {path}:\n" + "".join(f"  {line}" for line in lines).rstrip()


@contextmanager
def _signals_noted(stopping: list[int]) -> Iterator[None]:
    """SIGINT and SIGTERM are only noted, so that the run can end in an orderly way."""

    def note(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
