"""Reads a ROS 2 parameter file so that nothing in it is left out in silence.

Of two equal keys YAML takes the last and says nothing, so a key that stands there twice is refused; so are aliases,
which ROS 2's own reader does not know. Numbers are read as ROS 2 reads them. Which names a node takes, others know.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from auras_ros.text_file import TextFileError, read_text_file

MAX_BYTES = 1 << 16  # ten times the largest one of ours; YAML of one megabyte would be read for half a minute
SECTION = "ros__parameters"
KeyPath = tuple[str, ...]  # the keys that lead to a value
_EXPONENT = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)[eE][-+]?\d+\Z")


class ParameterFileError(ValueError):
    """A file that is no parameter file; the text names file and line."""


class Loader(yaml.SafeLoader):
    """SafeLoader that reads 1e-3 as a number, as rcl does, and leaves dates as text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


class _AliasError(yaml.MarkedYAMLError):
    pass


class _FileLoader(Loader):
    """Of a whole file, in which an alias could make a small text endless."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            text = f"alias *{event.anchor}: ROS 2 parameter files have none; write the value again"
            raise _AliasError(problem=text, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


def read(path: Path) -> tuple[Any, dict[KeyPath, int]]:
    """What the file says (None if nothing), and the line of every key. Raises ParameterFileError or OSError."""
    try:
        text = read_text_file(path, MAX_BYTES)
    except TextFileError as error:
        raise ParameterFileError(f"{path}: {error}") from error
    except ValueError as error:  # not UTF-8
        raise ParameterFileError(f"{path}: not YAML: {error}") from error
    lines: dict[KeyPath, int] = {}
    try:
        loader = _FileLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None, lines
            _note_lines(root, (), lines, path)
            return loader.construct_document(root), lines
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = "" if isinstance(error, _AliasError) else "not YAML: "
        raise ParameterFileError(f"{path}{line}: {what}{error.problem}") from error
    except ParameterFileError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or no number after all
        raise ParameterFileError(f"{path}: not YAML: {' '.join(str(error).split())}") from error


def _note_lines(node: yaml.Node, place: KeyPath, lines: dict[KeyPath, int], path: Path) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        here = (*place, str(key.value))
        line = key.start_mark.line + 1
        if here in lines:
            where = f"{'/'.join(place)}: " if place else ""
            raise ParameterFileError(f"{path}:{line}: {where}'{here[-1]}' stands in line {lines[here]} already")
        lines[here] = line
        _note_lines(value, here, lines, path)
