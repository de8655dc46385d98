"""What may be set: every parameter of every node with its meaning, range and default, as text and as a page.

Both come from the dataclasses that the nodes themselves declare; docs/parameters.md is this module's, and a test holds
it to be so.
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

What a config may say, section by section. `auras check` prints the same as text, `auras check FILE` holds a file
against it. This page is made from the code: `auras check --markdown > docs/parameters.md`.
"""
RULES = """
## What is refused

`auras run`, `auras sim`, `auras tune --config`, `auras check` and the launch files read a config in the same way, and
start nothing where something in it would be left out:

- a name that is not in these tables, in a section that bears one of these nodes' names (`agent`, `/agent`,
  `/left/agent`, `left: {agent: ...}`): refused with file, line and the nearest name; so is a value of another type or
  out of its range;
- a section whose name is nearly one of ours (`actuater`): refused. Other sections are nodes of your own: a warning says
  that nobody looked at them. `my_actuator` and `agent_2` are names on purpose;
- in a section for all nodes (`/**`) a name that is nearly one of ours: refused. Any other may be meant for a node of
  yours: a warning. `use_sim_time` is every node's;
- a key that stands there twice, in two sections of one node too (`agent` and `/agent`), an alias (ROS 2 has none), a
  section without `ros__parameters`, a process named twice.

Agent and actuator read a `--params-file` in the same way, whoever starts them (`ros2 run`). With `-p name:=value` a
node, the simulator's too, refuses a name that is nearly one of its own, and warns of any other that it does not know.

A `checkpoint` that is a relative path (it has a `/` in it) is looked for from the working directory first, then from
the config's folder; a name without `/` is one that ships. With `ros2 run` it is the working directory alone.
"""


def text(nodes: Iterable[str] = NODES) -> str:
    """For a terminal."""
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
    """docs/parameters.md."""
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
    """As YAML has it."""
    value = each.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or '""'
    return "[]" if value == () else str(value)
