"""The timeline picture: two seconds of each play, from the stamps that the processes put on their messages.

It shows how an observation becomes motion: camera stamp, perception, generation, the chunk's way to its first use,
the commands coloured by the chunk they come from, the steps of the world. The requests that are generated at the same
time lie above each other. It draws what was measured, never what was planned. matplotlib is imported here and only
here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from auras_ros.live.chunk_times import ChunkTimes
from auras_ros.live.referee.measures import ActionMark, Measures, StepMark
from auras_ros.report.picture import canvas

NS_PER_MS = 1_000_000
WINDOW_NS = 2_000 * NS_PER_MS
WIDTH, HEIGHT, HEAD, DPI = 16.0, 4.6, 0.6, 100  # inches; HEIGHT for each play
LANES = ("camera", "perception", "generation", "chunk, to its use", "actions", "world")
PERCEPTION, HOLD = "#33415c", "#cfd2d8"
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


def draw_timeline(plays: Mapping[str, Measures], path: Path) -> bool:
    """Write the picture as PNG, one panel for each play, by title; False, and no file, where nothing was played."""
    shown = {title: (measures, at) for title, measures in plays.items() if (at := window(measures.spans))}
    if not shown:
        return False
    height = HEAD + HEIGHT * len(shown)
    with canvas(path, (WIDTH, height), DPI, layout=None) as figure:
        panels = figure.subplots(len(shown), squeeze=False)[:, 0]
        for axes, (title, (measures, at)) in zip(panels, shown.items(), strict=True):
            _draw_play(axes, measures, *at)
            axes.set_title(title, loc="left", fontsize=13, weight="bold")
        panels[-1].set_xlabel("time, ms", fontsize=11)
        figure.legend(handles=_legend(), loc="upper center", ncols=7, frameon=False, fontsize=10)
        figure.tight_layout(rect=(0.0, 0.0, 1.0, 1.0 - HEAD / height))
    return True


def _draw_play(axes: Axes, measures: Measures, start: int, end: int) -> None:
    chunks = [c for c in measures.chunks if c.origin_mono_ns < end and c.published_ns + WINDOW_NS > start]
    actions = [mark for mark in measures.actions if start - WINDOW_NS <= mark.mono_ns <= end + WINDOW_NS]
    steps = [mark for mark in measures.steps if start <= mark.mono_ns <= end]
    rows = max((len(chunk.stage_ns) for chunk in chunks), default=1)
    for chunk in chunks:
        _draw_chunk(axes, chunk, first_use_ns(chunk, actions), start, rows)
    _draw_actions(axes, [mark for mark in actions if start <= mark.mono_ns <= end], start)
    _draw_steps(axes, steps, start)
    _dress(axes, (end - start) / NS_PER_MS)


def _ms(at_ns: int, start_ns: int) -> float:
    return (at_ns - start_ns) / NS_PER_MS


def _lane(name: str) -> int:
    return len(LANES) - 1 - LANES.index(name)


def _colour(request: int | None) -> str:
    return HOLD if request is None else CYCLE[request % len(CYCLE)]


def _draw_chunk(axes: Axes, chunk: ChunkTimes, used_ns: int | None, start: int, rows: int) -> None:
    """From the newest image's stamp through perception and generation to the first action; thin lines connect them.
    rows: the most stages of a request, which is how many requests are generated at the same time."""
    colour = _colour(chunk.request)
    latched, perceived = _ms(chunk.latched_ns, start), _ms(chunk.perceived_ns, start)
    generated, published = _ms(chunk.generated_ns, start), _ms(chunk.published_ns, start)
    camera, perception, generation, way, actions = (_lane(name) for name in LANES[:5])
    axes.plot([_ms(chunk.origin_mono_ns, start), latched], [camera, perception], color=colour, lw=0.9, alpha=0.7)
    axes.barh(perception, perceived - latched, 2 * HALF, latched, color=PERCEPTION, lw=0)
    height = 2 * HALF / max(1, rows)
    row = generation + HALF - height * (chunk.request % max(1, rows) + 0.5)
    begins = [_ms(at, start) for at in chunk.stage_ns] or [perceived]
    for begin, end in zip(begins, [*begins[1:], generated], strict=True):
        axes.barh(row, end - begin, 0.86 * height, begin, color=colour, edgecolor="white", lw=1.0)
    axes.plot([generated, published], [row, way], color=colour, lw=0.9, alpha=0.7)
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
    camera, world = _lane("camera"), _lane("world")
    axes.plot(at, [camera] * len(at), "v", color="#333333", ms=7)
    axes.vlines(at, world - HALF, world + HALF, color="#333333", lw=1.4)
    for x, mark in zip(at, steps, strict=True):
        axes.text(x + 5, world, str(mark.step), fontsize=9, va="center", color="#333333", clip_on=True)


def _dress(axes: Axes, length_ms: float) -> None:
    axes.set_xlim(0.0, length_ms)
    axes.set_ylim(-0.6, len(LANES) - 0.4)
    axes.set_yticks([_lane(name) for name in LANES], LANES, fontsize=11)
    axes.set_xticks([100.0 * i for i in range(int(length_ms // 100) + 1)])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eceef2")
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _legend() -> list[Patch | Line2D]:
    def mark(marker: str, colour: str, label: str) -> Line2D:
        return Line2D([], [], marker=marker, color=colour, ls="", label=label, ms=9, mew=2)

    return [
        mark("v", "#333333", "camera stamp"),
        Patch(color=PERCEPTION, label="perception"),
        Patch(color=CYCLE[2], label="generation: a bar for each stage"),
        Line2D(
            [], [], marker="o", color=CYCLE[2], lw=2.5, label="published, then first used (a colour for each chunk)"
        ),
        mark("x", "black", "never used"),
        mark("|", HOLD, "hold"),
        mark("|", "#333333", "step of the world"),
    ]
