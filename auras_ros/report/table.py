"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns: the first to the left, the others to the right. All lines have as many cells as the
    first."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join(f"{cell:{'<' if i == 0 else '>'}{width}}" for i, (cell, width) in enumerate(padded)).rstrip()
        for padded in (list(zip(line, widths, strict=True)) for line in lines)
    ]
