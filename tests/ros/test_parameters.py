"""Parameters: declared, typed, ranged, overridden from YAML and arguments, refused as a whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from auras_ros import ros
from auras_ros.ros.dds import arguments, params_file
from auras_ros.ros.dds.arguments import UnknownROSArgsError
from auras_ros.ros.dds.params_file import ParametersFileError
from auras_ros.ros.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult

Type = ros.Parameter.Type
YAML = """
/**:
  ros__parameters:
    rate_hz: 10.0
    name: everyone
    small: 1e-3
/robot/agent:
  ros__parameters:
    name: exact
    limits: {lower: -1.5, upper: 2.5}
    joints: [a, b]
robot:
  actuator:
    ros__parameters: {name: nested}
/robot/*:
  ros__parameters: {name: any child, seen: true}
/**/agent:
  ros__parameters: {depth: 3}
"""


@pytest.fixture
def yaml_file(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(YAML)
    return path


def overrides(path: Path, name: str) -> dict[str, Any]:
    return params_file.overrides_for(tuple(params_file.load(path)), name)


def test_yaml_wildcards_are_general_first_exact_last(yaml_file: Path) -> None:
    assert overrides(yaml_file, "/robot/agent") == {
        "rate_hz": 10.0, "name": "exact", "small": 0.001, "limits.lower": -1.5, "limits.upper": 2.5,
        "joints": ["a", "b"], "seen": True, "depth": 3,
    }  # fmt: skip
    assert overrides(yaml_file, "/robot/actuator")["name"] == "nested"
    assert overrides(yaml_file, "/robot/other")["name"] == "any child"
    assert overrides(yaml_file, "/agent") == {"rate_hz": 10.0, "name": "everyone", "small": 0.001, "depth": 3}


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("/**", "/a/b", True), ("/*", "/a", True), ("/*", "/a/b", False), ("/a/**", "/a/b/c", True),
        ("/**/c", "/c", True), ("/**/c", "/a/b/c", True), ("/**/c", "/a/cc", False), ("/a/b", "/a/b", True),
        ("/a.b", "/axb", False), ("b", "/a/b", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, name: str, fits: bool) -> None:
    assert params_file.matches(pattern, name) is fits


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a: [", "params.yaml"), ("ros__parameters: {a: 1}", "below a node name"), ("/a: {ros__parameters: [1]}", "/a"),
        ("/a: {ros__parameters: {mixed: [1, 2.0]}}", "mixed"),
        ("/a: {ros__parameters: {huge: 99999999999999999999}}", "huge"),
        ("/a: {ros__parameters: {none: null}}", "none"), ("/a: 3", "/a: ros__parameters is missing"),
        ("/a: {ros__parameters: {b: 1, b: 2}}", "'b' stands in line 1 already"), ("/a: &x {b: *x}", "alias *x"),
    ],
)  # fmt: skip
def test_bad_files_name_file_and_entry(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(ParametersFileError, match=r"params\.yaml") as caught:
        params_file.load(path)
    assert named in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ParametersFileError, match="absent"):
        params_file.load(tmp_path / "absent.yaml")


def test_arguments_as_launch_writes_them(yaml_file: Path) -> None:
    line = ["prog", "--mine", "1", "--ros-args", "-r", "__node:=agent", "-r", "__ns:=/robot",
            "--params-file", str(yaml_file), "-p", "name:=cli", "-p", "agent:depth:=7", "-p", "other:depth:=9",
            "-r", "image:=cam/rgb",
            "--log-level", "robot.agent:=debug", "--log-level", "warn", "--", "tail"]  # fmt: skip
    parsed = arguments.parse(line)
    assert ros.remove_ros_args(line) == ["prog", "--mine", "1", "tail"]
    values = params_file.overrides_for(parsed.parameters, "/robot/agent")
    assert values["depth"] == 7
    assert values["name"] == "exact", "the file speaks to this node by name, and -p to everyone"
    assert params_file.overrides_for(parsed.parameters, "/robot/other")["name"] == "cli"
    assert [(rule.source, rule.target) for rule in parsed.remaps][2] == ("image", "cam/rgb")
    assert [(name, level.name) for name, level in parsed.log_levels] == [("robot.agent", "DEBUG"), ("", "WARN")]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.0", 1.0), ("1e3", 1000.0), ("true", True), ("[1, 2]", [1, 2]), ("hi", "hi"), ("'7'", "7"), ("", ""),
     ("2020-01-01", "2020-01-01"), ("[a, b]", ["a", "b"])],
)  # fmt: skip
def test_argument_values_are_yaml(text: str, value: Any) -> None:
    [rule] = arguments.parse(["--ros-args", "-p", f"x:={text}"]).parameters
    assert rule.value == value
    assert type(rule.value) is type(value)


@pytest.mark.parametrize("bad", [["-x"], ["-p"], ["-p", "a=1"], ["-r", "a:="], ["--unknown", "1"], ["-p", ":=1"]])
def test_bad_arguments_are_refused(bad: list[str]) -> None:
    with pytest.raises(UnknownROSArgsError):
        arguments.parse(["--ros-args", *bad])


def make(context: ros.Context, *cli: str, **options: Any) -> ros.Node:
    return ros.Node("agent", context=context, cli_args=["--ros-args", *cli], **options)


def test_a_node_takes_its_overrides(context: ros.Context, yaml_file: Path) -> None:
    node = make(context, "--params-file", str(yaml_file), "-r", "__ns:=/robot", "-p", "rate_hz:=20.0",
                parameter_overrides=[ros.Parameter("depth", value=8)])  # fmt: skip
    assert node.get_fully_qualified_name() == "/robot/agent"
    assert node.declare_parameter("rate_hz", 1.0).value == 20.0
    assert node.declare_parameter("depth", 1).value == 8
    assert node.declare_parameter("joints", Type.STRING_ARRAY).value == ["a", "b"]
    assert node.declare_parameter("name", "x", ignore_override=True).value == "x"
    assert node.declare_parameter("other", 4).value == 4
    assert not node.has_parameter("seen")


def test_overrides_may_declare_themselves(context: ros.Context, yaml_file: Path) -> None:
    options = {"namespace": "robot", "automatically_declare_parameters_from_overrides": True}
    node = make(context, "--params-file", str(yaml_file), **options)
    assert [node.get_parameter(f"limits.{name}").value for name in ("lower", "upper")] == [-1.5, 2.5]


def test_types_are_kept(context: ros.Context) -> None:
    node = make(context, "-p", "rate_hz:=20", "-p", "count:=1.5")
    with pytest.raises(ros.InvalidParameterTypeException, match=r"rate_hz.*write 20\.0"):
        node.declare_parameter("rate_hz", 10.0)
    assert not node.has_parameter("rate_hz")
    with pytest.raises(ros.InvalidParameterTypeException, match="count"):
        node.declare_parameter("count", 1)
    node.declare_parameter("flag", True)
    [result] = node.set_parameters([ros.Parameter("flag", value=1)])
    assert not result.successful
    assert "flag" in result.reason
    node.declare_parameter("free", 1, ParameterDescriptor(dynamic_typing=True))
    assert node.set_parameters([ros.Parameter("free", value="text")])[0].successful


def test_undeclared_twice_and_uninitialised(context: ros.Context) -> None:
    node = make(context)
    with pytest.raises(ros.ParameterNotDeclaredException, match="absent"):
        node.get_parameter("absent")
    with pytest.raises(ros.ParameterNotDeclaredException, match="absent"):
        node.set_parameters([ros.Parameter("absent", value=1)])
    node.declare_parameter("once", 1)
    with pytest.raises(ros.ParameterAlreadyDeclaredException, match="once"):
        node.declare_parameter("once", 1)
    node.declare_parameter("later", Type.DOUBLE)
    with pytest.raises(ros.ParameterUninitializedException, match="later"):
        node.get_parameter("later")
    assert node.set_parameters([ros.Parameter("later", value=1.0)])[0].successful
    assert node.get_parameter("later").value == 1.0


def test_ranges_and_read_only(context: ros.Context) -> None:
    node = make(context)
    span = FloatingPointRange(from_value=0.0, to_value=1.0, step=0.25)
    node.declare_parameter("gain", 0.5, ParameterDescriptor(floating_point_range=[span]))
    for value, fits in ((0.75, True), (1.0, True), (1.1, False), (-0.1, False), (0.3, False), (float("nan"), False)):
        assert node.set_parameters([ros.Parameter("gain", value=value)])[0].successful is fits, value
    assert node.get_parameter("gain").value == 1.0
    whole = ParameterDescriptor(integer_range=[IntegerRange(from_value=10, to_value=200, step=1)])
    with pytest.raises(ros.InvalidParameterValueException, match="rate"):
        node.declare_parameter("rate", 5, whole)
    assert not node.has_parameter("rate")
    node.declare_parameter("fixed", 1, ParameterDescriptor(read_only=True))
    [result] = node.set_parameters([ros.Parameter("fixed", value=2)])
    assert not result.successful
    assert node.get_parameter("fixed").value == 1


def test_a_refused_set_changes_nothing(context: ros.Context) -> None:
    """Reliability row 'bad parameter': the set is refused, state unchanged."""
    node = make(context)
    node.declare_parameter("a", 1)
    node.declare_parameter("b", 1)
    seen: list[list[tuple[str, Any]]] = []

    def agree(parameters: list[ros.Parameter]) -> SetParametersResult:
        seen.append([(parameter.name, parameter.value) for parameter in parameters])
        bad = any(parameter.value == 13 for parameter in parameters)
        return SetParametersResult(successful=not bad, reason="thirteen" if bad else "")

    node.add_on_set_parameters_callback(agree)
    result = node.set_parameters_atomically([ros.Parameter("a", value=2), ros.Parameter("b", value=13)])
    assert (result.successful, result.reason) == (False, "thirteen")
    assert [node.get_parameter(name).value for name in "ab"] == [1, 1]
    results = node.set_parameters([ros.Parameter("a", value=13), ros.Parameter("b", value=3)])
    assert [result.successful for result in results] == [False, True]
    assert [node.get_parameter(name).value for name in "ab"] == [1, 3]
    assert seen[0] == [("a", 2), ("b", 13)]


def test_a_callback_that_raises_changes_nothing(context: ros.Context) -> None:
    node = make(context)
    node.declare_parameter("a", 1)

    def broken(_: list[ros.Parameter]) -> SetParametersResult:
        raise RuntimeError("broken")

    node.add_on_set_parameters_callback(broken)
    with pytest.raises(RuntimeError, match="broken"):
        node.set_parameters([ros.Parameter("a", value=2)])
    assert node.get_parameter("a").value == 1


@pytest.mark.parametrize(
    "value", [True, 3, 2.5, "text", [True, False], [1, 2], [1.0, 2.0], ["a"], [b"\1", b"\2"], None]
)
def test_parameters_survive_their_message(value: Any) -> None:
    parameter = ros.Parameter("p", value=value)
    assert ros.Parameter.from_parameter_msg(parameter.to_parameter_msg()) == parameter


def test_parameters_refuse_what_they_cannot_hold() -> None:
    bad: list[Callable[[], ros.Parameter]] = [
        lambda: ros.Parameter("p", Type.INTEGER, 1.0), lambda: ros.Parameter("p", value=object()),
        lambda: ros.Parameter("p", value=[1, "a"]), lambda: ros.Parameter("p", value={"a": 1}),
    ]  # fmt: skip
    for build in bad:
        with pytest.raises((TypeError, ValueError)):
            build()
