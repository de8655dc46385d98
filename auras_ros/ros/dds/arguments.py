"""`--ros-args` on the command line: remapping, parameters, log levels.

Arguments that are not between --ros-args and -- belong to the program and are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import params_file
from .logger import LoggingSeverity, parse_level
from .names import Remap
from .params_file import ParameterRule


class UnknownROSArgsError(ValueError):
    """Something after --ros-args is not understood; the message shows it."""


@dataclass(frozen=True)
class Arguments:
    """The ROS part of a command line, in the order given."""

    remaps: tuple[Remap, ...] = ()
    parameters: tuple[ParameterRule, ...] = ()
    log_levels: tuple[tuple[str, LoggingSeverity], ...] = ()
    rosout: bool = True
    stdout: bool = True


def remove_ros_args(arguments: Sequence[str]) -> list[str]:
    """The arguments that belong to the program."""
    return [text for text, ros in _sections(arguments) if not ros]


def _sections(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    inside = False
    for text in arguments:
        if text == "--ros-args":
            inside = True
        elif inside and text == "--":
            inside = False
        else:
            yield text, inside


_VALUED = {
    "-r": "remap", "--remap": "remap", "-p": "parameter", "--param": "parameter", "--params-file": "file",
    "--log-level": "level", "-e": "ignored", "--enclave": "ignored", "--log-config-file": "ignored",
    "--log-file-name": "ignored",
}  # fmt: skip
_FLAGS = {f"--{verb}-{what}" for verb in ("enable", "disable")
          for what in ("rosout-logs", "stdout-logs", "external-lib-logs")}  # fmt: skip


def parse(arguments: Sequence[str]) -> Arguments:
    """The ROS arguments of a command line.

    Raises UnknownROSArgsError for an unknown flag or one without its value, ParametersFileError and
    InvalidNameError for an invalid value.
    """
    remaps: list[Remap] = []
    parameters: list[ParameterRule] = []
    levels: list[tuple[str, LoggingSeverity]] = []
    logs = {"rosout": True, "stdout": True, "external-lib": True}
    words = iter([text for text, ros in _sections(arguments) if ros])
    for flag in words:
        if flag in _FLAGS:
            verb, what = flag.strip("-").split("-", 1)
            logs[what.removesuffix("-logs")] = verb == "enable"
            continue
        kind = _VALUED.get(flag)
        value = next(words, None)
        if kind is None:
            raise UnknownROSArgsError(f"unknown ROS argument {flag!r}")
        if value is None:
            raise UnknownROSArgsError(f"ROS argument {flag} needs a value")
        if kind == "remap":
            remaps.append(_remap(value))
        elif kind == "parameter":
            parameters.append(_parameter(value))
        elif kind == "file":
            parameters += params_file.load(value)
        elif kind == "level":
            name, _, level = value.rpartition(":=")
            levels.append((name, parse_level(level)))
    return Arguments(tuple(remaps), tuple(parameters), tuple(levels), logs["rosout"], logs["stdout"])


def for_node(own_arguments: Sequence[str] | None, shared: Arguments | None) -> Arguments:
    """A node's own arguments and its context's: of remap rules the first wins, of a parameter's values the last."""
    own_text = list(own_arguments or [])
    own = parse(["--ros-args", *own_text] if own_text and "--ros-args" not in own_text else own_text)
    if shared is None:
        return own
    return Arguments(
        own.remaps + shared.remaps, shared.parameters + own.parameters, rosout=own.rosout and shared.rosout
    )


def _split(text: str, what: str) -> tuple[str | None, str, str]:
    left, separator, right = text.partition(":=")
    if not separator or not left:
        raise UnknownROSArgsError(f"{what} {text!r}: expected [node:]name:=value")
    scheme = next((s for s in ("rostopic://", "rosservice://") if left.startswith(s)), "")
    node, colon, name = left[len(scheme) :].partition(":")
    return (node, scheme + name, right) if colon else (None, left, right)


def _remap(text: str) -> Remap:
    node, source, target = _split(text, "remap rule")
    if not target:
        raise UnknownROSArgsError(f"remap rule {text!r}: the new name is empty")
    return Remap(node, source, target)


def _parameter(text: str) -> ParameterRule:
    node, name, value = _split(text, "parameter")
    return ParameterRule(node or "/**", name, params_file.parse_value(value, f"parameter {name}"))
