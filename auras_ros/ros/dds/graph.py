"""The ROS graph: the nodes of this participant, announced on ros_discovery_info, and those of all others.

The whole list is published again at each change, as rmw does. Endpoints of topics come from DDS's own
built-in topics. Announcements of others are bounded (`announced`). Nothing here calls a user's callback.
"""

from __future__ import annotations

import ctypes as ct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import announced, names
from . import library as dds
from .cdr import CdrError
from .endpoint import Reader, Writer
from .logger import get_logger
from .messages import message_type, serialize
from .participant import Participant
from .qos import DurabilityPolicy, HistoryPolicy, QoSProfile, profile_of

_TOPIC = "ros_discovery_info"
_WRITER_QOS = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_READER_QOS = QoSProfile(history=HistoryPolicy.KEEP_ALL, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_ALIVE = 0x10 | 0x0F  # alive instances, whatever their sample and view state
_DEAD = 0x20 | 0x40 | 0x0F  # disposed, or without a writer
_BATCH = 64
_EVERYBODYS = {"ros_discovery_info", "rt/rosout", "rt/parameter_events"}  # topics that every ROS participant has


@dataclass(frozen=True)
class TopicEndpointInfo:
    """One publisher or subscription of a topic; node name and namespace are empty until its node is known."""

    node_name: str
    node_namespace: str
    topic_type: str
    endpoint_gid: bytes
    qos_profile: QoSProfile  # reliability and durability; the rest is the default


class Graph:
    """Local nodes and their endpoints, and the known remote ones; thread-safe."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._lock = threading.RLock()
        self._local: dict[tuple[str, str], tuple[list[bytes], list[bytes]]] = {}  # node -> its readers and writers
        self._remote = announced.Announcements()
        self._writer = Writer(participant, _TOPIC, announced.INFO, _WRITER_QOS)
        self._reader = Reader(participant, _TOPIC, announced.INFO, _READER_QOS, ignore_own_participant=True)
        self._builtin: dict[int, int] = {}
        self.entity = self._reader.condition
        self._logger = get_logger("auras_ros.graph")
        self.ignored_count = 0  # announcements that were not kept

    @property
    def closed(self) -> bool:
        return self._reader.closed

    def add_node(self, namespace: str, name: str) -> bool:
        """Announce a node. Returns False if this participant already has one of that name."""
        with self._lock:
            existed = (namespace, name) in self._local
            self._local.setdefault((namespace, name), ([], []))
            self._announce()
            return not existed

    def remove_node(self, namespace: str, name: str) -> None:
        with self._lock:
            self._local.pop((namespace, name), None)
            self._announce()

    def set_endpoints(self, namespace: str, name: str, readers: Iterable[bytes], writers: Iterable[bytes]) -> None:
        """Announce the readers and writers that a node has now, by gid."""
        with self._lock:
            self._local[namespace, name] = list(readers), list(writers)
            self._announce()

    def _announce(self) -> None:
        if self._participant.closed:
            return
        gid_type = message_type("rmw_dds_common/msg/Gid")
        node_type = message_type("rmw_dds_common/msg/NodeEntitiesInfo")
        nodes = [
            node_type(
                node_namespace=namespace,
                node_name=name,
                reader_gid_seq=[gid_type(data=gid) for gid in readers],
                writer_gid_seq=[gid_type(data=gid) for gid in writers],
            )
            for (namespace, name), (readers, writers) in self._local.items()
        ]
        info = message_type(announced.INFO)(gid=gid_type(data=self._participant.gid), node_entities_info_seq=nodes)
        self._writer.write(serialize(info))

    def execute(self) -> None:
        """Take one announcement of another participant (the executor calls this if there is one)."""
        with self._lock:
            self._take()

    def _take(self) -> bool:
        received = self._reader.take()
        if received is None:
            return False
        try:
            self._remote.put(announced.read(received.payload))
        except CdrError as error:
            self.ignored_count += 1
            self._logger.warning(f"an announcement of nodes is ignored (logged once): {error}", once=True)
        if self._remote.full:  # even if nobody ever asks for the graph
            self._make_room()
        return True

    def _make_room(self) -> None:
        self._forget_gone()
        if self._remote.full and (count := self._remote.make_room(self._partners())):
            self.ignored_count += count
            text = (
                f"more than {announced.MAX_SUM_BYTES} bytes of nodes are announced, so some have no name (logged once)"
            )
            self._logger.warning(text, once=True)

    def _refresh(self) -> None:
        while self._take():
            pass
        self._forget_gone()

    def _forget_gone(self) -> None:
        self._remote.keep({participant for _, participant, _, _, _ in self._endpoints(dds.BUILTIN_PUBLICATION)})

    def _partners(self) -> set[bytes]:
        """Participants with an endpoint on a topic on which this one has an endpoint, too."""
        kinds, me = (dds.BUILTIN_PUBLICATION, dds.BUILTIN_SUBSCRIPTION), self._participant.gid
        mine = {topic for kind in kinds for _, whose, topic, _, _ in self._endpoints(kind) if whose == me}
        mine -= _EVERYBODYS
        return {whose for kind in kinds for _, whose, topic, _, _ in self._endpoints(kind) if topic in mine}

    def nodes(self) -> list[tuple[str, str]]:
        """(name, namespace) of every known node, this participant's first."""
        with self._lock:
            self._refresh()
            return [(name, namespace) for namespace, name in self._local] + self._remote.nodes()

    def endpoints_of(self, topic: str, *, publishers: bool) -> list[TopicEndpointInfo]:
        """The publishers or subscriptions of an absolute topic name, in this process and in others."""
        with self._lock:
            self._refresh()
            wanted, kind = names.dds_topic(topic), dds.BUILTIN_PUBLICATION if publishers else dds.BUILTIN_SUBSCRIPTION
            local = {gid: node[::-1] for node, ends in self._local.items() for gids in ends for gid in gids}
            return [
                TopicEndpointInfo(
                    *(local.get(gid) or self._remote.owner(whose, gid) or ("", "")), _ros_type(type_name), gid, profile
                )
                for gid, whose, name, type_name, profile in self._endpoints(kind)
                if name == wanted
            ]

    def other_participants(self) -> set[bytes]:
        """The participants (16 bytes each) of other processes that have a publisher or a subscription."""
        with self._lock:
            kinds = (dds.BUILTIN_PUBLICATION, dds.BUILTIN_SUBSCRIPTION)
            participants = {whose for kind in kinds for _, whose, _, _, _ in self._endpoints(kind)}
        return participants - {self._participant.gid}

    def topics(self) -> dict[str, set[str]]:
        """Absolute topic names and their ROS types."""
        found: dict[str, set[str]] = {}
        with self._lock:
            for kind in (dds.BUILTIN_PUBLICATION, dds.BUILTIN_SUBSCRIPTION):
                for _, _, name, type_name, _ in self._endpoints(kind):
                    if name.startswith("rt/"):
                        found.setdefault(name[2:], set()).add(_ros_type(type_name))
        return found

    def _endpoints(self, kind: int) -> Iterator[tuple[bytes, bytes, str, str, QoSProfile]]:
        """(gid, participant gid, DDS topic, DDS type, QoS) of every live endpoint of one kind."""
        if self._participant.closed:
            return
        if kind not in self._builtin:
            reader = dds.create_reader(self._participant.ref, kind, None, None)
            self._builtin[kind] = dds.check(reader, "built-in topic reader")
        reader = self._builtin[kind]
        _forget_dead(reader)
        room = _BATCH
        while True:
            samples, infos = (ct.c_void_p * room)(), (dds.SampleInfo * room)()
            count = dds.check(dds.read_mask(reader, samples, infos, room, room, _ALIVE), "built-in topic")
            try:
                if count < room:
                    for address, info in zip(samples[:count], infos, strict=False):
                        if info.valid_data:
                            yield _describe(dds.Endpoint.from_address(address or 0))
                    return
            finally:
                if count > 0:
                    dds.return_loan(reader, samples, count)
            room *= 4


def _forget_dead(reader: int) -> None:
    """Take the samples of deleted endpoints, which would otherwise stay in the reader as long as it exists."""
    samples, infos = (ct.c_void_p * _BATCH)(), (dds.SampleInfo * _BATCH)()
    count = _BATCH
    while count == _BATCH:
        count = dds.check(dds.take_mask(reader, samples, infos, _BATCH, _BATCH, _DEAD), "built-in topic")
        if count > 0:
            dds.return_loan(reader, samples, count)


def _describe(endpoint: dds.Endpoint) -> tuple[bytes, bytes, str, str, QoSProfile]:
    topic = (endpoint.topic_name or b"").decode("utf-8", "replace")
    type_name = (endpoint.type_name or b"").decode("utf-8", "replace")
    return bytes(endpoint.key), bytes(endpoint.participant_key), topic, type_name, profile_of(endpoint.qos)


def _ros_type(dds_type: str) -> str:
    """'sensor_msgs::msg::dds_::Image_' → 'sensor_msgs/msg/Image'; anything else unchanged."""
    parts = dds_type.split("::")
    if len(parts) == 4 and parts[2] == "dds_" and parts[3].endswith("_"):
        return f"{parts[0]}/{parts[1]}/{parts[3][:-1]}"
    return dds_type
