"""The only reader of configs: ROS 2 parameter files, checked against our nodes' parameters before anything starts.

ROS 2 silently ignores undeclared parameters, so a misspelt limit would not limit anything. Refused, by file and line:
an unknown parameter in the section of one of our nodes; a value of another type or out of its range; a section, or a
name for all nodes (`/**`), that is nearly one of ours. Other sections, which belong to other packages' nodes, and other
names for all nodes only cause a warning. A node checks its parameter files in the same way (`check_given`), whatever
starts it. This module starts nothing.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from pathlib import Path
from typing import Any

from auras_ros import parameter_file, resources
from auras_ros.parameter_file import SECTION, KeyPath, ParameterFileError
from auras_ros.parameters import ParameterError, checked, parameter, unknown
from auras_ros.spelling import nearest
from auras_ros.topic_names import RemapRule, read_remaps

EXECUTABLES = {
    "agent": "auras_ros.nodes.agent.node",
    "actuator": "auras_ros.nodes.actuator.node",
    "vlm": "auras_ros.nodes.vlm.node",
    "sim_bridge": "auras_ros.sim.bridge.node",
}
BRIDGE = "sim_bridge"  # the executable of every world; its node has the world's name
WORLDS, BRIDGE_SETTINGS = "auras_ros.sim.worlds", "auras_ros.sim.bridge.settings"
SETTINGS = {  # node -> the dataclass whose fields are its parameters; those of bridges: `settings_of`
    "actuator": "auras_ros.nodes.actuator.settings:ActuatorSettings",
    "agent": "auras_ros.nodes.agent.settings:AgentSettings",
    "button": "auras_ros.nodes.button.settings:ButtonSettings",
    "vlm": "auras_ros.nodes.vlm.settings:VlmSettings",
}
LIFECYCLE = frozenset({"agent", "vlm"})  # nodes that somebody, or `autostart`, configures and activates
SPARED = frozenset({"vlm"})  # nodes without which the others go on, if its settings are refused
SUPERVISOR = "supervisor"
RANGES = ("SUBNET", "LOCALHOST", "OFF", "SYSTEM_DEFAULT")  # of discovery, as ROS 2 names them
OF_EVERY_NODE = frozenset({"use_sim_time", "start_type_description_service"})  # declared by ROS 2 itself
_WORDS = re.compile(r"[_\d]+")  # my_actuator and agent2 are not misspelt
PATHS = ("checkpoint", "emergency_stop_key_file")  # parameters that may be a path relative to the config


class ConfigError(ValueError):
    """A config that must not be started. The message has a line for every problem."""


@dataclass(frozen=True)
class Supervision:
    """The section `supervisor`, which `auras run` and the launch files read, but no node."""

    processes: tuple[str, ...] = parameter((), f"executables, started in this order: {', '.join(EXECUTABLES)}")
    sim: str = parameter("pusht", "the world of sim_bridge: one of `auras list simulators`, as pusht:drift_px=0.5")
    respawn: bool = parameter(True, "restart a process that ended, after a growing delay")
    discovery_range: str = parameter("", f"who may find the nodes: {', '.join(RANGES)}; empty: only this machine")
    remap: tuple[str, ...] = parameter(
        (), "remapping rules for every process, such as joint_states:=/robot/joint_states, or agent:joint_states:=..."
    )

    def __post_init__(self) -> None:
        read_remaps(self.remap)
        if self.discovery_range not in ("", *RANGES):
            raise ParameterError(f"discovery_range: must be one of {', '.join(RANGES)}, got {self.discovery_range!r}")
        self.node(BRIDGE)

    def node(self, executable: str) -> str:
        """The name of its node. Raises ParameterError for the bridge of a world that is not known."""
        try:
            return importlib.import_module(WORLDS).find(self.sim).world.name if executable == BRIDGE else executable
        except ValueError as error:
            raise ParameterError(str(error)) from error

    @property
    def remaps(self) -> tuple[RemapRule, ...]:
        return read_remaps(self.remap)

    @property
    def started(self) -> tuple[str, ...]:
        """The names of the nodes that are started."""
        return tuple(self.node(each) for each in self.processes)


@dataclass(frozen=True)
class NodeConfig:
    """A valid file. sections: node -> its parameters, including those for all nodes. placed: of these, the paths that
    were found beside the file and not in the working directory, made absolute. foreign: names of other nodes' sections.
    """

    path: Path
    supervision: Supervision
    sections: Mapping[str, Mapping[str, Any]]
    placed: Mapping[str, Mapping[str, Any]]
    foreign: tuple[str, ...]
    warnings: tuple[str, ...]

    def section(self, node: str) -> dict[str, Any]:
        """A node's parameters. Raises ConfigError if the file has none."""
        if node not in self.sections:
            raise ConfigError(f"{self.path}: {node}/{SECTION} is missing")
        return {**self.sections[node], **self.placed.get(node, {})}

    def settings(self, node: str) -> Any:
        """A node's parameters as its dataclass; defaults where the file has none. Raises ParameterError."""
        known, given = parameters_of(node), {**self.sections.get(node, {}), **self.placed.get(node, {})}
        return settings_of(node)(**{name: _frozen(value) for name, value in given.items() if name in known})


def nodes() -> tuple[str, ...]:
    """Every node whose parameters are known: our own, and the bridge of each world."""
    return (*SETTINGS, *importlib.import_module(WORLDS).nodes())


def settings_of(node: str) -> type[Any]:
    """The dataclass of a node's parameters, or of the supervisor's. Raises ValueError for a world that cannot be
    loaded."""
    if node == SUPERVISOR:
        return Supervision
    if node not in SETTINGS:
        sim = importlib.import_module(WORLDS).find(node)
        settings: type[Any] = importlib.import_module(BRIDGE_SETTINGS).bridge_settings(sim)
        return settings
    module, _, name = SETTINGS[node].partition(":")
    found: type[Any] = getattr(importlib.import_module(module), name)
    return found


def parameters_of(node: str) -> dict[str, Field[Any]]:
    """A node's parameters, or the supervisor's, by name."""
    return {each.name: each for each in fields(settings_of(node))}


def read_config(path: Path) -> NodeConfig:
    """A config that says what to start. Raises ConfigError or OSError."""
    config = read_parameters_file(path)
    if not config.supervision.processes:
        raise ConfigError(f"{path}: {SUPERVISOR}/{SECTION}/processes is missing: a list of {', '.join(EXECUTABLES)}")
    for node in (name for name in config.supervision.started if name not in config.sections):
        if other := next((each for each in config.foreign if node in _WORDS.split(each)), ""):
            raise ConfigError(f"{path}: '{other}': the node that is started is called {node}: rename this section")
    return config


def bridge_alone(sim: str) -> NodeConfig:
    """What a file would say that starts nothing but this world's bridge, with the world's own parameters. Raises
    ParameterError for a world that is not known."""
    return NodeConfig(Path(), Supervision((BRIDGE,), sim), {}, {}, (), ())


def read_parameters_file(path: Path) -> NodeConfig:
    """Any parameter file for our nodes, with a supervisor's section or without. Raises ConfigError or OSError."""
    reading = _read(path)
    reading.together()
    reading.end()
    sections = reading.root_sections()
    supervision = Supervision(**{name: _frozen(value) for name, value in sections.pop(SUPERVISOR, {}).items()})
    reading.unstarted(supervision.started)
    reading.different_checkpoints(sections, supervision.started)
    reading.different_joints(sections, supervision.started)
    notes = tuple(reading.foreign), tuple(reading.warnings)
    return NodeConfig(path, supervision, sections, _placed(path, sections), *notes)


def check_given(node: str, arguments: Sequence[str]) -> None:
    """Check the parameter files of a node's command line, as `ros2 run` passes them, and the names given with `-p`.
    Whether values fit together is not checked here: only the node has the values of all files and arguments. Raises
    ConfigError or OSError."""
    ros = False
    for word, value in zip(arguments, [*arguments[1:], ""], strict=True):
        ros = word == "--ros-args" or (ros and word != "--")
        if ros and word == "--params-file":
            _read(Path(value)).end()
        elif ros and word in ("-p", "--param"):
            name = value.partition(":=")[0]
            ours = name in OF_EVERY_NODE or name in parameters_of(node)
            if not ours and (text := unknown(settings_of(node), name, 0.6)):
                raise ConfigError(f"{node}: {text}")


def _read(path: Path) -> _Reading:
    try:
        document, lines = parameter_file.read(path)
    except ParameterFileError as error:
        raise ConfigError(str(error)) from error
    reading = _Reading(path, lines)
    try:
        reading.take(document)
    except ValueError as error:  # of another package's world
        raise ConfigError(f"{path}: {error}") from error
    return reading


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _placed(path: Path, sections: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Paths that exist beside the config but not in the working directory, which has precedence."""
    found: dict[str, dict[str, Any]] = {}
    for node, values in sections.items():
        for name in PATHS:
            value = values.get(name)
            if isinstance(value, str) and (beside := resources.beside(value, path.parent)):
                found.setdefault(node, {})[name] = str(beside)
    return found


class _Reading:
    """One pass through a file. It notes every problem, not only the first one."""

    def __init__(self, path: Path, lines: Mapping[KeyPath, int]) -> None:
        self.problems: list[tuple[int, str]] = []  # with their lines; 0 if a problem has none
        self.warnings: list[str] = []
        self.foreign: list[str] = []
        self._path, self._lines, self._nodes = path, lines, nodes()
        self._found: list[tuple[KeyPath, dict[str, Any]]] = []  # section -> its parameters
        self._for_every: dict[str, Any] = {}  # valid values for all nodes of the root namespace, or of every namespace
        self._good: dict[KeyPath, tuple[KeyPath, dict[str, Any]]] = {}  # node of ours -> its section, its valid values

    def take(self, document: Any) -> None:
        if document is None:
            return
        if not isinstance(document, dict):
            self._wrong((), f"expected sections, such as `agent: {{{SECTION}: ...}}`")
            return
        self._walk(document, ())
        for place, values in self._found:
            self._section(place, values)
        self._twice()

    def end(self) -> None:
        """Raises ConfigError if there are problems."""
        if self.problems:
            raise ConfigError("\n".join(text for _, text in sorted(self.problems, key=lambda each: each[0])))

    def root_sections(self) -> dict[str, dict[str, Any]]:
        """The parameters of nodes in the root namespace: first those for all nodes, then those for one."""
        made: dict[str, dict[str, Any]] = {}
        for place, values in sorted(self._found, key=lambda found: "*" not in _node_name(found[0])):
            name = "/".join(place).strip("/")
            for node in self._nodes if name in ("*", "**") else ():
                if taken := {key: value for key, value in values.items() if key in parameters_of(node)}:
                    made.setdefault(node, {}).update(taken)
            if name in (*self._nodes, SUPERVISOR):
                made.setdefault(name, {}).update(values)
        return made

    # -- the parts ------------------------------------------------------------------------------------------

    def _walk(self, tree: Mapping[Any, Any], place: KeyPath) -> None:
        """Walk through namespaces and node names, down to each ros__parameters."""
        for key, below in tree.items():
            here = (*place, str(key))
            if key == SECTION and not place:
                self._wrong(here, f"{SECTION} must be under a node's name")
            elif key == SECTION and isinstance(below, dict):
                self._found.append((place, dict(_flat(below, ""))))
            elif key == SECTION:
                self._wrong(here, f"{'/'.join(place)}: {SECTION}: expected names and values, got {below!r}")
            elif isinstance(below, dict):
                self._walk(below, here)
            else:
                self._outside(here)

    def _outside(self, here: KeyPath) -> None:
        """Report a value where only node names are allowed."""
        misspelt = [name for name in here[:-1] if name != SECTION and nearest(name, [SECTION], 0.7)]
        if misspelt:
            self._wrong(here[: here.index(misspelt[0]) + 1], f"'{misspelt[0]}': did you mean {SECTION}?")
        elif len(here) == 1:
            self._wrong(here, f"{here[0]}: {SECTION} is missing: expected `{here[0]}: {{{SECTION}: ...}}`")
        else:
            owner = "/".join(here[:-1])
            self._wrong(here, f"{owner}: {SECTION} is missing above '{here[-1]}': `{owner}: {{{SECTION}: ...}}`")

    def _section(self, place: KeyPath, values: dict[str, Any]) -> None:
        name = _node_name(place)
        if self._is_ours(place):
            self._parameters(place, name, values)
        elif (meant := nearest(name, (*self._nodes, SUPERVISOR), 0.75)) and meant not in _WORDS.split(name):
            self._wrong(place, f"no node '{name}'; did you mean {meant}?")
        else:
            self.foreign.append(name)
            self._warn(place, f"'{name}' is not one of our nodes: its parameters are not checked")

    def _parameters(self, place: KeyPath, name: str, values: Mapping[str, Any]) -> None:
        """Check a section of one of our nodes, or of all nodes; a name in the latter may be another node's."""
        everyone = "*" in name
        nodes, owner = (self._nodes, "/".join(place)) if everyone else ((name,), name)
        known = {key: (node, each) for node in nodes for key, each in parameters_of(node).items()}
        good, before = {}, len(self.problems)
        for key, value in values.items():
            whole, nested = (*place, SECTION, key), (*place, SECTION, *key.split("."))
            at = whole if whole in self._lines else nested
            if key in known:
                good[key] = self._value(at, *known[key], value)
            elif key in OF_EVERY_NODE and name != SUPERVISOR:
                if not isinstance(value, bool):
                    self._wrong(at, f"{owner}: {key}: expected bool, got {value!r}")
            elif everyone:
                text = next(filter(None, (unknown(settings_of(node), key) for node in nodes)), "")
                (self._wrong if text else self._warn)(at, text or f"'{key}' is not a parameter of one of our nodes")
            elif name == SUPERVISOR or not key.startswith("qos_overrides."):
                listed = f"no parameter '{key}': `auras check --parameters` lists those of {name}"
                self._wrong(at, f"{name}: {unknown(settings_of(name), key, 0.6) or listed}")
        if not everyone and len(self.problems) == before:
            self._good.setdefault(_full_name(place), (place, {}))[1].update(good)
        elif _full_name(place) in (("*",), ("**",)):
            self._for_every.update(good)

    def _twice(self) -> None:
        """Report values given twice: `agent`, `/agent` and `/: {agent: ...}` are one node, so one would be lost."""
        seen: dict[KeyPath, KeyPath] = {}
        for place, values in self._found:
            for key in values if self._is_ours(place) else ():
                if (first := seen.setdefault((*_full_name(place), key), place)) != place:
                    self._wrong((*place, SECTION, key), f"'{key}' is already given under '{'/'.join(first)}'")

    def together(self) -> None:
        """Check all values of a node together: unknown words, and values that exclude each other. Values for all nodes
        are included."""
        for name, (place, values) in self._good.items():
            node = name[-1]
            known = parameters_of(node) if node != SUPERVISOR else {}
            everybodys = {key: value for key, value in self._for_every.items() if key in known}
            try:
                made = settings_of(node)(**{**everybodys, **values})
                if node == SUPERVISOR:
                    self._processes((*place, SECTION, "processes"), made.processes)
                elif hasattr(made, "check"):
                    made.check()
            except ValueError as error:
                text = str(error)
                self._wrong((*place, SECTION), text if text.startswith(f"{node}: ") else f"{node}: {text}")

    def unstarted(self, started: Sequence[str]) -> None:
        """Warn of sections of nodes that the file does not start though it starts others."""
        for (*namespace, node), (place, _) in self._good.items():
            if started and not namespace and node != SUPERVISOR and node not in started:
                self._warn(place, f"'{node}' is not one of {SUPERVISOR}.processes: it is not started")

    def different_checkpoints(self, sections: Mapping[str, Mapping[str, Any]], started: Sequence[str]) -> None:
        """Warn of an actuator that would not arm for the agent that the file starts beside it: it compares the files,
        not their paths, so two paths may be right."""
        if not {"actuator", "agent"} <= set(started):
            return
        actuators, agents = (
            sections.get(node, {}).get("checkpoint", parameters_of(node)["checkpoint"].default)
            for node in ("actuator", "agent")
        )
        if actuators != agents:
            named = f"checkpoint is {actuators!r}, the agent's is {agents!r}"
            text = f"actuator: {named}: it arms only if the files are the same"
            self._warn(("actuator", SECTION, "checkpoint"), text)

    def different_joints(self, sections: Mapping[str, Mapping[str, Any]], started: Sequence[str]) -> None:
        """Warn of an actuator that reads the robot's joints elsewhere than the agent that the file starts beside it."""
        for name in ("joint_states_topic", "joint_prefix") if {"actuator", "agent"} <= set(started) else ():
            actuators, agents = (
                sections.get(node, {}).get(name, parameters_of(node)[name].default) for node in ("actuator", "agent")
            )
            if actuators != agents:
                text = f"actuator: {name} is {actuators!r}, the agent's is {agents!r}: both read the robot's joints"
                self._warn(("actuator", SECTION, name), text)

    def _processes(self, at: KeyPath, names: tuple[Any, ...]) -> None:
        known = ", ".join(EXECUTABLES)
        for name in dict.fromkeys(map(str, names)):
            if name not in EXECUTABLES:
                meant = nearest(name, EXECUTABLES)
                hint = f"did you mean {meant}?" if meant else f"known: {known}"
                self._wrong(at, f"{SUPERVISOR}: processes: no executable {name!r}; {hint}")
            elif names.count(name) > 1:
                self._wrong(at, f"{SUPERVISOR}: processes: '{name}' is listed {names.count(name)} times")
        if at in self._lines and not names:
            self._wrong(at, f"{SUPERVISOR}: processes: expected a list of {known}")

    def _value(self, at: KeyPath, node: str, each: Any, value: Any) -> Any:
        try:
            return checked(node, each, value)
        except ParameterError as error:
            self._wrong(at, str(error))
            return each.default

    def _is_ours(self, place: KeyPath) -> bool:
        name = _node_name(place)
        return name in (*self._nodes, SUPERVISOR) or "*" in name

    def _wrong(self, at: KeyPath, text: str) -> None:
        self.problems.append((self._lines.get(at, 0), self._said(at, text)))

    def _warn(self, at: KeyPath, text: str) -> None:
        self.warnings.append(self._said(at, text))

    def _said(self, at: KeyPath, text: str) -> str:
        line = self._lines.get(at)
        return f"{self._path}:{line}: {text}" if line else f"{self._path}: {text}"


def _full_name(place: KeyPath) -> KeyPath:
    """The names of a section as a tuple: (left, agent) for both `/left/agent` and `left: {agent: ...}`."""
    return tuple("/".join(place).strip("/").split("/"))


def _node_name(place: KeyPath) -> str:
    return _full_name(place)[-1]


def _flat(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Nested names joined by dots, as in ROS 2."""
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            yield from _flat(value, name)
        else:
            yield name, value
