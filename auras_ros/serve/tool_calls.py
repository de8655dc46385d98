"""Calls of tools in an answer's text: which of it is said, and which of it is calls.

A call is given as one when it is whole: its JSON has been read, and it names a tool of the request. What looks like a
call and is none stays text, so nothing that the model has said is lost.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from auras_ros.checkpoints.vlm.tool_form import ToolForm

BETWEEN_CALLS = " \t\r\n,[]"  # also the list in which some models write them


@dataclass(frozen=True)
class ToolCall:
    """arguments: the text of a JSON object."""

    id: str
    name: str
    arguments: str


Said = str | ToolCall


class ToolCallReader:
    """Reads one answer, piece by piece."""

    def __init__(self, form: ToolForm, names: Collection[str], single: bool) -> None:
        """names: of the tools. single: only the first call counts."""
        self._begin, self._end = form.begin_mark, form.end_mark
        self._name_key, self._arguments_key = form.name_key, form.arguments_key
        self._names, self._single = names, single
        self._text = ""  # not yet decided upon
        self._region: str | None = None  # after a mark: what may become calls, with the mark
        self._looked = 0  # characters of the region in which no end mark ends calls
        self._has_said = False
        self.calls = 0

    def push(self, text: str) -> list[Said]:
        """What is certain now."""
        self._text += text
        return list(self._decided())

    def end(self) -> list[Said]:
        """The rest, when the answer is over."""
        made = list(self._decided())
        if self._region is not None:
            calls = self._read_calls(self._region.removeprefix(self._begin))
            made += self._counted(calls) if calls else [self._region]
            self._region = None
        if self._text and (not self.calls or self._text.strip()):
            made.append(self._text)
        self._text = ""
        return made

    def _decided(self) -> Iterator[Said]:
        while True:
            if self._region is None:
                said, is_more = self._take_text()
                if said:
                    self._has_said = True
                    yield said
            else:
                calls, is_more = self._take_calls()
                yield from self._counted(calls)
            if not is_more:
                return

    def _take_text(self) -> tuple[str, bool]:
        """Text before the next mark, and whether the mark was found. White space before a mark is not said."""
        if not self._begin:
            return self._take_plain()
        before, mark, after = self._text.partition(self._begin)
        if mark:
            self._open_region(mark, after)
            return before.rstrip(), True
        longest = min(len(self._begin) - 1, len(before))
        held = next((size for size in range(longest, 0, -1) if self._begin.startswith(before[-size:])), 0)
        said = before[: len(before) - held].rstrip()
        self._text = before[len(said) :]
        return said, False

    def _take_plain(self) -> tuple[str, bool]:
        """Without a mark, calls are what begins the answer as a JSON object."""
        begun = self._text.lstrip()
        if not begun:
            return "", False
        if begun[0] == "{" and not self._has_said:
            self._open_region("", begun)
            return "", True
        said, self._text = self._text, ""
        return said, False

    def _take_calls(self) -> tuple[list[ToolCall], bool]:
        """Calls up to the next end mark, and whether there are any: the mark may also stand in an argument."""
        assert self._region is not None
        region = self._region + self._text
        self._region, self._text = region, ""
        if not self._end:
            return [], False
        while (at := region.find(self._end, self._looked)) >= 0:
            calls = self._read_calls(region[len(self._begin) : at])
            if calls:
                self._region, self._text = None, region[at + len(self._end) :]
                return calls, True
            self._looked = at + 1
        self._looked = max(self._looked, len(region) - len(self._end) + 1)
        return [], False

    def _open_region(self, mark: str, after: str) -> None:
        self._region, self._text = mark, after
        self._looked = len(mark)

    def _read_calls(self, text: str) -> list[ToolCall]:
        """One or more calls and nothing else; empty otherwise."""
        decoder, calls, at = json.JSONDecoder(parse_constant=_refuse_constant), list[ToolCall](), 0
        text = text.strip(BETWEEN_CALLS)
        while at < len(text):
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                return []
            call = self._call(value)
            if call is None:
                return []
            calls.append(call)
            while at < len(text) and text[at] in BETWEEN_CALLS + ";":
                at += 1
        return calls

    def _call(self, value: Any) -> ToolCall | None:
        name = value.get(self._name_key) if isinstance(value, dict) else None
        if not isinstance(name, str) or name not in self._names:
            return None
        arguments = value.get(self._arguments_key, {})
        if isinstance(arguments, str):  # some models write the JSON as a text
            try:
                arguments = json.loads(arguments, parse_constant=_refuse_constant)
            except (ValueError, RecursionError):
                return None
        if not isinstance(arguments, dict):
            return None
        text = json.dumps(arguments, ensure_ascii=False)
        return ToolCall(f"call_{secrets.token_hex(12)}", name, text)

    def _counted(self, calls: list[ToolCall]) -> list[Said]:
        taken = calls[: 1 - self.calls] if self._single else calls
        self.calls += len(taken)
        return list(taken)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
