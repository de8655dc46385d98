"""The launch files, executed over doubles of `launch` and `launch_ros` that keep to their public signatures.

Guards: a node that runs under a name that the YAML does not know; an argument that says what the YAML should; an agent
that is never configured or activated, at its first start or after it was killed, or against somebody's will.
"""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from auras_ros.nodes.common.config import ConfigError
from auras_ros.ros import BACKEND

ROOT = Path(__file__).resolve().parents[2]
DOUBLES = [Path(__file__).with_name("doubles")]
DOUBLED = {"launch", "launch_ros"}
if BACKEND != "rclpy":
    DOUBLES.append(Path(__file__).with_name("doubles_without_ros"))
    DOUBLED.add("lifecycle_msgs")
FILES = ("agent.launch.py", "sim.launch.py")
# What setup.py installs into lib/auras_ros.
EXECUTABLES = {"agent", "actuator", "vlm", "sim_bridge"}
CONFIGURE, ACTIVATE = 1, 3  # lifecycle_msgs/msg/Transition


def is_doubled(name: str) -> bool:
    """Whether a module is a double, or was imported with doubles."""
    common = "auras_ros.nodes.common"
    return name.split(".")[0] in DOUBLED or name in (f"{common}.launching", f"{common}.bring_up")


@pytest.fixture(autouse=True)
def _doubles(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for folder in DOUBLES:
        monkeypatch.syspath_prepend(str(folder))
    for name in filter(is_doubled, list(sys.modules)):
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in filter(is_doubled, list(sys.modules)):
        del sys.modules[name]


def load(file: str) -> ModuleType:
    path = ROOT / "launch" / file
    spec = importlib.util.spec_from_file_location(path.name.replace(".", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_launching() -> Any:
    return importlib.import_module("auras_ros.nodes.common.launching")


def launched(file: str, config: str = "pusht", **arguments: str) -> Any:
    """The launch context after `ros2 launch FILE config:=CONFIG ...` has executed the description."""
    from launch import LaunchContext

    context = LaunchContext(config=config, **arguments)
    context.visit(load(file).generate_launch_description().entities)
    return context


def started(file: str, config: str = "pusht", **arguments: str) -> list[Any]:
    """The nodes that the file starts, in order."""
    return list(launched(file, config, **arguments).started)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("agent.launch.py", [("actuator", "actuator", "Node"), ("agent", "agent", "LifecycleNode")]),
        ("sim.launch.py", [("sim_bridge", "pusht", "Node")]),
    ],
)
def test_each_file_starts_its_side_under_the_names_the_yaml_uses(
    file: str, expected: list[tuple[str, str, str]]
) -> None:
    """Guards against a node whose name is not its section's: it would silently run on defaults."""
    nodes = started(file)
    assert [(node.executable, node.name, type(node).__name__) for node in nodes] == expected
    assert {node.package for node in nodes} == {"auras_ros"}
    sections = yaml.safe_load((ROOT / "config" / "pusht.yaml").read_text())
    for node in nodes:
        assert node.executable in EXECUTABLES
        whole, own = node.parameters
        assert whole == str(ROOT / "config" / "pusht.yaml")
        section = sections[node.name]["ros__parameters"]
        assert own == {**section, "autostart": False} if node.name == "agent" else own == section


def test_with_keys_each_process_is_in_its_own_enclave(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [node.additional_env for node in started("agent.launch.py")] == [{}, {}]
    monkeypatch.setenv("ROS_SECURITY_ENABLE", "true")
    variable = "ROS_SECURITY_ENCLAVE_OVERRIDE"
    plain = [node.additional_env for node in started("agent.launch.py")]
    assert plain == [{variable: "/actuator"}, {variable: "/agent"}]
    left = [node.additional_env for node in started("agent.launch.py", namespace="left")]
    assert left == [{variable: "/left/actuator"}, {variable: "/left/agent"}]


def test_a_world_is_named_without_a_configuration_and_then_has_its_own_parameters() -> None:
    (node,) = started("sim.launch.py", "", sim="pusht-drift")
    assert (node.executable, node.name, node.arguments) == ("sim_bridge", "pusht", ["--sim", "pusht-drift"])
    assert (node.parameters, node.respawn) == ([], True)
    (node,) = started("sim.launch.py", "", sim="pusht", use_sim_time="true")
    assert node.parameters == [{"use_sim_time": True}]


def test_without_either_it_is_push_t_as_configured() -> None:
    (node,) = started("sim.launch.py", "")
    assert node.arguments == ["--sim", "pusht"]
    assert node.parameters[0] == str(ROOT / "config" / "pusht.yaml")


def test_a_world_with_a_configuration_takes_its_section(tmp_path: Path) -> None:
    """Whatever else the configuration starts, here it is this world's bridge."""
    config = own_config(tmp_path, processes=["agent"])
    (node,) = started("sim.launch.py", config, sim="pusht")
    assert (node.name, node.parameters[0]) == ("pusht", config)


def test_a_world_that_is_not_known_is_named() -> None:
    with pytest.raises(ValueError, match="sim 'kitchen' is not known; known: pusht, pusht-drift"):
        started("sim.launch.py", "", sim="kitchen")


@pytest.mark.parametrize("file", FILES)
def test_a_dead_process_comes_back_after_a_pause(file: str) -> None:
    for node in started(file):
        if node.name != "actuator":  # see below
            assert node.respawn is True
            assert node.respawn_delay >= 0.5


@pytest.mark.parametrize("respawn", ["", "false"])
def test_an_actuator_comes_back_and_never_arms_itself(respawn: str) -> None:
    """pusht.yaml has arm_on_start: of the first life alone, after which a person arms."""
    context = launched("agent.launch.py", respawn=respawn)

    def actuators() -> list[Any]:
        return [each for each in context.started if each.name == "actuator"]

    first = actuators()[0]
    assert first.parameters[1]["arm_on_start"] is True
    first.start(context)
    first.exit(context, -9)
    assert len(actuators()) == 1, "not at once"
    context.advance(5.0)
    assert len(actuators()) == (1 if respawn else 2)
    if respawn:
        return
    second = actuators()[1]
    assert second.parameters[-1] == {"arm_on_start": False}
    second.start(context)
    second.exit(context, 2)
    context.advance(60.0)
    assert len(actuators()) == 2
    assert context.logged == ["/actuator cannot start with these settings, see its own message: not restarted"]


def test_an_actuator_comes_back_later_each_time_until_one_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    context = launched("agent.launch.py")
    from auras_ros.nodes.common import launching

    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 1.0):
        *_, newest = actuators = [each for each in context.started if each.name == "actuator"]
        newest.start(context)
        if pause_s == 1.0:
            monkeypatch.setattr(launching, "STEADY_S", -100.0 if len(actuators) > 1 else 60.0)
        newest.exit(context, 1)
        context.advance(pause_s - 0.1)
        assert len([each for each in context.started if each.name == "actuator"]) == len(actuators)
        context.advance(0.2)
        assert len([each for each in context.started if each.name == "actuator"]) == len(actuators) + 1


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("respawn", ["", "false"])
def test_what_cannot_start_with_its_settings_is_not_started_again(file: str, respawn: str) -> None:
    """Guards against a process that ends with the same message every second, and against one that is given up though
    it was only killed."""
    context = launched(file, respawn=respawn)
    for node in [each for each in context.started if each.name != "actuator" or respawn]:
        others = {each: each.starts for each in context.started if each is not node}
        node.start(context)
        for status in (-9, 1):
            node.exit(context, status)
            context.advance(5.0)
        lives = node.starts
        assert lives == (1 if respawn else 3)
        assert context.logged == []
        node.exit(context, 2)
        context.advance(60.0)
        assert node.starts == lives
        (said,) = context.logged
        assert said.startswith(f"/{node.name} cannot start with these settings")
        context.logged.clear()
        assert {each: each.starts for each in others} == others


def test_the_vlm_is_started_beside_the_others_and_alone() -> None:
    beside = started("agent.launch.py", "vlm")
    (alone,) = started("vlm.launch.py", "vlm")
    assert [node.name for node in beside] == ["actuator", "agent", "vlm"]
    for node in (beside[-1], alone):
        assert (node.executable, type(node).__name__) == ("vlm", "LifecycleNode")
        assert (node.parameters[1]["cameras"], node.parameters[1]["autostart"]) == ("top", False)
    with pytest.raises(RuntimeError, match="lists no vlm"):
        started("vlm.launch.py", "pusht")


def own_config(tmp_path: Path, **supervisor: Any) -> str:
    config = tmp_path / "mine.yaml"
    config.write_text(yaml.safe_dump({"supervisor": {"ros__parameters": supervisor}}))
    return str(config)


@pytest.mark.parametrize(
    ("in_yaml", "argument", "expected"),
    [(False, "", False), (True, "", True), (False, "true", True), (True, "False", False)],
)
def test_respawn_follows_the_yaml_until_the_argument_says_otherwise(
    tmp_path: Path, in_yaml: bool, argument: str, expected: bool
) -> None:
    config = own_config(tmp_path, processes=["agent"], respawn=in_yaml)
    (node,) = started("agent.launch.py", config, respawn=argument)
    assert node.respawn is expected
    assert node.parameters == [config, {"autostart": False}]  # no section: nothing of it beside the file


DEPLOYMENT = ("config", "namespace", "respawn", "use_sim_time", "end_with_launch", "remap", "log_level")


@pytest.mark.parametrize("file", FILES)
def test_the_arguments_are_deployment_settings_alone(file: str) -> None:
    """A parameter as a launch argument would be a second truth beside the YAML."""
    from launch.actions import DeclareLaunchArgument

    entities = load(file).generate_launch_description().entities
    declared = {each.name: each for each in entities if isinstance(each, DeclareLaunchArgument)}
    own = {"sim"} if file == "sim.launch.py" else set()
    assert set(declared) == {*DEPLOYMENT, *own}
    assert declared["config"].default_value == ("" if own else "pusht")
    assert all(each.description for each in declared.values())


@pytest.mark.parametrize("file", FILES)
def test_deployment_settings_reach_every_node(file: str) -> None:
    for node in started(file, namespace="robot1", use_sim_time="true", log_level="debug"):
        assert node.node_name == f"/robot1/{node.name}"
        assert node.ros_arguments == ["--log-level", "debug"]
        assert node.parameters[-1]["use_sim_time"] is True
    for node in started(file):
        assert node.node_name == f"/{node.name}"
        assert "use_sim_time" not in node.parameters[-1]


def test_remapping_rules_reach_every_node_those_of_the_argument_first(tmp_path: Path) -> None:
    """As `auras run` does, from the same configuration."""
    config = own_config(tmp_path, processes=["actuator", "agent"], remap=["joint_states:=/b"])
    for node in started("agent.launch.py", config, remap="joint_states:=/a, agent:prompt:=/task"):
        words = ["-r", "joint_states:=/a", "-r", "agent:prompt:=/task", "-r", "joint_states:=/b"]
        assert node.ros_arguments == ["--log-level", "info", *words]
    with pytest.raises(ValueError, match="remap: expected from:=to"):
        started("agent.launch.py", remap="joint_states")


@pytest.mark.parametrize("file", FILES)
def test_processes_end_with_the_launch_where_that_is_asked(file: str) -> None:
    assert {node.prefix for node in started(file)} == {None}
    for node in started(file, end_with_launch="true"):
        assert node.prefix == load_launching().WITH_PARENT


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is not installed")
def test_what_is_asked_to_end_with_its_parent_gets_sigterm_though_the_parent_is_killed() -> None:
    """Guards: an actuator that drives on with nobody over it, as under a `ros2 launch` that got SIGTERM."""
    # The signal may come while the child still prints: it writes past what print holds.
    child = "import os, signal, sys, time; signal.signal(15, lambda *_: sys.exit(os.write(1, b'asked to stop\\n')))\n"
    child += "print('up', flush=True)\nwhile True: time.sleep(0.1)"  # pause() may miss a signal just before it
    parent = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([*{load_launching().WITH_PARENT!r}.split(), sys.executable, '-c', sys.argv[1]])\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent, child], stdout=subprocess.PIPE, text=True) as launch:
        assert launch.stdout is not None
        assert launch.stdout.readline() == "up\n"
        launch.kill()
        assert launch.stdout.readline() == "asked to stop\n"


@pytest.mark.parametrize("name", ["respawn", "use_sim_time", "end_with_launch"])
def test_an_argument_that_is_neither_true_nor_false_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}:=maybe"):
        started("agent.launch.py", **{name: "maybe"})


@pytest.mark.parametrize("config", ["pusht_drift", "pusht_drift.yaml", str(ROOT / "config" / "pusht_drift.yaml")])
def test_a_configuration_is_a_name_or_a_path(config: str) -> None:
    (node,) = started("sim.launch.py", config)
    assert node.parameters[0] == str(ROOT / "config" / "pusht_drift.yaml")
    assert node.parameters[1]["drift_px"] == 0.5


@pytest.mark.parametrize("file", FILES)
def test_an_unknown_configuration_is_named(file: str) -> None:
    with pytest.raises(FileNotFoundError, match="no_such_thing"):
        started(file, "no_such_thing")


@pytest.mark.parametrize(("file", "other"), [("agent.launch.py", "sim_bridge"), ("sim.launch.py", "agent")])
def test_a_configuration_without_this_side_is_refused(file: str, other: str, tmp_path: Path) -> None:
    """Guards against a launch that starts nothing and looks as if it ran."""
    with pytest.raises(RuntimeError, match=r"mine\.yaml: supervisor\.processes"):
        started(file, own_config(tmp_path, processes=[other]))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("agent: {}", "supervisor/ros__parameters/processes is missing"),
        ("supervisor: {ros__parameters: {processes: [agnet]}}", "no executable 'agnet'"),
        ("supervisor: {ros__parameters: {processes: [agent], respawn: maybe}}", "respawn: expected bool"),
        (
            "supervisor: {ros__parameters: {processes: [agent], discovery_range: WORLD}}",
            "discovery_range: must be one",
        ),
        ("supervisor: [", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_named(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"mine\.yaml.*: .*{named}"):
        started("agent.launch.py", str(tmp_path / "mine.yaml"))


@pytest.mark.parametrize(("word", "count"), [("LOCALHOST", 1), ("SUBNET", 0)])
def test_the_environments_range_is_followed_and_another_of_the_configuration_is_named(
    word: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    settings = f"{{ros__parameters: {{processes: [actuator], discovery_range: {word}}}}}"
    (tmp_path / "mine.yaml").write_text(f"supervisor: {settings}\nactuator: {{}}\n")
    context = launched("agent.launch.py", str(tmp_path / "mine.yaml"))
    assert [node.name for node in context.started] == ["actuator"]
    assert sum("uses the environment's: SUBNET" in text for text in context.logged) == count


def test_a_section_that_says_nothing_is_none(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("supervisor: {ros__parameters: {processes: [actuator]}}\nactuator: {}\n")
    (node,) = started("agent.launch.py", str(tmp_path / "mine.yaml"))
    assert node.parameters == [str(tmp_path / "mine.yaml")]


def test_what_was_misspelt_is_not_launched(tmp_path: Path) -> None:
    """ROS 2 leaves out what no node declares: the actuator would arm without its emergency stop."""
    text = (ROOT / "config" / "forward_command.yaml").read_text().replace("require_emergency_stop:", "emergency_stop:")
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml:\d+: actuator: no parameter 'emergency_stop'; did you mean"):
        started("agent.launch.py", str(tmp_path / "mine.yaml"))


def test_what_belongs_to_somebody_else_is_launched_and_said(tmp_path: Path) -> None:
    text = "supervisor: {ros__parameters: {processes: [actuator]}}\nmy_robot: {ros__parameters: {ip: here}}\n"
    (tmp_path / "mine.yaml").write_text(text)
    context = launched("agent.launch.py", str(tmp_path / "mine.yaml"))
    assert [node.name for node in context.started] == ["actuator"]
    assert [line for line in context.logged if "my_robot" in line and line.startswith("warning: ")]


class Robot:
    """`ros2 launch auras_ros agent.launch.py`, and what its agent's process does."""

    NAME = "/robot1/agent"

    def __init__(self) -> None:
        self.context = launched("agent.launch.py", namespace="robot1")
        bring_up: Any = sys.modules["auras_ros.nodes.common.bring_up"]  # as the launch file has just imported it
        bring_up.monotonic = lambda: self.context.now_s
        (self.node,) = (each for each in self.context.started if each.name == "agent")
        self.state = ""  # what it answers; empty: nothing
        self.questions = 0
        self._requests: list[int] = []
        self.request_times_s: list[float] = []
        self.context.services = {
            f"{self.NAME}/get_state": self._answer_state,
            f"{self.NAME}/change_state": self._take_request,
        }

    def _answer_state(self, request: Any) -> Any:
        from lifecycle_msgs.srv import GetState

        assert isinstance(request, GetState.Request)
        self.questions += 1
        if not self.state:
            return None
        response = GetState.Response()
        response.current_state.label = self.state
        return response

    def _take_request(self, request: Any) -> None:
        self._requests.append(request.transition.id)
        self.request_times_s.append(self.context.now_s)

    def process_starts(self) -> None:
        from launch.events.process import ProcessStarted

        self.context.emit_event_sync(ProcessStarted(action=self.node))

    def process_ends(self) -> None:
        from launch.events.process import ProcessExited

        self.state = ""
        self.context.emit_event_sync(ProcessExited(action=self.node, returncode=-9))

    def changes(self, *states: str) -> None:
        """It says that it goes through these states, and answers the last one from now on."""
        from launch_ros.events.lifecycle import StateTransition

        for start, goal in pairwise(states):
            self.state = goal
            event = StateTransition(action=self.node, transition="", start_state=start, goal_state=goal)
            self.context.emit_event_sync(event)

    def requests(self) -> list[int]:
        """The transitions that the agent was asked for since the last call."""
        requests = list(self._requests)
        self._requests.clear()
        return requests

    def said(self) -> list[str]:
        """What was logged since the last call."""
        lines = list(self.context.logged)
        self.context.logged.clear()
        return lines


def test_the_agent_is_configured_when_it_is_there_and_activated_when_it_is_configured() -> None:
    robot = Robot()
    assert robot.context.handlers, "handlers come before the process that they answer to"
    robot.process_starts()
    robot.context.advance(5.0)
    assert robot.requests() == [], "nobody is there yet"
    robot.state = "unconfigured"
    robot.context.advance(1.3)
    assert robot.requests() == [CONFIGURE]
    robot.changes("unconfigured", "configuring")
    robot.context.advance(30.0)
    assert robot.requests() == []
    robot.changes("configuring", "inactive")
    assert robot.requests() == [ACTIVATE]
    robot.changes("inactive", "activating", "active")
    robot.context.advance(60.0)
    assert robot.requests() == [], "asked once"
    assert robot.context.timers == [], "an agent that is up is asked no more"
    assert robot.said() == []


def test_what_is_lost_is_requested_again_until_the_state_changes() -> None:
    """launch_ros sends a request once: a request that is lost left the agent unconfigured, and a person had to come."""
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(17.0)
    assert robot.requests() == [CONFIGURE] * 5
    pauses_s = [later - earlier for earlier, later in pairwise(robot.request_times_s)]
    assert pauses_s == pytest.approx([1.2, 2.2, 4.2, 8.2], abs=0.25), "later each time, and seen at the next look"
    robot.changes("unconfigured", "configuring", "inactive")
    assert robot.requests() == [ACTIVATE]
    robot.context.advance(1.5)
    assert robot.requests() == [ACTIVATE], "it is still inactive"
    robot.changes("inactive", "activating")
    robot.context.advance(30.0)
    assert robot.requests() == []
    robot.changes("activating", "active")
    robot.context.advance(60.0)
    assert robot.requests() == []


def test_an_event_that_is_lost_is_asked_for() -> None:
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    assert robot.requests() == [CONFIGURE]
    robot.state = "configuring"
    robot.context.advance(20.0)
    assert robot.requests() == []
    robot.state = "inactive"
    robot.context.advance(6.0)
    assert robot.requests()[0] == ACTIVATE
    robot.changes("configuring", "inactive")
    assert robot.requests() == [], "the event comes late: it was requested already"
    robot.state = "active"
    robot.context.advance(30.0)
    robot.requests()
    robot.context.advance(60.0)
    assert robot.requests() == []
    assert robot.context.timers == []


def test_a_node_that_does_not_answer_is_named_once_and_asked_on() -> None:
    robot = Robot()
    robot.process_starts()
    robot.context.advance(59.0)
    assert robot.said() == []
    assert len(robot.context.open_calls) <= 10, "questions that nobody answers are forgotten"
    robot.context.advance(2.0)
    (line,) = robot.said()
    assert line.startswith("/robot1/agent is not inactive after 60 s; it answers no question for its state")
    assert "ros2 lifecycle set /robot1/agent configure" in line
    robot.questions = 0
    robot.context.advance(600.0)
    assert robot.said() == [], "said once"
    assert 100 <= robot.questions <= 121, "asked on, at leisure"
    robot.state = "unconfigured"
    robot.context.advance(11.0)
    assert robot.requests() == [CONFIGURE], "slow is not wrong: no person is needed"


def test_a_node_that_answers_and_does_not_obey_is_named_and_one_that_loads_for_long_is_waited_for() -> None:
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(61.0)
    (line,) = robot.said()
    assert "its last answer: unconfigured; requests to configure: 6" in line
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    robot.changes("unconfigured", "configuring")
    robot.state = ""  # it loads, in the thread that would answer
    robot.context.advance(61.0)
    assert robot.said() == ["/robot1/agent is still configuring after 60 s: see its own messages; waiting"]
    assert robot.requests() == [CONFIGURE]


def test_a_late_answer_counts() -> None:
    """On a busy machine an answer may take longer than the time between two questions."""
    robot = Robot()
    robot.process_starts()
    robot.context.advance(3.5)
    first, *_ = robot.context.open_calls
    assert len(robot.context.open_calls) == 4
    response = robot_state("unconfigured")
    robot.context.open_calls.remove(first)
    first.set_result(response)
    robot.context.advance(0.3)
    assert robot.requests() == [CONFIGURE]


def robot_state(label: str) -> Any:
    from lifecycle_msgs.srv import GetState

    response = GetState.Response()
    response.current_state.label = label
    return response


def test_an_agent_that_found_the_machine_too_slow_is_asked_again_later_each_time() -> None:
    """It ends its configuring in an error; settings that cannot work end it in a refusal, and are left."""
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    assert robot.requests() == [CONFIGURE]
    robot.changes("unconfigured", "configuring", "unconfigured")
    robot.context.advance(60.0)
    assert robot.requests() == [], "refused"
    (line,) = robot.said()
    assert line.startswith("/robot1/agent was not configured, see its own message")
    for pause_s in (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        robot.changes("unconfigured", "configuring", "errorprocessing", "unconfigured")
        robot.context.advance(pause_s - 0.1)
        assert robot.requests() == []
        robot.context.advance(0.4)
        assert robot.requests() == [CONFIGURE]
    robot.changes("unconfigured", "configuring", "inactive")
    assert robot.requests() == [ACTIVATE]
    robot.changes("inactive", "activating", "active")
    robot.changes("configuring", "errorprocessing", "unconfigured")
    robot.context.advance(1.3)
    assert robot.requests() == [CONFIGURE], "from the beginning"
    robot.changes("unconfigured", "configuring", "errorprocessing")
    robot.process_ends()
    robot.process_starts()
    robot.context.advance(60.0)
    assert robot.requests() == [], "another life, which has not answered yet"


def test_what_cannot_be_brought_up_is_left_and_named() -> None:
    robot = Robot()
    robot.state = "finalized"
    robot.process_starts()
    robot.context.advance(60.0)
    assert robot.requests() == []
    assert robot.said() == ["/robot1/agent is finalized: it is left so"]
    assert robot.context.timers == []


def test_after_a_kill_the_dead_process_is_asked_in_vain_and_the_new_one_is_configured() -> None:
    """The middleware knows a killed process's services until its lease ends."""
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    robot.changes("unconfigured", "configuring")
    assert robot.requests() == [CONFIGURE]
    robot.process_ends()
    assert robot.context.open_calls == [], "nothing is expected of the dead"
    robot.context.advance(1.0)
    robot.questions = 0
    robot.process_starts()
    robot.context.advance(5.0)
    assert robot.questions == 5
    assert robot.requests() == []
    robot.state = "unconfigured"
    robot.context.advance(1.3)
    assert robot.requests() == [CONFIGURE]
    robot.changes("unconfigured", "configuring", "inactive")
    assert robot.requests() == [ACTIVATE]


def test_a_process_that_ends_before_it_answers_leaves_no_request_behind() -> None:
    """Nor a timer: `ros2 launch` would wait for it when all processes have ended."""
    robot = Robot()
    robot.process_starts()
    robot.context.advance(1.0)
    robot.process_ends()
    robot.context.advance(0.3)
    assert robot.context.timers == []
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    assert robot.requests() == [CONFIGURE], "one life, one request"
    robot.process_ends()
    robot.context.advance(60.0)
    assert robot.requests() == []
    assert robot.context.timers == []


def test_nothing_is_asked_once_the_launch_shuts_down() -> None:
    robot = Robot()
    robot.process_starts()
    robot.context.is_shutdown = True
    robot.questions = 0
    robot.state = "unconfigured"
    robot.context.advance(60.0)
    assert robot.questions == 0
    assert robot.requests() == []
    assert robot.context.timers == []


def test_who_deactivates_the_agent_keeps_it_inactive() -> None:
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    robot.changes("unconfigured", "configuring", "inactive", "activating", "active")
    assert robot.requests() == [CONFIGURE, ACTIVATE]
    robot.changes("active", "deactivating", "inactive")
    robot.context.advance(60.0)
    assert robot.requests() == []


def test_an_activation_that_failed_is_left() -> None:
    robot = Robot()
    robot.state = "unconfigured"
    robot.process_starts()
    robot.context.advance(0.3)
    robot.changes("unconfigured", "configuring", "inactive")
    assert robot.requests() == [CONFIGURE, ACTIVATE]
    robot.changes("inactive", "activating", "inactive")
    robot.context.advance(60.0)
    assert robot.requests() == []


def test_the_agent_does_not_start_itself_as_well(tmp_path: Path) -> None:
    """Whatever the YAML says: two that configure would refuse each other."""
    sections = {
        "supervisor": {"ros__parameters": {"processes": ["agent"]}},
        "agent": {"ros__parameters": {"autostart": True}},
    }
    config = tmp_path / "mine.yaml"
    config.write_text(yaml.safe_dump(sections))
    (node,) = started("agent.launch.py", str(config))
    assert node.parameters[-1]["autostart"] is False


@pytest.mark.parametrize(
    "wrong",
    [{"respwan": True}, {"respawn": "true"}, {"parameters": {"a": 1}}, {"parameters": [{"a": None}]}],
)
def test_the_double_refuses_what_launch_ros_refuses(wrong: dict[str, Any]) -> None:
    """Guards the guard: a double that takes everything proves nothing."""
    from launch_ros.actions import LifecycleNode, Node

    with pytest.raises(TypeError):
        Node(package="auras_ros", executable="agent", **wrong)
    with pytest.raises(TypeError, match="namespace"):
        LifecycleNode(package="auras_ros", executable="agent", name="agent")
