"""Which names a request may call the server by, so that no page in a browser reaches it under a name of its own.

A page may have its own name resolved to this machine (DNS rebinding): the browser then takes the server for the page's
own, and neither CORS nor the type of the body stops it. But Host and Origin still have the page's name.

A server of this machine alone takes only names of this machine and those of --allowed-host. One that others reach has
names and addresses that it cannot know: it takes any unless --allowed-host names some. With a token it needs none: such
a page does not have it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from auras_ros.serve.errors import ApiError
from auras_ros.serve.metrics import ServerMetrics
from auras_ros.serve.options import LOOPBACK, ServeOptions

SHOWN = 100  # characters of a wrong name in its refusal
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]@/]+)(:[0-9]{1,5})?")


@dataclass(frozen=True)
class AllowedHosts:
    """names: in lower case, without ports. Any name is taken where `is_open`."""

    names: frozenset[str]
    is_open: bool
    # Whether an address in place of a name is taken, whichever it is: no page can have one as its own name.
    takes_addresses: bool

    @classmethod
    def of(cls, options: ServeOptions) -> AllowedHosts:
        names = frozenset([*LOOPBACK, options.host.lower(), *options.allowed_host])
        is_open = not options.is_local and not options.allowed_host
        return cls(names, is_open, takes_addresses=not options.is_local)

    def check(self, version: str, hosts: list[bytes], origins: list[bytes]) -> None:
        """version: of HTTP. hosts, origins: all that a request has. Raises ApiError."""
        if len(hosts) > 1 or (not hosts and version != "1.0"):
            raise ApiError(400, f"Host: expected one, got {len(hosts)}")
        if self.is_open:
            return
        for host in hosts:
            text = host.decode("latin-1").lower()
            if not self._is_allowed(_name(text)):
                raise ApiError(421, self._refusal("Host", text), code="host_not_allowed")
        for origin in origins:
            text = origin.decode("latin-1").lower()
            if not self._is_allowed(_origin_name(text)):
                raise ApiError(403, self._refusal("Origin", text), code="origin_not_allowed")

    def _is_allowed(self, name: str) -> bool:
        return name in self.names or (self.takes_addresses and _is_address(name))

    def _refusal(self, header: str, text: str) -> str:
        return (
            f"{header}: '{text[:SHOWN]}' is not one of this server's names ({', '.join(sorted(self.names))}); another "
            f"one is taken if the server is started with --allowed-host NAME"
        )


def _name(host: str) -> str:
    """Of a host without its port and brackets; empty for what is none."""
    match = _HOST.fullmatch(host)
    return match[1].strip("[]") if match else ""


def _origin_name(origin: str) -> str:
    """Of the page's host; empty for null, or what is no origin."""
    try:
        return _name(urlsplit(origin).netloc)
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class HostGuard:
    """Lets nothing through that calls the server by another name."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts, metrics: ServerMetrics) -> None:
        self._app = app
        self._hosts = hosts
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            try:
                self._hosts.check(
                    scope["http_version"],
                    [value for name, value in headers if name == b"host"],
                    [value for name, value in headers if name == b"origin"],
                )
            except ApiError as error:
                self._metrics.refused[str(error.status)] += 1
                await Response(error.content, error.status, error.headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)
