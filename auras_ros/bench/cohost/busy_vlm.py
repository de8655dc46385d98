"""A busy engine: as many questions about images in flight as decode together, for ever.

In a thread of the policy's process, or run as a script in a process of its own: FOLDER CORES THREADS SEED COUNTER. It
prints a line when the first answers have come, and keeps the number of its tokens in the file COUNTER, until SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import numpy as np

from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.device.cores import occupy
from auras_ros.device.reservation import FrameReservation
from auras_ros.engine.build import make_engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import VlmRequest

IMAGES, SIDE_PX, TOKENS, RUNNING = 16, 96, 32, 4
WARM_STEPS = 4 * TOKENS
GIVE_UP_S = 0.01  # how long it waits for news of a frame that does not come
QUESTION = "Is the tee on its goal?"


def answering(
    folder: Path, cores: Sequence[int], threads: int, seed: int, reservation: FrameReservation | None = None
) -> Iterator[int]:
    """Answers in the calling thread, on these cores and with so many intra-op threads; only between the frames of a
    reservation. Gives the number of its tokens after every step of the engine; the first time when the first answers
    have come."""
    occupy("vlm", frozenset(cores), threads)
    news = threading.Event()
    if reservation is not None:
        reservation.listen(news.set)
    checkpoint = open_vlm(folder)
    requests = _requests(checkpoint, seed)
    options = EngineOptions(running=RUNNING, prefix_cache=False, image_cache_mib=0)
    engine = make_engine(checkpoint, options, reservation=reservation)
    open_: list[Reply] = []
    try:
        for number in count():
            while len(open_) < RUNNING:
                open_.append(engine.submit(requests[number % IMAGES]))
            news.clear()
            if not engine.step():  # nothing fits before the next frame
                news.wait(GIVE_UP_S)
            open_ = [reply for reply in open_ if not reply.ended]
            if number >= WARM_STEPS:
                yield engine.stats.tokens
    finally:
        engine.close()


def _requests(checkpoint: VlmCheckpoint, seed: int) -> list[VlmRequest]:
    """Questions about images that are all different."""
    random = np.random.default_rng(seed)
    message = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    return [
        VlmRequest(
            checkpoint.prompts.chat([message], [random.integers(0, 256, (SIDE_PX, SIDE_PX, 3), np.uint8)]),
            max_tokens=TOKENS,
            ignore_eos=True,
        )
        for _ in range(IMAGES)
    ]


def main() -> None:
    folder, cores, threads, seed, counter = sys.argv[1:]
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    made = np.memmap(counter, np.int64, "r+", shape=(1,))
    for tokens in answering(Path(folder), [int(core) for core in cores.split(",")], int(threads), int(seed)):
        if made[0] == 0:
            print("ready", flush=True)
        made[0] = tokens
        if stopped:
            break


if __name__ == "__main__":
    main()
