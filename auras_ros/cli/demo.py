"""`auras demo`: the complete closed loop on Push-T over real topics, scored by a referee, filmed and measured."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from auras_ros import resources
from auras_ros.cli.command import INTERRUPTED, stop_signals
from auras_ros.cli.demo_options import DemoOptions, overrides, parse, with_period
from auras_ros.cli.progress import Progress
from auras_ros.clock import MonotonicClock
from auras_ros.live.referee.episode import LiveEpisode
from auras_ros.live.referee.film import RATE_HZ, Film
from auras_ros.live.referee.measures import Measures
from auras_ros.live.referee.pictures import HEIGHT_PX, WIDTH_PX
from auras_ros.live.referee.referee import Referee, RefereePhase
from auras_ros.live.referee.summary import figures, table
from auras_ros.live.referee.video import VideoFile, side_by_side
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import read_config
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.pipeline.plan import Plan
from auras_ros.report.result import Report

STARTUP_S = 30.0  # longest time without a new topic or service
AGENT_STARTUP_S = 90.0  # the same if only the agent is missing: it loads, checks and warms up the policy
LOG_LINES = 15
QUICKEST = "quick"  # the shipped policy's fastest plan, if the requested one is too slow on this machine
REQUEST_PERIODS = 3.1  # of a sequential request, measured alone; it takes longer beside the other processes
STAGES = 6  # frames of about a control period, whose requests live well within a chunk's horizon
TITLES = {"seq": "sequential", "auras": "auras"}


class DemoError(RuntimeError):
    """The demo cannot continue; the message has the reason and where to look."""


def run(argv: list[str]) -> int:
    options = parse(argv)
    discovery.apply_range(read_config(resources.find("config", "demo.yaml")))  # by default not on a robot's network
    options.out.mkdir(parents=True, exist_ok=True)
    with stop_signals() as stopping:
        return _play_all(options, stopping)


def _play_all(options: DemoOptions, stopping: list[int]) -> int:
    """Play one plan, or without one the same seeds sequentially and as `auras`; then write the results."""
    from auras_ros.ros import SignalHandlerOptions, init, try_shutdown

    plans: Mapping[str, Plan]
    measured: dict[str, float] = {}
    if options.plan is not None:
        plans = {"": options.plan}
    else:
        steps, request_s = denoising_steps(resources.checkpoint("pusht"))
        plans = both_plans(steps)
        measured = {"denoising_steps": steps, "request_ms_alone": 1e3 * request_s}
        print(f"{steps} denoising steps: a sequential request takes {1e3 * request_s:.0f} ms here", flush=True)
    plays: list[_Play] = []
    init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        for name, plan in plans.items():
            if plays:  # as many episodes as were finished before, on the same seeds
                options = replace(options, rules=replace(options.rules, episodes=max(1, len(plays[0].finished))))
            plays.append(_Play(name, plan, replace(options, plan=plan), stopping))
            plays[-1].run()
            if stopping or plays[-1].error:
                break
    finally:
        try_shutdown()
    write(options, plays, measured)
    for play in plays:
        if play.error:
            print(f"error: {play.error}", file=sys.stderr, flush=True)
            return 1
    return INTERRUPTED if stopping else 0


class _Play:
    """One plan played over topics: start, play, stop. error: why it ended early, or ""."""

    def __init__(self, name: str, plan: Plan, options: DemoOptions, stopping: list[int]) -> None:
        """name: of this play of several, or ""."""
        from auras_ros.nodes.actuator.settings import load_contract

        self.name, self._options, self._stopping, self._progress = name, options, stopping, Progress(quiet_s=5.0)
        self._config = resources.find("config", "demo.yaml")
        self._overrides = overrides(options)
        config = read_config(self._config)
        actuator = config.section("actuator")
        self._rate_hz, self._contract = float(actuator["rate_hz"]), load_contract(actuator["checkpoint"])
        pusht = {**config.section("pusht"), **self._overrides["pusht"]}
        self.plan, self.drift_px, self.error = plan, float(pusht["drift_px"]), ""
        self.video: VideoFile | None = None
        self.film: Film | None = None
        if options.video:
            self.video = VideoFile(options.out / f"{name or 'demo'}.mp4", RATE_HZ, WIDTH_PX, HEIGHT_PX)
            self.film = Film(self.video, float(pusht["success_coverage"]), self.title)
        self.referee: Referee | None = None
        self.measures = Measures()
        self.deadline_ms = 0.0

    @property
    def title(self) -> str:
        return f"{TITLES[self.name]}: {self.plan}" if self.name else str(self.plan)

    @property
    def finished(self) -> Sequence[LiveEpisode]:
        return [] if self.referee is None else self.referee.episodes

    def run(self) -> None:
        from auras_ros.live.referee.node import RefereeNode

        node = RefereeNode(self._contract, self._rate_hz, self.film, MonotonicClock())
        try:
            self._play(node)
        except DemoError as failure:
            self.error = str(failure)
        finally:
            self._progress.done()
            node.finish()
            node.destroy_node()
            if self.video is not None:
                self.video.close()
        self.referee, self.measures, self.deadline_ms = node.referee, node.measures, node.deadline_ms
        if self.referee is not None:
            self.error = self.error or self.referee.fault
        elif not self.error:
            print("stopped before the first episode", flush=True)

    # -- playing ------------------------------------------------------------------------------------------

    def _play(self, node: Any) -> None:
        from auras_ros.ros.callbacks import Callbacks

        callbacks = Callbacks(node)
        log_path = self._options.out / "log.txt"
        try:
            with log_path.open("a" if self.name == "auras" else "w", encoding="utf-8") as log:
                supervisor = Supervisor(self._config, log=log, parameters=self._overrides)
                with supervisor:
                    turn = self._turns(callbacks, supervisor)
                    if self._await_all(node, turn):
                        self._referee(node, turn)
                    self._progress.done()
        except (SupervisorError, DemoError) as error:
            raise DemoError(f"{error}\n{_tail(log_path)}") from error
        finally:
            callbacks.close()

    def _turns(self, callbacks: Any, supervisor: Supervisor) -> Callable[[], bool]:
        """A function that runs a callback and checks the processes. It returns False once the demo should stop, and
        raises DemoError."""

        quickest = with_period(Plan(QUICKEST))

        def turn() -> bool:
            if not callbacks.turn():
                raise DemoError("the referee receives nothing any more; see its messages above")
            for news in supervisor.poll():
                self._progress.done()
                print(f"[supervisor] {news}", flush=True)
            if "agent" in supervisor.too_slow and self.plan != quickest:
                self._take(quickest, supervisor)
            return not self._stopping

        return turn

    def _take(self, plan: Plan, supervisor: Supervisor) -> None:
        """Use another plan from the agent's next start on, because the requested one is too slow here."""
        print(f"plan '{self.plan}' is too slow for this machine just now: using '{plan}'", flush=True)
        self.plan = plan
        if self.film is not None:
            self.film.title = self.title
        supervisor.override("agent", overrides(replace(self._options, plan=plan))["agent"])

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
            self._progress.say(f"{self.name} {progress_line(referee, MonotonicClock().now_ns())}".strip())


def write(options: DemoOptions, plays: Sequence[_Play], measured: Mapping[str, float]) -> None:
    """Write summary, report, timeline and film of the episodes so far. measured: what was measured before."""
    played = [(play, play.referee) for play in plays if play.referee is not None]
    if not played:
        return
    rows: list[dict[str, Any]] = []
    summary = dict(measured)
    for play, referee in played:
        drift = f", drift {play.drift_px:g} px a step" if play.drift_px else ""
        found = figures(referee, play.measures)
        print(f"\nPush-T over ROS 2 topics, {play.title}{drift}", flush=True)
        print(table(referee, play.measures, play.deadline_ms), flush=True)
        extra = {"plan": str(play.plan), "drift_px": play.drift_px, "scheduling": play.measures.scheduling}
        named = {"play": play.name} if play.name else {}
        rows += [{**named, **episode.row(), **extra} for episode in referee.episodes]
        summary |= {f"{play.name}_{key}" if play.name else key: value for key, value in found.items()}
    report = Report("demo", rows, summary)
    written = [options.out / "demo.json"] + ([options.json] if options.json else [])
    for path in written:
        report.write(path)
    written += _film(options.out, plays)
    if _timeline({play.title: play.measures for play in plays}, options.out / "timeline.png"):
        written.append(options.out / "timeline.png")
    print(f"  {'files':<16} {', '.join(str(path) for path in [*written, options.out / 'log.txt'])}", flush=True)


def _film(out: Path, plays: Sequence[_Play]) -> list[Path]:
    """The films' files; of several plays also the one that shows them next to each other."""
    films = [(play.video.path, play.film.lengths) for play in plays if play.video and play.film and play.video.frames]
    files = [path for path, _ in films]
    if len(films) > 1 and side_by_side(films, out / "demo.mp4", out / "demo.png"):
        return [out / "demo.mp4", out / "demo.png", *files]
    return files


def _timeline(plays: Mapping[str, Measures], path: Path) -> bool:
    try:
        from auras_ros.live.referee.timeline import draw_timeline
    except ModuleNotFoundError as error:
        print(f"no timeline: {error}; pip install 'auras_ros[plot]'", file=sys.stderr)
        return False
    return draw_timeline(plays, path)


def denoising_steps(folder: Path) -> tuple[int, float]:
    """As many DDIM steps (at most those of the training) as let a sequential request take REQUEST_PERIODS control
    periods on this machine, and its duration, s."""
    from auras_ros.measure.durations import measure_durations
    from auras_ros.policies.denoising import TRAINING_STEPS
    from auras_ros.policies.loaders.open import load

    checkpoint = load(folder)
    few, many = 10, 50
    took = measure_durations(checkpoint, {str(n): Plan(f"ddim{n}") for n in (few, many)}, rounds=2, frames=4)
    step_s = (took[str(many)].seconds - took[str(few)].seconds) / (many - few)
    rest_s = took[str(few)].seconds - few * step_s
    wanted = (REQUEST_PERIODS * checkpoint.contract.dt_ns / 1e9 - rest_s) / max(step_s, 1e-9)
    steps = min(max(1, round(wanted)), checkpoint.trained.optional.get("training_steps", TRAINING_STEPS))
    return steps, rest_s + steps * step_s


def both_plans(steps: int) -> dict[str, Plan]:
    """The two plays: the same denoising one request after another, and pipelined."""
    seq = Plan(f"ddim{steps}")
    return {"seq": seq, "auras": replace(seq, mode="auras", pp_generation=min(STAGES, steps))}


def progress_line(referee: Referee, now_ns: int) -> str:
    """Elapsed time, successes so far, episode, seed, step, coverage and state."""
    elapsed_s = 0.0 if referee.began_ns is None else (now_ns - referee.began_ns) / 1e9
    line = f"{elapsed_s:4.0f} s  {referee.successes} of {len(referee.episodes)} succeeded"
    status = referee.status
    if not referee.playing or status is None:
        return f"{line}  {referee.phase.value}"
    where = f"episode {status.episode}  seed {status.seed}  step {status.step}  coverage {status.coverage:.2f}"
    return f"{line}  {where}  {referee.actuator}"


def _tail(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as log:
        lines = deque(log, maxlen=LOG_LINES)
    return f"the last lines of {path}:\n" + "".join(f"  {line}" for line in lines).rstrip()
