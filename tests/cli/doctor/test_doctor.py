"""`auras doctor` with faked failures: each check must be able to say that something is wrong, and what to do."""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auras_ros.cli import doctor
from auras_ros.cli.doctor import host, machine
from auras_ros.cli.doctor.finding import Finding, Verdict, note, ok, problem

ROOT = Path(__file__).resolve().parents[3]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """missing(module, text): importing it fails with this text, others import as ever."""
    real = importlib.import_module

    def hide(name: str, text: str) -> None:
        def look(asked: str, *rest: Any) -> Any:
            if asked == name:
                raise ImportError(text)
            return real(asked, *rest)

        monkeypatch.setattr(importlib, "import_module", look)

    return hide


def is_problem(finding: Finding, *words: str) -> None:
    _says(finding, Verdict.PROBLEM, words)


def is_note(finding: Finding, *words: str) -> None:
    _says(finding, Verdict.NOTE, words)


def _says(finding: Finding, status: Verdict, words: tuple[str, ...]) -> None:
    assert finding.status is status, finding
    for word in words:
        assert word in f"{finding.text} | {finding.remedy}"


# --- software ---


def test_a_python_that_is_too_old_or_too_new(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.python().status is Verdict.OK
    for version in ((3, 9, 18), (3, 14, 0)):
        monkeypatch.setattr(sys, "version_info", version)
        is_problem(doctor.python(), "3.10 to 3.13")


def test_no_torch(missing: Callable[[str, str], None]) -> None:
    missing("torch", "No module named 'torch'")
    is_problem(doctor.torch(), "No module named 'torch'")


def test_more_torch_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = SimpleNamespace(__version__="2.0", get_num_threads=lambda: 64)
    monkeypatch.setattr(importlib, "import_module", lambda name: fake)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    is_note(doctor.torch(), "64 intra-op threads", "OMP_NUM_THREADS=2")


def test_a_library_that_cv2_lacks_is_named_with_its_package(missing: Callable[[str, str], None]) -> None:
    missing("cv2", "libGL.so.1: cannot open shared object file: No such file or directory")
    is_problem(doctor.opencv(), "libGL.so.1", "apt-get install -y libgl1")
    missing("cv2", "No module named 'cv2'")
    is_problem(doctor.opencv(), "pip install opencv-python")


def test_two_owners_of_cv2(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"opencv-python", "opencv-python-headless"}
    monkeypatch.setattr(doctor, "_version", lambda name: "4" if name in both else "of unknown version")
    is_note(doctor.opencv(), "opencv-python and opencv-python-headless", "keep one")


def test_no_simulator(missing: Callable[[str, str], None]) -> None:
    missing("auras_ros.sim.pusht.env", "No module named 'gym_pusht'")
    is_note(doctor.simulator(), "gym_pusht", "auras_ros[sim]")


@pytest.mark.parametrize("check", [doctor.files, doctor.checkpoints])
def test_an_installation_without_its_files(monkeypatch: pytest.MonkeyPatch, check: Callable[[], Finding]) -> None:
    monkeypatch.setattr(doctor.resources, "share_dir", raising(FileNotFoundError("looked in /nowhere")))
    is_problem(check(), "/nowhere", "install the package again")


def test_no_checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.resources, "share_dir", lambda: tmp_path)
    is_problem(doctor.checkpoints(), str(tmp_path), "auras train pusht")


def test_a_checkpoint_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "mine"
    folder.mkdir(parents=True)
    (folder / "policy.json").write_text("{}")
    monkeypatch.setattr(doctor.resources, "share_dir", lambda: tmp_path)
    is_problem(doctor.checkpoints(), "mine does not load", "format")


def test_a_checkpoint_that_loads_is_listed_with_its_plans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints" / "mine"
    folder.mkdir(parents=True)
    (folder / "policy.json").write_text("{}")
    monkeypatch.setattr(doctor.resources, "share_dir", lambda: tmp_path)
    loaded = SimpleNamespace(name="mine", plans={"quick": {}, "slow": {}}, digest="0123456789abcdef")
    monkeypatch.setattr("auras_ros.policies.checkpoint.load", lambda path: loaded)
    finding = doctor.checkpoints()
    assert finding == ok("checkpoints", "mine (quick, slow; sha256 0123456789ab)")


# --- the machine ---


def test_a_single_core_and_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    is_note(machine.cores(), "1 of ", "give it two")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert machine.cores().status is Verdict.OK
    monkeypatch.setattr(os, "getloadavg", lambda: (7.5, 0.1, 0.1))
    is_note(machine.cores(), "load 7.5", "busy")


def test_fifo_refused_names_the_line_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setscheduler", raising(PermissionError(1, "Operation not permitted")))
    monkeypatch.setattr(machine, "user", lambda: "ada")
    is_note(machine.scheduling(), "Operation not permitted", "'ada - rtprio 98'", "/etc/security/limits.conf")


def test_trying_fifo_restores_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against a doctor that goes on at FIFO 50 and starves its own machine."""
    calls: list[int] = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda pid, policy, parameters: calls.append(policy))
    before = os.sched_getscheduler(0)
    assert machine.try_fifo(50) == ""
    assert calls == [os.SCHED_FIFO, before]
    assert machine.scheduling().status is Verdict.OK


def test_a_user_without_a_name_is_given_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.getpass, "getuser", raising(KeyError("uid not found")))
    assert machine.user() == f"#{os.getuid()}"


@pytest.mark.parametrize(
    ("limit", "capable", "status"),
    [
        (8 << 20, False, Verdict.NOTE),
        (8 << 20, True, Verdict.OK),
        (4 << 30, False, Verdict.OK),
        (resource.RLIM_INFINITY, False, Verdict.OK),
    ],
)
def test_little_memory_that_may_be_locked(
    monkeypatch: pytest.MonkeyPatch, limit: int, capable: bool, status: Verdict
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    monkeypatch.setattr(host, "may_lock_memory", lambda: capable)
    monkeypatch.setattr(machine, "user", lambda: "ada")
    finding = machine.memory_lock()
    assert finding.status is status
    assert ("'ada - memlock unlimited'" in finding.remedy) == (status is Verdict.NOTE)


@pytest.mark.parametrize(
    ("gpus", "torch_cuda", "status", "word"),
    [
        (([], ""), (False, ""), Verdict.OK, "none"),
        ((["H200, 570.1, 143771 MiB"], ""), (True, "12.8"), Verdict.OK, "H200"),
        ((["H200, 570.1, 143771 MiB"], ""), (False, ""), Verdict.NOTE, "built without CUDA"),
        ((["H200, 570.1, 143771 MiB"], ""), (False, "13.0"), Verdict.NOTE, "update the driver for CUDA 13.0"),
        (([], "driver/library version mismatch"), (False, "13.0"), Verdict.NOTE, "version mismatch"),
    ],
)
def test_gpu(
    monkeypatch: pytest.MonkeyPatch,
    gpus: tuple[list[str], str],
    torch_cuda: tuple[bool, str],
    status: Verdict,
    word: str,
) -> None:
    monkeypatch.setattr(machine, "query_gpus", lambda: gpus)
    monkeypatch.setattr(machine, "cuda", lambda: torch_cuda)
    finding = machine.gpu()
    assert finding.status is status
    assert word in finding.text + finding.remedy


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'H200, 570.1, 143771 MiB'", (["H200, 570.1, 143771 MiB"], "")),
        ("echo 'no devices were found'; exit 9", ([], "no devices were found")),
        ("exit 9", ([], "failed")),
    ],
)
def test_what_nvidia_smi_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, expected: tuple[list[str], str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    assert machine.query_gpus() == expected


def test_an_nvidia_smi_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", raising(subprocess.TimeoutExpired("nvidia-smi", 20)))
    found, reason = machine.query_gpus()
    assert found == []
    assert "timed out" in reason


UP = machine.FLAG_UP
LAN = UP | machine.FLAG_MULTICAST


@pytest.fixture
def lan(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with one good interface."""
    monkeypatch.delenv("ROS_AUTOMATIC_DISCOVERY_RANGE", raising=False)
    monkeypatch.delenv("ROS_LOCALHOST_ONLY", raising=False)
    monkeypatch.setattr(machine, "interfaces", lambda: {"lo": UP | machine.FLAG_LOOPBACK, "eth0": LAN})
    monkeypatch.setattr(machine, "default_interface", lambda: "eth0")
    monkeypatch.setattr(machine, "multicast_error", lambda interface: "")
    return monkeypatch


def test_a_good_network(lan: pytest.MonkeyPatch) -> None:
    assert machine.network() == ok("network", "eth0 (up: lo, eth0), multicast works")


def test_only_loopback(lan: pytest.MonkeyPatch) -> None:
    lan.setattr(machine, "interfaces", lambda: {"lo": UP | machine.FLAG_LOOPBACK})
    lan.setattr(machine, "default_interface", lambda: "")
    is_note(machine.network(), "up is only lo", "LOCALHOST")


def test_multicast_that_fails(lan: pytest.MonkeyPatch) -> None:
    lan.setattr(machine, "multicast_error", lambda interface: f"lost on {interface}")
    is_note(machine.network(), "lost on eth0", "ROS_STATIC_PEERS")
    lan.setattr(machine, "interfaces", lambda: {"eth0": UP})
    is_note(machine.network(), "not supported by it")


@pytest.mark.parametrize(
    ("name", "value"), [("ROS_LOCALHOST_ONLY", "1"), ("ROS_AUTOMATIC_DISCOVERY_RANGE", "OFF")], ids=str
)
def test_localhost_by_choice_needs_no_multicast(lan: pytest.MonkeyPatch, name: str, value: str) -> None:
    lan.setattr(machine, "multicast_error", raising(AssertionError("must not be asked")))
    lan.setenv(name, value)
    assert machine.network().status is Verdict.OK


def test_ros_in_a_shell_that_looks_further_than_auras_run_is_told(lan: pytest.MonkeyPatch) -> None:
    """Guards: an empty `ros2 topic list` that nothing explains."""
    lan.setenv("AMENT_PREFIX_PATH", "/opt/ros/jazzy")
    is_note(doctor.discovery(), "LOCALHOST for auras run", "ros2 daemon stop")
    assert "SUBNET for ros2 in this shell" in doctor.discovery().text
    lan.delenv("AMENT_PREFIX_PATH")
    assert doctor.discovery().status is Verdict.OK  # no ros2 here that could see nothing


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST", "LOCALHOST for auras and for ros2"),
        ("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET", "SUBNET for auras and for ros2"),
        ("ROS_LOCALHOST_ONLY", "1", "LOCALHOST for auras and for ros2"),
    ],
)
def test_one_range_for_both_is_well(lan: pytest.MonkeyPatch, name: str, value: str, expected: str) -> None:
    lan.setenv("AMENT_PREFIX_PATH", "/opt/ros/jazzy")
    lan.setenv(name, value)
    assert doctor.discovery() == ok("discovery", f"{expected}, set by the environment")


def test_a_multicast_socket_that_is_refused_or_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no interface" in machine.multicast_error("no_such_if0")
    monkeypatch.setattr(socket.socket, "settimeout", lambda self, seconds: None)
    monkeypatch.setattr(socket.socket, "setsockopt", lambda self, *rest: None)
    monkeypatch.setattr(socket.socket, "sendto", lambda self, *rest: 0)
    monkeypatch.setattr(socket.socket, "recv", raising(TimeoutError()))
    assert machine.multicast_error("lo") == "no datagram came back within a second"


def test_interfaces_and_route_are_read_as_the_kernel_writes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, flags in (("lo", "0x9"), ("eth1", "0x1003"), ("down0", "0x1002")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(f"{flags}\n")
    (tmp_path / "bonding_masters").write_text("")  # of the bonding driver: no interface
    routes = tmp_path / "route"
    routes.write_text("Iface\tDestination\tGateway\neth1\t0000A8C0\t0\nwlan0\t00000000\t0100A8C0\n")
    monkeypatch.setattr(machine, "ROUTES", routes)
    assert machine.default_interface() == "wlan0"
    routes.unlink()
    monkeypatch.setattr(machine, "INTERFACES", tmp_path)
    assert machine.interfaces() == {"eth1": 0x1003, "lo": 0x9}
    assert machine.default_interface() == ""


# --- the whole ---


def test_a_check_that_breaks_is_reported_and_the_others_still_run() -> None:
    def broken() -> Finding:
        raise ZeroDivisionError("by zero")

    first, second = doctor.examine([broken, lambda: ok("after", "fine")])
    is_problem(first, "ZeroDivisionError: by zero")
    assert first.name == "broken"
    assert second.status is Verdict.OK


@pytest.mark.parametrize("make", [note, problem])
def test_no_complaint_without_advice(make: Callable[[str, str, str], Finding]) -> None:
    with pytest.raises(ValueError, match="without a remedy"):
        make("thing", "is bad", "")


@pytest.mark.parametrize(
    ("finding", "status"), [(ok("a", "b"), 0), (note("a", "b", "c"), 0), (problem("a", "b", "c"), 1)]
)
def test_only_a_problem_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], finding: Finding, status: int
) -> None:
    monkeypatch.setattr(doctor, "CHECKS", (lambda: finding,))
    assert doctor.run([]) == status
    assert finding.status.value in capsys.readouterr().out
    assert doctor.run(["--json"]) == status
    report = json.loads(capsys.readouterr().out)
    row = {"name": finding.name, "status": finding.status.value, "text": finding.text, "remedy": finding.remedy}
    assert report["rows"] == [row]
    assert report["summary"]["problems"] == status


def test_the_table_wraps_and_shows_the_remedy_under_its_finding() -> None:
    lines = doctor.table([ok("short", "fine"), note("a longer name", "word " * 30, "do this")], 60).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].split() == ["ok", "short", "fine"]
    assert lines[-1].strip() == "-> do this"


def test_the_commands_of_a_remedy_of_several_lines_stay_whole() -> None:
    commands = [f"  pip install {'numpy ' * 20}here", "  git clone this"]
    lines = doctor.table([problem("a", "missing", "\n".join(["by hand " * 10, *commands]))], 60).splitlines()
    assert [line.strip() for line in lines[-2:]] == [each.strip() for each in commands]
    assert all(len(line) <= 60 for line in lines[:-2])


def test_a_package_or_an_option_in_a_command_is_not_broken() -> None:
    for start in range(30):
        table = doctor.table([note("a", "b", "x" * start + " apt-get install linux-image-rt-amd64")], 60)
        assert "linux-image-rt-amd64" in table


def test_what_vision_language_models_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    finding = doctor.vision_language()
    assert finding.status is Verdict.OK
    assert finding.text.startswith("pusht-vlm (sha256 ")
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(doctor.resources, "checkpoint", lambda name: tmp_path)
    is_problem(doctor.vision_language(), "pusht-vlm does not open", "model_type", "install the package again")
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("llguidance", "uvloop") else object())
    is_note(doctor.vision_language(), "grammar, serve", "pip install 'auras_ros[grammar,serve]'")


def test_every_check_is_in_the_list_once_and_named_in_the_output() -> None:
    names = [check.__name__ for check in doctor.CHECKS]
    assert sorted(names) == sorted(
        ["python", "ros", "cores", "scheduling", "memory_lock", "gpu", "network", "discovery"]
        + ["kernel", "isolated_cores", "governor", "receive_buffer", "shared_memory", "container", "middleware"]
        + ["fast_dds"]
        + ["torch", "opencv", "simulator", "files", "checkpoints", "vision_language"]
    )


@pytest.mark.usefixtures("ros_domain_id")
def test_the_real_thing_in_a_process_of_its_own() -> None:
    """Every check runs on this machine without breaking, whatever it finds."""
    command = [sys.executable, "-c", "import sys; from auras_ros.cli.doctor import run; sys.exit(run(['--json']))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, cwd=ROOT)
    report = json.loads(done.stdout)
    assert len(report["rows"]) == len(doctor.CHECKS)
    assert not [row for row in report["rows"] if "the check itself failed" in row["text"]]
    assert done.returncode == (1 if report["summary"]["problems"] else 0)


def test_a_finding_is_printed_before_the_next_check_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check that hangs is then the one after the last line."""
    said: list[str] = []

    def second() -> Finding:
        said.append(capsys.readouterr().out)
        return ok("second", "fine")

    monkeypatch.setattr(doctor, "CHECKS", (lambda: ok("first", "fine too"), second))
    assert doctor.run([]) == 0
    assert said == ["ok      first             fine too\n"]
