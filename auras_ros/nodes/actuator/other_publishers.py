"""Which nodes publish on the command topics beside this actuator, as the ROS graph shows.

Every publisher that DDS knows counts. A process that was killed is known for a while longer, and nothing in the graph
distinguishes it from one that is only stopped and may go on at any moment; so it counts as a conflict, and the message
says how long it is remembered. A new actuator does not discover processes that died earlier, so one that comes back
after a kill does not have to wait. The caller decides what to do about a conflict.
"""

from __future__ import annotations

from auras_ros.clock import MonotonicClock
from auras_ros.nodes.common.topic_causes import endpoint_node
from auras_ros.ros import BACKEND, Node

# A node that has just started has not discovered the others yet. Our layer finds them within a second. Fast DDS repeats
# its announcements more slowly: 2.3 s were seen on a busy machine with our profile, and 4.9 s without.
DISCOVERY_NS = 1_000_000_000 if BACKEND == "dds" else 3_000_000_000
FORGOTTEN = "whose process was killed is forgotten after 10 s (Cyclone DDS) or 20 s (Fast DDS)"


def conflict_text(others: tuple[str, ...]) -> str:
    """The conflict as text: the other nodes, and how long a killed one is remembered."""
    return f"conflict: {', '.join(others)} publishes commands too (one {FORGOTTEN})"


class OtherPublishers:
    """Call `look` at most a few times a second, in the executor's thread."""

    def __init__(self, node: Node, topics: tuple[str, ...]) -> None:
        self._node, self._topics, self._clock = node, topics, MonotonicClock()
        self._begin_ns = self._clock.now_ns()
        self.others: tuple[str, ...] = ()

    @property
    def known(self) -> tuple[str, ...] | None:
        """The others; None if there are none, but discovery may not have ended."""
        early = self._clock.now_ns() - self._begin_ns < DISCOVERY_NS
        return None if early and not self.others else self.others

    def look(self) -> bool:
        """Read the graph. Returns whether the others have changed."""
        before, self.others = self.others, tuple(name for topic in self._topics for name in self._on(topic))
        return self.others != before

    def _on(self, topic: str) -> list[str]:
        mine = self._node.get_fully_qualified_name()
        found = [endpoint_node(info) for info in self._node.get_publishers_info_by_topic(topic)]
        if mine in found:
            found.remove(mine)  # only once: a second publisher of this name is another process
        return [f"{name} on {topic}" for name in found]
