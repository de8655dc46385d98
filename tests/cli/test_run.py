"""The supervisor and `auras run`, over children that do nothing: restarts, backoff, the end of everything."""

from __future__ import annotations

import errno
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from auras_ros import resources
from auras_ros.cli import run as run_command
from auras_ros.nodes.common import config as config_module
from auras_ros.nodes.common import discovery
from auras_ros.nodes.common import supervisor as module
from auras_ros.nodes.common.config import ConfigError, read_config
from auras_ros.nodes.common.supervisor import Supervisor
from auras_ros.ros.supported import UnsupportedRosError
from auras_ros.topic_names import read_remaps

PATIENCE_S = 30.0
CHILDREN = {
    "sleeper": "import signal\nprint('up', flush=True)\nsignal.pause()\n",
    "deaf": "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('up', flush=True)\n"
    "while True: time.sleep(9)\n",
    "wrong": "import sys\nsys.exit(2)\n",
    "broken": "import sys\nsys.exit(7)\n",
    "slow": "import sys\nsys.exit(3)\n",
    "words": (words := "import sys, time\nprint(' '.join(sys.argv[1:]), flush=True)\ntime.sleep(99)\n"),
    "actuator": words,
    "enclave": "import os, time\nprint('in', os.environ['ROS_SECURITY_ENCLAVE_OVERRIDE'], flush=True)\n"
    "time.sleep(99)\n",
}


@pytest.fixture(autouse=True)
def _executables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small modules stand where the nodes are."""
    for name, code in CHILDREN.items():
        (tmp_path / f"auras_child_{name}.py").write_text(code)
    root = Path(__file__).resolve().parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{root}")
    children = {name: f"auras_child_{name}" for name in CHILDREN}
    for each in (module, config_module):
        monkeypatch.setattr(each, "EXECUTABLES", children)


Config = Callable[..., Path]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    def write(*processes: str, **settings: object) -> Path:
        path = tmp_path / "config.yaml"
        values = {"processes": list(processes), **settings}
        path.write_text(yaml.safe_dump({"supervisor": {"ros__parameters": values}}))
        return path

    return write


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    made: list[Supervisor] = []
    with (tmp_path / "log").open("w") as log:

        def start(path: Path, **options: object) -> Supervisor:
            made.append(Supervisor(path, log=log, **options))  # type: ignore[arg-type]
            made[-1].start()
            return made[-1]

        yield start
        for each in made:
            each.stop()


def until_log(tmp_path: Path, text: str) -> None:
    until(lambda: text in (tmp_path / "log").read_text(), f"{text!r} in the log")


def until(done: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < end_s, f"no {what}"
        time.sleep(0.01)


def news(supervisor: Supervisor, count: int) -> list[str]:
    lines: list[str] = []
    end_s = time.monotonic() + PATIENCE_S
    while len(lines) < count:
        assert time.monotonic() < end_s, f"only {lines}"
        lines += supervisor.poll()
        time.sleep(0.01)
    return lines


def test_a_killed_process_is_started_again_and_the_others_are_left_alone(
    config: Config, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(config("sleeper", "words"))
    first = supervisor.processes
    first["sleeper"].kill()
    assert news(supervisor, 2) == ["sleeper was killed by SIGKILL, starting again in 0.5 s", "sleeper started again"]
    assert supervisor.processes["sleeper"].pid != first["sleeper"].pid
    assert supervisor.processes["words"] is first["words"]


@pytest.mark.parametrize(("owner", "name"), [(Path, "write_text"), (module.subprocess, "Popen")], ids=["disk", "fork"])
def test_one_that_cannot_be_started_again_is_tried_later_and_the_others_are_left_alone(
    owner: object, name: str, config: Config, supervise: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards: a full disk and one dead process that end the whole runtime."""
    monkeypatch.setattr(module, "RESTART_DELAYS_S", (0.01, 0.02))
    supervisor = supervise(config("sleeper", "actuator"))
    before = supervisor.processes
    with monkeypatch.context() as full:
        full.setattr(owner, name, lambda *_, **__: (_ for _ in ()).throw(OSError(errno.ENOSPC, "no room")))
        before["actuator"].kill()
        lines = news(supervisor, 3)
    assert lines == [
        "actuator was killed by SIGKILL, starting again in 0.01 s",
        *["actuator cannot be started ([Errno 28] no room), starting again in 0.02 s"] * 2,
    ]
    assert news(supervisor, 1) == ["actuator started again"]
    assert supervisor.processes["sleeper"] is before["sleeper"]
    assert before["sleeper"].poll() is None


def test_nothing_of_an_earlier_start_needs_to_be_there_for_the_next(
    config: Config, supervise: Callable[..., Supervisor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards: a /tmp that is tidied after ten days, and the next restart that ends the whole runtime."""
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(module.tempfile, "tempdir", str(scratch))
    supervisor = supervise(config("actuator"), namespace="/left")
    until_log(tmp_path, " -r __ns:=/left")
    for folder in scratch.iterdir():
        shutil.rmtree(folder)
    supervisor.processes["actuator"].kill()
    assert news(supervisor, 2)[-1] == "actuator started again"
    assert overrides(tmp_path, lives=2) == {"/left/actuator": {"arm_on_start": False}}
    (folder,) = scratch.iterdir()
    assert {each.name for each in folder.iterdir()} == {"config.yaml", "actuator.overrides.yaml"}
    supervisor.stop()
    assert not list(scratch.iterdir())


def test_a_signal_without_a_name_is_news_too(config: Config, supervise: Callable[..., Supervisor]) -> None:
    supervisor = supervise(config("words"))
    supervisor.processes["words"].send_signal(signal.SIGRTMIN + 1)
    assert news(supervisor, 1) == [f"words was killed by signal {signal.SIGRTMIN + 1}, starting again in 0.5 s"]


def test_each_restart_waits_longer_until_a_process_is_steady(
    config: Config, supervise: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESTART_DELAYS_S", (0.01, 0.02, 0.03))
    supervisor = supervise(config("broken"))
    lines = [line for line in news(supervisor, 8) if "exited" in line]
    assert lines == [f"broken exited with status 7, starting again in {s} s" for s in (0.01, 0.02, 0.03, 0.03)]
    monkeypatch.setattr(module, "STEADY_S", -1.0)  # from now on every life counts as steady
    lines = [line for line in news(supervisor, 6) if "exited" in line]
    assert lines[-1] == "broken exited with status 7, starting again in 0.01 s"


def test_who_found_the_machine_too_slow_tries_again_later_each_time_and_the_others_go_on(
    config: Config, supervise: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a slow warm-up that ends the whole runtime."""
    monkeypatch.setattr(module, "RESTART_DELAYS_S", (0.01, 0.02, 0.03))
    monkeypatch.setattr(module, "TOO_SLOW_DELAYS_S", (0.04,))
    monkeypatch.setattr(module, "STEADY_S", -1.0)  # to be found too slow takes longer than a life that counts as steady
    supervisor = supervise(config("slow", "sleeper"))
    sleeper = supervisor.processes["sleeper"]
    lines = [line for line in news(supervisor, 10) if "too slow" in line]
    why = "slow found this machine too slow for its settings just now (see its own message)"
    assert lines == [f"{why}, starting again in {s} s" for s in (0.01, 0.02, 0.03, 0.04, 0.04)]
    assert supervisor.processes["sleeper"] is sleeper
    assert supervisor.too_slow == ["slow"]


def overrides(folder: Path, lives: int = 1) -> dict[str, dict[str, Any]]:
    """Of the newest process, once so many have said their words."""
    until(lambda: (folder / "log").read_text().count("\n") == lives, f"life {lives}")
    words = (folder / "log").read_text().splitlines()[-1].split()
    given = Path([value for word, value in pairwise(words) if word == "--params-file"][1])
    return {node: each["ros__parameters"] for node, each in yaml.safe_load(given.read_text()).items()}


def test_other_overrides_hold_from_the_next_start_on(
    config: Config, supervise: Callable[..., Supervisor], tmp_path: Path
) -> None:
    supervisor = supervise(config("words"), parameters={"agent": {"plan": "ddpm100"}})
    until_log(tmp_path, "--params-file")
    assert overrides(tmp_path) == {"agent": {"plan": "ddpm100"}}
    supervisor.override("agent", {"plan": "quick"})
    supervisor.processes["words"].kill()
    news(supervisor, 2)
    assert overrides(tmp_path, lives=2) == {"agent": {"plan": "quick"}}


def test_without_respawn_the_run_ends_when_nothing_is_left(
    config: Config, supervise: Callable[..., Supervisor]
) -> None:
    supervisor = supervise(config("broken", respawn=False))
    assert supervisor.alive
    assert news(supervisor, 1) == ["broken exited with status 7"]
    assert not supervisor.alive


def test_a_process_that_cannot_start_ends_the_run_with_status_2(
    config: Config, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command.run([str(config("wrong", respawn=False))]) == 2
    errors = capfd.readouterr().err.splitlines()
    assert errors == ["error: wrong cannot start with these settings; see its own message"]


def test_a_ros_that_was_never_run_is_named_at_the_start(
    config: Config, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("auras_ros.ros.supported.check", lambda: "rclpy 10.0.11 was never run")
    run_command.run([str(config("wrong", respawn=False))])
    assert capfd.readouterr().err.splitlines()[0] == "warning: rclpy 10.0.11 was never run"


def test_nothing_is_started_under_a_ros_that_is_refused(
    config: Config, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> str:
        raise UnsupportedRosError("two of them are here", "Use one")

    monkeypatch.setattr("auras_ros.ros.supported.check", refuse)
    monkeypatch.setattr(Supervisor, "start", lambda self: pytest.fail("started"))
    assert run_command.run([str(config("wrong", respawn=False))]) == 2
    assert capfd.readouterr().err == "error: two of them are here. Use one\n"


def test_the_others_go_on_without_a_vlm_whose_settings_are_refused(
    tmp_path: Path, config: Config, supervise: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "auras_child_vlm.py").write_text(CHILDREN["wrong"])
    monkeypatch.setitem(module.EXECUTABLES, "vlm", "auras_child_vlm")
    supervisor = supervise(config("sleeper", "vlm"))
    said = "vlm cannot start with these settings, see its own message: not started again"
    assert news(supervisor, 1) == [said]
    assert (supervisor.alive, list(supervisor.processes)) == (True, ["sleeper"])
    assert supervisor.poll() == []


@pytest.mark.parametrize(("enabled", "enclave"), [("true", "/left/enclave"), ("false", "/operator")])
def test_with_keys_each_process_is_in_its_own_enclave(
    config: Config,
    supervise: Callable[..., Supervisor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    enabled: str,
    enclave: str,
) -> None:
    """Guards against nodes with the permissions of the person who starts them."""
    monkeypatch.setenv("ROS_SECURITY_ENABLE", enabled)
    monkeypatch.setenv("ROS_SECURITY_ENCLAVE_OVERRIDE", "/operator")
    supervise(config("enclave"), namespace="left")
    until_log(tmp_path, f"in {enclave}\n")


def test_who_does_not_listen_is_killed(
    config: Config, supervise: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.2)
    supervisor = supervise(config("deaf"))
    until_log(tmp_path, "up")
    process = supervisor.processes["deaf"]
    supervisor.stop()
    assert process.returncode == -signal.SIGKILL
    assert supervisor.processes == {}
    assert supervisor.poll() == []  # and it stays stopped


def test_an_actuator_may_brake_before_it_is_killed(
    config: Config, supervise: Callable[..., Supervisor], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed on its way, its last command would be a rate."""
    braking = (
        "import signal, sys, time\ndef brake(*_):\n    time.sleep(1.0)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, brake)\nprint('up', flush=True)\n"
        "while True:\n    time.sleep(0.1)\n"  # pause() may miss a signal just before it
    )
    (tmp_path / "auras_child_actuator.py").write_text(braking)
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    supervisor = supervise(config("deaf", "actuator"))
    until(lambda: (tmp_path / "log").read_text().count("up") == 2, "both")
    processes = supervisor.processes
    supervisor.stop()
    assert processes["actuator"].returncode == 0
    assert processes["deaf"].returncode == -signal.SIGKILL


def test_one_that_cannot_be_spawned_takes_the_others_down(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor(config("sleeper", "words"))
    spawn, started = supervisor._spawn, []

    def spawn_one(slot: module._Slot) -> None:
        if started:
            raise OSError("no more processes")
        spawn(slot)
        started.append(slot.process)

    monkeypatch.setattr(supervisor, "_spawn", spawn_one)
    with pytest.raises(OSError, match="no more"), supervisor:
        pass
    assert [process.returncode for process in started] == [-signal.SIGTERM]


def test_namespace_and_overrides_reach_the_child(
    config: Config, supervise: Callable[..., Supervisor], tmp_path: Path
) -> None:
    path = config("words")
    supervise(path, parameters={"agent": {"plan": "ddpm100", "seed": 3}})
    until_log(tmp_path, f"--ros-args --params-file {path} --params-file ")
    assert overrides(tmp_path) == {"agent": {"plan": "ddpm100", "seed": 3}}


def test_remapping_rules_reach_every_child_those_of_the_command_first(
    config: Config, supervise: Callable[..., Supervisor], tmp_path: Path
) -> None:
    """ROS 2 takes the first of two rules for a name."""
    path = config("words", "actuator", remap=["joint_states:=/b", "agent:prompt:=/task"])
    supervise(path, remaps=read_remaps(["joint_states:=/a"]), namespace="/left")
    rules = "-r __ns:=/left -r joint_states:=/a -r joint_states:=/b -r agent:prompt:=/task"
    until(lambda: (tmp_path / "log").read_text().count(rules) == 2, "the rules of both")


def test_run_takes_rules_and_refuses_what_is_none(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys\nprint('words', *sys.argv[1:], flush=True)\nos.kill(os.getppid(), 15)\n"
    (tmp_path / "auras_child_teller.py").write_text(f"{code}import signal\nsignal.pause()\n")
    monkeypatch.setitem(module.EXECUTABLES, "teller", "auras_child_teller")
    rules = ["--remap", "joint_states:=/robot/joint_states", "-r", "agent:prompt:=/task"]
    assert run_command.run([str(config("teller")), *rules]) == 0
    assert "-r joint_states:=/robot/joint_states -r agent:prompt:=/task" in capfd.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        run_command.run([str(config("teller")), "--remap", "joint_states"])
    assert "remap: expected from:=to as camera/front/image_raw:=" in capfd.readouterr().err


def test_overrides_follow_their_node_into_the_namespace(
    config: Config, supervise: Callable[..., Supervisor], tmp_path: Path
) -> None:
    """In ROS 2 `-p actuator:arm_on_start:=false` is not for /left/actuator: one that came back would arm itself."""
    given = {"actuator": {"arm_on_start": True}}
    supervisor = supervise(config("actuator"), namespace="/left", parameters=given)
    until_log(tmp_path, " -r __ns:=/left")
    assert overrides(tmp_path) == {"/left/actuator": {"arm_on_start": True}}
    supervisor.processes["actuator"].kill()
    news(supervisor, 2)
    assert overrides(tmp_path, lives=2) == {"/left/actuator": {"arm_on_start": False}}


def test_a_checkpoint_beside_the_config_is_handed_on_as_it_was_found(
    tmp_path: Path, supervise: Callable[..., Supervisor]
) -> None:
    path = tmp_path / "config.yaml"
    (tmp_path / "my_policy_of_this_test").mkdir()
    sections = {"supervisor": {"processes": ["words"]}, "agent": {"checkpoint": "./my_policy_of_this_test"}}
    path.write_text(yaml.safe_dump({name: {"ros__parameters": values} for name, values in sections.items()}))
    supervise(path, parameters={"agent": {"seed": 3}})
    until_log(tmp_path, f"--params-file {path} --params-file ")
    assert overrides(tmp_path) == {"agent": {"checkpoint": f"{tmp_path}/my_policy_of_this_test", "seed": 3}}


def test_nothing_is_started_with_what_was_misspelt_and_somebody_elses_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It armed without the emergency stop that its config asked for."""
    path = tmp_path / "config.yaml"
    start = "supervisor: {ros__parameters: {processes: [wrong], respawn: false}}\n"
    path.write_text(start + "actuator: {ros__parameters: {require_emergency_stopp: true}}\nactuater: {}\n")
    with monkeypatch.context() as patched:
        patched.setattr(Supervisor, "start", lambda self: pytest.fail("started"))
        assert run_command.run([str(path)]) == 2
    assert capsys.readouterr().err == (
        f"error: {path}:2: actuator: no parameter 'require_emergency_stopp'; did you mean require_emergency_stop?\n"
    )
    path.write_text(start + "my_robot: {ros__parameters: {ip: here}}\n")
    assert run_command.run([str(path)]) == 2  # as the process itself says
    assert f"warning: {path}:2: 'my_robot' is not one of our nodes" in capsys.readouterr().err


def test_a_sections_parameters_follow_its_node_into_the_namespace(
    tmp_path: Path, supervise: Callable[..., Supervisor]
) -> None:
    """Guards against a fleet that runs on defaults: in ROS 2 a section `agent` is not for /left/agent."""
    path = tmp_path / "config.yaml"
    sections = {"supervisor": {"processes": ["words"]}, "agent": {"seed": 3}, "/**": {"use_sim_time": True}}
    path.write_text(yaml.safe_dump({name: {"ros__parameters": values} for name, values in sections.items()}))
    supervisor = supervise(path, namespace="left")
    until_log(tmp_path, "__ns:=/left")
    given = Path((tmp_path / "log").read_text().split()[2])
    moved = yaml.safe_load(given.read_text())
    assert moved["/left/agent"] == {"ros__parameters": {"seed": 3}}
    assert moved["/**"] == {"ros__parameters": {"use_sim_time": True}}
    supervisor.stop()
    assert not given.exists()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: [", "not YAML"),
        ("", "processes is missing"),
        ("supervisor: {ros__parameters: {}}", "processes is missing"),
        ("supervisor: {ros__parameters: {processes: []}}", "expected a list of"),
        ("supervisor: {ros__parameters: {processes: sleeper}}", "expected list, got"),
        ("supervisor: {ros__parameters: {processes: [cat]}}", "'cat'"),
        ("supervisor: {ros__parameters: {processes: [{a: b}]}}", "{'a': 'b'}"),
        ("supervisor: {ros__parameters: {processes: [sleeper], respawn: often}}", "respawn"),
    ],
)
def test_a_config_that_cannot_be_run_names_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert named in str(caught.value)
    assert run_command.run([str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {path}:")


def test_a_config_that_is_not_there_is_named_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.run(["no_such_config"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: config 'no_such_config.yaml' not found")
    assert "pusht.yaml" in error


def test_a_shipped_config_is_found_by_name_and_any_by_path(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.touch()
    assert resources.config(str(mine)) == mine
    assert resources.config("pusht") == resources.config("pusht.yaml")
    assert resources.config("pusht").name == "pusht.yaml"
    with pytest.raises(FileNotFoundError, match=r"mistyped/pusht\.yaml: no such file"):
        resources.config("mistyped/pusht.yaml")  # and not the one that ships


def test_a_child_whose_supervisor_is_already_gone_does_not_start(tmp_path: Path) -> None:
    """Else it would live on unsupervised: the death signal was asked for too late."""
    import subprocess

    command = [sys.executable, "-m", "auras_ros.nodes.common.child", "1", "auras_child_words"]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (1, b"")


@pytest.mark.parametrize(("settings", "expected"), [({}, "LOCALHOST"), ({"discovery_range": "SUBNET"}, "SUBNET")])
def test_the_children_are_found_on_this_machine_alone_unless_the_config_says_more(
    settings: dict[str, str], expected: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Guards: `auras run` that is heard, and armed, by everybody in the network."""
    for name in (discovery.VARIABLE, discovery.OLD_VARIABLE):
        monkeypatch.setenv(name, "")
    told = f"print('range', os.environ['{discovery.VARIABLE}'], flush=True)"
    code = f"import os, signal\n{told}\nos.kill(os.getppid(), 15)\n"
    (tmp_path / "auras_child_teller.py").write_text(code + "signal.pause()\n")
    monkeypatch.setitem(module.EXECUTABLES, "teller", "auras_child_teller")
    assert run_command.run([str(config("teller", **settings))]) == 0
    output = capfd.readouterr().out
    assert f"range {expected}\n" in output
    assert f"discovery range: {expected}, " in output


def test_a_discovery_range_that_is_none_is_refused(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.run([str(config("sleeper", discovery_range="everybody"))]) == 2
    assert "supervisor: discovery_range: must be one of" in capsys.readouterr().err
