"""What a single token is as text and as bytes, for log probabilities: a space and a word, or half a letter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from auras_ros.panics import raising_panics

INCOMPLETE = "\ufffd"
SPACE = "▁"  # SentencePiece's


@dataclass(frozen=True)
class TokenText:
    """label: the text, or if it is no whole letter the bytes in OpenAI's form. bytes: None if they are not known."""

    text: str
    bytes: list[int] | None

    @property
    def label(self) -> str:
        if INCOMPLETE not in self.text or not self.bytes:
            return self.text
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in self.bytes)


class TokenTexts:
    """Of one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, TokenText] = {}

    def __call__(self, token: int) -> TokenText:
        found = self._known.get(token)
        if found is None:
            found = self._known[token] = self._made(token)
        return found

    def _made(self, token: int) -> TokenText:
        name = self._tokenizer.id_to_token(token)
        if name is None:  # of the model, but not of its tokenizer
            return TokenText("", None)
        if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            byte = int(name[3:5], 16)
            return TokenText(bytes([byte]).decode("utf-8", "replace"), [byte])
        text = name.replace(SPACE, " ")
        if SPACE not in name:
            with raising_panics():
                text = self._tokenizer.decode([token], skip_special_tokens=False)
        if INCOMPLETE not in text:
            return TokenText(text, list(text.encode()))
        table = _byte_level()
        return TokenText(text, [table[each] for each in name] if all(each in table for each in name) else None)


@cache
def _byte_level() -> dict[str, int]:
    """The letters that name bytes in byte-level BPE (GPT-2): printable ones themselves, the others those after 255."""
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + index): byte for index, byte in enumerate(others)}
