"""Whether the agent that drives is alive, and in a state in which it may drive.

Heartbeats are passed in with their time of arrival; nothing here reads a clock or acts on the result.
"""

from __future__ import annotations

import re

from auras_ros.checkpoints.identity import DIGEST_CHARACTERS
from auras_ros.nodes.actuator.arming import ACTIVE
from auras_ros.nodes.common.texts import MessageError

# The texts of a heartbeat, with their longest length.
TEXTS = {"session": 64, "lifecycle": 32, "state": 200, "pause": 200, "checkpoint": DIGEST_CHARACTERS}
_DIGEST = re.compile(r"[0-9a-f]*")
SHOWN_DIGITS = 12


class AgentWatch:
    """`on_heartbeat` is called in the executor's thread, `lost` in any. checkpoint: digest of the actuator's own, which
    the agent's has to equal."""

    def __init__(self, timeout_ms: float, checkpoint: str) -> None:
        self._timeout_ns = timeout_ms * 1e6
        self._own_checkpoint = checkpoint
        self.checkpoint = ""  # digest of what the agent has loaded, in the newest heartbeat from any session
        self.session = self.lifecycle = self.state = self._pause = ""  # of the newest heartbeat from any session
        self.pause = ""  # why the followed session wants to hold
        self.beat_ns: int | None = None
        self._followed_ns: int | None = None  # the newest heartbeat of the session whose chunks are taken

    def on_heartbeat(self, beat: dict[str, object], followed: str | None, now_ns: int) -> str:
        """Note a heartbeat. Returns why the followed session must not drive any more: it is not active, or has another
        checkpoint; empty if it may.

        `followed`: the session whose chunks are taken; None before the first chunk, when every heartbeat counts.
        Heartbeats of another session do not count for the one that drives. Raises MessageError.
        """
        self.session, self.lifecycle, self.state, self._pause, self.checkpoint = _texts(beat)
        self.beat_ns = now_ns
        if followed is not None and followed != self.session:
            return ""
        self._followed_ns, self.pause = now_ns, self._pause
        if self.lifecycle != ACTIVE:
            return f"agent is {self.lifecycle or 'of no known state'}"
        return f"the agent {self.other_checkpoint}" if self.other_checkpoint else ""

    @property
    def other_checkpoint(self) -> str:
        """What is wrong with the checkpoint in the newest heartbeat, as the end of a sentence about the agent; empty if
        it is the actuator's."""
        if not self.checkpoint:
            return "does not report its checkpoint's digest: it is older than this actuator, or another program"
        if self.checkpoint != self._own_checkpoint:
            other, own = self.checkpoint[:SHOWN_DIGITS], self._own_checkpoint[:SHOWN_DIGITS]
            return f"runs another checkpoint (digest {other}) than the actuator (digest {own}): give both the same"
        return ""

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
    """Session, lifecycle, state, pause and checkpoint of a heartbeat. Raises MessageError."""
    if "session" not in beat:
        raise MessageError("heartbeat: session: missing")
    found = []
    for name, limit in TEXTS.items():
        text = beat.get(name, "")
        if not isinstance(text, str) or len(text) > limit:
            raise MessageError(f"heartbeat: {name}: expected a text of at most {limit} characters")
        found.append(text)
    if not _DIGEST.fullmatch(found[-1]):
        raise MessageError("heartbeat: checkpoint: expected hexadecimal digits")
    return found
