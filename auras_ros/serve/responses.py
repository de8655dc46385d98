"""Answers in the form of the Responses API: whole, and as its named events."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any

from auras_ros.engine.request import Answer, Delta
from auras_ros.serve.errors import ApiError
from auras_ros.serve.forms import COMPACT, FINISH, AnswerShape, Json, task_result, usage
from auras_ros.serve.response_fields import ResponseFields
from auras_ros.serve.tool_calls import Said, ToolCall


class ResponseWriter:
    """Writes the answer to one request."""

    def __init__(self, fields: ResponseFields, model: str, created: int, shape: AnswerShape) -> None:
        self._fields, self._model, self._created = fields, model, created
        self._id = f"resp_{secrets.token_hex(12)}"
        self._reader = shape.reader()
        self._events = 0
        self._is_open = False
        self._items = list[Json]()
        self._text: list[str] | None = None  # of the message that is being said

    def whole(self, answers: Sequence[Answer]) -> bytes:
        (answer,) = answers
        self._take(self._said(answer.text) + self._rest())
        self._close_message(answer)
        return json.dumps(self._response(answer)).encode()

    def piece(self, index: int, delta: Delta) -> bytes:
        if delta.answer is not None and delta.answer.result is not None:  # a task head's, which `closing` writes
            return b""
        return self._opening() + self._take(self._said(delta.text))

    def closing(self, index: int, answer: Answer) -> bytes:
        data = self._opening() + self._take(self._rest() if answer.result is None else [answer.text])
        return data + self._close_message(answer)

    def end(self, answers: Sequence[Answer]) -> bytes:
        (answer,) = answers
        response = self._response(answer)
        return self._event(f"response.{response['status']}", response=response)

    def error(self, error: ApiError) -> bytes:
        """In a stream that has begun."""
        return b"event: error\ndata: " + error.content + b"\n\n"

    def _said(self, text: str) -> list[Said]:
        if self._reader is not None:
            return self._reader.push(text)
        return [text] if text else []

    def _rest(self) -> list[Said]:
        return [] if self._reader is None else self._reader.end()

    def _opening(self) -> bytes:
        if self._is_open:
            return b""
        self._is_open = True
        response = self._response(None)
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def _take(self, said: Sequence[Said]) -> bytes:
        """The events of what has been said, which is remembered as items of the output."""
        return b"".join(self._say(part) if isinstance(part, str) else self._call(part) for part in said)

    def _say(self, text: str) -> bytes:
        data = b""
        if self._text is None:
            self._text = []
            item = {"id": f"msg_{secrets.token_hex(12)}", "type": "message", "role": "assistant"}
            self._items.append(item | {"status": "in_progress", "content": []})
            data += self._item_event("response.output_item.added", item=self._items[-1])
            data += self._part_event("response.content_part.added", part=_output_text(""))
        self._text.append(text)
        return data + self._part_event("response.output_text.delta", delta=text, logprobs=[])

    def _close_message(self, answer: Answer | None = None) -> bytes:
        """answer: that has ended; then there is a message even if nothing was said."""
        data = b""
        if self._text is None and not self._items and answer is not None:
            data += self._say("")
        if self._text is None:
            return data
        text, self._text = "".join(self._text), None
        item = self._items[-1]
        is_cut = answer is not None and FINISH.get(answer.finish) == "length"
        item |= {"status": "incomplete" if is_cut else "completed", "content": [_output_text(text)]}
        if answer is not None:
            item |= task_result(answer)
        data += self._part_event("response.output_text.done", text=text, logprobs=[])
        data += self._part_event("response.content_part.done", part=_output_text(text))
        return data + self._item_event("response.output_item.done", item=item)

    def _call(self, call: ToolCall) -> bytes:
        data = self._close_message()
        item = {"id": f"fc_{secrets.token_hex(12)}", "type": "function_call", "call_id": call.id, "name": call.name}
        self._items.append(item | {"arguments": "", "status": "in_progress"})
        data += self._item_event("response.output_item.added", item=self._items[-1])
        named = {"item_id": item["id"], "name": call.name}
        data += self._item_event("response.function_call_arguments.delta", item_id=item["id"], delta=call.arguments)
        data += self._item_event("response.function_call_arguments.done", **named, arguments=call.arguments)
        self._items[-1] |= {"arguments": call.arguments, "status": "completed"}
        return data + self._item_event("response.output_item.done", item=self._items[-1])

    def _part_event(self, kind: str, **values: Any) -> bytes:
        """Of the only part of the message that is being said."""
        return self._item_event(kind, item_id=self._items[-1]["id"], content_index=0, **values)

    def _item_event(self, kind: str, **values: Any) -> bytes:
        return self._event(kind, output_index=len(self._items) - 1, **values)

    def _event(self, kind: str, **values: Any) -> bytes:
        text = COMPACT.encode({"type": kind, "sequence_number": self._events, **values})
        self._events += 1
        return f"event: {kind}\ndata: {text}\n\n".encode()

    def _response(self, answer: Answer | None) -> Json:
        """None: the answer is still being made."""
        fields, status = self._fields, "in_progress"
        if answer is not None:
            status = "incomplete" if FINISH[answer.finish] == "length" else "completed"
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        choice = fields.tool_choice
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": reason,
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "model": self._model,
            "output": self._items if answer is not None else [],
            "parallel_tool_calls": fields.parallel_tool_calls,
            "previous_response_id": None,
            "store": False,
            "temperature": fields.temperature,
            "text": {"format": fields.text.format},
            "tool_choice": "auto"
            if choice is None
            else choice.model_dump(exclude_none=True)
            if choice.name
            else choice.type,
            "tools": [tool.model_dump() | {"strict": True} for tool in fields.tools],
            "top_p": fields.top_p,
            "truncation": "disabled",
            "usage": None if answer is None else _usage(answer),
            "metadata": {},
        }


def _output_text(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(answer: Answer) -> Json:
    used = usage([answer], len(answer.tokens))
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": used["prompt_tokens_details"],
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["total_tokens"],
    }
