"""How a stage's body reports that it cannot be captured as a graph, and how the device that runs it receives that.

Any code inside a body may call `cannot_capture` while it runs (`offload` does, when it copies weights in), however deep
inside a policy. Outside of a stage the call does nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_LOCAL = threading.local()
Reasons = tuple[str, ...]


def cannot_capture(reason: str) -> None:
    """Called from inside a stage's body, in each of its runs. Without an active `listening` it does nothing."""
    heard: dict[str, None] | None = getattr(_LOCAL, "heard", None)
    if heard is not None:
        heard[reason] = None


@contextmanager
def listening() -> Iterator[dict[str, None]]:
    """Collects the reasons that are reported in this thread meanwhile, each once, in the order of the first report."""
    before = getattr(_LOCAL, "heard", None)
    _LOCAL.heard = heard = dict[str, None]()
    try:
        yield heard
    finally:
        _LOCAL.heard = before


def in_words(uncaptured: Mapping[str, Reasons]) -> str:
    """Each stage with the first of its reasons and the number of others, as text; empty if there is none."""
    return "; ".join(f"{stage}: {_first(reasons)}" for stage, reasons in uncaptured.items())


def _first(reasons: Reasons) -> str:
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]}, and {len(reasons) - 1} more"
