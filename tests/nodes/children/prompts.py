"""Prompts of ten megabytes, one after another, from a process of its own: the test's own must not be held up by them.

usage: python -m tests.nodes.children.prompts   (says "ready", and begins at SIGUSR1)
"""

from __future__ import annotations

import signal
import time

from auras_ros.ros import Node, init
from auras_ros.ros.msg import String
from tests.nodes.wire import LATCHED

BYTES = 10_000_000
PERIOD_S = 0.4


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    init(args=[])
    topic = Node("prompts").create_publisher(String, "prompt", LATCHED)
    message = String(data="x" * BYTES)
    print("ready", flush=True)
    signal.sigwait({signal.SIGUSR1})
    while True:
        topic.publish(message)
        time.sleep(PERIOD_S)


if __name__ == "__main__":
    main()
