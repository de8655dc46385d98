"""A log that cannot be written stops nothing: disk full, pipe closed, a pipe or a socket (the log of a systemd service)
that is full because nobody reads it. The emergency stop is latched meanwhile."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from auras_ros.ros import qos_profile_sensor_data
from auras_ros.ros.msg import Bool, Float64MultiArray, JointState
from tests.nodes.stand_ins import FakeAgent, Robot
from tests.nodes.wire import LATCHED, ROOT, Watch

PATIENCE_S = 30.0


@contextmanager
def full_disk() -> Iterator[int]:
    with open("/dev/full", "wb", buffering=0) as file:
        yield file.fileno()


@contextmanager
def closed_pipe() -> Iterator[int]:
    read, write = os.pipe()
    os.close(read)
    try:
        yield write
    finally:
        os.close(write)


@contextmanager
def full_pipe() -> Iterator[int]:
    """Nobody reads it, and there is no room in it."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    try:
        yield write
    finally:
        os.close(read)
        os.close(write)


@contextmanager
def full_socket() -> Iterator[int]:
    """As standard error is under systemd, with a journal that stands still."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        try:
            while True:
                ours.send(b"x" * 4096)
        except BlockingIOError:
            ours.setblocking(True)
        yield ours.fileno()


Log = Callable[[], AbstractContextManager[int]]
LOGS = [full_disk, closed_pipe, full_pipe, full_socket]


@contextmanager
def node(module: str, log: int, parameters: dict[str, object], *ros: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [word for key, value in parameters.items() for word in ("-p", f"{key}:={json.dumps(value)}")]
    command = [sys.executable, "-m", f"auras_ros.{module}", "--ros-args", *words, *ros]
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=ROOT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.__name__)
def test_the_actuator_drives_and_stops_whoever_reads_its_log(
    log: Log, watch: Watch, robot: Robot, fake: FakeAgent, checkpoint: str
) -> None:
    with log() as descriptor, node("nodes.actuator.node", descriptor, {"checkpoint": checkpoint}) as actuator:
        fake.live()
        watch.arm()
        stop = watch.node.create_publisher(Bool, "emergency_stop", LATCHED)
        stop.publish(Bool(data=True))
        watch.state_where(lambda state: state["state"] == "stopped", "the emergency stop is latched")
        for _ in range(20):  # each says a line
            assert not watch.call("actuator/arm")[0]
        assert actuator.poll() is None
        actuator.terminate()
        assert actuator.wait(PATIENCE_S) == 0


# Every process writes its log through the same stream: the others see the worst of it alone.


def test_the_agent_publishes_chunks_though_nobody_reads_its_log(watch: Watch, robot: Robot, checkpoint: str) -> None:
    robot.play_actuator()
    watch.hear_agent()
    with (
        full_pipe() as descriptor,
        node("nodes.agent.node", descriptor, {"checkpoint": checkpoint, "autostart": True}) as agent,
    ):
        watch.until(lambda: watch.chunks, "chunks")
        agent.terminate()
        assert agent.wait(PATIENCE_S) == 0


def test_the_simulator_plays_on_though_nobody_reads_its_log(watch: Watch) -> None:
    heard: list[JointState] = []
    watch.node.create_subscription(JointState, "joint_states", heard.append, qos_profile_sensor_data)
    with (
        full_pipe() as descriptor,
        node("sim.bridge.node", descriptor, {"seed": 0}, "-r", "action:=refused") as bridge,
    ):
        watch.until(lambda: heard, "joint states")
        action = watch.node.create_publisher(Float64MultiArray, "refused", 10)
        for _ in range(20):
            action.publish(Float64MultiArray(data=[float("nan")]))  # each refusal is a line
        count = len(heard)
        watch.until(lambda: len(heard) > count + 3, "it plays on")
        bridge.terminate()
        assert bridge.wait(PATIENCE_S) == 0


def test_the_supervisor_restarts_though_nobody_reads_its_log(watch: Watch, tmp_path: Path) -> None:
    """The actuator ends at once, again and again: each time there is news."""
    config = tmp_path / "one.yaml"
    config.write_text(
        "supervisor: {ros__parameters: {processes: [actuator]}}\nactuator: {ros__parameters: {checkpoint: pusht}}\n"
    )
    command = [sys.executable, "-m", "auras_ros.cli.main", "run", str(config)]
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    with full_pipe() as descriptor:
        supervisor = subprocess.Popen(command, stdout=descriptor, stderr=descriptor, env=env, cwd=ROOT)
        try:
            watch.until(lambda: watch.states, "the actuator's state")
            first = children_of(supervisor.pid)
            os.kill(first[0], 9)
            end_s = time.monotonic() + PATIENCE_S
            while not (now := children_of(supervisor.pid)) or now == first:
                assert supervisor.poll() is None
                assert time.monotonic() < end_s
                time.sleep(0.05)
            supervisor.terminate()
            assert supervisor.wait(PATIENCE_S) == 0
        finally:
            supervisor.kill()
            supervisor.wait()


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]
