"""Reference of all parameters: every node's, with meaning, range and default, as text and as a page.

Both are made from the dataclasses that the nodes declare. docs/parameters.md is generated here, and a test compares it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import Field, fields
from typing import Any

from auras_ros.nodes.common.config import SETTINGS, SUPERVISOR, settings_of

NODES = (SUPERVISOR, *SETTINGS)
KINDS = {bool: "bool", int: "int", float: "float", str: "text", tuple: "list"}
WIDTH = 110
HEAD = """# Parameters

The parameters of a config, section by section. `auras check` prints the same as text, `auras check FILE` checks a file.
This page is generated: `auras check --markdown > docs/parameters.md`.
"""
RULES = """
## What is refused

`auras run`, `auras sim`, `auras tune --config`, `auras check` and the launch files read a config in the same way, and
start nothing if a part of it would be ignored:

- a name that is not in these tables, in the section of one of these nodes (`agent`, `/agent`, `/left/agent`,
  `left: {agent: ...}`), is refused with file, line and the nearest name; so is a value of another type or out of its
  range;
- a section whose name is nearly one of ours (`actuater`) is refused. Other sections are taken for nodes of your own: a
  warning says that they were not checked. `my_actuator` and `agent_2` are not taken for misspelt names;
- in a section for all nodes (`/**`) a name that is nearly one of ours is refused. Any other name may be meant for a
  node of yours and causes a warning. Every node has `use_sim_time`;
- a key that is given twice, also in two sections of one node (`agent` and `/agent`), an alias (ROS 2 has none), a
  section without `ros__parameters` and a process that is listed twice are refused.

Agent and actuator read a `--params-file` in the same way, however they are started (`ros2 run`). With `-p name:=value`
a node, the simulator's too, refuses a name that is nearly one of its own, and warns about any other unknown name.

A `checkpoint` that is a relative path (it contains a `/`) is looked for in the working directory first, then in the
config's folder; a name without `/` is a shipped checkpoint. With `ros2 run` only the working directory is used.
"""


def text(nodes: Iterable[str] = NODES) -> str:
    """The reference for a terminal."""
    lines: list[str] = []
    for node in nodes:
        lines += [f"{node}:"]
        for each in fields(settings_of(node)):
            allowed = _allowed(each)
            head = f"  {each.name}  ({KINDS[type(each.default)]}{f', {allowed}' if allowed else ''}; {_default(each)})"
            lines += [head, *textwrap.wrap(_meaning(each), WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)]
        lines.append("")
    return "\n".join(lines).rstrip()


def page() -> str:
    """The reference as docs/parameters.md."""
    parts = [HEAD]
    for node in NODES:
        parts.append(f"\n## {node}\n\n| Parameter | Type | Allowed | Default | Meaning |\n|---|---|---|---|---|\n")
        for each in fields(settings_of(node)):
            cells = (each.name, KINDS[type(each.default)], _allowed(each), _default(each), _meaning(each))
            parts.append(f"| `{cells[0]}` | {cells[1]} | {cells[2]} | `{cells[3]}` | {cells[4].replace('|', '/')} |\n")
    return "".join([*parts, RULES])


def _meaning(each: Field[Any]) -> str:
    return str(each.metadata["description"])


def _allowed(each: Field[Any]) -> str:
    low, high = each.metadata["low"], each.metadata["high"]
    return "" if low is None else f"{low:.12g} to {high:.12g}"


def _default(each: Field[Any]) -> str:
    """The default as in YAML."""
    value = each.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or '""'
    return "[]" if value == () else str(value)
