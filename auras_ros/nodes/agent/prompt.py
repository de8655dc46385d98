"""Which prompt chunks are for: the newest that was taken, and what was refused.

A prompt is a small text that is not trusted: what is none is refused and counted.
"""

from __future__ import annotations

import unicodedata

from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level
from auras_ros.ros import Node

PROMPT = "prompt"
SHOWN_CHARS = 80


def prompt_refusal(text: str, limit_bytes: int) -> str:
    """Why a prompt is not taken; empty if it is. Looks at the length first: a huge one costs nothing."""
    if len(text) > limit_bytes or len(text.encode("utf-8", "surrogatepass")) > limit_bytes:
        return f"prompt: longer than {limit_bytes} bytes"
    if "\ufffd" in text:  # rclpy puts it in the place of bytes that are no UTF-8
        return "prompt: not UTF-8"
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):  # control, surrogate
            return f"prompt: not text: it has the character U+{ord(character):04X}"
    return ""


class PromptGate:
    """The newest prompt that was taken, and what was refused: no text at all, or one that the policy cannot use.

    text: what is wanted; before the first message what the policy was made with, where it takes a prompt. active: the
    one that the policy runs, where it takes one; None: it takes none, and every text will do. Written by the executor's
    thread and by that which makes token ids, read by any.
    """

    def __init__(self, node: Node, limit_bytes: int, active: str | None = None, trouble: str = "") -> None:
        """trouble: what keeps other prompts than the stored one from being used."""
        self._node, self._limit_bytes, self._trouble = node, limit_bytes, trouble
        self.text, self.active = active or "", active
        self.accepted, self.refused, self._refusal = 0, 0, ""
        self._unusable = "", ""  # a text, and why not

    def offer(self, text: str) -> bool:
        """Whether it is a new prompt that is taken."""
        self._refusal = prompt_refusal(text, self._limit_bytes)
        if self._refusal:
            self.refused += 1
            self._node.get_logger().warning(f"refused: {self._refusal}", throttle_duration_sec=1.0)
            return False
        self.accepted += 1
        changed, self.text = text != self.text, text
        return changed

    def unusable(self, text: str, reason: str) -> None:
        """The policy cannot run this one."""
        self._unusable = text, reason
        self._node.get_logger().error(f"no chunk is published: {reason}")

    @property
    def holds(self) -> str:
        """What keeps chunks back; empty if nothing does."""
        if self.active is None or self.active == self.text:
            return ""
        text, reason = self._unusable
        return reason if text == self.text else "prompt: is being set"

    def check(self) -> DiagnosticReport:
        values: dict[str, object] = {"prompt": _shown(self.text), "accepted": self.accepted, "refused": self.refused}
        if self.active is not None:
            values |= {"in_force": _shown(self.active), "tokenizer": self._trouble or "ready"}
        if reason := self.holds:
            return DiagnosticReport(Level.ERROR, f"no chunk is published: {reason}", values)
        if self._refusal:
            return DiagnosticReport(Level.WARN, f"the newest was refused: {self._refusal}", values)
        return DiagnosticReport(Level.OK, "prompt in force" if self.text else "no prompt", values)


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
