"""Refusals in OpenAI's form: a status, and an object that names the field."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from auras_ros.checkpoints.tokenizer import PromptLengthError
from auras_ros.engine.request import ContextLengthError, EngineClosedError, EngineFullError

INVALID, SERVER = "invalid_request_error", "server_error"
RETRY_AFTER_S = 1
CONTEXT_LENGTH = "context_length_exceeded"
_FIELD = re.compile(r"([a-z_]+(?:\[\d+\]|\.[a-z_]+)*): ")


class ApiError(Exception):
    """A request that gets no answer. field: of the request, if one is to blame. code: what a program may ask for."""

    def __init__(
        self, status: int, message: str, *, field: str | None = None, code: str | None = None, kind: str = INVALID
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.field, self.code, self.kind = status, message, field, code, kind

    @property
    def body(self) -> dict[str, object]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.field, "code": self.code}}

    @property
    def content(self) -> bytes:
        return json.dumps(self.body).encode()

    @property
    def headers(self) -> Mapping[str, str]:
        own = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": str(RETRY_AFTER_S)}}
        return {"Content-Type": "application/json", **own.get(self.status, {})}


def refusal(error: ValueError | EngineFullError | EngineClosedError) -> ApiError:
    """What our own errors are to a client: their texts begin with the field, or say what is wrong."""
    if isinstance(error, EngineFullError):
        return ApiError(429, str(error), code="engine_full", kind="rate_limit_error")
    if isinstance(error, EngineClosedError):
        return ApiError(503, str(error), code="engine_closed", kind=SERVER)
    found = _FIELD.match(str(error))
    code = CONTEXT_LENGTH if isinstance(error, PromptLengthError | ContextLengthError) else None
    return ApiError(400, str(error), field=found[1] if found else None, code=code)
