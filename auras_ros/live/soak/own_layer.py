"""A process on our own DDS layer that writes what no ROS node would write, beside a loop on any ROS.

It announces nodes with thousands of entities, and asks a service without ever reading the answers. `OwnLayer` starts it
and tells it what to write, one line of JSON each; it answers each line when that is on the wire.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import Any

MODULE = "auras_ros.live.soak.own_layer"
MATCH_S = 30.0  # for somebody who hears it
READY = "ready"


def available() -> bool:
    """Whether our own layer can run here, beside an rclpy too."""
    return find_spec("cyclonedds") is not None


class OwnLayerError(RuntimeError):
    """The process has ended, or nobody heard what it was to write."""


class OwnLayer:
    """The process, from the first `with` to its end. Needs `available()`."""

    def __enter__(self) -> OwnLayer:
        environment = os.environ | {"AURAS_ROS_BACKEND": "dds"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, start_new_session=True,
        )  # fmt: skip
        self._expect(READY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    @contextmanager
    def announcing(self, entities: Sequence[int]) -> Iterator[None]:
        """Announce a node with so many entities, for each number; they are gone after the block."""
        self._do(act="announce", entities=list(entities))
        try:
            yield
        finally:
            self._do(act="forget")

    @contextmanager
    def asking(self, service: str, request_type: str, rate_hz: float) -> Iterator[None]:
        """Ask a service so often for a block; nobody reads the answers. request_type: of the request, which has no
        field or begins with an empty sequence."""
        self._do(act="ask", service=service, request_type=request_type, rate_hz=rate_hz)
        try:
            yield
        finally:
            self._do(act="rest")

    def open(self, topic: str, ros_type: str, listeners: int = 1) -> None:
        """Make a writer on a topic of DDS, as `rq/actuator/stopRequest`, and wait until so many hear it. 0: of a type
        that nobody hears there."""
        self._do(act="open", topic=topic, ros_type=ros_type, listeners=listeners)

    def write(self, payload: bytes, count: int) -> None:
        """Write any bytes so many times with the writer of the newest `open`."""
        self._do(act="write", payload=payload.hex(), count=count)

    def _do(self, **command: Any) -> None:
        """Raises OwnLayerError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise OwnLayerError(f"the process on our own layer has ended: {error}") from error
        self._expect("done")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if line != word:
            raise OwnLayerError(f"the process on our own layer: {line or 'it has ended'}")


# -- the process --------------------------------------------------------------------------------------------


def announcer(participant: Any, entities: int) -> tuple[Any, list[Any]]:
    """A writer of the participant, and its announcement of so many entities. Others forget the announcement when the
    participant ends. rclpy keeps one that names no living participant for ever."""
    from auras_ros.nodes.common.qos import LATCHED
    from auras_ros.ros.dds.endpoint import Writer
    from auras_ros.ros.dds.messages import serialize
    from auras_ros.ros.msg import message_type

    gid_type = message_type("rmw_dds_common/msg/Gid")
    entity = gid_type(data=uuid.uuid4().bytes)
    node = message_type("rmw_dds_common/msg/NodeEntitiesInfo")(
        node_namespace="/", node_name="many", reader_gid_seq=[entity] * entities, writer_gid_seq=[]
    )
    kind = "rmw_dds_common/msg/ParticipantEntitiesInfo"
    gid = gid_type(data=participant.gid)
    payload = serialize(message_type(kind)(gid=gid, node_entities_info_seq=[node]))
    return Writer(participant, "ros_discovery_info", kind, LATCHED), payload


class Writers:
    """What the process writes with. Runs in a process whose ROS is our own layer."""

    def __init__(self, context: Any) -> None:
        self._participant = context.participant
        self._announcing: list[tuple[Any, Any]] = []  # participants, and the writer of each
        self._raw: list[Any] = []
        self._asker: Any = None
        self._rest = threading.Event()
        self._thread: threading.Thread | None = None

    def forget(self) -> None:
        while self._announcing:
            participant, _ = self._announcing.pop()
            participant.close()

    def announce(self, entities: Sequence[int]) -> None:
        from auras_ros.ros.dds.participant import Participant

        for count in entities:
            participant = Participant(self._participant.domain_id)
            writer, payload = announcer(participant, count)
            self._announcing.append((participant, writer))
            wait_until_heard(writer)
            writer.write(payload)

    def ask(self, service: str, request_type: str, rate_hz: float) -> None:
        from auras_ros.ros import qos_profile_services_default
        from auras_ros.ros.dds.endpoint import Writer

        identity = b"clientid=" + b".".join(b"%x" % octet for octet in uuid.uuid4().bytes) + b";"
        topic = f"rq/{service}Request"
        writer = Writer(self._participant, topic, request_type, qos_profile_services_default, identity)
        self._asker = writer
        wait_until_heard(writer)
        request = b"\0\1\0\0" + bytes(16) + b"\0\0\0\0"  # who asks, and no names
        self._rest.clear()

        def repeat() -> None:
            while not self._rest.wait(1.0 / rate_hz):
                writer.write([request])

        self._thread = threading.Thread(target=repeat, daemon=True)
        self._thread.start()

    def open(self, topic: str, ros_type: str, listeners: int) -> None:
        from auras_ros.live.soak.noise import NOISY
        from auras_ros.ros.dds.endpoint import Writer

        writer = Writer(self._participant, topic, ros_type, NOISY)
        wait_until_heard(writer, listeners)
        self._raw.append(writer)  # never closed: a writer that is takes back what was not yet delivered

    def write(self, payload: str, count: int) -> None:
        for _ in range(count):
            self._raw[-1].write([bytes.fromhex(payload)])

    def rest(self) -> None:
        self._rest.set()
        if self._thread is not None:
            self._thread.join()
        self._asker.close()


def wait_until_heard(writer: Any, listeners: int = 1) -> None:
    """Raises OwnLayerError if fewer hear the writer in time."""
    waiting = threading.Event()
    for _ in range(round(MATCH_S / 0.01)):
        if writer.matched_count() >= listeners:
            return
        waiting.wait(0.01)
    raise OwnLayerError(f"nobody was found within {MATCH_S:g} s who hears {writer.topic}")


def main() -> None:
    """Do what the lines on standard input say, until it is closed."""
    from auras_ros.ros import get_default_context, init

    init(args=[])
    writers = Writers(get_default_context())
    print(READY, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        act = getattr(writers, command.pop("act"))
        try:
            act(**command)
        except OwnLayerError as error:
            print(error, flush=True)
        else:
            print("done", flush=True)


if __name__ == "__main__":
    main()
