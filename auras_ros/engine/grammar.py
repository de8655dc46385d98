"""Answers that a JSON schema or a regular expression describes, by llguidance (an extra)."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from auras_ros.engine.request import Grammar, InvalidRequestError
from auras_ros.panics import ExtensionPanicError, raising_panics

MOST_CHARACTERS = 1 << 16
SPACE = r"( |\n[ \t]{0,32})?"  # where JSON may have any: a model must not go on with it for ever
FIRST_WORK, STEP_WORK = 200_000, 50_000  # of llguidance's lexer: a quarter of its own, which hold all others up for 3 s
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
        self._lock = threading.Lock()

    def matcher(self, grammar: Grammar) -> Matcher:
        """Raises InvalidRequestError, with what is wrong with the grammar."""
        try:
            import llguidance
        except ImportError as error:
            raise InvalidRequestError(f"{grammar.kind}: needs the llguidance library: {INSTALL}") from error
        if len(grammar.text) > MOST_CHARACTERS:
            raise InvalidRequestError(
                f"{grammar.kind}: {len(grammar.text)} characters, expected {MOST_CHARACTERS} at most"
            )
        try:
            made = self._made(llguidance, grammar)
        except (ValueError, ExtensionPanicError) as error:
            raise InvalidRequestError(f"{grammar.kind}: {error}") from error
        if made.is_error():
            raise InvalidRequestError(f"{grammar.kind}: {made.get_error().splitlines()[0]}")
        return Matcher(made, self._vocabulary, grammar.kind)

    def _made(self, llguidance: Any, grammar: Grammar) -> Any:
        """The library's own matcher. Raises ValueError or ExtensionPanicError."""
        make = llguidance.LLMatcher
        with raising_panics():
            with self._lock:
                if self._prepared is None:
                    self._prepared = llguidance.LLTokenizer(self._tokenizer.to_str(), eos_token=self._stop_ids)
            if grammar.kind == "json_schema":
                compiled = make.grammar_from_json_schema(grammar.text, overrides={"whitespace_pattern": SPACE})
            else:
                compiled = make.grammar_from_regex(grammar.text)
            limits = llguidance.LLParserLimits(initial_lexer_fuel=FIRST_WORK, step_lexer_fuel=STEP_WORK)
            return make(self._prepared, compiled, log_level=0, limits=limits)
