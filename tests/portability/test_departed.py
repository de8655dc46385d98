"""What a living process no longer has, others no longer see: its publishers, subscriptions and services.

Guards: Fast DDS keeps an endpoint of our layer for ever, so that a publisher of commands that is gone still refuses
arming, and every node that came and went costs 50 KiB.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from auras_ros import ros
from auras_ros.ros.srv import Trigger
from tests.conftest import held_domain

DOMAINS = range(40, 50)
PATIENCE_S = 20.0
VISITS = 3


class Visitors:
    """Another process, on the backend `backend`."""

    def __init__(self, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as environment:
            environment.setenv("AURAS_ROS_BACKEND", backend)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.portability.children.visitors"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )

    def next(self) -> str:
        """Its next step, as it says it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(params=sorted({"dds", ros.BACKEND}))
def visitors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Visitors]:
    made = Visitors(request.param, monkeypatch)
    yield made
    made.close()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[ros.Node]:
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    with held_domain(DOMAINS) as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        context = ros.Context()
        ros.init(args=[], context=context)
        made = ros.Node("host", context=context)
        yield made
        made.destroy_node()
        ros.try_shutdown(context=context)


def wait_for(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.05)


def test_a_node_that_is_gone_leaves_the_graph(node: ros.Node, visitors: Visitors) -> None:
    def counts() -> tuple[int, int]:
        return node.count_publishers("/visited"), node.count_subscribers("/visited")

    client = node.create_client(Trigger, "visit")
    for _ in range(VISITS):
        assert visitors.next() == "here"
        wait_for(lambda: counts() == (1, 1), "one visitor is seen")
        assert visitors.next() == "gone"
        wait_for(lambda: counts() == (0, 0), "the visitor that is gone is still listed")
        wait_for(lambda: not client.service_is_ready(), "its service is still there")
