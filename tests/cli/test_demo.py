"""`auras demo`: its options and errors, and whole runs in a process of their own over real topics."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from auras_ros import resources
from auras_ros.cli import demo
from auras_ros.cli.demo import DemoError
from auras_ros.cli.demo_options import OTHERS_EPISODES, overrides, parse
from auras_ros.cli.demo_policy import DemoPolicy
from auras_ros.cli.demo_results import DemoResult, write
from auras_ros.environments import PLACE
from auras_ros.live.chunk_times import ChunkTimes
from auras_ros.live.referee.episode import Rules
from auras_ros.live.referee.measures import Measures
from auras_ros.live.referee.referee import Referee, RefereePhase
from auras_ros.nodes.common.config import EXECUTABLES, read_config
from auras_ros.pipeline.plan import Plan
from auras_ros.ros import Clock, ClockType, Node, init, try_shutdown
from auras_ros.sim.pusht.world import DRIFT_SUCCESS_COVERAGE, SUCCESS_COVERAGE
from auras_ros.sim.worlds import find

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 150.0

# -- options ----------------------------------------------------------------------------------------------


def test_a_plan_alone_is_played_for_a_minute_on_a_table_that_stands() -> None:
    options = parse(["--plan", "quick"])
    assert (options.rules, options.seed, options.video) == (Rules(seconds=60.0), 0, True)
    assert options.plan == Plan("quick", frame_period_ms=400.0)  # the config's period, for a generation plan alone
    standing = {"drift_px": 0.0, "success_coverage": SUCCESS_COVERAGE, "things": "", "jump_px": 0.0}
    assert overrides(options) == {
        "pusht": {"seed": 0, "auto_reset": False, **standing},
        "actuator": {"checkpoint": "pusht"},
        "agent": {"checkpoint": "pusht", "plan": "quick,frame_period_ms=400.0", "seed": 0},
    }


def test_without_a_plan_three_are_played_on_the_drifting_table() -> None:
    options = parse([])
    assert (options.rules, options.plan) == (Rules(seconds=None, episodes=3), None)
    drifting = {"drift_px": 0.5, "success_coverage": DRIFT_SUCCESS_COVERAGE, "things": "", "jump_px": 0.0}
    assert overrides(options) == {
        "pusht": {"seed": 0, "auto_reset": False, **drifting},
        "actuator": {"checkpoint": "pusht"},
        "agent": {"checkpoint": "pusht", "seed": 0},
    }
    assert overrides(parse(["--sim", "pusht"]))["pusht"]["drift_px"] == 0
    plans = demo.all_plans(60)
    assert list(plans) == ["seq", "auras", "vlm"]
    assert plans["vlm"] == plans["auras"]
    assert plans["auras"].as_mode("seq") == plans["seq"] == Plan("ddim60")


MS = 1_000_000


def trial(chunks: list[ChunkTimes], plan: str = "ddim40") -> DemoResult:
    """Played from 1 s on."""
    measures = Measures()
    for chunk in chunks:
        measures.chunk(chunk)
    measures.spans.append((1000 * MS, 5000 * MS))
    return DemoResult("trial", "", Plan(plan), find("pusht-drift"), None, measures, 0.0, None, "")


def chunk(latched_ms: int, perception_ms: int, generation_ms: int) -> ChunkTimes:
    perceived_ms = latched_ms + perception_ms
    ended_ns = (perceived_ms + generation_ms) * MS
    return ChunkTimes(0, latched_ms * MS, latched_ms * MS, perceived_ms * MS, ended_ns, ended_ns)


@pytest.mark.parametrize(
    ("generation_ms", "steps", "request_ms"), [(80, 100, 210.0), (160, 82, 338.0), (400, 33, 340.0), (14400, 8, 2890.0)]
)
def test_a_sequential_request_takes_three_to_four_control_periods(
    generation_ms: int, steps: int, request_ms: float
) -> None:
    """If the training has enough steps, and eight are not too long."""
    played = [chunk(1000 + 20_000 * i, 10, generation_ms) for i in range(3)]
    assert demo.denoising_steps(trial(played), DemoPolicy.read("pusht")) == (steps, pytest.approx(request_ms))


def test_what_was_generated_before_the_table_moved_says_nothing() -> None:
    early, policy = [chunk(100 * i, 10, 20) for i in range(10)], DemoPolicy.read("pusht")
    assert demo.denoising_steps(trial([*early, chunk(1100, 10, 80)], plan="quick"), policy)[0] == 33
    with pytest.raises(DemoError, match="no chunk came within 4 s"):
        demo.denoising_steps(trial(early), policy)


def test_a_plan_reaches_the_agent_whole() -> None:
    """The config's frame period is meant for whole requests: another mode starts from the plan's own."""
    agent = overrides(parse(["--plan", "ddpm100,mode=auras,pp_generation=8,alpha=0.5"]))["agent"]
    assert agent == {"checkpoint": "pusht", "plan": "ddpm100,mode=auras,pp_generation=8,alpha=0.5", "seed": 0}


def test_another_world_is_played_by_its_included_policy_at_its_own_rate() -> None:
    options = parse(["--sim", "lift-moving:table_m_s=0.1", "--plan", "quick", "--seed", "4"])
    given = overrides(options)
    assert list(given) == ["lift", "actuator", "agent"]
    lift = given["lift"]
    assert (lift["seed"], lift["auto_reset"], lift["table_m_s"], lift["absolute"]) == (4, False, 0.1, True)
    assert given["actuator"] == {"checkpoint": "lift"}
    assert given["agent"] == {"checkpoint": "lift", "plan": "quick,frame_period_ms=200.0", "seed": 4}  # of 50 ms
    assert parse(["--sim", "lift"]).rules == Rules(seconds=None, episodes=OTHERS_EPISODES)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--sim", "can"], "no policy for can is included: give --checkpoint FOLDER, or one of pusht, pusht-drift"),
        (["--sim", "pusht", "--checkpoint", "lift"], "checkpoint lift cannot play pusht: the world's channels are"),
        (["--sim", "lift:absolute=false,turns=true"], "checkpoint lift cannot play lift: the world's channels are"),
        (["--sim", "lift:cameras=1"], "the world's cameras are agentview, the policy's agentview, robot0_eye_in_hand"),
        (["--checkpoint", "nosuch"], "checkpoint: checkpoint .nosuch.: no such folder"),
        (["--sim", "lift:table_m_s=7"], r"table_m_s: must be in \[0.0, 0.5\], got 7"),
    ],
)
def test_a_policy_that_cannot_play_the_world_is_refused_by_what_differs(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 2
    assert re.search(said, capsys.readouterr().err)


def test_a_world_whose_environment_is_missing_starts_nothing_and_says_how_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path))
    assert demo.run(["--sim", "lift", "--out", str(tmp_path / "out")]) == 2
    assert f"is not in {tmp_path}/robosuite; make it: auras doctor --sim lift --fix" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_policy_that_does_not_denoise_is_played_by_its_first_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One by flow matching has so many steps as it was trained for: no trial says how many fit."""
    played: list[tuple[str, str]] = []

    def play(self: Any) -> DemoResult:
        played.append((self._name, str(self.plan)))
        referee = Referee(Rules(), 0)
        return DemoResult(self._name, "", self.plan, self._world, referee, Measures(), 0.0, None, "")

    monkeypatch.setattr(demo._Play, "run", play)
    options = parse(["--sim", "lift", "--checkpoint", "lift-flow", "--no-video", "--out", str(tmp_path)])
    plays: list[DemoResult] = []
    assert demo._play_in_turn(options, [], plays) == {}
    assert played == [("seq", "flow5"), ("auras", "flow5,mode=auras,pp_generation=5")]
    assert [each.name for each in plays] == ["seq", "auras"]
    assert options.policy.quickest == "flow5"
    assert parse([]).policy.quickest == "quick"


@pytest.mark.parametrize(("hz", "said"), [(20.0, False), (13.0, True)])
def test_a_machine_that_cannot_keep_up_with_the_world_is_told(
    hz: float, said: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options, measures = parse(["--sim", "lift", "--plan", "quick", "--out", str(tmp_path)]), Measures()
    for step in range(20):
        measures.world({"mono_ns": round(step * 1e9 / hz), "step": step})
    play = DemoResult("", "", Plan("quick"), options.world, Referee(Rules(), 0), measures, 50.0, None, "")
    write(options, [play], {})
    assert ("too slow here    13.0 of 20 control steps a second" in capsys.readouterr().out) == said


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_demo_makes_the_environment_of_the_world_that_it_plays_and_of_no_other() -> None:
    def commands(*words: str) -> list[str]:
        ran = subprocess.run(
            ["make", "-n", "--no-print-directory", "demo", *words], cwd=ROOT, capture_output=True, text=True, check=True
        )
        return [line.strip() for line in ran.stdout.splitlines()]

    assert commands() == ["sh scripts/env.sh demo", ".venv/bin/auras demo"]
    world = "lift-moving:table_m_s=0.1"
    made = [f".venv/bin/auras doctor --sim '{world}' --fix", f".venv/bin/auras demo --sim '{world}'"]
    assert commands(f"SIM={world}") == ["sh scripts/env.sh demo", *made]


def test_episodes_alone_have_no_time_limit() -> None:
    assert parse(["--episodes", "10"]).rules == Rules(seconds=None, episodes=10)
    assert parse(["--episodes", "1", "--seconds", "8"]).rules == Rules(seconds=8.0, episodes=1, grace_s=8.0)


def test_drift_brings_its_own_threshold() -> None:
    given = overrides(parse(["--sim", "pusht-drift:drift_px=0.7", "--seed", "7", "--no-video"]))["pusht"]
    expected = {
        "seed": 7,
        "auto_reset": False,
        "viewer_px": 0,
        "drift_px": 0.7,
        "success_coverage": DRIFT_SUCCESS_COVERAGE,
        "things": "",
        "jump_px": 0.0,
    }
    assert given == expected


def test_the_type_of_the_weights_is_the_agents() -> None:
    assert overrides(parse(["--dtype", "bfloat16"]))["agent"]["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    "argv",
    [
        ["--dtype", "int8"],
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--episodes", "0"],
        ["--seed", "x"],
        ["--seed", "-1"],
        ["--sim", "pusht:drift_px=-1"],
        ["--sim", "chess"],
        ["--plan", "quick,mode=warp"],
    ],
)
def test_useless_options_are_refused_by_name(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(argv)
    assert ended.value.code == 2
    assert argv[0].strip("-") in capsys.readouterr().err


def test_where_the_plan_is_too_slow_the_quickest_is_played_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Guards against a demo that refuses to start on a machine where 100 steps take longer."""
    options = parse(["--plan", "ddpm100", "--sim", "pusht-drift", "--seed", "3", "--no-video", "--out", str(tmp_path)])
    assert options.plan is not None
    running = demo._Play("", options.plan, options, [])
    overridden: list[tuple[str, dict[str, Any]]] = []
    supervisor = SimpleNamespace(
        poll=list, too_slow=[], override=lambda node, values: overridden.append((node, values))
    )
    turn = running._turns(SimpleNamespace(spin_once=lambda: True), [supervisor])  # type: ignore[arg-type]
    assert turn()
    assert overridden == []
    supervisor.too_slow.append("agent")
    assert turn()
    assert turn()
    assert overridden == [("agent", {"checkpoint": "pusht", "plan": "quick,frame_period_ms=400.0", "seed": 3})]
    assert running.title == "quick,frame_period_ms=400.0"
    said = capsys.readouterr().out
    assert said.startswith("plan 'ddpm100,frame_period_ms=400.0' is too slow for this machine just now: using 'quick,")


def test_the_film_says_how_long_a_sequential_request_takes(tmp_path: Path) -> None:
    """As long as its plan is the one that it was said of."""
    options = parse(["--no-video", "--out", str(tmp_path)])
    playing = demo._Play("seq", Plan("ddim67"), options, [], ", 338 ms a request")
    assert playing.title == "sequential: ddim67, 338 ms a request"
    playing._take(Plan("quick"), SimpleNamespace(override=lambda node, values: None))  # type: ignore[arg-type]
    assert playing.title == "sequential: quick"


def test_a_plan_that_is_too_slow_is_replaced_by_a_quick_one_of_its_mode(tmp_path: Path) -> None:
    """Guards against a film of `auras` that shows a sequential agent."""
    plan = Plan.parse("ddim100,mode=auras,pp_generation=6")
    playing = demo._Play("auras", plan, parse(["--no-video", "--out", str(tmp_path)]), [])
    supervisor = SimpleNamespace(poll=list, too_slow=["agent"], override=lambda node, values: None)
    assert playing._turns(SimpleNamespace(spin_once=lambda: True), [supervisor])()  # type: ignore[arg-type]
    assert str(playing.plan) == "quick,mode=auras,pp_generation=6"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert demo.run(["--out", str(tmp_path / "file" / "out")]) == 2
    assert f"--out: [Errno 20] Not a directory: '{tmp_path}/file/out'" in capsys.readouterr().err


def test_a_callback_that_raises_does_not_end_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ros_domain_id: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards against a message of anybody's that stops all nodes, and with them a recording of minutes."""
    running = demo._Play("", Plan("quick"), parse(["--no-video", "--out", str(tmp_path)]), [])
    supervisor = MagicMock(poll=list, too_slow=[])
    monkeypatch.setattr(demo, "Supervisor", lambda *_, **__: supervisor)
    init(args=[])
    node: Any = Node("referee")
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise OverflowError("cannot convert float infinity to integer")

    node.create_timer(0.01, fail, clock=Clock(clock_type=ClockType.STEADY_TIME))
    node.missing = lambda: [] if len(calls) > 2 else ["a topic"]
    node.begin = lambda rules: SimpleNamespace(phase=RefereePhase.FINISHED)
    node.step = lambda: None
    try:
        running._play(node)
    finally:
        node.destroy_node()
        try_shutdown()
    assert len(calls) > 2
    assert "a callback failed and was skipped" in capfd.readouterr().err


def test_the_config_leaves_resetting_and_arming_to_the_referee() -> None:
    config = read_config(resources.find("config", "demo.yaml"))
    assert config.section("pusht")["auto_reset"] is False
    assert config.section("actuator")["arm_on_start"] is False
    assert config.section("pusht")["viewer_px"] > 0


# -- starting ---------------------------------------------------------------------------------------------


class Absent:
    """A node to which nothing but the given names ever comes, on a clock that runs a second a turn."""

    def __init__(self, missing: list[str], publishers: int = 1) -> None:
        self._missing, self._publishers = missing, publishers

    def missing(self) -> list[str]:
        return self._missing

    def count_publishers(self, topic: str) -> int:
        return self._publishers


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[[Absent], tuple[bool, int]]:
    """start(node) -> (what it returned, seconds waited)."""
    now = [0]
    monkeypatch.setattr(demo, "MonotonicClock", lambda: SimpleNamespace(now_ns=lambda: now[0]))
    run = demo._Play("", Plan("quick"), parse(["--no-video"]), [])

    def turn() -> bool:
        now[0] += 1_000_000_000
        return True

    def begin(node: Absent) -> tuple[bool, int]:
        try:
            return run._await_all(node, turn), now[0] // 1_000_000_000
        except DemoError as error:
            raise DemoError(f"{error} (at {now[0] // 1_000_000_000} s)") from error

    return begin


def test_what_never_comes_is_named_after_half_a_minute(start: Callable[[Absent], Any]) -> None:
    with pytest.raises(DemoError, match=r"30 s on: pusht/status, agent/reset \(at 31 s\)"):
        start(Absent(["pusht/status", "agent/reset"]))


def test_the_agent_has_longer_because_it_loads(start: Callable[[Absent], Any]) -> None:
    with pytest.raises(DemoError, match=r"90 s on: provenance, agent/reset \(at 91 s\)"):
        start(Absent(["provenance", "agent/reset"]))


def test_another_publisher_of_actions_is_a_conflict(start: Callable[[Absent], Any]) -> None:
    assert start(Absent([], publishers=1)) == (True, 0)
    with pytest.raises(DemoError, match="ROS_DOMAIN_ID"):
        start(Absent([], publishers=2))


# -- whole runs -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def share(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix with a policy of the shipped shape and random weights, used where no trained one ships."""
    prefix = tmp_path_factory.mktemp("prefix")
    try:
        resources.checkpoint("pusht")
    except FileNotFoundError:
        import torch

        from auras_ros.models.keypoint_encoder import KeypointEncoder
        from auras_ros.models.unet1d import ConditionalUnet1d
        from tests.train.checkpoints import write_checkpoint

        torch.manual_seed(0)
        folder = prefix / "share" / "auras_ros"
        network = ConditionalUnet1d(2, 2 * (64 + 2)).eval()
        write_checkpoint(folder / "checkpoints" / "pusht", "pusht", KeypointEncoder().eval(), network)
        (folder / "package.xml").write_text((ROOT / "package.xml").read_text())
    return prefix


SAYS_OFTEN = """
import sys
from auras_ros.cli import demo, main, progress
demo.Progress = lambda quiet_s: progress.Progress(quiet_s=1.0)
sys.exit(main.main())
"""


class Run:
    """A demo in a process of its own; `until` reads its output, line by line, as it comes."""

    def __init__(self, prefix: Path, domain: int, *argv: str) -> None:
        environment = {**os.environ, "AMENT_PREFIX_PATH": str(prefix), "ROS_DOMAIN_ID": str(domain)}
        environment["PYTHONPATH"] = str(ROOT)
        self.process = subprocess.Popen(
            [sys.executable, "-c", SAYS_OFTEN, "demo", *argv],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        self.output: list[str] = []
        self._lines: Queue[str | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def until(self, text: str | None) -> str:
        """The output up to the first line with this text; None: up to the end."""
        while (line := self._lines.get(timeout=LIMIT_S)) is not None:
            self.output.append(line)
            if text is not None and text in line:
                break
        else:
            assert text is None, f"no {text!r} in:\n{''.join(self.output)}"
        return "".join(self.output)

    def children(self) -> dict[str, int]:
        """Module -> process id of what it has started and is alive."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and (told := facts(int(entry.name))) and told[0] == self.process.pid:
                found.update({word: int(entry.name) for word in told[1] if word.startswith("auras_ros.")})
        return found


def facts(process: int) -> tuple[int, list[str]] | None:
    """(parent, command line) of a process; None where it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[1]), Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return None


@pytest.fixture
def begin(share: Path, ros_domain_id: int) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(*argv: str) -> Run:
        runs.append(Run(share, ros_domain_id, *argv))
        return runs[-1]

    yield start
    for run in runs:
        run.process.terminate()  # it stops what it has started
        run.process.wait(timeout=30)
        if run.process.stdout is not None:
            run.process.stdout.close()


@pytest.mark.slow
def test_a_whole_run_plays_three_times_measures_and_writes(begin: Callable[..., Run], tmp_path: Path) -> None:
    out, extra = tmp_path / "out", tmp_path / "extra.json"
    run = begin("--episodes", "1", "--seconds", "3", "--out", str(out), "--json", str(extra))
    run.until("  step ")
    children = run.children()
    assert {EXECUTABLES[each] for each in ("agent", "actuator", "sim_bridge")} <= set(children)
    text = run.until(None)
    assert run.process.wait(timeout=30) == 0, text
    report = json.loads((out / "demo.json").read_text())
    summary = report["summary"]
    assert report["name"] == "demo"
    assert all((row["seed"], row["drift_px"]) == (0, 0.5) for row in report["rows"])
    for play in ("seq", "auras", "vlm"):
        assert summary[f"{play}_episodes"] + summary[f"{play}_unfinished"] == 1
        assert summary[f"{play}_episodes"] == len([row for row in report["rows"] if row["play"] == play])
        assert summary[f"{play}_void"] == 0
        assert summary[f"{play}_staleness_ms_n"] > 0
        assert summary[f"{play}_chunks_per_s"] > 0
        assert summary[f"{play}_interval_error_ms_n"] > 0
    assert f"auras: ddim{summary['denoising_steps']},mode=auras,pp_generation=" in text
    assert summary["vlm_answers"] + summary["vlm_answers_unfinished"] > 0
    assert summary["chunk_rate_kept"] == summary["vlm_chunks_per_s"] / summary["auras_chunks_per_s"]
    for name in ("demo.mp4", "demo.png", "seq.mp4", "auras.mp4", "vlm.mp4", "timeline.png"):
        assert (out / name).stat().st_size > 10_000, name
    assert json.loads(extra.read_text())["summary"] == summary
    assert not [pid for pid in children.values() if facts(pid)], "left behind"


@pytest.mark.slow
def test_a_world_that_the_demo_does_not_know_is_played_and_filmed_by_its_cameras(
    begin: Callable[..., Run], tmp_path: Path
) -> None:
    """Gymnasium's Push-T: another world's node, and none of Push-T's own drawing."""
    told = ("--sim", "gym:gym_pusht/PushT-v0", "--checkpoint", "pusht", "--plan", "quick")
    run = begin(*told, "--episodes", "1", "--seconds", "3", "--out", str(tmp_path))
    text = run.until(None)
    assert run.process.wait(timeout=30) == 0, text
    report = json.loads((tmp_path / "demo.json").read_text())
    summary = report["summary"]
    assert summary["episodes"] + summary["unfinished"] == 1
    assert summary["chunks_per_s"] > 0
    assert summary["camera_top_per_s"] > 0
    assert summary["steps_per_s"] > 0
    assert "camera_viewer_per_s" not in summary
    for name in ("demo.mp4", "timeline.png"):
        assert (tmp_path / name).stat().st_size > 10_000, name


@pytest.mark.slow
def test_a_killed_agent_is_noted_and_an_interrupt_still_writes(begin: Callable[..., Run], tmp_path: Path) -> None:
    """The actuator holds, the supervisor starts another agent, the referee arms nothing within the episode."""
    run = begin("--plan", "quick", "--seconds", "100", "--no-video", "--out", str(tmp_path))
    run.until("  step ")
    os.kill(run.children()[EXECUTABLES["agent"]], signal.SIGKILL)
    run.until("agent was killed by SIGKILL")
    run.until("agent started again")
    run.until("  step ")  # the state that says so has been heard by now: it is sent at 20 Hz, this line every second
    run.process.send_signal(signal.SIGINT)
    text = run.until(None)
    assert run.process.wait(timeout=30) == 130, text
    # The first reason alone is said, and a busy machine may bring about another one.
    assert re.search("holding: (agent silent|the chunk's horizon is used up|joint_states: no new position)", text)
    assert json.loads((tmp_path / "demo.json").read_text())["summary"]["unfinished"] == 1
    assert not (tmp_path / "demo.mp4").exists()


@pytest.mark.slow
def test_settings_that_cannot_work_end_it_with_the_log(begin: Callable[..., Run], tmp_path: Path) -> None:
    run = begin("--plan", "nosuch", "--out", str(tmp_path))
    text = run.until(None)
    assert run.process.wait(timeout=30) == 1
    assert "agent cannot start with these settings" in text
    assert "no plan 'nosuch'" in text.split("the last lines of")[1]


def test_a_report_that_cannot_be_written_is_said_before_the_demo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the folder of the results it may be, though that is not made yet."""
    out = tmp_path / "out"
    assert parse(["--out", str(out), "--json", str(out / "x.json")]).json == out / "x.json"
    with pytest.raises(SystemExit) as ended:
        parse(["--out", str(out), "--json", str(tmp_path / "none" / "x.json")])
    assert ended.value.code == 2
    assert "--json: no folder" in capsys.readouterr().err
