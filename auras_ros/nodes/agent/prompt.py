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
    """Why a prompt is refused; empty if it is accepted. The length is checked first, so a huge one costs nothing."""
    if len(text) > limit_bytes or len(text.encode("utf-8", "surrogatepass")) > limit_bytes:
        return f"prompt: longer than {limit_bytes} bytes"
    if "\ufffd" in text:  # rclpy replaces bytes that are not UTF-8 with it
        return "prompt: not UTF-8"
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):  # control, surrogate
            return f"prompt: not text: it contains the character U+{ord(character):04X}"
    return ""


class PromptGate:
    """The newest accepted prompt, and what was refused: malformed text, or a prompt that the policy cannot use.

    text: the wanted prompt; before the first message the checkpoint's own. active: the prompt that the policy uses;
    None: the policy takes no prompt, and every text is accepted. Written by the executor's thread and the one that
    makes token ids, read by any.
    """

    def __init__(self, node: Node, limit_bytes: int, active: str | None = None, trouble: str = "") -> None:
        """trouble: why only the stored prompt can be used; empty if any can."""
        self._node, self._limit_bytes, self._trouble = node, limit_bytes, trouble
        self.text, self.active = active or "", active
        self.accepted, self.refused, self._refusal = 0, 0, ""
        self._unusable = "", ""  # a text, and why it cannot be used

    def offer(self, text: str) -> bool:
        """Returns whether the text is accepted and differs from the previous one."""
        self._refusal = prompt_refusal(text, self._limit_bytes)
        if self._refusal:
            self.refused += 1
            self._node.get_logger().warning(f"refused: {self._refusal}", throttle_duration_sec=1.0)
            return False
        self.accepted += 1
        changed, self.text = text != self.text, text
        return changed

    def unusable(self, text: str, reason: str) -> None:
        """Note that the policy cannot use this prompt."""
        self._unusable = text, reason
        self._node.get_logger().error(f"no chunk is published: {reason}")

    @property
    def holds(self) -> str:
        """Why no chunk is published; empty if chunks are."""
        if self.active is None or self.active == self.text:
            return ""
        text, reason = self._unusable
        return reason if text == self.text else "prompt: being set"

    def check(self) -> DiagnosticReport:
        values: dict[str, object] = {"prompt": _shown(self.text), "accepted": self.accepted, "refused": self.refused}
        if self.active is not None:
            values |= {"in_force": _shown(self.active), "tokenizer": self._trouble or "ready"}
        if reason := self.holds:
            return DiagnosticReport(Level.ERROR, f"no chunk is published: {reason}", values)
        if self._refusal:
            return DiagnosticReport(Level.WARN, f"the newest was refused: {self._refusal}", values)
        return DiagnosticReport(Level.OK, "prompt active" if self.text else "no prompt", values)


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
