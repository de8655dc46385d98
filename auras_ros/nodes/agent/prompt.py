"""Which prompt a chunk may answer: everything between the topic and what is published.

A prompt is a short, untrusted text; an invalid one is refused and counted. A new one stops the chunks at once,
because a robot must not continue the old task. Its token ids are made in a thread of its own, so that no frame waits
for a tokenizer, and become active together with a new epoch. One that the policy cannot use is reported, and no chunk
is published until another comes. A policy without language takes any text, which is only written to the provenance.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from auras_ros.nodes.common.diagnostics import DiagnosticReport, Level
from auras_ros.nodes.common.latest_worker import LatestWorker
from auras_ros.nodes.common.texts import text_refusal
from auras_ros.repeated_lines import RepeatedLines

PROMPT = "prompt"
SHOWN_CHARS = 80


class PromptLanguage(Protocol):
    """Texts to token ids, for one checkpoint (`policies.prompt.Language`)."""

    prompt: Any

    def prepare(self) -> str: ...

    def ids(self, text: str) -> Sequence[int]: ...


class PromptGate:
    """`want`, `refuse`, `run_instead`, `connect`, `close`: executor's thread. `ready`: tokenizer's thread. `answered`:
    whoever holds `lock`.

    lock: publishing a chunk and changing the prompt exclude each other. set_token_ids: hands the ids to every plan's
    policy; raises ValueError and keeps the old ones if it cannot. Locks are taken in the order `_changing`, the frames'
    boundary, `lock`, the ledger's; never the other way.
    """

    def __init__(
        self,
        language: PromptLanguage | None,
        set_token_ids: Callable[[Sequence[int]], None],
        limit_bytes: int,
        logger: Any,
    ) -> None:
        self.lock = threading.Lock()  # held for marks and for publishing, never during computation
        self._changing = threading.Lock()  # a prompt becomes active before there are frames, or at their boundary
        self._set_token_ids, self._limit_bytes, self._logger = set_token_ids, limit_bytes, logger
        self._tokenizer_error = "" if language is None else language.prepare()
        self.wanted = self.active = "" if language is None else language.prompt.text
        self._asked = self.wanted  # by the topic
        self._instead: str | None = None  # what runs instead of it
        self._since_epoch = 0  # chunks of this epoch and later answer `active`
        self._unusable = "", ""  # a text, and why it cannot become active
        self.accepted, self.refused, self._refusal = 0, 0, ""
        self._lines = RepeatedLines()
        self._begin_epoch: Callable[[Callable[[], None]], None] = lambda change: change()  # no frames yet: at once
        self._next_epoch: Callable[[], int] = lambda: 0
        self._tokenizer: LatestWorker[str] | None = None
        if language is not None:
            self._tokenizer = LatestWorker("prompt", partial(self._tokenize, language), self._not_ready)

    def connect(self, begin_epoch: Callable[[Callable[[], None]], None], next_epoch: Callable[[], int]) -> None:
        """Frames are about to run. begin_epoch(change) calls `change` at their boundary, where an epoch begins whose
        number is next_epoch()."""
        with self._changing:
            self._begin_epoch, self._next_epoch = begin_epoch, next_epoch

    def want(self, text: str) -> None:
        """Take a message of the topic. An invalid one is refused and counted, and changes nothing."""
        if reason := text_refusal(PROMPT, text, self._limit_bytes):
            self.refuse(reason)
            return
        self._refusal = ""
        self.accepted += 1
        self._asked = text
        if self._instead is None:
            self._use(text)

    def refuse(self, reason: str) -> None:
        """Count a message of the topic that is no prompt."""
        self._refusal = reason
        self.refused += 1
        if line := self._lines.line(PROMPT, f"refused: {reason}"):
            self._logger.warning(line)

    def run_instead(self, text: str | None) -> None:
        """Run a prompt other than the one that the topic asked for, whatever comes there; None: that one again. text:
        checked as those of the topic are."""
        self._instead = text
        self._use(self._asked if text is None else text)

    def _use(self, text: str) -> None:
        if text == self.wanted:
            return
        if self._tokenizer is None:
            if line := self._lines.line("no language", "prompt: this policy has no language: a prompt changes nothing"):
                self._logger.warning(line)
            self._begin_epoch(lambda: self._activate(text, None))
            return
        with self.lock:  # from here on no chunk of another prompt is published
            self.wanted = text
        self._tokenizer.put("", text)

    def _tokenize(self, language: PromptLanguage, _: str, text: str) -> None:
        self.ready(text, language.ids(text))

    def _not_ready(self, text: str, error: Exception) -> None:
        """ValueError says itself what is wrong with the text; anything else is not the text's fault."""
        why = str(error) if isinstance(error, ValueError) else f"prompt: {error!r}"
        self._unusable = text, why
        self._logger.error(f"no chunk is published: {why}")

    def ready(self, text: str, ids: Sequence[int]) -> None:
        """Run this prompt from the next epoch on, unless a newer one is wanted. Raises ValueError if the policy cannot.

        A frame that is running may read parts of both; it belongs to the old epoch, and its chunk is dropped.
        """
        with self._changing:
            if text == self.wanted:
                self._begin_epoch(lambda: self._activate(text, ids))

    def _activate(self, text: str, ids: Sequence[int] | None) -> None:
        with self.lock:  # no chunk is published between setting the ids and the new epoch, which rises right after
            if ids is None:
                self.wanted = text
            else:
                self._set_token_ids(ids)
            self.active, self._since_epoch = text, self._next_epoch()

    def answered(self, epoch: int) -> str | None:
        """The prompt that a chunk of this epoch answers; None: it must not be published."""
        return self.active if self.active == self.wanted and epoch >= self._since_epoch else None

    @property
    def blocked_because(self) -> str:
        """Why no chunk is published; empty if nothing blocks. Any thread."""
        if self.active == self.wanted:
            return ""
        text, reason = self._unusable
        return reason if text == self.wanted else "prompt: being set"

    def check(self) -> DiagnosticReport:
        values: dict[str, object] = {"prompt": _shown(self.wanted), "accepted": self.accepted, "refused": self.refused}
        if self._tokenizer is not None:
            values |= {"active": _shown(self.active), "tokenizer": self._tokenizer_error or "ready"}
        if reason := self.blocked_because:
            return DiagnosticReport(Level.ERROR, f"no chunk is published: {reason}", values)
        if self._refusal:
            return DiagnosticReport(Level.WARN, f"the newest was refused: {self._refusal}", values)
        return DiagnosticReport(Level.OK, "prompt active" if self.wanted else "no prompt", values)

    def close(self) -> None:
        if self._tokenizer is not None:
            self._tokenizer.close()


def _shown(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."
