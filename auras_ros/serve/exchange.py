"""One request and its answer: read, taken by the engine, and written whole or as server-sent events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auras_ros.engine.request import GRAMMARS, Answer, Delta
from auras_ros.serve.errors import SERVER, ApiError
from auras_ros.serve.fields import CommonFields
from auras_ros.serve.pieces import WaitingClient
from auras_ros.serve.service import Asked, ModelService, named_refusal
from auras_ros.serve.translate import token_field

JSON, EVENTS = b"application/json", b"text/event-stream; charset=utf-8"


class Exchange(Response):
    """The answer is written as it comes, so this is the response itself."""

    def __init__(self, service: ModelService, request: Request, kind: type[CommonFields]) -> None:
        super().__init__()
        self._service, self._kind = service, kind
        self._announced = request.headers.get("content-length")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises ApiError before anything is sent."""
        service = self._service
        service.check_free()  # what would be refused is not read
        with ExitStack() as stack:
            with service.bodies.body() as arriving:
                body = await arriving.read(receive, service.options.body_mib << 20, self._announced)
                with service.place() as place:
                    client = stack.enter_context(WaitingClient(receive))
                    asked = await service.take(place, body, self._kind, client)
                del body  # tens of megabytes that the answer does not need
            pieces = await asked.pieces.take()
            if asked.fields.stream:
                await self._stream(asked, pieces, send)
            else:
                await self._whole(asked, send)

    async def _whole(self, asked: Asked, send: Send) -> None:
        answer = self._ended(asked)
        if error := failed(answer, asked.fields):
            raise error
        await send(_start(JSON))
        await send({"type": "http.response.body", "body": asked.writer.whole(answer)})

    async def _stream(self, asked: Asked, pieces: Sequence[Delta], send: Send) -> None:
        """What has come meanwhile is sent at once. An answer that fails before its first token is an error."""
        writer, data = asked.writer, asked.writer.opening()
        if pieces[0].finish is not None:  # a task head's, or one that never began
            answer = self._ended(asked)
            if error := failed(answer, asked.fields):
                raise error
            await send(_start(EVENTS))
            await send({"type": "http.response.body", "body": writer.at_once(answer)})
            return
        await send(_start(EVENTS))
        while pieces[-1].finish is None:
            data += b"".join(writer.piece(each.text, each.tokens) for each in pieces)
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            data, pieces = b"", await asked.pieces.take()
        data += b"".join(writer.piece(each.text, each.tokens) for each in pieces)
        answer = self._ended(asked)
        error = failed(answer, asked.fields)
        data += writer.closing(answer) if error is None else b"data: " + error.content + b"\n\n"
        await send({"type": "http.response.body", "body": data})

    def _ended(self, asked: Asked) -> Answer:
        answer = asked.reply.result()
        self._service.metrics.observe(answer)
        return answer


def failed(answer: Answer, fields: CommonFields) -> ApiError | None:
    """What an answer is that nobody could use as one."""
    if answer.finish == "error" and answer.detail.partition(": ")[0] in GRAMMARS:  # found out at a token of the answer
        return named_refusal(ValueError(answer.detail), fields)
    if answer.result is not None and (field := token_field(fields)):
        why = "the adapter's task head answers, which has no tokens; task_head: false asks for tokens"
        return ApiError(400, f"{field}: {why}", field=field)
    if answer.finish == "error":
        return ApiError(500, answer.detail, code="engine_error", kind=SERVER)
    if answer.finish == "cancelled":
        return ApiError(503, f"the request was cancelled: {answer.detail}", code="cancelled", kind=SERVER)
    return None


def _start(content_type: bytes) -> dict[str, object]:
    headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
    return {"type": "http.response.start", "status": 200, "headers": headers}
