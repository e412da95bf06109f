"""Describe a refusal or an error as an HTTP status with a title and a sentence."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.responses import HTMLResponse, Response

from outlast.errors import (
    BadData,
    ConfigError,
    JobNotFound,
    LimitNotFound,
    NotPermitted,
    OutlastError,
    ScheduleNotFound,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    UsageError,
    text_of,
)
from outlast.insight.resource import SCHEMA

MESSAGE_MAX = 1_000
API = "/api/v1"  # where answers are JSON
STYLE = (
    ":root{color-scheme:light dark;font:1rem/1.55 system-ui,sans-serif;overflow-wrap:anywhere}"
    "main{max-width:34rem;margin:18vh auto;padding:0 1.5rem}h1{font-size:1.5rem;line-height:1.3}"
)
_COMMAND = re.compile(r"`([^`]+)`")
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; form-action 'none'; base-uri 'none';"
    " frame-ancestors 'none'"
)


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A refusal or an error, with an HTTP status. ``retry_after``: the seconds after which the
    request may be tried again."""

    status: int
    title: str
    message: str
    retry_after: int | None = None


class WebRefusal(OutlastError):
    """Raised by an endpoint that refuses; it carries the problem."""

    def __init__(
        self, status: int, title: str, message: str, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.problem = Problem(status, title, message, retry_after)


_KINDS: tuple[tuple[type[OutlastError], int, str], ...] = (
    (JobNotFound, 404, "No such job"),
    (ScheduleNotFound, 404, "No such schedule"),
    (LimitNotFound, 404, "No such limit"),
    (BadData, 400, "Not valid"),
    (UsageError, 400, "Not valid"),
    (ConfigError, 400, "Not valid"),
    (SchemaMismatch, 503, "The schema of the store does not fit"),
    (NotPermitted, 503, "The store refuses this program"),
    (StoreCorrupt, 503, "The store is damaged"),
    (StoreError, 503, "The store does not answer"),
)


def problem_of(error: OutlastError, cover: Callable[[str], str]) -> Problem:
    """Return the problem that an error is for a visitor. ``cover`` hides secrets in texts."""
    if isinstance(error, WebRefusal):
        return msgspec.structs.replace(error.problem, message=cover(error.problem.message))
    text = cover(text_of(error))[:MESSAGE_MAX]
    for kind, status, title in _KINDS:
        if isinstance(error, kind):
            return Problem(status, title, text)
    return Problem(409, "Not done", text)


def answer_for(path: str, problem: Problem) -> Response:
    """Return an answer for unknown visitors, in the format of the path: a page, or JSON."""
    answer = answer_in_json(problem) if f"{API}/" in path else answer_plainly(problem)
    return say_when(answer, problem)


def say_when(answer: Response, problem: Problem) -> Response:
    """Add a Retry-After header to an answer, if the problem has a time."""
    if problem.retry_after is not None:
        answer.headers["retry-after"] = str(problem.retry_after)
    return answer


def answer_in_json(problem: Problem) -> Response:
    """Return a problem, with what to do, as a document."""
    return answer_json({"error": msgspec.to_builtins(problem)}, problem.status)


def answer_json(document: dict[str, Any], status: int = 200) -> Response:
    """Return a document, with the number of its schema, as a JSON response."""
    body = msgspec.json.format(msgspec.json.encode({"schema": SCHEMA, **document}), indent=2)
    return Response(body + b"\n", status, media_type="application/json")


def answer_plainly(problem: Problem) -> HTMLResponse:
    """Return an answer for unknown visitors: only the problem. It loads no file: its style is
    inline, and its policy allows nothing else."""
    title = html.escape(problem.title)
    message = _COMMAND.sub(r"<code>\1</code>", html.escape(problem.message))
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style>"
        f"<main><h1>{title}</h1><p>{message}</p></main></html>"
    )
    return HTMLResponse(page, problem.status, {"content-security-policy": POLICY})
