"""What the ros tests share: a domain, a context that is always shut down, children that are always reaped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from auras_ros import ros
from tests.conftest import held_domain

ROOT = Path(__file__).parents[2]
CHILDREN = Path(__file__).parent / "children"
PATIENCE_S = 20.0  # how long anything may take on a busy machine before the test gives up


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skipped by name in a run that speaks rclpy: these tests are about our layer."""
    if ros.BACKEND == "dds":
        return
    ours = pytest.mark.skip(reason="about our DDS layer: AURAS_ROS_BACKEND=dds")
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(ours)


@pytest.fixture(scope="session")
def domain() -> Iterator[int]:
    """A DDS domain from 60 to 69, another one for another test process."""
    with held_domain(range(60, 70)) as number:
        yield number


@pytest.fixture
def context(domain: int) -> Iterator[ros.Context]:
    made = ros.Context()
    ros.init(args=[], context=made, domain_id=domain)
    yield made
    ros.try_shutdown(context=made)


@pytest.fixture
def executor(context: ros.Context) -> ros.SingleThreadedExecutor:
    return ros.SingleThreadedExecutor(context=context)


@pytest.fixture
def node(context: ros.Context, executor: ros.SingleThreadedExecutor) -> ros.Node:
    made = ros.Node("tester", context=context, namespace="/test")
    executor.add_node(made)
    return made


@pytest.fixture
def spin_until(executor: ros.SingleThreadedExecutor) -> Callable[[Callable[[], Any]], None]:
    """Spin until a condition holds; fails the test when it does not in PATIENCE_S."""

    def spin(condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail("the condition did not come true in time")
            executor.spin_once(timeout_sec=0.1)

    return spin


@pytest.fixture
def call(node: ros.Node, executor: ros.SingleThreadedExecutor) -> Callable[..., Any]:
    """Call a service of any process by its full name and wait for the answer; keywords are the request's fields."""
    clients: dict[str, Any] = {}

    def ask(srv_type: Any, name: str, **fields: Any) -> Any:
        client = clients.get(name) or clients.setdefault(name, node.create_client(srv_type, name))
        assert client.wait_for_service(timeout_sec=PATIENCE_S), f"{name} is not there"
        future = client.call_async(srv_type.Request(**fields))
        executor.spin_until_future_complete(future, timeout_sec=PATIENCE_S)
        assert future.done(), f"{name} did not answer"
        return future.result()

    return ask


def _line(fd: int) -> bytes:
    """One line, byte by byte: communicate() would not see what a buffered readline has taken beyond it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line


@pytest.fixture
def spawn(domain: int) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start tests/ros/children/<script>.py and wait for its line 'ready'; it is killed at the test's end."""
    running: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"PYTHONPATH": str(ROOT), "ROS_DOMAIN_ID": str(domain)}
        child = subprocess.Popen(
            [sys.executable, str(CHILDREN / f"{script}.py"), *arguments],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        running.append(child)
        assert child.stdout is not None
        assert _line(child.stdout.fileno()) == b"ready\n", child.communicate()[1]
        return child

    yield start
    for child in running:
        child.kill()
        child.communicate()
