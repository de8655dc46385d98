"""The timeline of a trace: what ran on each lane over some frames, and above it each request from start to chunk.

It draws what was measured, not what was planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from auras_ros.device import Span
from auras_ros.measure.recording import FrameMark, Recording, RequestMark
from auras_ros.report.picture import canvas

SHOWN = 10  # frames
NS_PER_MS = 1e6
WIDTH_INCHES, DPI = 16.0, 100
HEAD_INCHES = 1.3  # title, a legend of two lines, and the frames' numbers under it
ROW_INCHES, FRAME_INCHES = 0.3, HEAD_INCHES + 0.85  # a lane or a request; head, axes and their labels
PERCEPTION, GENERATION, COPY = "#33415c", "#7aa6c2", "#b9a27a"
KINDS = {"perception": PERCEPTION, "copy": COPY}
CYCLE = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2")
GREY, LINE = "#5b6472", "#c3c9d3"
HALF = 0.36
LEFT = 0.085
LONG = 2.0  # % of the picture's width; a longer piece has space for its number
THIN = 0.5  # % of the picture's width; a stage at most this long is drawn without an edge


def window(frames: Sequence[FrameMark], shown: int = SHOWN) -> tuple[int, int]:
    """From the start of one frame to the end of the `shown`-th, in the middle of the run. Raises ValueError if no frame
    was finished."""
    finished = [frame for frame in frames if frame.end_ns]
    if not finished:
        raise ValueError("no frame was finished: there is nothing to draw")
    first = max(0, (len(finished) - shown) // 2)
    inside = finished[first : first + shown]
    return inside[0].start_ns, max(frame.end_ns for frame in inside)


def draw(spans: Sequence[Span], recording: Recording, title: str, path: Path) -> None:
    """Write the picture as PNG. Raises ValueError if no frame was finished."""
    frames = recording.frames()
    start, end = window(frames)
    lanes = list(dict.fromkeys(span.lane for span in spans))
    inside = [frame for frame in frames if start <= frame.start_ns < end]
    alive = [r for r in recording.requests() if r.admitted_ns < end and (r.emitted_ns or end) > start]
    shares = max(len(alive), 1), 2 * len(lanes)
    size = (WIDTH_INCHES, FRAME_INCHES + ROW_INCHES * sum(shares))
    with canvas(path, size, DPI, layout=None) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=shares)
        _draw_requests(above, alive, start, end)
        shown = [span for span in spans if span.start_ns < end and span.end_ns > start]
        _draw_lanes(below, shown, lanes, start, _ms(end, start))
        for axes in (above, below):
            _dress(axes, inside, start, end)
        for frame in inside:
            place, style = above.get_xaxis_transform(), {"fontsize": 9, "color": GREY}
            above.text(_ms(frame.start_ns, start), 1.01, f"frame {frame.number}", transform=place, **style)
        below.set_xlabel("time, ms", fontsize=11)
        _head(figure, title)


def _head(figure: Figure, title: str) -> None:
    """Title and legend above the plots; all in inches, because the height depends on what is shown."""
    inch = 1 / figure.get_figheight()
    figure.subplots_adjust(left=LEFT, right=0.99, bottom=0.6 * inch, top=1 - HEAD_INCHES * inch, hspace=0.08)
    figure.text(LEFT, 1 - 0.32 * inch, title, fontsize=13, weight="bold")
    place = (LEFT - 0.008, 1 - 0.36 * inch)
    handles = [
        Patch(color=PERCEPTION, label="perception"),
        Patch(color=GENERATION, label="generation, all requests of the frame"),
        Patch(color=COPY, label="copies from and to the host"),
        Patch(color=CYCLE[0], label="generation stages of one request (a colour for each); dot: its chunk"),
        Patch(color=LINE, label="request without a chunk before the trace ended"),
    ]
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=place, ncols=3, frameon=False, fontsize=10)


def _ms(at_ns: int, start: int) -> float:
    return (at_ns - start) / NS_PER_MS


def _draw_lanes(axes: Axes, spans: Sequence[Span], lanes: Sequence[str], start: int, whole_ms: float) -> None:
    for span in spans:
        low, width = _ms(span.start_ns, start), _ms(span.end_ns, span.start_ns)
        colour = next((each for kind, each in KINDS.items() if span.stage.startswith(kind)), GENERATION)
        edge = 0.6 if width * 100 > THIN * whole_ms else 0.0  # an edge would hide a thin one
        axes.barh(lanes.index(span.lane), width, 2 * HALF, low, color=colour, edgecolor="white", lw=edge)
    axes.set_yticks(range(len(lanes)), lanes, fontsize=11)
    axes.set_ylim(len(lanes) - 0.4, -0.6)


def _draw_requests(axes: Axes, requests: Sequence[RequestMark], start: int, end: int) -> None:
    """A row for each request: dark until its perception is finished, then a piece for each generation stage."""
    for row, request in enumerate(requests):
        last_ns = request.emitted_ns or end
        pieces = [request.admitted_ns, *request.stage_ns, last_ns]
        colour = CYCLE[request.number % len(CYCLE)] if request.emitted_ns else LINE
        for piece, (low_ns, high_ns) in enumerate(pairwise(pieces)):
            perceiving = piece == 0 and bool(request.stage_ns)
            low, high = _ms(max(low_ns, start), start), _ms(min(high_ns, end), start)
            if high <= low:
                continue
            fill, edge = (PERCEPTION, 0.0) if perceiving else (colour, 1.2)
            axes.barh(row, high - low, 2 * HALF, low, color=fill, edgecolor="white", lw=edge)
            if not perceiving and request.stage_ns and (high - low) * NS_PER_MS * 100 > LONG * (end - start):
                axes.text((low + high) / 2, row, str(piece), fontsize=8, ha="center", va="center", color="white")
        if start <= request.emitted_ns <= end:
            axes.plot([_ms(request.emitted_ns, start)], [row], "o", color="#111111", ms=4, clip_on=False, zorder=5)
    axes.set_yticks(range(len(requests)), [f"request {request.number}" for request in requests], fontsize=9)
    axes.set_ylim(len(requests) - 0.4, -0.6)


def _dress(axes: Axes, frames: Sequence[FrameMark], start: int, end: int) -> None:
    axes.set_xlim(0.0, _ms(end, start))
    for frame in frames:
        axes.axvline(_ms(frame.start_ns, start), color=LINE, lw=1.0, zorder=0)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
