"""Reference of all parameters: every node's, with meaning, range and default, as text and as a page.

Both are made from the dataclasses that the nodes declare. docs/parameters.md is generated here, and a test compares it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from auras_ros.nodes.common.config import SUPERVISOR, nodes, parameters_of

NODES = (SUPERVISOR, *nodes())
KINDS = {bool: "bool", int: "int", float: "float", str: "text", tuple: "list"}
WIDTH = 110
HEAD = """# Parameters

The parameters of a config, section by section. `auras check` prints the same as text, `auras check FILE` checks a file.
This page is generated: `auras check --markdown > docs/parameters.md`. What a file may not contain is in
[interfaces.md](interfaces.md#parameter-files). A parameter that names files can be set at a node's start only, unless
the node was started with `remote_configuration: true` ([interfaces.md](interfaces.md#what-may-be-set-over-the-wire)).
"""


def text(of: Iterable[str] = NODES) -> str:
    """The reference for a terminal."""
    lines: list[str] = []
    for node in of:
        lines += [f"{node}:"]
        for name, kind, allowed, default, meaning in _rows(node):
            lines.append(f"  {name}  ({kind}{f', {allowed}' if allowed else ''}; {default})")
            lines += textwrap.wrap(meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
        lines.append("")
    return "\n".join(lines).rstrip()


def page() -> str:
    """The reference as docs/parameters.md."""
    parts = [HEAD]
    for node in NODES:
        parts.append(f"\n## {node}\n\n| Parameter | Type | Allowed | Default | Meaning |\n|---|---|---|---|---|\n")
        for name, kind, allowed, default, meaning in _rows(node):
            parts.append(f"| `{name}` | {kind} | {allowed} | `{default}` | {meaning.replace('|', '/')} |\n")
    return "".join(parts)


def _rows(node: str) -> Iterator[tuple[str, str, str, str, str]]:
    """For each parameter: name, type, allowed range, default as in YAML, meaning."""
    for name, each in parameters_of(node).items():
        low, high, value = each.metadata["low"], each.metadata["high"], each.default
        default = _in_yaml(value)
        allowed = "" if low is None else f"{low:.12g} to {high:.12g}"
        meaning = each.metadata["description"] + (" (names files)" if each.metadata["names_files"] else "")
        yield name, KINDS[type(value)], allowed, default, meaning


def _in_yaml(value: object) -> str:
    """A default as a config has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(str(item) for item in value)}]"
    return str(value) or '""'
