"""One request and its answers: read, taken by the engine, and written whole or as server-sent events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from auras_ros.engine.request import GRAMMARS, Answer, Delta
from auras_ros.serve.answer_form import token_field
from auras_ros.serve.errors import SERVER, ApiError
from auras_ros.serve.pieces import WaitingClient
from auras_ros.serve.request_fields import RequestFields
from auras_ros.serve.service import Asked, ModelService, named_refusal

JSON, EVENTS = b"application/json", b"text/event-stream; charset=utf-8"


class Exchange(Response):
    """The answer is written as it comes, so this is the response itself."""

    def __init__(self, service: ModelService, request: Request, kind: type[RequestFields]) -> None:
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
                await self._whole(asked, pieces, send)

    async def _whole(self, asked: Asked, pieces: Sequence[tuple[int, Delta]], send: Send) -> None:
        ended = len(pieces)  # only the last piece of each answer comes
        while ended < len(asked.replies):
            ended += len(await asked.pieces.take())
        answers = self._ended(asked)
        for answer in answers:
            if error := failed(answer, asked):
                raise error
        await send(_start(JSON))
        await send({"type": "http.response.body", "body": asked.writer.whole(answers)})

    async def _stream(self, asked: Asked, pieces: Sequence[tuple[int, Delta]], send: Send) -> None:
        """What has come meanwhile is sent at once. An answer that fails before its first token is an error."""
        for index, piece in pieces:
            if piece.finish is not None and (error := failed(asked.replies[index].result(), asked)):
                raise error
        await send(_start(EVENTS))
        writer, running = asked.writer, set(range(len(asked.replies)))
        while True:
            data = b""
            for index, piece in pieces:
                data += writer.piece(index, piece)
                if piece.finish is None:
                    continue
                running.discard(index)
                answer = asked.replies[index].result()
                if error := failed(answer, asked):  # without [DONE]: the stream is not a whole one
                    await send({"type": "http.response.body", "body": data + writer.error(error)})
                    self._end_all(asked, running)
                    return
                data += writer.closing(index, answer)
            if not running:
                break
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
            pieces = await asked.pieces.take()
        await send({"type": "http.response.body", "body": data + writer.end(self._ended(asked))})

    def _end_all(self, asked: Asked, running: set[int]) -> None:
        """One answer has failed: the others are not wanted any more."""
        for index, reply in enumerate(asked.replies):
            if index in running:
                reply.cancel()
            else:
                self._service.metrics.observe(reply.result())

    def _ended(self, asked: Asked) -> list[Answer]:
        answers = [reply.result() for reply in asked.replies]
        for answer in answers:
            self._service.metrics.observe(answer)
        return answers


def failed(answer: Answer, asked: Asked) -> ApiError | None:
    """What an answer is that nobody could use as one."""
    if answer.finish == "error" and answer.detail.partition(": ")[0] in GRAMMARS:  # found out at a token of the answer
        return named_refusal(ValueError(answer.detail), asked.fields)
    if answer.result is not None and (field := token_field(asked.fields, asked.grammar)):
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
