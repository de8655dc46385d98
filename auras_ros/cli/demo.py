"""`auras demo`: the complete closed loop over real topics in any world, scored by a referee, filmed and measured."""

from __future__ import annotations

import importlib.util
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from auras_ros import resources
from auras_ros.cli.command import INTERRUPTED, stop_signals
from auras_ros.cli.demo_options import DemoOptions, overrides, parse
from auras_ros.cli.demo_policy import STAGES, DemoPolicy, in_turn
from auras_ros.cli.demo_results import ASKED, DemoResult, write
from auras_ros.cli.progress import Progress
from auras_ros.clock import MonotonicClock
from auras_ros.live.referee.answers import TableAnswers
from auras_ros.live.referee.episode import Rules
from auras_ros.live.referee.film import Film
from auras_ros.live.referee.measures import NS_PER_MS
from auras_ros.live.referee.pictures import HEIGHT_PX, WIDTH_PX
from auras_ros.live.referee.pusht_view import PushTView
from auras_ros.live.referee.referee import RefereePhase
from auras_ros.live.referee.summary import progress_line
from auras_ros.live.referee.video import VideoFile
from auras_ros.live.referee.view import CamerasView, View
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common.config import read_config
from auras_ros.nodes.common.supervisor import Supervisor, SupervisorError
from auras_ros.pipeline.plan import Plan

STARTUP_S = 30.0  # longest time without a new topic or service
LOADING_S = 90.0  # the same if only the agent is missing, which loads and warms up the policy, or a world in a process
LOG_LINES = 15
FEWEST_STEPS, MOST_STEPS = 8, 100  # of the included policies' `quick`; of their training
TRIAL, TRIAL_STEPS, TRIAL_S = "trial", 40, 4.0  # played to learn how long a step takes beside the other processes
REQUEST_PERIODS = 3.4  # control periods by the trial; the play itself is up to a tenth quicker or slower
TITLES = {TRIAL: "trial", "seq": "sequential", "auras": "auras", ASKED: "auras, asked"}


class DemoError(RuntimeError):
    """The demo cannot continue; the message has the reason and where to look."""


def run(argv: list[str]) -> int:
    options = parse(argv)
    try:
        options.world.check()
    except ValueError as error:  # its environment is not made: the message says how
        print(f"error: {error}", file=sys.stderr)
        return 2
    discovery.apply_range(read_config(resources.find("config", "demo.yaml")))  # by default not on a robot's network
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"error: --out: {error}", file=sys.stderr)
        return 2
    with stop_signals() as stopping:
        return _play_all(options, stopping)


def _play_all(options: DemoOptions, stopping: list[int]) -> int:
    """Play one plan, or without one the same seeds sequentially and as `auras`; then write the results."""
    from auras_ros.ros import SignalHandlerOptions, init, try_shutdown

    plays: list[DemoResult] = []
    learnt: dict[str, float] = {}
    init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        if options.plan is not None:
            plays.append(_Play("", options.plan, options, stopping).run())
        else:
            learnt = _play_in_turn(options, stopping, plays)
        error = next((play.error for play in plays if play.error), "")
    except DemoError as failure:
        error = str(failure)
    finally:
        try_shutdown()
    write(options, plays, learnt)
    if error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return INTERRUPTED if stopping else 0


def _play_in_turn(options: DemoOptions, stopping: list[int], plays: list[DemoResult]) -> dict[str, float]:
    """Play for a few seconds to learn how many denoising steps to take, then all plans with so many; these are added to
    `plays`. A policy that does not denoise is played by its first plan. Returns what was learnt. Raises DemoError if
    nothing was."""
    first = next(iter(options.policy.plans), "")
    plans, learnt = in_turn(first, min(STAGES, options.policy.steps(first) or STAGES)), dict[str, float]()
    if options.policy.denoises:
        learnt = _steps_by_trial(options, stopping)
        if stopping:
            return {}
        plans = all_plans(round(learnt["denoising_steps"]))
    for name, plan in plans.items():
        if name == ASKED and not options.is_pusht:
            break
        if name == ASKED and (missing := _missing()):
            print(f"no questions: {missing} is not installed; pip install 'auras_ros[vlm]'", file=sys.stderr)
            break
        took = f", {learnt['request_ms_expected']:.0f} ms a request" if plan.mode == "seq" and learnt else ""
        plays.append(_Play(name, plan, options, stopping, took).run())
        referee = plays[-1].referee
        if stopping or plays[-1].error or referee is None:
            break
        # The other one plays as many episodes as were finished, on the same seeds.
        options = replace(options, rules=replace(options.rules, episodes=max(1, len(referee.episodes))))
    return learnt


def _steps_by_trial(options: DemoOptions, stopping: list[int]) -> dict[str, float]:
    """How many denoising steps fit, by a play of a few seconds, which is kept nowhere. Raises DemoError."""
    rules = Rules(seconds=TRIAL_S, episodes=1, grace_s=0.0)
    trial = _Play(TRIAL, Plan(f"ddim{TRIAL_STEPS}"), replace(options, rules=rules), stopping).run()
    if trial.film is not None:
        trial.film[0].unlink()
    if stopping:
        return {}
    if trial.error:
        raise DemoError(trial.error)
    steps, request_ms = denoising_steps(trial, options.policy)
    print(f"{steps} denoising steps: a sequential request takes some {request_ms:.0f} ms here", flush=True)
    return {"denoising_steps": steps, "request_ms_expected": request_ms}


class _Play:
    """One plan to be played over topics: start, play, stop."""

    def __init__(self, name: str, plan: Plan, options: DemoOptions, stopping: list[int], took: str = "") -> None:
        """name: of this play of several, or "". took: what its title says of a request's duration."""
        self._name, self.plan, self._stopping, self._progress = name, plan, stopping, Progress(quiet_s=5.0)
        self._took, self._answers = took, TableAnswers() if name == ASKED else None
        self._options, self._world = replace(options, plan=plan), options.world
        self._config = resources.find("config", "demo.yaml")
        self._overrides = overrides(self._options)
        self._rate_hz = float(read_config(self._config).section("actuator")["rate_hz"])
        self._video: VideoFile | None = None
        self._film: Film | None = None
        if options.video:
            step_ms = self._world.world.control_dt_ms
            self._video = VideoFile(options.out / f"{name or 'demo'}.mp4", 1000.0 / step_ms, WIDTH_PX, HEIGHT_PX)
            self._film = Film(self._video, view_of(options), self.title, step_ms)

    @property
    def title(self) -> str:
        return f"{TITLES[self._name]}: {self.plan}{self._took}" if self._name else str(self.plan)

    def run(self) -> DemoResult:
        from auras_ros.live.referee.node import RefereeNode

        clock, error = MonotonicClock(), ""
        name, contract = self._world.world.name, self._options.policy.contract
        node = RefereeNode(name, contract, self._rate_hz, self._film, clock, self._answers)
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
        if node.referee is not None:
            error = error or node.referee.fault
        elif not error:
            print("stopped before the first episode", flush=True)
        film = (self._video.path, self._film.lengths) if self._video and self._film and self._video.frames else None
        told = (node.referee, node.measures, node.deadline_ms)
        return DemoResult(self._name, self.title, self.plan, self._world, *told, film, error, self._answers)

    # -- playing ------------------------------------------------------------------------------------------

    def _play(self, node: Any) -> None:
        from auras_ros.ros.callbacks import Callbacks

        callbacks = Callbacks(node)
        log_path = self._options.out / "log.txt"
        try:
            with log_path.open("w" if self._name in ("", TRIAL) else "a", encoding="utf-8") as log:
                sim = self._options.sim
                supervisor = Supervisor(self._config, log=log, parameters=self._overrides, sim=sim)
                with ExitStack() as running:
                    running.enter_context(supervisor)
                    supervisors = [supervisor]
                    if self._answers is not None:
                        vlm = Supervisor(resources.find("config", "vlm_pusht.yaml"), log=log)
                        supervisors.append(running.enter_context(vlm))
                    turn = self._turns(callbacks, supervisors)
                    if self._await_all(node, turn):
                        self._referee(node, turn)
                    self._progress.done()
        except (SupervisorError, DemoError) as error:
            raise DemoError(f"{error}\n{_tail(log_path)}") from error
        finally:
            callbacks.close()

    def _turns(self, callbacks: Any, supervisors: Sequence[Supervisor]) -> Callable[[], bool]:
        """A function that runs a callback and checks the processes; those of the first supervisor play. It returns
        False once the demo should stop, and raises DemoError."""
        supervisor = supervisors[0]
        policy = self._options.policy
        quickest = policy.with_period(replace(self.plan, generation=policy.quickest or self.plan.generation))

        def turn() -> bool:
            if not callbacks.spin_once():
                raise DemoError("the referee receives nothing any more; see its messages above")
            for news in (news for each in supervisors for news in each.poll()):
                self._progress.done()
                print(f"[supervisor] {news}", flush=True)
            if "agent" in supervisor.too_slow and self.plan != quickest:
                self._take(quickest, supervisor)
            return not self._stopping

        return turn

    def _take(self, plan: Plan, supervisor: Supervisor) -> None:
        """Use another plan from the agent's next start on, because the requested one is too slow here."""
        print(f"plan '{self.plan}' is too slow for this machine just now: using '{plan}'", flush=True)
        self.plan, self._took = plan, ""
        if self._film is not None:
            self._film.title = self.title
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
            loading = self._world.environment is not None or set(missing) <= set(FROM_AGENT)
            patience_s = LOADING_S if loading else STARTUP_S
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
            self._progress.say(f"{self._name} {progress_line(referee, MonotonicClock().now_ns())}".strip())


def view_of(options: DemoOptions) -> View:
    """Push-T has one of its own."""
    if options.is_pusht:
        return PushTView(options.world.options.success_coverage)
    return CamerasView([each.name for each in options.world.world.cameras])


def denoising_steps(trial: DemoResult, policy: DemoPolicy) -> tuple[int, float]:
    """As many DDIM steps, FEWEST_STEPS to MOST_STEPS, as let a sequential request take REQUEST_PERIODS control periods,
    and how long it takes then, ms; by the chunks that came while `trial` was played. Raises DemoError if none did."""
    began_ns = trial.measures.spans[0][0] if trial.measures.spans else sys.maxsize
    chunks = [chunk for chunk in trial.measures.chunks if chunk.latched_ns >= began_ns]
    if not chunks:
        raise DemoError(f"no chunk came within {TRIAL_S:g} s of play")
    perception_ms = fmean(chunk.perceived_ns - chunk.latched_ns for chunk in chunks) / NS_PER_MS
    generation_ms = fmean(chunk.generated_ns - chunk.perceived_ns for chunk in chunks) / NS_PER_MS
    step_ms = generation_ms / (policy.steps(trial.plan.generation) or TRIAL_STEPS)
    wanted = (REQUEST_PERIODS * trial.sim.world.control_dt_ms - perception_ms) / step_ms
    steps = min(max(FEWEST_STEPS, round(wanted)), MOST_STEPS)
    return steps, perception_ms + steps * step_ms


def all_plans(steps: int) -> dict[str, Plan]:
    """The plays: the same denoising one request after another, pipelined, and pipelined beside questions."""
    plans = in_turn(f"ddim{steps}", min(STAGES, steps))
    return {**plans, ASKED: plans["auras"]}


def _missing() -> str:
    """A package that the vision-language model needs and that is not installed, or ""."""
    return next((name for name in ("tokenizers", "PIL", "jinja2") if importlib.util.find_spec(name) is None), "")


def _tail(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as log:
        lines = deque(log, maxlen=LOG_LINES)
    return f"the last lines of {path}:\n" + "".join(f"  {line}" for line in lines).rstrip()
