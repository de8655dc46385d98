"""The table and the picture of `auras bench peers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from auras_ros.measure.cores import words
from auras_ros.report.picture import BLUE, COLOURS, GREEN, GREY, picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import aligned

VERSIONS = ("auras_ros", "lerobot", "diffusers", "transformers", "torch", "torchvision")
COLUMNS = ("chunks/s", "p10", "p90", "rounds", "ratio", "p10", "p90", "differs by")
Row = Mapping[str, Any]


def table(report: Report) -> str:
    """For each part a heading and a line for each contender; ratios are to the first of them, in the same rounds."""
    lines: list[str] = []
    for part in parts(report):
        rows = [row for row in report.rows if row["part"] == part]
        head = f"{part}, {_what(rows[0])}"
        lines += [*aligned([(head, *COLUMNS), *(_cells(row) for row in rows)])]
        lines += [f"  {row['contender']}: {_note(row)}" for row in rows if _note(row)] + [""]
    lines += [f"{part} was not run: {why}" for part, why in report.more.get("not_run", {}).items()]
    return "\n".join([*lines, *([report.more["interrupted"]] if "interrupted" in report.more else [])]).rstrip()


def parts(report: Report) -> list[str]:
    return list(dict.fromkeys(row["part"] for row in report.rows))


def _what(row: Row) -> str:
    how = row.get("sampler") or f"{row['tokens']} tokens"
    return f"{row['shape']} shape, {how}, random weights, {row['device']}, {words(row['cores'])}"


def _cells(row: Row) -> tuple[str, ...]:
    name = f"  {row['contender']}"
    if row["chunks_per_s"] is None:
        return (name, *["-"] * len(COLUMNS))
    rate = (f"{row['chunks_per_s']:.2f}", f"{row['p10']:.2f}", f"{row['p90']:.2f}", str(row["n"]))
    ratio = tuple("-" if row[name] is None else f"{row[name]:.2f}" for name in ("ratio", "ratio_p10", "ratio_p90"))
    return (name, *rate, *ratio, f"{row['max_difference']:.1e}")


def _note(row: Row) -> str:
    """Versions, plan, compile time, differing tokens, and the reason if it was not measured."""
    said = [" ".join(f"{name} {row[name]}" for name in VERSIONS if name in row)]
    if "plan" in row:
        said.append(row["plan"])
    if "compile_s" in row:
        said.append(f"compiled in {row['compile_s']:.0f} s (mode {row['compile_mode']}), not counted")
    if row.get("tokens_unlike"):
        said.append(f"{row['tokens_unlike']} tokens differ, where rounding decides")
    if "why" in row:
        said.append(row["why"])
    return "; ".join(said)


def draw(report: Report, path: Path) -> None:
    """A bar for each contender, by part. Raises ValueError if nothing was measured."""
    measured = [part for part in parts(report) if _measured(report, part)]
    if not measured:
        raise ValueError("nothing was measured: no picture")
    with picture(path, "chunks per second, the same random weights", len(measured)) as axes:
        for one, part in zip(axes, measured, strict=True):
            rows = _measured(report, part)
            for at, row in enumerate(rows):
                colour = COLOURS.get(row["contender"], GREEN if row["contender"] == "compiled" else GREY)
                one.bar(at, row["chunks_per_s"], color=BLUE if row["contender"] == "auras" else colour)
                one.errorbar(at, row["chunks_per_s"], whiskers(row, "chunks_per_s", "p10", "p90"), color="black")
            one.set_xticks(range(len(rows)), [row["contender"] for row in rows])
            one.set_title(f"{part}, {_what(rows[0])}", fontsize=8)


def _measured(report: Report, part: str) -> Sequence[Row]:
    return [row for row in report.rows if row["part"] == part and row["chunks_per_s"] is not None]
