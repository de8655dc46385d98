"""Whether a call keeps the interpreter from another thread for long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

KEPT_MS = 10.0
ROUNDS = 40  # at most, until one is short enough: the machine may be busy with something else between two turns


@pytest.fixture
def keeps() -> Iterator[Callable[[Callable[[], Any]], bool]]:
    """keeps(read): whether the other thread waits for its turn for longer than KEPT_MS, whenever read() runs."""
    turns, over = list[float](), threading.Event()

    def take_turns() -> None:
        while not over.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.0001)

    def waited_ms(read: Callable[[], Any]) -> float:
        turns.clear()
        began_s = time.perf_counter()
        read()
        at = [began_s, *(turn for turn in list(turns) if turn > began_s), time.perf_counter()]
        return max(later - earlier for earlier, later in pairwise(at)) * 1e3

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # what is asked is how long one call takes, not for how long Python lets it go on
    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield lambda read: all(waited_ms(read) > KEPT_MS for _ in range(ROUNDS))
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval_s)
