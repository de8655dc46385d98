"""Reads a folder's tokenizer.json with the `tokenizers` library (extra `language`), which executes nothing from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TOKENIZER = "tokenizer.json"
TOKENIZER_BYTES = 64 << 20  # twice the largest published one


class PromptError(ValueError):
    """A prompt that cannot be used; the text says why."""


def read_tokenizer(path: Path) -> Any:
    """A `tokenizers.Tokenizer` that neither pads nor truncates. Raises PromptError, naming the file."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise PromptError(f"{path}: needs the tokenizers library: pip install 'auras_ros[language]'") from error
    if path.is_file() and path.stat().st_size > TOKENIZER_BYTES:
        raise PromptError(f"{path}: {path.stat().st_size} bytes, expected {TOKENIZER_BYTES} at most")
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise PromptError(f"{path}: not a tokenizer: {error}") from error
    made.no_padding()
    made.no_truncation()
    return made
