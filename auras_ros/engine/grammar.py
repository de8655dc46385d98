"""Answers that a grammar describes (a JSON schema, a regular expression and others), by llguidance (an extra).

A grammar is tried in a child process with limits of time and memory before it is compiled here (`grammar_trial`).
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from auras_ros.engine.grammar_limits import check_text, compile_matcher
from auras_ros.engine.grammar_trial import GrammarTrials
from auras_ros.engine.request import EngineClosedError, Grammar, InvalidRequestError
from auras_ros.panics import ExtensionPanicError, raising_panics

INSTALL = "pip install 'auras_ros[grammar]'"


class Matcher:
    """Which tokens may come next in one answer. kind: of its grammar."""

    def __init__(self, matcher: Any, vocabulary: int, kind: str) -> None:
        self._matcher, self._vocabulary, self.kind = matcher, vocabulary, kind

    def allowed(self) -> Tensor:
        """bool [vocabulary]."""
        with raising_panics():
            bias = bytearray(self._matcher.compute_logit_bias())
        given = torch.frombuffer(bias, dtype=torch.uint8)[: self._vocabulary]
        return torch.cat([given != 0, torch.zeros(self._vocabulary - len(given), dtype=torch.bool)])

    def accept(self, token: int) -> bool:
        """Whether the token may stand there; False also if the grammar became too complex."""
        with raising_panics():
            accepted: bool = self._matcher.consume_token(token)
        return accepted

    @property
    def complete(self) -> bool:
        """Whether nothing may follow but the end."""
        stopped: bool = self._matcher.is_stopped()
        return stopped


class Grammars:
    """Makes matchers for one tokenizer; that is prepared for it at the first one. Safe in several threads."""

    def __init__(self, tokenizer: Any, vocabulary: int, stop_ids: Iterable[int]) -> None:
        self._tokenizer, self._vocabulary, self._stop_ids = tokenizer, vocabulary, sorted(stop_ids)
        self._prepared: Any = None
        self._trials: GrammarTrials | None = None
        self._closed = False
        self._lock = threading.Lock()

    def check(self, grammar: Grammar) -> None:
        """Tries the grammar in a child process, for at most half a second of its CPU time.

        Raises InvalidRequestError, with what is wrong with the grammar; EngineClosedError after `close`.
        """
        if importlib.util.find_spec("llguidance") is None:
            raise InvalidRequestError(f"{grammar.kind}: needs the llguidance library: {INSTALL}")
        try:
            check_text(grammar.kind, grammar.text)
        except ValueError as error:
            raise InvalidRequestError(f"{grammar.kind}: {error}") from error
        with self._lock:
            if self._closed:
                raise EngineClosedError("the engine is closed")
            if self._trials is None:
                self._trials = GrammarTrials(self._tokenizer.to_str(), self._stop_ids)
        self._trials.check(grammar)

    def matcher(self, grammar: Grammar) -> Matcher:
        """Raises InvalidRequestError, with what is wrong with the grammar; EngineClosedError after `close`."""
        if not grammar.is_checked:
            self.check(grammar)
        import llguidance

        with self._lock:
            if self._prepared is None:
                self._prepared = llguidance.LLTokenizer(self._tokenizer.to_str(), eos_token=self._stop_ids)
        try:
            with raising_panics():
                compiled = compile_matcher(self._prepared, grammar.kind, grammar.text, grammar.whitespace)
        except (ValueError, ExtensionPanicError) as error:
            raise InvalidRequestError(f"{grammar.kind}: {error}") from error
        return Matcher(compiled, self._vocabulary, grammar.kind)

    def close(self) -> None:
        """Ends the child process."""
        with self._lock:
            self._closed = True
        if self._trials is not None:
            self._trials.close()
