"""Tries to compile grammars, in a child process of the engine's (`grammar_trial` starts it).

Each grammar is compiled in a fork of its own, with limits of CPU time and memory that the kernel keeps: work within
llguidance that none of its own limits count ends with that fork, and nothing else does. It imports no torch: the
process has 60 MB and a fork takes a few milliseconds.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping
from typing import Any, ClassVar

import llguidance

from auras_ros.engine.grammar_limits import compile_matcher

MOST_CPU_S = 0.5  # a schema of 65,536 characters takes 0.2 s
MOST_MIB = 16  # beyond what the process has; the same schema takes 13 MB
NICE = 10  # a tenth of a core beside an engine that wants all of it
MOST_TEXT = 2000  # bytes of a refusal


def make(order: Mapping[str, Any], array: object) -> GrammarTrialService:
    """order: `tokenizer`, as its JSON text, and `stop_ids`."""
    return GrammarTrialService(order["tokenizer"], order["stop_ids"])


class GrammarTrialService:
    """A `child.program.ChildService`."""

    declared: ClassVar[dict[str, Any]] = {}

    def __init__(self, tokenizer: str, stop_ids: list[int]) -> None:
        os.nice(NICE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a fork that is killed leaves no file
        self._tokenizer = llguidance.LLTokenizer(tokenizer, eos_token=stop_ids)

    def answer(self, order: Mapping[str, Any], array: object) -> tuple[dict[str, Any], None]:
        """order: a grammar's `kind`, `text` and `whitespace`. The answer's `refusal` says what is wrong; empty:
        nothing."""
        return {"refusal": self._refusal(order["kind"], order["text"], order["whitespace"])}, None

    def close(self) -> None:
        """Nothing is left open between two answers."""

    def _refusal(self, kind: str, text: str, whitespace: str) -> str:
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            self._compile_and_exit(kind, text, whitespace, writing)
        os.close(writing)
        with open(reading, "rb") as pipe:
            refusal = pipe.read().decode(errors="replace")
        _, status = os.waitpid(process, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return refusal
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            return f"it is too complex: it takes more than {MOST_CPU_S:g} s to compile"
        return f"it is too complex: it takes more than {MOST_MIB} MiB to compile"

    def _compile_and_exit(self, kind: str, text: str, whitespace: str, writing: int) -> None:
        """In the fork: writes what is wrong, and ends."""
        status = 1
        try:
            limit_this_process()
            os.write(writing, self._compile(kind, text, whitespace).encode(errors="replace")[:MOST_TEXT])
            status = 0
        finally:
            os._exit(status)

    def _compile(self, kind: str, text: str, whitespace: str) -> str:
        """Compiles it and computes the first token's mask. Returns what is wrong; empty: nothing."""
        try:
            matcher = compile_matcher(self._tokenizer, kind, text, whitespace)
        except ValueError as error:
            return str(error)
        matcher.compute_logit_bias()
        return "it is too complex" if matcher.is_error() else ""


def limit_this_process() -> None:
    """The kernel ends this process by SIGPROF when it has computed for too long, and gives it no more memory."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + (MOST_MIB << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
