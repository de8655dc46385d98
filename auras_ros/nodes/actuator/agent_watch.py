"""Whether the agent that drives is alive, and in a state in which it may drive.

Heartbeats are passed in with their time of arrival; nothing here reads a clock or acts on the result.
"""

from __future__ import annotations

from auras_ros.nodes.actuator.arming import ACTIVE
from auras_ros.nodes.common.texts import MessageError

TEXTS = {"session": 64, "lifecycle": 32, "state": 200, "pause": 200}  # of a heartbeat, with their longest length


class AgentWatch:
    """`on_heartbeat` is called in the executor's thread, `lost` in any."""

    def __init__(self, timeout_ms: float) -> None:
        self._timeout_ns = timeout_ms * 1e6
        self.session = self.lifecycle = self.state = self._pause = ""  # of the newest heartbeat from any session
        self.pause = ""  # why the followed session wants to hold
        self.beat_ns: int | None = None
        self._followed_ns: int | None = None  # the newest heartbeat of the session whose chunks are taken

    def on_heartbeat(self, beat: dict[str, object], followed: str | None, now_ns: int) -> bool:
        """Note a heartbeat. Returns whether it reports that the followed session is not active.

        `followed`: the session whose chunks are taken; None before the first chunk, when every heartbeat counts.
        Heartbeats of another session do not count for the one that drives. Raises MessageError.
        """
        self.session, self.lifecycle, self.state, self._pause = _texts(beat)
        self.beat_ns = now_ns
        if followed is not None and followed != self.session:
            return False
        self._followed_ns, self.pause = now_ns, self._pause
        return self.lifecycle != ACTIVE

    def follow(self) -> None:
        """Called at arming: until the first chunk names a session, the newest heartbeat counts."""
        self._followed_ns, self.pause = self.beat_ns, self._pause

    def age_ns(self, now_ns: int) -> int | None:
        """Age of the newest heartbeat; None if none came."""
        return None if self.beat_ns is None else now_ns - self.beat_ns

    def lost(self, now_ns: int) -> bool:
        """Whether the followed session has been silent for too long."""
        beat_ns = self._followed_ns
        return beat_ns is None or now_ns - beat_ns > self._timeout_ns


def _texts(beat: dict[str, object]) -> list[str]:
    """Session, lifecycle, state and pause of a heartbeat. Raises MessageError."""
    if "session" not in beat:
        raise MessageError("heartbeat: session: missing")
    found = []
    for name, limit in TEXTS.items():
        text = beat.get(name, "")
        if not isinstance(text, str) or len(text) > limit:
            raise MessageError(f"heartbeat: {name}: expected a text of at most {limit} characters")
        found.append(text)
    return found
