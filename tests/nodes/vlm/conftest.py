"""A node `vlm` in this process with a tiny random model, a camera, and somebody who asks: over the real wire."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from auras_ros.engine.workers import DecodeWorker
from auras_ros.nodes.common.loaded_node import SUCCESS
from auras_ros.nodes.vlm.node import VlmNode
from auras_ros.ros import Parameter, QoSProfile, ReliabilityPolicy
from auras_ros.ros.image import image_message
from auras_ros.ros.msg import Image, String
from tests.nodes.diagnosed import Diagnosed
from tests.nodes.wire import RELIABLE, Watch, own_domain

TEXT = "the tee is on its goal"
SENSOR = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)

CHANGED = ("camera", "standing", "camera_age_limit_ms", "max_age_ms", "running", "waiting", "system", "checkpoint")
CHANGED += (
    "frames_kept",
    "length",
    "question_limit_bytes",
    "cores",
    "threads",
    "loras",
    "max_loras",
    "max_lora_rank",
    "kv_mib",
    "scheduler",
)


class Gate:
    """While closed, decode waits: answers are under way for as long as a test needs."""

    def __init__(self) -> None:
        self._open, self.waits = threading.Event(), threading.Event()
        self._open.set()

    def close(self) -> None:
        self.waits.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def passed(self) -> None:
        if not self._open.is_set():
            self.waits.set()
            self._open.wait()


class Bench:
    """The node, and what is heard of it. Everything is done in `until`."""

    def __init__(self, node: VlmNode, watch: Watch, gate: Gate) -> None:
        self.node, self.watch, self.gate = node, watch, gate
        self.answers: list[dict[str, Any]] = []
        self.pieces: list[dict[str, Any]] = []
        self.diagnosed = Diagnosed(watch)
        own = watch.node
        own.create_subscription(String, "answer", lambda m: self.answers.append(json.loads(m.data)), RELIABLE)
        own.create_subscription(String, "answer/stream", lambda m: self.pieces.append(json.loads(m.data)), RELIABLE)
        self._questions = own.create_publisher(String, "question", RELIABLE)
        self._images = {
            name: own.create_publisher(Image, f"camera/{name}/image_raw", SENSOR) for name in ("top", "side")
        }
        self.question_topic, self.image_topic = self._questions, self._images["top"]
        watch._executor.add_node(node)
        self.asked = 0
        self._configured: dict[str, Any] | None = None
        self.defaults = {name: node.get_parameter(name).value for name in CHANGED}

    def ready(self) -> None:
        """Whoever is to hear is found."""
        topics = [self._questions, *self._images.values()]
        self.watch.until(lambda: all(each.get_subscription_count() for each in topics), "the node's subscriptions")
        outputs = (self.node._answers._answers, self.node._answers._pieces)
        self.watch.until(lambda: all(each.get_subscription_count() for each in outputs), "the asker's subscriptions")

    def ask(self, text: str | None = None, **fields: Any) -> str:
        """Publish a question; returns its id."""
        self.asked += 1
        name = f"q{self.asked}"
        said = {"text": TEXT, "id": name, "max_tokens": 4, **fields}
        self._questions.publish(String(data=json.dumps(said) if text is None else text))
        return name

    def answer(self, name: str) -> dict[str, Any]:
        """The answer with this id."""
        self.watch.until(lambda: any(each["id"] == name for each in self.answers), f"an answer to {name}")
        return next(each for each in self.answers if each["id"] == name)

    def next_answer(self, do: Callable[[], Any]) -> dict[str, Any]:
        """The first answer after this."""
        count = len(self.answers)
        do()
        self.watch.until(lambda: len(self.answers) > count, "an answer")
        return self.answers[count]

    def image(self, camera: str = "top", stamp_ns: int = 0, **changes: Any) -> int:
        """Publish an image, and wait until it is taken or refused; returns its stamp."""
        stamp_ns = stamp_ns or time.time_ns()
        pixels = np.random.default_rng(stamp_ns).integers(0, 256, (48, 64, 3), np.uint8)
        message = image_message(pixels, stamp_ns=stamp_ns, frame_id=camera, encoding="rgb8")
        for field, value in changes.items():
            setattr(message, field, value)
        cameras = self.node.status.configured.cameras  # type: ignore[union-attr]

        def came() -> tuple[int, int]:
            return cameras._slots[camera].counters()["received"], cameras._counters._refused[camera]

        before = came()
        self._images[camera].publish(message)
        self.watch.until(lambda: came() != before, f"an image of {camera}")
        return stamp_ns

    def fresh(self, **parameters: Any) -> None:
        """Active, configured with these parameters, and with all others as at first."""
        if parameters != self._configured or self.node.status.lifecycle != "inactive":
            self.stop()
            assert all(each.successful for each in self.set(**parameters))
            assert self.node.trigger_configure() == SUCCESS
            self._configured = parameters
        assert self.node.trigger_activate() == SUCCESS
        self.ready()
        self.answers.clear()

    def set(self, **parameters: Any) -> list[Any]:
        """These, and all others as at first."""
        given = {**self.defaults, **parameters}
        return list(self.node.set_parameters([Parameter(name, value=value) for name, value in given.items()]))

    def halt(self) -> None:
        self.gate.open()
        if self.node.status.lifecycle == "active":
            self.node.trigger_deactivate()

    def stop(self) -> None:
        self.halt()
        if self.node.status.lifecycle == "inactive":
            self.node.trigger_cleanup()


@pytest.fixture(scope="module")
def _bench(vlm_folder: Path) -> Iterator[Bench]:
    gate = Gate()
    with own_domain(), pytest.MonkeyPatch.context() as patched:
        run = DecodeWorker.__call__
        patched.setattr(DecodeWorker, "__call__", lambda self, dispatch: (gate.passed(), run(self, dispatch))[1])
        watch = Watch(actuator="")
        given: dict[str, Any] = {"checkpoint": str(vlm_folder), "cameras": "top,side", "camera_age_limit_ms": 60000.0}
        given["remote_configuration"] = True
        node = VlmNode(parameter_overrides=[Parameter(name, value=value) for name, value in given.items()])
        bench = Bench(node, watch, gate)
        node.start()
        yield bench
        bench.stop()
        node.halt()
        node.destroy_node()
        watch.close()


@pytest.fixture
def bench(_bench: Bench) -> Iterator[Bench]:
    """Not active."""
    yield _bench
    _bench.halt()
