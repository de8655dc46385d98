"""Settings that cannot work: status 2, which tells the supervisor not to try again, and one line that says why."""

from __future__ import annotations

import errno
import json
import resource
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from auras_ros import resources
from auras_ros.checkpoints.manifest import FORMAT, KEYS
from auras_ros.checkpoints.tensors import sha256
from auras_ros.device import DeviceError
from auras_ros.exit_status import BAD_SETTINGS, BROKEN, TOO_SLOW, of_refusal
from auras_ros.loading.pipeline import MEASURES
from auras_ros.nodes.actuator import node as actuator
from auras_ros.nodes.agent import node as agent
from auras_ros.pipeline.plan import Plan, TooSlowError
from auras_ros.ros import BACKEND
from auras_ros.ros.supported import UnsupportedRosError
from auras_ros.sim.bridge import node as bridge
from tests.nodes.wire import Children


@pytest.fixture(autouse=True)
def _signals(domain: int) -> Iterator[None]:
    """The nodes' `main` runs in this process here: it takes the signals, and they are given back."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def own_lines(output: str) -> list[str]:
    """Without those of the log; rcl logs what it refuses before it raises."""
    return [line for line in output.splitlines() if not line.startswith("[")]


Refused = Callable[..., str]


@pytest.fixture
def refused(checkpoint: str, capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run a node's main with `name:=value` words; returns the one error line."""

    def run(module: object, *words: str, checkpoint: str = checkpoint) -> str:
        given = [f"checkpoint:={checkpoint}", *(["autostart:=true"] if module is agent else []), *words]
        arguments = [part for word in given for part in ("-p", word)]
        assert module.main(["node", "--ros-args", *arguments]) == 2  # type: ignore[attr-defined]
        lines = own_lines(capfd.readouterr().err)
        assert len(lines) == 1 or "Invalid topic name" in lines[0], lines  # rcl draws an arrow under a bad name
        assert lines[0].startswith("error: ")
        return " ".join(lines)

    return run


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("rate_hz:=1000.0", ("error: actuator: rate_hz: must be in [10.0, 200.0], got 1000.0\n",)),
        ("rate_hz:=9", ("actuator: rate_hz", "[10.0, 200.0]", "9")),
        ("rate_hz:=.nan", ("actuator: rate_hz", "[10.0, 200.0]")),
        ("rate_hz:=fast", ("actuator: rate_hz", "float", "fast")),
        ("max_chunk_age_ms:=-5.0", ("actuator: max_chunk_age_ms", "[1.0, 60000.0]", "-5")),
        ("agent_timeout_ms:=5000.0", ("actuator: agent_timeout_ms", "[40.0, 1000.0]")),
        ("realtime_priority:=99", ("actuator: realtime_priority", "[0, 90]")),
        ("arm_on_start:=1", ("actuator: arm_on_start", "bool")),
        ("agent:=7", ("actuator: agent", "str")),
        ("action_topic:=/bad topic!", ("actuator: action_topic", "'/bad topic!' is not a topic name")),
    ],
)
def test_the_actuator_names_parameter_and_bounds(refused: Refused, words: str, named: tuple[str, ...]) -> None:
    line = refused(actuator, words) + "\n"
    assert all(each in line for each in named), line


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["cores:=two"], ("agent: cores", "two")),
        (["plan:=mode=warp"], ("plan: mode", "seq, dec, par, auras", "warp")),
        (["plan:=pp_generation=4"], ("plan: pp_generation", "seq", "only auras")),
        (["plan:=mode=auras,pp_generation=60"], ("plan: pp_generation", "60 stages", "generation steps")),
        (["mode:=auras"], ("agent: no parameter 'mode'; it is a field of `plan`", "plan: quick,mode=")),
        (["camera_age_limit_ms:=-1.0"], ("agent: camera_age_limit_ms", "[1.0, 60000.0]")),
        (["seed:=-1"], ("agent: seed", "[0, ")),
        (["seed:=1.5"], ("agent: seed", "int")),
        (["plan:=fastest"], ("plan", "fastest", "quick")),
        (["max_age_ms:=300.0", "plan:=frame_period_ms=400"], ("plan: 'quick", "max_age_ms is 300", "ms old")),
        (["fallback_plan:=quick,mode=warp"], ("fallback_plan: mode", "warp")),
        (["actuator:=bad name!"], ("topic", "'bad name!/state'")),  # rclpy's words, or our layer's
        (["prompt_limit_bytes:=0"], ("agent: prompt_limit_bytes", "[1, 16384]")),
        (["max_memory_mb:=-1.0"], ("agent: max_memory_mb", "[0.0, ")),
        (["max_memory_mb:=1.0"], ("max_memory_mb", "on a CPU", "offload_folder must be given")),
        (["offload_folder:=/tmp"], ("agent: offload_folder", "without max_memory_mb")),
        (
            ["max_memory_mb:=1.0", "offload_folder:=/no/such/folder"],
            ("offload_folder", "/no/such/folder is not a folder"),
        ),
        (["max_memory_mb:=0.001", "offload_folder:=/tmp"], ("max_memory_mb: 0.001", "MB are needed", "'network.")),
    ],
    ids=str,
)
def test_the_agent_names_parameter_and_bounds(refused: Refused, words: list[str], named: tuple[str, ...]) -> None:
    line = refused(agent, *words)
    assert all(each in line for each in named), line


@pytest.mark.parametrize("node", [actuator, agent], ids=["actuator", "agent"])
def test_an_unknown_checkpoint_is_named(refused: Refused, node: object) -> None:
    assert "no_such_policy" in refused(node, checkpoint="no_such_policy")
    assert "/no/such/folder" in refused(node, checkpoint="/no/such/folder")


@pytest.mark.parametrize("node", [actuator, agent], ids=["actuator", "agent"])
@pytest.mark.parametrize(("name", "said"), [("''", "expected the name of one that ships"), ("..", "../policy.json")])
def test_a_checkpoint_that_is_no_name_is_named(
    refused: Refused, node: object, name: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It ended in a traceback, and the supervisor started it again for ever."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    line = refused(node, checkpoint=name)
    assert said in line or (node is agent and "..: not a checkpoint: looked for policy.json" in line)


@pytest.mark.parametrize("text", ['{"action": {}, "action": {}}', "[" * 100_000], ids=["twice", "deep"])
def test_what_the_agent_refuses_of_a_manifest_the_actuator_refuses(refused: Refused, text: str, tmp_path: Path) -> None:
    """Of two contracts, the actuator would enforce one that the policy was not loaded with."""
    (tmp_path / "policy.json").write_text(text)
    lines = [refused(node, checkpoint=str(tmp_path)) for node in (actuator, agent)]
    assert all(f"{tmp_path}/policy.json: " in line for line in lines)
    assert all("more than once" in line or "not JSON" in line for line in lines)


def test_a_checkpoint_without_a_contract_is_named(refused: Refused, tmp_path: Path) -> None:
    made = dict.fromkeys(KEYS) | {"format": FORMAT}
    for action, said in ((None, "no action contract"), ({"dt_ms": 100, "channels": []}, "channels")):
        (tmp_path / "policy.json").write_text(json.dumps({**made, "action": action}))
        assert said in refused(actuator, checkpoint=str(tmp_path))
    (tmp_path / "policy.json").write_text('{"action"')
    assert "policy.json" in refused(actuator, checkpoint=str(tmp_path))


def test_weights_with_nan_are_refused_and_the_tensor_named(refused: Refused, checkpoint: str, tmp_path: Path) -> None:
    folder = tmp_path / "poisoned"
    shutil.copytree(checkpoint, folder)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    name = sorted(tensors)[5]
    tensors[name].view(-1)[0] = torch.nan
    save_file(tensors, weights)
    manifest = json.loads((folder / "policy.json").read_text())
    manifest["weights"]["sha256"] = sha256(weights)  # an honest file with bad numbers
    (folder / "policy.json").write_text(json.dumps(manifest))
    assert name in refused(agent, checkpoint=str(folder))


@pytest.mark.parametrize(
    "words", [["--no-such-flag", "x"], ["-p", "rate_hz"], ["--params-file", "/no/such/file.yaml"]], ids=str
)
def test_ros_arguments_that_cannot_be_read_are_shown(capfd: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert actuator.main(["actuator", "--ros-args", *words]) == 2
    lines = own_lines(capfd.readouterr().err)
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    assert words[-1] in lines[0] or words[0] in lines[0]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["-r", "__ns:=/bad name"], "__ns:=/bad name" if BACKEND == "rclpy" else "namespace '/bad name'"),
        (["-r", "__node:=bad name"], "__node:=bad name" if BACKEND == "rclpy" else "node name 'bad name'"),
    ],
    ids=str,
)
def test_names_that_ros_refuses_are_shown(capfd: pytest.CaptureFixture[str], words: list[str], named: str) -> None:
    assert actuator.main(["actuator", "--ros-args", *words]) == 2
    [line] = own_lines(capfd.readouterr().err)
    assert line.startswith("error: ")
    assert named in line


def test_a_discovery_range_that_ros_does_not_have_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """rcl would go on with its default, which is the whole network."""
    monkeypatch.delenv("ROS_LOCALHOST_ONLY", raising=False)
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "EVERYWHERE")
    assert actuator.main(["actuator", "--ros-args", "-p", "checkpoint:=pusht"]) == 2
    assert "error: ROS_AUTOMATIC_DISCOVERY_RANGE is 'EVERYWHERE'" in capfd.readouterr().err


def test_a_ros_that_was_never_run_is_named_in_a_line_at_the_start(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("auras_ros.ros.supported.check", lambda: "rclpy 10.0.11 was never run")
    assert actuator.main(["actuator", "--ros-args", "-p", "rat_hz:=1.0"]) == 2
    lines = capfd.readouterr().err.splitlines()  # under rclpy some of rcl's own are among them
    assert [line for line in lines if line.startswith("warning:")] == ["warning: rclpy 10.0.11 was never run"]


def test_a_ros_that_is_refused_ends_a_node_for_good(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> str:
        raise UnsupportedRosError("two of them are here", "Use one")

    monkeypatch.setattr("auras_ros.ros.supported.check", refuse)
    for node in (actuator, bridge):
        assert node.main([node.__name__, "--ros-args"]) == 2
        assert capfd.readouterr().err == "error: two of them are here. Use one\n"


def test_a_parameter_file_that_contains_itself_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "round.yaml"
    path.write_text("actuator: &a\n  ros__parameters: &b\n    again: *b\n")
    assert actuator.main(["actuator", "--ros-args", "--params-file", str(path)]) == 2
    error = capfd.readouterr().err
    if BACKEND == "rclpy":
        assert "Will not support aliasing at line 3" in error
    else:
        assert f"error: parameter file {path}:3: alias" in error


def test_too_few_descriptors_are_said_and_end_nothing_from_below(children: Children, checkpoint: str) -> None:
    """Guards against SIGSEGV in the middleware."""
    node = f"{sys.executable} -m auras_ros.nodes.actuator.node --ros-args -p checkpoint:={checkpoint}"
    child = children("bash", "-c", f"ulimit -n 8; exec {node}")
    assert child.wait() == 2, child.output
    assert child.output.startswith("error: open files: at most 8 are allowed here")
    child = children("bash", "-c", f"ulimit -S -n 8; exec {node}")  # its own limit alone: it raises it
    end_s = time.monotonic() + 20.0
    while "nofile" not in child.output and child.process.poll() is None and limit(child.pid) < 64:
        assert time.monotonic() < end_s
        time.sleep(0.05)
    assert child.process.poll() is None, child.output


def limit(pid: int) -> int:
    """How many files a process may have open."""
    return resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]


def test_a_machine_that_was_too_slow_is_another_status_than_settings_that_cannot_work(
    checkpoint: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against a supervisor that takes a slow warm-up for a permanent refusal."""
    measured = []

    def too_slow(*_: object) -> None:
        measured.append(True)
        raise TooSlowError("plan: 3 frames (L + 2) of 589.0 ms outlast the horizon of 1600 ms")

    monkeypatch.setattr(Plan, "check_horizon", too_slow)
    words = ["-p", f"checkpoint:={checkpoint}", "-p", "autostart:=true"]
    assert agent.main(["agent", "--ros-args", *words]) == TOO_SLOW
    assert "error: plan: 3 frames (L + 2) of 589.0 ms outlast" in capfd.readouterr().err
    assert len(measured) == MEASURES, "what is too slow is measured again first"


@pytest.mark.parametrize(
    ("number", "status"), [(errno.EIO, BROKEN), (errno.EMFILE, BROKEN), (errno.EACCES, BAD_SETTINGS)]
)
@pytest.mark.parametrize("node", [actuator, agent], ids=["actuator", "agent"])
def test_a_file_that_cannot_be_read_just_now_is_another_status_than_one_that_is_none(
    node: Any, number: int, status: int, checkpoint: str, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Guards against a network folder that is away for a second, which ends all nodes for good."""

    def away(name: str) -> Path:
        raise OSError(number, "it is away", name)

    monkeypatch.setattr(resources, "checkpoint", away)
    words = ["-p", f"checkpoint:={checkpoint}", *(["-p", "autostart:=true"] if node is agent else [])]
    assert node.main(["node", "--ros-args", *words]) == status
    assert "error: [Errno" in capfd.readouterr().err


def test_the_status_is_that_of_the_process(children: Children, checkpoint: str) -> None:
    child = children.node("actuator", {"checkpoint": checkpoint, "rate_hz": 1000.0})
    assert child.wait() == 2
    assert child.output.startswith("error: actuator: rate_hz: ")
    assert child.output.count("\n") == 1


def test_a_name_that_is_nearly_one_of_ours_is_refused_however_the_node_is_started(refused: Refused) -> None:
    """`ros2 run` and `-p` pass by the reader of configs: the actuator would arm without its emergency stop."""
    error = refused(actuator, "require_emergency_stopp:=true")
    assert error == "error: actuator: no parameter 'require_emergency_stopp'; did you mean require_emergency_stop?"


@pytest.mark.parametrize("node", ["actuator", "agent"])
def test_a_name_in_a_file_is_refused_by_the_node_as_by_auras_run(
    node: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """`ros2 run`: less alike than `-p` refuses, one line of many, and it armed without its emergency stop."""
    path = tmp_path / "mine.yaml"
    text = "actuator:\n  ros__parameters:\n    emergency_stop: true\n    max_age_ms: 50.0\n"
    path.write_text(f"{text}/**: {{ros__parameters: {{checkpoint: no_such_policy, autostart: true}}}}\n")
    assert {"actuator": actuator, "agent": agent}[node].main([node, "--ros-args", "--params-file", str(path)]) == 2
    assert capfd.readouterr().err.splitlines() == [
        f"error: {path}:3: actuator: no parameter 'emergency_stop'; did you mean emergency_stops?",
        f"error: {path}:4: actuator: no parameter 'max_age_ms'; did you mean max_chunk_age_ms?",
    ]


def test_values_of_two_files_go_together(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The second is what `auras run` and a launch file make. That the node goes on is seen from what it lacks next."""
    files = []
    for name, values in (("one", "max_memory_mb: 1.0"), ("two", "offload_folder: x, checkpoint: ./nowhere")):
        (tmp_path / name).write_text(f"agent: {{ros__parameters: {{autostart: true, {values}}}}}\n")
        files += ["--params-file", str(tmp_path / name)]
    assert agent.main(["agent", "--params-file", "not of ROS", "--ros-args", *files, "--", "--params-file", "x"]) == 2
    assert "checkpoint folder not found: nowhere" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "meant"),
    [("max_age_ms", "max_chunk_age_ms"), ("require_estop", "require_emergency_stop"), ("tolerance", "clip_tolerance")],
)
def test_a_name_on_the_command_line_that_is_somewhat_alike_is_refused(
    capfd: pytest.CaptureFixture[str], name: str, meant: str
) -> None:
    """It is meant for this node: a limit that is not read would limit nothing."""
    words = ("-p", "use_sim_time:=true", "-p", "qos_overrides./action.publisher.depth:=3", "-p", f"{name}:=1")
    assert actuator.main(["actuator", "--ros-args", *words]) == 2
    assert f"error: actuator: no parameter '{name}'; did you mean {meant}?" in capfd.readouterr().err


def test_another_name_is_said_and_left_out(checkpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    """It may come from a section for every node (`/**`)."""
    words = ("-p", f"checkpoint:={checkpoint}", "-p", "robot_ip:=here", "-p", "seam:=glue")
    assert actuator.main(["node", "--ros-args", *words]) == 2
    said, error = capfd.readouterr().err.splitlines()
    assert said.startswith("[WARN]")
    assert said.endswith("unknown parameter 'robot_ip' ignored")
    assert error.startswith("error: actuator: seam: ")


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (OSError(errno.ENOSPC, "no space left"), BROKEN),
        (OSError(errno.ENOENT, "no such folder"), BAD_SETTINGS),
        (OSError("said in words"), BAD_SETTINGS),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), BAD_SETTINGS),
        (None, BAD_SETTINGS),
    ],
    ids=str,
)
def test_a_refusal_says_of_its_cause_whether_it_may_pass(cause: OSError | None, status: int) -> None:
    refused = DeviceError("offload_folder: /folder: it cannot be written")
    refused.__cause__ = cause
    assert of_refusal(refused) == status
    if cause is not None:
        assert of_refusal(cause) == status
