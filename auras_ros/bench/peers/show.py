"""The table and the picture of `auras bench peers`."""

from __future__ import annotations

from pathlib import Path

from auras_ros.measure.cores import words
from auras_ros.report.picture import COLOURS, GREEN, GREY, picture, whiskers
from auras_ros.report.result import Report
from auras_ros.report.table import Column, Row, grouped_by, in_columns

VERSIONS = ("auras_ros", "lerobot", "diffusers", "transformers", "torch", "torchvision")
COLUMNS: tuple[Column, ...] = (
    ("chunks/s", "{chunks_per_s:.2f}"),
    ("p10", "{p10:.2f}"),
    ("p90", "{p90:.2f}"),
    ("rounds", "{n}"),
    ("ratio", "{ratio:.2f}"),
    ("p10", "{ratio_p10:.2f}"),
    ("p90", "{ratio_p90:.2f}"),
    ("differs by", "{max_difference:.1e}"),
)


def table(report: Report) -> str:
    """For each part a heading and a line for each contender; ratios are to the first of them, in the same rounds."""
    lines: list[str] = []
    for (part,), rows in grouped_by(report.rows, "part").items():
        lines += in_columns(rows, ((f"{part}, {_what(rows[0])}", "  {contender}"), *COLUMNS))
        lines += [f"  {row['contender']}: {_note(row)}" for row in rows if _note(row)] + [""]
    lines += [f"{part} was not run: {why}" for part, why in report.more.get("not_run", {}).items()]
    return "\n".join(lines).rstrip()


def _what(row: Row) -> str:
    how = row.get("sampler") or f"{row['tokens']} tokens"
    return f"{row['shape']} shape, {how}, random weights, {row['device']}, {words(row['cores'])}"


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
    measured = grouped_by((row for row in report.rows if row["chunks_per_s"] is not None), "part")
    if not measured:
        raise ValueError("nothing was measured: no picture")
    with picture(path, "chunks per second, the same random weights", len(measured)) as axes:
        for one, ((part,), rows) in zip(axes, measured.items(), strict=True):
            names, rates = [row["contender"] for row in rows], [row["chunks_per_s"] for row in rows]
            colours = [COLOURS.get(name, GREEN if name == "compiled" else GREY) for name in names]
            one.bar(names, rates, color=colours, yerr=whiskers(rows, "chunks_per_s", "p10", "p90"))
            one.set_title(f"{part}, {_what(rows[0])}")
