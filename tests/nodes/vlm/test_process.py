"""The process: started by `auras run`, asked over topics, refused by name, ended."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from auras_ros.exit_status import BROKEN
from auras_ros.nodes.vlm import node as vlm
from auras_ros.ros.msg import String
from tests.nodes.wire import BEST_EFFORT, RELIABLE, Children, Watch
from tests.portability.asking import Parameters


def test_auras_run_starts_it_and_ends_it(vlm_folder: Path, children: Children, watch: Watch, tmp_path: Path) -> None:
    """It configures and activates itself, in a process of its own."""
    sections: dict[str, Any] = {
        "supervisor": {"processes": ["vlm"]},
        "vlm": {"checkpoint": f"./{vlm_folder.name}", "max_tokens": 4},
    }
    path = vlm_folder.parent / "mine.yaml"
    path.write_text(yaml.safe_dump({name: {"ros__parameters": values} for name, values in sections.items()}))
    child = children(sys.executable, "-m", "auras_ros.cli.main", "run", str(path))
    beats: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    watch.node.create_subscription(String, "vlm/heartbeat", lambda m: beats.append(json.loads(m.data)), BEST_EFFORT)
    watch.node.create_subscription(String, "answer", lambda m: answers.append(json.loads(m.data)), RELIABLE)
    questions = watch.node.create_publisher(String, "question", RELIABLE)
    watch.until(lambda: beats and beats[-1]["lifecycle"] == "active", "an active node")
    watch.until(questions.get_subscription_count, "a node that can be asked")
    questions.publish(String(data="where is the tee?"))
    watch.until(lambda: answers, "an answer")
    assert (answers[0]["finish"] in ("stop", "length"), answers[0]["question"]) == (True, "where is the tee?")
    watch.until(lambda: beats[-1]["state"] == "running" and beats[-1]["frame"], "it says that it runs")
    child.send(signal.SIGINT)
    watch.until(lambda: beats[-1]["lifecycle"] == "finalized", "its last heartbeat")
    assert child.wait() == 0, child.output
    assert "running vlm; Ctrl-C stops them" in child.output
    assert "Traceback" not in child.output


def test_what_names_files_is_read_only_over_the_wire(vlm_folder: Path, children: Children, watch: Watch) -> None:
    """Adapters and task heads too, which are loaded while it runs where `remote_configuration` is true."""
    children.node("vlm", {"checkpoint": str(vlm_folder), "autostart": False})
    parameters = Parameters(watch, "vlm")
    files = {"checkpoint": "pusht-vlm", "loras": "way=pusht-monitor/way", "lora_ways": "/tmp/x", "swap_folder": "/tmp"}
    for name, value in {**files, "stage_profile": "/tmp/x", "remote_configuration": True}.items():
        [(successful, reason)] = parameters.set(**{name: value})
        assert (successful, "read-only" in reason) == (False, True), (name, reason)
    assert not parameters.set_together(max_tokens=3, loras="way=pusht-monitor/way")[0]
    assert parameters.set(max_tokens=4) == [(True, "")]
    assert (parameters.get("max_tokens"), parameters.get("loras")) == (4, "")


HANGS = """
import threading
import auras_ros.nodes.common.heartbeat as heart
from auras_ros.engine.workers import DecodeWorker
heart.HUNG_NS, heart.HUNG_LIMITS = 10**9, 1
DecodeWorker.__call__ = lambda *words: threading.Event().wait()
"""


def test_a_forward_that_hangs_is_reported_and_ends_the_process(
    vlm_folder: Path, children: Children, watch: Watch
) -> None:
    """The supervisor starts it again; agent and actuator are other processes."""
    child = children.node("vlm", {"checkpoint": str(vlm_folder), "late_ms": 200.0}, code=HANGS)
    states: list[str] = []
    watch.node.create_subscription(
        String, "vlm/heartbeat", lambda m: states.append(json.loads(m.data)["state"]), BEST_EFFORT
    )
    questions = watch.node.create_publisher(String, "question", RELIABLE)
    watch.until(lambda: states and states[-1] == "running", "an active node")
    watch.until(questions.get_subscription_count, "a node that can be asked")
    questions.publish(String(data="where is the tee?"))
    assert child.wait() == BROKEN
    watch.until(lambda: "hung: decode does not end" in states, "its last words")
    assert "late: decode has been running for more than 0.2 s" in states
    assert "no heartbeat until it ends\n" in child.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["checkpoint:=/no/such/folder"], "checkpoint folder not found: /no/such/folder"),
        ([], "checkpoint '': expected the name of one that ships, or a folder"),
        (["running:=0"], "vlm: running: must be in [1, 256], got 0"),
        (["kv_mbi:=3"], "vlm: no parameter 'kv_mbi'; did you mean kv_mib?"),
        (["cameras:=top", "camera:=side"], "vlm: camera: 'side' is not one of `cameras`"),
    ],
    ids=str,
)
def test_what_cannot_be_started_is_status_2_and_one_line(
    words: list[str], said: str, domain: int, capfd: pytest.CaptureFixture[str]
) -> None:
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    arguments = [part for word in ["autostart:=true", *words] for part in ("-p", word)]
    try:
        assert vlm.main(["vlm", "--ros-args", *arguments]) == 2
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    lines = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("[INFO]")]
    assert len(lines) == 1
    assert said in lines[0]
