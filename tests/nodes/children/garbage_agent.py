"""An agent gone mad, as a process of its own: good chunks, and NaN, infinities, spikes and nonsense between them.

usage: python -m tests.nodes.children.garbage_agent SEED CHECKPOINT
"""

from __future__ import annotations

import signal
import sys
import time

import numpy as np

from auras_ros.nodes.actuator.settings import load_contract, load_digest
from auras_ros.ros import Node, init
from auras_ros.ros.msg import Float64MultiArray, String
from tests.nodes.stand_ins import FakeAgent, Loop

HORIZON = 16
PERIOD_S = 0.04


class Mad:
    """A chunk, good or bad, every 40 ms; half of them are good, so that the actuator is driven all the time."""

    def __init__(self, agent: FakeAgent, seed: int) -> None:
        self._agent, self._random = agent, np.random.default_rng(seed)
        channels = agent.contract.channels
        self._lower, self._upper = (np.array([getattr(c, end) for c in channels]) for end in ("lower", "upper"))
        self._faults = [self._value, self._spike, self._wild, self._stamps, self._truncated, self._noise, self._beat]

    def step(self) -> None:
        if self._random.random() < 0.5:
            self._agent.chunk(self._good())
        else:
            self._faults[self._random.integers(len(self._faults))]()

    def _good(self) -> np.ndarray:
        """Anything within the limits, jumps from one end to the other included."""
        return self._random.uniform(self._lower, self._upper, (HORIZON, len(self._lower)))

    def _broken(self, value: float) -> np.ndarray:
        values = self._good()
        values[self._random.integers(HORIZON), self._random.integers(values.shape[1])] = value
        return values

    def _value(self) -> None:
        self._agent.chunk(self._broken(self._random.choice([np.nan, np.inf, -np.inf])))

    def _spike(self) -> None:
        self._agent.chunk(self._broken(self._random.choice([1e308, -1e308, 1e9, self._upper[0] * 1.5, -1e3])))

    def _wild(self) -> None:
        """Bits that happen to be numbers."""
        bits = self._random.integers(0, 256, HORIZON * len(self._lower) * 8, dtype=np.uint8)
        self._agent.chunk(bits.view(np.float64).reshape(HORIZON, -1))

    def _stamps(self) -> None:
        """Good values at times that cannot be."""
        offset_ns = int(self._random.choice([-(2**62), -10_000_000_000, 10_000_000_000, 2**62]))
        self._agent.chunk(self._good(), origin_mono_ns=int(time.monotonic_ns() / 2) + offset_ns)

    def _truncated(self) -> None:
        message = self._agent.message(self._good())
        message.data = message.data[: self._random.integers(len(message.data))]
        self._agent.chunk_topic.publish(message)

    def _noise(self) -> None:
        message = Float64MultiArray(data=self._random.normal(size=30))
        self._agent.chunk_topic.publish(message)

    def _beat(self) -> None:
        self._agent.beat_topic.publish(String(data='{"session": ' + "[" * int(self._random.integers(1, 3000))))


def main() -> None:
    seed, checkpoint = int(sys.argv[1]), sys.argv[2]
    init(args=[])
    agent = FakeAgent(Node("agent"), load_contract(checkpoint), load_digest(checkpoint), "mad")
    agent.live()
    Loop(PERIOD_S, Mad(agent, seed).step)
    signal.pause()


if __name__ == "__main__":
    main()
