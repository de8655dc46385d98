"""Rows as text in columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

Row = Mapping[str, Any]
Column = tuple[str, str | Callable[[Row], str]]  # its title, and a format as "{rate_hz:.2f}" or a function


def in_columns(rows: Iterable[Row], columns: Sequence[Column], left: Collection[int] = (0,)) -> list[str]:
    """The titles, then a line for each row. A format gives a dash if one of its fields is None or missing."""
    titles = [title for title, _ in columns]
    return aligned([titles, *([_cell(row, form) for _, form in columns] for row in rows)], left)


def _cell(row: Row, form: str | Callable[[Row], str]) -> str:
    if not isinstance(form, str):
        return form(row)
    fields = [name for _, name, _, _ in Formatter().parse(form) if name]
    return "-" if any(row.get(name) is None for name in fields) else form.format_map(row)


def points(*fields: str) -> Callable[[Row], str]:
    """A cell with a share in percentage points, or with two as a range; a dash without them."""
    form = " to ".join(f"{{{name}:+.1f}}" for name in fields)
    return lambda row: _cell({name: None if row.get(name) is None else 100 * row[name] for name in fields}, form)


def aligned(lines: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Lines with aligned columns: these to the left, the others to the right. All lines have as many cells as the
    first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<" if i in left else ">" for i in range(len(widths))]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(line, sides, widths, strict=True)).rstrip()
        for line in lines
    ]


def grouped_by(rows: Iterable[Row], *fields: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by the values of these fields, in the order in which the groups begin."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in fields), []).append(row)
    return groups
