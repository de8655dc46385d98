"""The process that is busy: an engine with as many questions about images in flight as decode together, for ever.

Run as a script: FOLDER CORE SEED. Prints a line when the first answers have come, and at its end (SIGTERM) JSON with
what it has done.
"""

from __future__ import annotations

import json
import signal
import sys
from itertools import count
from pathlib import Path

import numpy as np

from auras_ros.checkpoints.vlm.open import VlmCheckpoint, open_vlm
from auras_ros.device.cores import occupy
from auras_ros.engine.build import make_engine
from auras_ros.engine.options import EngineOptions
from auras_ros.engine.reply import Reply
from auras_ros.engine.request import VlmRequest

IMAGES, SIDE_PX, TOKENS, RUNNING = 16, 96, 32, 4
QUESTION = "Is the tee on its goal?"


def main() -> None:
    folder, core, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    occupy("vlm", frozenset({core}), 1)
    stopped = False

    def stop(*_: object) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    checkpoint = open_vlm(folder)
    requests = _requests(checkpoint, seed)
    engine = make_engine(checkpoint, EngineOptions(running=RUNNING, prefix_cache=False, image_cache_mib=0))
    open_: list[Reply] = []
    for number in count():
        while len(open_) < RUNNING:
            open_.append(engine.submit(requests[number % IMAGES]))
        engine.step()
        open_ = [reply for reply in open_ if not reply.ended]
        if number == 4 * TOKENS:
            print("ready", flush=True)
        if stopped:
            break
    engine.close()
    print(json.dumps({"tokens": engine.stats.tokens, "answers": engine.stats.ended["length"]}), flush=True)


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


if __name__ == "__main__":
    main()
