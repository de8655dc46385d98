"""The addresses of the server, and what every request of it meets: the token, errors in one form."""

from __future__ import annotations

import hmac

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from auras_ros import __version__
from auras_ros.serve.drain import BodyDrain
from auras_ros.serve.errors import SERVER, ApiError
from auras_ros.serve.exchange import Exchange
from auras_ros.serve.fields import AdapterFields, ChatFields, CompletionFields, LoadAdapterFields
from auras_ros.serve.hosts import AllowedHosts, HostGuard
from auras_ros.serve.metrics import CONTENT_TYPE
from auras_ros.serve.request_fields import RequestFields
from auras_ros.serve.response_fields import ResponseFields
from auras_ros.serve.service import ModelService
from auras_ros.serve.token_fields import DetokenizeFields, TokenizeFields

HEALTH, PING = "/health", "/ping"
CHANGE_BYTES = 1 << 16  # of a request that adds or removes an adapter


def make_app(service: ModelService, token: str = "") -> FastAPI:
    """token: that every request must have but those for /health and /ping; empty: none."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)  # its pages would be fetched from elsewhere

    def refuse(error: ApiError) -> Response:
        service.metrics.refused[str(error.status)] += 1
        return Response(error.content, error.status, error.headers)

    async def api_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return refuse(error)

    async def http_error(request: Request, error: Exception) -> Response:
        """An address or a method that there is not."""
        assert isinstance(error, HTTPException)
        return refuse(ApiError(error.status_code, f"{request.method} {request.url.path}: {error.detail}"))

    async def fault(_: Request, error: Exception) -> Response:
        """The traceback is logged by whoever called; the client is told no more than this."""
        return refuse(ApiError(500, f"the server failed: {type(error).__name__}", kind=SERVER))

    for kind, handler in ((ApiError, api_error), (HTTPException, http_error), (Exception, fault)):
        app.add_exception_handler(kind, handler)
    _add_routes(app, service)
    if token:
        app.add_middleware(TokenGuard, token=token)
    app.add_middleware(HostGuard, hosts=AllowedHosts.of(service.options), metrics=service.metrics)
    app.add_middleware(BodyDrain)
    return app


def _add_routes(app: FastAPI, service: ModelService) -> None:
    def card(adapter: str = "") -> dict[str, object]:
        """In vLLM's form; empty: of the model itself."""
        created = service.adapters.created(adapter) if adapter else service.created
        made = {"id": adapter or service.name, "object": "model", "created": created, "owned_by": "auras_ros"}
        return made | {"max_model_len": service.engine.length, "parent": service.name if adapter else None}

    def asking(kind: type[RequestFields]) -> object:
        async def handler(request: Request) -> Response:
            _check_type(request)
            return Exchange(service, request, kind)

        return handler

    def changing(kind: type[AdapterFields]) -> object:
        async def handler(request: Request) -> Response:
            _check_type(request)
            with service.bodies.body() as arriving:
                body = await arriving.read(request.receive, CHANGE_BYTES, request.headers.get("content-length"))
            return PlainTextResponse(await service.change_adapters(body, kind))

        return handler

    def counting(kind: type[TokenizeFields] | type[DetokenizeFields]) -> object:
        async def handler(request: Request) -> Response:
            _check_type(request)
            service.check_free()
            with service.bodies.body() as arriving:
                most = service.options.body_mib << 20
                body = await arriving.read(request.receive, most, request.headers.get("content-length"))
                with service.place():
                    return JSONResponse(await service.count_tokens(body, kind))

        return handler

    async def embeddings() -> Response:
        raise ApiError(400, "this server's models write answers: they make no embeddings", code="not_supported")

    async def version_of() -> Response:
        return JSONResponse({"version": __version__})

    async def load() -> Response:
        return JSONResponse({"server_load": service.engine.open + service.preparing})

    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [card(), *map(card, service.adapters.names())]})

    async def one_model(name: str) -> Response:
        return JSONResponse(card(service.adapters.named(name)))

    async def health() -> Response:
        state = {"model": service.name, "dtype": service.dtype, "length": service.engine.length}
        if why := service.closed:
            return JSONResponse({"status": why, **state}, 503)
        return JSONResponse({"status": "ok", **state})

    async def metrics() -> Response:
        adapters = len(service.adapters.names())
        text = service.metrics.text(service.engine.snapshot(), service.preparing, adapters)
        return Response(text, media_type=CONTENT_TYPE)

    for method, path, handler in (
        ("POST", "/v1/chat/completions", asking(ChatFields)),
        ("POST", "/v1/completions", asking(CompletionFields)),
        ("POST", "/v1/responses", asking(ResponseFields)),
        ("POST", "/v1/embeddings", embeddings),
        ("POST", "/tokenize", counting(TokenizeFields)),
        ("POST", "/detokenize", counting(DetokenizeFields)),
        ("POST", "/v1/load_lora_adapter", changing(LoadAdapterFields)),
        ("POST", "/v1/unload_lora_adapter", changing(AdapterFields)),
        ("GET", "/v1/models", models),
        ("GET", "/v1/models/{name:path}", one_model),
        ("GET", HEALTH, health),
        ("GET", PING, health),
        ("POST", PING, health),
        ("GET", "/version", version_of),
        ("GET", "/load", load),
        ("GET", "/metrics", metrics),
    ):
        app.add_api_route(path, handler, methods=[method], response_model=None)  # type: ignore[arg-type]


def _check_type(request: Request) -> None:
    """Raises ApiError for a body that is not announced as JSON: others may come from any page in a browser, without
    being asked for."""
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise ApiError(415, f"Content-Type: '{sent}', expected application/json")


class TokenGuard:
    """Lets nothing through without the token but the questions whether the server lives."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._wanted = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in (HEALTH, PING):
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            if not hmac.compare_digest(given, self._wanted):
                error = ApiError(401, "the token is missing or not this server's", code="invalid_api_key")
                await Response(error.content, error.status, error.headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)
