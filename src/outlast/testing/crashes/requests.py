"""Observe requests, so that each is a point and is counted: those of ``http.client``, which urllib
and urllib3 (requests) use, of httpx, and mails of ``smtplib``."""

from __future__ import annotations

import http.client
import smtplib
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from outlast.testing.crashes.recorder import here

_SAFE, _ONCE = {"GET", "HEAD", "OPTIONS"}, {"PUT", "DELETE"}
_BYTES = "latin-1"  # of the head of a request


def observe() -> None:
    """Observe all requests of this process from now on."""
    _observe_http_client()
    _observe_smtplib()
    with suppress(ImportError):
        _observe_httpx(import_module("httpx"))


def _reach(method: str, host: str, path: str, headers: Iterable[tuple[str, str]]) -> None:
    """Come to a request, and count it: all with one key count as one."""
    label = f"{method} {host}{path}"
    here().reach("request", label)
    if method not in _SAFE:
        keys = [value for name, value in headers if name.lower().endswith("idempotency-key")]
        here().note_request(label, keys[0] if keys else path if method in _ONCE else None)


def _observe_http_client() -> None:
    real = http.client.HTTPConnection.endheaders

    def endheaders(self: Any, *args: Any, **named: Any) -> None:
        lines = [each.decode(_BYTES) for each in self._buffer]
        method, path, *_ = lines[0].split()
        pairs = (each.partition(":") for each in lines[1:])
        _reach(method, self.host, path, [(name, value.strip()) for name, _, value in pairs])
        real(self, *args, **named)

    http.client.HTTPConnection.endheaders = endheaders  # type: ignore[method-assign]


def _observe_smtplib() -> None:
    real = smtplib.SMTP.sendmail

    def sendmail(self: Any, sender: str, to: Any, *args: Any, **named: Any) -> Any:
        here().reach("request", f"mail by {self._host}")
        refused = real(self, sender, to, *args, **named)
        here().note_request(f"mail to {to if isinstance(to, str) else ', '.join(to)}", None)
        return refused

    smtplib.SMTP.sendmail = sendmail  # type: ignore[method-assign, assignment]


def _observe_httpx(httpx: Any) -> None:
    plain = httpx.HTTPTransport.handle_request
    asynchronous = httpx.AsyncHTTPTransport.handle_async_request

    def reach(request: Any) -> None:
        path = request.url.raw_path.decode(_BYTES)
        _reach(request.method, request.url.host, path, request.headers.multi_items())

    def handle(self: Any, request: Any) -> Any:
        reach(request)
        return plain(self, request)

    async def handle_async(self: Any, request: Any) -> Any:
        reach(request)
        return await asynchronous(self, request)

    httpx.HTTPTransport.handle_request = handle
    httpx.AsyncHTTPTransport.handle_async_request = handle_async
