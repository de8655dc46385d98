"""Things on a Push-T table that the published task does not have: coloured discs, which only the picture shows.

Nothing touches them, and no rule of the task knows them. Nothing is drawn here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from auras_ros.parameters import ParameterError

MOST_THINGS = 64
KEYS = {"x", "y", "radius", "rgb"}
FAR_PX = 1024.0  # a centre may lie beside the table of 512 px


@dataclass(frozen=True)
class Disc:
    """A thing on the table: its centre and radius, px of the table, and its colour, RGB."""

    x: float
    y: float
    radius: float
    rgb: tuple[int, int, int]


def read_things(text: str) -> tuple[Disc, ...]:
    """A JSON list of objects with the fields of `Disc`; an empty text is none. Raises ParameterError."""
    if not text.strip():
        return ()
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParameterError(f"pusht: things: not JSON: {error}") from error
    if not isinstance(given, list) or len(given) > MOST_THINGS:
        raise ParameterError(f"pusht: things: expected a JSON list of at most {MOST_THINGS} objects")
    return tuple(_disc(f"pusht: things[{place}]", each) for place, each in enumerate(given))


def _disc(what: str, given: Any) -> Disc:
    if not isinstance(given, dict) or given.keys() != KEYS:
        raise ParameterError(f"{what}: expected an object with {', '.join(sorted(KEYS))}, got {given!r:.80}")
    for name, low in (("x", -FAR_PX), ("y", -FAR_PX), ("radius", 1.0)):
        if type(given[name]) not in (int, float) or not low <= given[name] <= FAR_PX:
            raise ParameterError(f"{what}: {name}: must be in [{low:g}, {FAR_PX:g}] px, got {given[name]!r:.80}")
    rgb = given["rgb"]
    if not isinstance(rgb, list) or len(rgb) != 3 or any(type(each) is not int or not 0 <= each <= 255 for each in rgb):
        raise ParameterError(f"{what}: rgb: expected three whole numbers from 0 to 255, got {rgb!r:.80}")
    return Disc(float(given["x"]), float(given["y"]), float(given["radius"]), (rgb[0], rgb[1], rgb[2]))
