"""Tries a grammar in a child process before this one compiles it.

What llguidance compiles cannot be sent from one process to another. So the child only shows that the same text, with
the same tokenizer, compiles and gives its first mask within limits of time and memory (`grammar_child`); then this
process compiles it itself, which cannot take more.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from auras_ros.child.process import ChildProcess, ChildStart, ProcessLostError
from auras_ros.engine.request import EngineClosedError, Grammar, InvalidRequestError

MODULE = "auras_ros.engine.grammar_child"
MOST_KNOWN = 1024  # grammars that are remembered as good


class GrammarTrials:
    """For one tokenizer. The child process starts with the first grammar. Safe in several threads, one at a time."""

    def __init__(self, tokenizer: str, stop_ids: Sequence[int]) -> None:
        """tokenizer: its JSON text."""
        self._tokenizer, self._stop_ids = tokenizer, list(stop_ids)
        self._child: ChildProcess | None = None
        self._closed = False
        self._asking = threading.Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def check(self, grammar: Grammar) -> None:
        """Raises InvalidRequestError, with what is wrong with the grammar; EngineClosedError after `close`."""
        key = hashlib.sha256(json.dumps([grammar.kind, grammar.whitespace, grammar.text]).encode()).digest()
        with self._asking:
            if key in self._known:
                self._known.move_to_end(key)
                return
            refusal = self._ask(grammar)
            if refusal:
                raise InvalidRequestError(f"{grammar.kind}: {refusal}")
            self._known[key] = None
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)

    @property
    def pid(self) -> int | None:
        """Of the child process; None while there is none."""
        return None if self._child is None else self._child.pid

    def close(self) -> None:
        """Ends the child process, also while it compiles."""
        self._closed = True
        if (child := self._child) is not None:
            child.close()

    def _ask(self, grammar: Grammar) -> str:
        if self._closed:
            raise EngineClosedError("the engine is closed")
        if self._child is None:
            order = {"tokenizer": self._tokenizer, "stop_ids": self._stop_ids}
            start = ChildStart(MODULE, order)
            self._child = ChildProcess("engine", "grammar compiler", Path(sys.executable), start)
        try:
            order = {"kind": grammar.kind, "text": grammar.text, "whitespace": grammar.whitespace}
            answer, _ = self._child.ask("compile", order)
        except ProcessLostError as error:
            self._child = None  # the next grammar starts another one
            if self._closed:
                raise EngineClosedError("the engine is closed") from error
            return f"it was not compiled: {str(error).splitlines()[0]}"
        return str(answer["refusal"])
