"""Texts of others, in messages and parameters: not trusted. No ROS in it, so that checking a config loads none."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

MAX_TEXT = 65536


class MessageError(ValueError):
    """A malformed message; the text names the field."""


def text_refusal(what: str, text: str, limit_bytes: int) -> str:
    """Why a text for a model is refused, beginning with `what`; empty if it is accepted. The length is checked first,
    so a huge one costs nothing."""
    if len(text) > limit_bytes or len(text.encode("utf-8", "surrogatepass")) > limit_bytes:
        return f"{what}: longer than {limit_bytes} bytes"
    if "\ufffd" in text:  # rclpy replaces bytes that are not UTF-8 with it
        return f"{what}: not UTF-8"
    for character in text:
        if character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cs"):  # control, surrogate
            return f"{what}: not text: it contains the character U+{ord(character):04X}"
    return ""


def read_json(text: str, what: str) -> dict[str, Any]:
    """The JSON object in a text. Raises MessageError naming `what`."""
    if len(text) > MAX_TEXT:
        raise MessageError(f"{what}: {len(text)} characters, at most {MAX_TEXT}")
    try:
        fields = json.loads(text)
        if "\\u" in text:  # JSON can contain half a surrogate pair, which cannot be encoded later
            json.dumps(fields, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # a plain ValueError: a number with thousands of digits
        raise MessageError(f"{what}: not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise MessageError(f"{what}: expected a JSON object, got {type(fields).__name__}")
    return fields
