"""Parameter files and parameter values in YAML, as rcl reads them.

It converts text to (node pattern, name, value) rules and matches patterns; it never uses a node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from auras_ros import parameter_file
from auras_ros.parameter_file import SECTION, ParameterFileError


class ParametersFileError(ValueError):
    """A parameter file or value cannot be used; the message names the file and the entry."""


@dataclass(frozen=True)
class ParameterRule:
    """One override: for nodes that match `pattern`, parameter `name` gets `value`."""

    pattern: str
    name: str
    value: Any


def parse_value(text: str, where: str) -> Any:
    """A command-line value: bool, int, float, str or a list of one of them."""
    try:
        value = yaml.load(text, Loader=parameter_file.Loader)  # noqa: S506  # a SafeLoader
    except yaml.YAMLError as error:
        raise ParametersFileError(f"{where}: {text!r} is not YAML: {error}") from None
    return check_value("" if value is None and not text else value, where)


def check_value(value: Any, where: str) -> Any:
    """Returns `value` if a parameter can hold it. Raises ParametersFileError, naming the entry, otherwise."""
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        if len(kinds) > 1 or not kinds <= {bool, int, float, str}:
            raise ParametersFileError(f"{where}: a list must hold values of one type, got {value!r}"[:300])
        for item in value:
            check_value(item, where)
    elif not isinstance(value, (bool, int, float, str)):
        raise ParametersFileError(f"{where}: {value!r} is not a parameter value"[:300])
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ParametersFileError(f"{where}: {value} does not fit 64 bits")
    return value


def load(path: str | Path) -> list[ParameterRule]:
    """The rules of a parameter file, the most general pattern (`/**`) first, exact names last."""
    try:
        document, _ = parameter_file.read(Path(path))
    except OSError as error:
        raise ParametersFileError(f"parameter file {path}: {error.strerror}") from None
    except ParameterFileError as error:
        raise ParametersFileError(f"parameter file {error}") from None
    if document is None:
        return []
    try:
        rules = list(_nodes(document, "", str(path)))
    except RecursionError:
        raise ParametersFileError(f"parameter file {path}: an entry contains itself, or entries are too deep") from None
    return sorted(rules, key=lambda rule: (rule.pattern != "/**", "*" not in rule.pattern))


def _nodes(tree: Any, prefix: str, where: str) -> Iterator[ParameterRule]:
    if not isinstance(tree, dict):
        missing = f"{prefix}: {SECTION} is missing, or too deep" if prefix else "the top level is not a mapping"
        raise ParametersFileError(f"parameter file {where}: {missing}")
    for key, below in tree.items():
        if key == SECTION:
            if not prefix:
                raise ParametersFileError(f"parameter file {where}: {SECTION} is not below a node name")
            yield from _values(below, prefix, "", where)
        else:
            yield from _nodes(below, f"{prefix}/{str(key).strip('/')}", where)


def _values(tree: Any, pattern: str, prefix: str, where: str) -> Iterator[ParameterRule]:
    if not isinstance(tree, dict):
        raise ParametersFileError(f"parameter file {where}: {pattern} {prefix or SECTION} is not a mapping")
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, dict):
            yield from _values(value, pattern, name, where)
        else:
            yield ParameterRule(pattern, name, check_value(value, f"parameter file {where}: {pattern} {name}"))


def matches(pattern: str, fully_qualified_name: str) -> bool:
    """Whether a node's full name matches: `*` is one token, `**` any number; no slash means any namespace."""
    if "/" not in pattern and "*" not in pattern:
        return fully_qualified_name.rsplit("/", 1)[1] == pattern
    expression = ""
    for token in pattern.strip("/").split("/"):
        expression += {"**": r"(?:/\w+)*", "*": r"/\w+"}.get(token, "/" + re.escape(token))
    return re.fullmatch(expression, fully_qualified_name) is not None


def overrides_for(rules: tuple[ParameterRule, ...], fully_qualified_name: str) -> dict[str, Any]:
    """Name → value for one node; later rules win, but one with the node's own name wins over wildcards: rclpy applies
    wildcards first, and a `-p name:=value` of the command line is one."""
    mine = [rule for rule in rules if matches(rule.pattern, fully_qualified_name)]
    return {rule.name: rule.value for rule in sorted(mine, key=lambda rule: "*" not in rule.pattern)}
