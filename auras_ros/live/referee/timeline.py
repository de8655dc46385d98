"""The timeline picture: two seconds of a real run, from the stamps that the processes put on their messages.

It shows how an observation becomes motion: camera stamp, perception, generation, the chunk's way to its first use,
the commands coloured by the chunk they come from, the steps of the table. It draws what was measured, never what
was planned. matplotlib is imported here and only here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from auras_ros.live.chunk_times import ChunkTimes
from auras_ros.live.referee.measures import ActionMark, Measures, StepMark

NS_PER_MS = 1_000_000
WINDOW_NS = 2_000 * NS_PER_MS
SIZE_INCHES, DPI = (16.0, 5.6), 100  # 1600 x 560 px
LANES = ("camera", "perception", "generation", "chunk, to its use", "actions", "table")
PERCEPTION, GENERATION, HOLD = "#33415c", "#a7b3c9", "#cfd2d8"
CYCLE = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")
HALF = 0.32


def window(spans: Sequence[tuple[int, int]], length_ns: int = WINDOW_NS) -> tuple[int, int] | None:
    """The stretch to show: `length_ns` in the middle of the episode that the middle of the run is in or nearest to.

    spans: (first, last) action of each episode, ns. Shorter episodes give way to longer ones; None without any.
    """
    if not spans:
        return None
    middle = (spans[0][0] + spans[-1][1]) // 2
    long_enough = [span for span in spans if span[1] - span[0] >= length_ns]
    if not long_enough:
        return max(spans, key=lambda span: span[1] - span[0])
    first, last = min(long_enough, key=lambda span: max(span[0] - middle, middle - span[1], 0))
    start = min(max(middle - length_ns // 2, first), last - length_ns)
    return start, start + length_ns


def first_use_ns(chunk: ChunkTimes, actions: Sequence[ActionMark]) -> int | None:
    """When the first action of this chunk was sent; None where none was. Request numbers start again with an agent."""
    for mark in actions:
        if mark.request == chunk.request and mark.mono_ns >= chunk.generated_ns:
            return mark.mono_ns
    return None


def draw_timeline(measures: Measures, path: Path, title: str) -> bool:
    """Write the picture as PNG; False, and no file, where nothing was played."""
    shown = window(measures.spans)
    if shown is None:
        return False
    start, end = shown
    chunks = [c for c in measures.chunks if c.origin_mono_ns < end and c.published_ns + WINDOW_NS > start]
    actions = [mark for mark in measures.actions if start - WINDOW_NS <= mark.mono_ns <= end + WINDOW_NS]
    steps = [mark for mark in measures.steps if start <= mark.mono_ns <= end]
    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.1, 0.115, 0.885, 0.72))
    for chunk in chunks:
        _draw_chunk(axes, chunk, first_use_ns(chunk, actions), start)
    _draw_actions(axes, [mark for mark in actions if start <= mark.mono_ns <= end], start)
    _draw_steps(axes, steps, start)
    _dress(axes, figure, (end - start) / NS_PER_MS, title)
    figure.savefig(path)
    return True


def _ms(at_ns: int, start_ns: int) -> float:
    return (at_ns - start_ns) / NS_PER_MS


def _lane(name: str) -> int:
    return len(LANES) - 1 - LANES.index(name)


def _colour(request: int | None) -> str:
    return HOLD if request is None else CYCLE[request % len(CYCLE)]


def _draw_chunk(axes: Axes, chunk: ChunkTimes, used_ns: int | None, start: int) -> None:
    """From the camera stamp through both stages to the first action; the thread between the lanes is the chunk's."""
    colour = _colour(chunk.request)
    latched, perceived = _ms(chunk.latched_ns, start), _ms(chunk.perceived_ns, start)
    generated, published = _ms(chunk.generated_ns, start), _ms(chunk.published_ns, start)
    camera, perception, generation, way, actions = (_lane(name) for name in LANES[:5])
    axes.plot([_ms(chunk.origin_mono_ns, start), latched], [camera, perception], color=colour, lw=0.9, alpha=0.7)
    axes.barh(perception, perceived - latched, 2 * HALF, latched, color=PERCEPTION, lw=0)
    axes.barh(generation, generated - perceived, 2 * HALF, perceived, color=GENERATION, lw=0)
    axes.plot([generated, published], [generation, way], color=colour, lw=0.9, alpha=0.7)
    axes.plot([published], [way], "o", color=colour, ms=4)
    if used_ns is None:
        axes.plot([published], [way], "x", color="black", ms=6)
        return
    used = _ms(used_ns, start)
    axes.plot([published, used], [way, way], color=colour, lw=2.5)
    axes.plot([used, used], [way, actions + HALF], color=colour, lw=0.9, alpha=0.7)


def _draw_actions(axes: Axes, actions: Sequence[ActionMark], start: int) -> None:
    lane = _lane("actions")
    for colour in dict.fromkeys(_colour(mark.request) for mark in actions):
        at = [_ms(mark.mono_ns, start) for mark in actions if _colour(mark.request) == colour]
        axes.vlines(at, lane - HALF, lane + HALF, color=colour, lw=1.8)


def _draw_steps(axes: Axes, steps: Sequence[StepMark], start: int) -> None:
    at = [_ms(mark.mono_ns, start) for mark in steps]
    camera, table = _lane("camera"), _lane("table")
    axes.plot(at, [camera] * len(at), "v", color="#333333", ms=7)
    axes.vlines(at, table - HALF, table + HALF, color="#333333", lw=1.4)
    for x, mark in zip(at, steps, strict=True):
        axes.text(x + 5, table, str(mark.step), fontsize=9, va="center", color="#333333", clip_on=True)


def _dress(axes: Axes, figure: Figure, length_ms: float, title: str) -> None:
    axes.set_xlim(0.0, length_ms)
    axes.set_ylim(-0.6, len(LANES) - 0.4)
    axes.set_yticks([_lane(name) for name in LANES], LANES, fontsize=11)
    axes.set_xlabel("time, ms", fontsize=11)
    axes.set_xticks([100.0 * i for i in range(int(length_ms // 100) + 1)])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eceef2")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.text(0.1, 0.945, title, fontsize=13, weight="bold")
    place = (0.093, 0.935)
    figure.legend(handles=_legend(), loc="upper left", bbox_to_anchor=place, ncols=7, frameon=False, fontsize=10)


def _legend() -> list[Patch | Line2D]:
    def mark(marker: str, colour: str, label: str) -> Line2D:
        return Line2D([], [], marker=marker, color=colour, ls="", label=label, ms=9, mew=2)

    return [
        mark("v", "#333333", "camera stamp"),
        Patch(color=PERCEPTION, label="perception"),
        Patch(color=GENERATION, label="generation"),
        Line2D([], [], marker="o", color=CYCLE[2], lw=2.5, label="published, then first used (a colour a chunk)"),
        mark("x", "black", "never used"),
        mark("|", HOLD, "hold"),
        mark("|", "#333333", "step of the table"),
    ]
