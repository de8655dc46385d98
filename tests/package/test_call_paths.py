"""docs/call-paths.md against the program: the calls in its order, at most five from one end to the other."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from auras_ros import resources
from auras_ros.clock import MonotonicClock
from auras_ros.loading.pipeline import PipelineSettings, example, load_pipeline
from auras_ros.measure.feed import Feed
from auras_ros.pipeline.live import Live
from auras_ros.pipeline.plan import Plan
from tests.package.count_lines import ROOT

PAGE = (ROOT / "docs" / "call-paths.md").read_text(encoding="utf-8")
CALL = re.compile(r"`([a-z_0-9/]+\.py)` `(\w+)`")
MOST, LIMIT_S = 5, 120.0
Call = tuple[str, str]  # file below auras_ros, function


def numbered(after: str) -> list[Call]:
    """The first call of each line of the first numbered list after this text."""
    lines = PAGE.split(after, 1)[1].lstrip().splitlines()
    items = [line for line in lines[: lines.index("")] if re.match(r"\d+\. ", line)]
    return [CALL.findall(line)[0] for line in items]


def ours(frames: Sequence[tuple[str, str]]) -> list[Call]:
    """Of (file, function) of a stack, from the outside in, what counts."""
    found = [(file.split("/auras_ros/")[-1], name) for file, name in frames if "/auras_ros/" in file]
    return [(file, name) for file, name in found if name != "<module>" and not file.startswith("ros/dds/")]


PROBE = """
import json, os, subprocess, threading, traceback

def noted(kind, what):
    stack = [(frame.filename, frame.name) for frame in traceback.extract_stack()[:-2]]
    with open(os.environ["CALL_PATHS"], "a") as file:
        file.write(json.dumps([kind, what, stack]) + chr(10))

start, make = threading.Thread.start, subprocess.Popen.__init__

def started(thread):
    noted("thread", thread.name)
    start(thread)

def made(self, command, *rest, **more):
    noted("process", list(map(str, command)))
    make(self, command, *rest, **more)

threading.Thread.start, subprocess.Popen.__init__ = started, made
"""


@pytest.mark.slow
def test_from_the_command_to_the_loop(tmp_path: Path, ros_domain_id: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(PROBE)
    config, found = tmp_path / "agent.yaml", tmp_path / "found"
    config.write_text(
        "supervisor: {ros__parameters: {processes: [agent], respawn: false}}\n"
        "agent: {ros__parameters: {checkpoint: pusht, plan: quick}}\n"
    )
    environment = {**os.environ, "CALL_PATHS": str(found), "ROS_DOMAIN_ID": str(ros_domain_id)}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
    command = [sys.executable, "-c", "from auras_ros.cli.main import main; main()", "run", str(config)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    stacks: dict[str, list[Call]] = {}
    try:
        until = time.monotonic() + LIMIT_S
        while len(stacks) < 2 and time.monotonic() < until:
            time.sleep(0.2)
            for line in found.read_text().splitlines() if found.exists() else ():
                kind, what, stack = json.loads(line)
                if what == "frame" or (kind == "process" and "auras_ros.nodes.agent.node" in what):
                    stacks[kind] = ours(stack)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert stacks["process"] == numbered("which starts the others:")
    assert stacks["thread"] == numbered("In the agent's process:")
    assert max(map(len, stacks.values())) <= MOST


ROWS = [line for line in PAGE.splitlines() if line.startswith("| `ddim")]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("`")[1] for row in ROWS])
def test_from_the_loop_to_the_network(row: str) -> None:
    folder, settings = resources.checkpoint("pusht"), PipelineSettings()
    pipeline = load_pipeline(folder, Plan.parse(row.split("`")[1]), settings, MonotonicClock())
    stacks, over = dict[str, list[Call]](), threading.Event()

    def note(name: str) -> None:
        stacks[name] = ours([(frame.filename, frame.name) for frame in traceback.extract_stack()])

    policy: Any = pipeline.checkpoint.networks
    hooks = [module.register_forward_pre_hook(lambda *_, name=name: note(name)) for name, module in policy.items()]
    seen = example(pipeline.checkpoint)
    live = Live(pipeline.executor, Feed([(seen.images, seen.state)]), lambda emission: over.set())
    live.start()
    try:
        assert over.wait(LIMIT_S)
    finally:
        live.halt(LIMIT_S)
        for hook in hooks:
            hook.remove()
    loop = ("pipeline/live.py", "_loop")
    assert stacks["network"][-len(CALL.findall(row)) - 1 :] == [loop, *CALL.findall(row)]
    for stack in stacks.values():
        below = stack[stack.index(loop) + 1 :]
        below = below[below.index(("device/cpu.py", "launch")) - 1 :]
        assert len(below) <= MOST, below


def test_every_call_on_the_page_exists() -> None:
    calls = CALL.findall(PAGE)
    assert len(calls) > 40
    for file, name in calls:
        tree = ast.parse((ROOT / "auras_ros" / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, f"{file}: {name}"
