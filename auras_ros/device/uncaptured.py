"""How a stage's body says that no graph can hold what it does, and how the device that runs it hears that.

A body knows while it runs: whoever does the thing in it says so (`offload` does, when it brings weights in), however
deep inside a policy. Nothing here knows what the thing is, and nothing is said outside of a stage.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_LOCAL = threading.local()
Reasons = tuple[str, ...]


def cannot_capture(reason: str) -> None:
    """Called from inside a stage's body, in each of its runs. Where nobody listens it does nothing."""
    heard: dict[str, None] | None = getattr(_LOCAL, "heard", None)
    if heard is not None:
        heard[reason] = None


@contextmanager
def listening() -> Iterator[dict[str, None]]:
    """What is said in this thread meanwhile, each reason once, in the order of the first time."""
    before = getattr(_LOCAL, "heard", None)
    _LOCAL.heard = heard = dict[str, None]()
    try:
        yield heard
    finally:
        _LOCAL.heard = before


def in_words(uncaptured: Mapping[str, Reasons]) -> str:
    """Each stage with the first of its reasons, and how many more it has; empty where there is none."""
    return "; ".join(f"{stage}: {_first(reasons)}" for stage, reasons in uncaptured.items())


def _first(reasons: Reasons) -> str:
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]}, and {len(reasons) - 1} more"
