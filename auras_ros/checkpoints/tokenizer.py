"""Reads a folder's tokenizer.json with the `tokenizers` library (extra `language`), which executes nothing from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from auras_ros.panics import raising_panics

TOKENIZER = "tokenizer.json"
TOKENIZER_BYTES = 64 << 20  # twice the largest published one


class PromptError(ValueError):
    """A prompt that cannot be used; the text says why."""


class PromptLengthError(PromptError):
    """A prompt with more tokens than the model's length."""


def read_tokenizer(path: Path) -> Any:
    """A `tokenizers.Tokenizer` that neither pads nor truncates. Raises PromptError, naming the file."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise PromptError(f"{path}: needs the tokenizers library: pip install 'auras_ros[language]'") from error
    if path.is_file() and path.stat().st_size > TOKENIZER_BYTES:
        raise PromptError(f"{path}: {path.stat().st_size} bytes, expected {TOKENIZER_BYTES} at most")
    try:
        with raising_panics():
            made = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise PromptError(f"{path}: not a tokenizer: {error}") from error
    made.no_padding()
    made.no_truncation()
    return made


def encode(tokenizer: Any, text: str, path: Path | str, add_special_tokens: bool = True) -> list[int]:
    """The token ids of a text. path: of the tokenizer, for errors. Raises PromptError, also where the library panics: a
    regular expression of the file may need too many steps for this text."""
    try:
        with raising_panics():
            return list(tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
    except Exception as error:  # the library raises nothing narrower
        raise PromptError(f"prompt: {path} cannot tokenize it: {error}") from error
