"""Panics of extension modules that are written in Rust (tokenizers, safetensors, llguidance), raised as errors.

pyo3 raises a panic as `PanicException`. That is a BaseException and not an Exception, so no handler of ours takes it: a
command ends with a traceback, a request with status 500, a thread without a word. Every call into such a module is made
within `raising_panics`. Rust itself writes what panicked, and where, to the standard error before Python is told.
"""

from __future__ import annotations

from types import TracebackType

MOST_CHARACTERS = 300  # of a panic's text in an error


class ExtensionPanicError(RuntimeError):
    """An extension module panicked: it was given something that its own checks did not expect."""


def is_panic(error: BaseException | None) -> bool:
    """Each extension module has a class of its own for its panics, all of the same name."""
    return type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"


def panic_text(error: BaseException) -> str:
    """One line, for errors."""
    return f"the library panicked: {' '.join(str(error)[:MOST_CHARACTERS].split())}"


class raising_panics:  # noqa: N801  (used as a function)
    """Context manager: a panic inside is raised as ExtensionPanicError. A class, as it surrounds each token's work."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and is_panic(error):
            raise ExtensionPanicError(panic_text(error)) from None
