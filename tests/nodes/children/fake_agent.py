"""An agent's stand-in as a process of its own, for tests that kill it.

usage: python -m tests.nodes.children.fake_agent SESSION CHECKPOINT [silent: heartbeats without chunks]
"""

from __future__ import annotations

import signal
import sys

from auras_ros.nodes.actuator.settings import load_contract, load_digest
from auras_ros.ros import Node, init
from tests.nodes.stand_ins import FakeAgent, ramp


def main() -> None:
    session, checkpoint = sys.argv[1:3]
    init(args=[])
    agent = FakeAgent(Node("agent"), load_contract(checkpoint), load_digest(checkpoint), session)
    agent.live()
    if "silent" not in sys.argv:
        agent.drive(ramp())
    signal.pause()


if __name__ == "__main__":
    main()
