"""One address of the API: what it takes, who may ask, and how it answers, in JSON alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from outlast.errors import text_of
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.problem import API, Problem, WebRefusal, answer_in_json
from outlast.web.visit import Visit

B = TypeVar("B", bound=msgspec.Struct)
Answer = Callable[[Visit], Awaitable[Response]]


class ApiRoute(msgspec.Struct, frozen=True):
    """An address of the API, and what its description says of it.

    Attributes:
        path: below /api/v1, as Starlette writes it.
        handler: answers a visit.
        summary: what it does, in one sentence.
        right, method, by_tenant: as of an ``Endpoint``.
        query: parameters in the URL -> what they mean.
        body: what is sent, if anything is.
    """

    path: str
    handler: Answer
    summary: str
    right: Right = Right.VIEW
    method: str = "GET"
    by_tenant: bool = False
    query: Mapping[str, str] = {}
    body: type[msgspec.Struct] | None = None

    def endpoint(self) -> Endpoint:
        """Return it as the application takes it."""
        return Endpoint(
            API + self.path,
            self.handler,
            self.right,
            self.method,
            self.by_tenant,
            show_problem=show_json,
        )


def answer_json(document: Any, status: int = 200) -> Response:
    """Return a document."""
    body = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return Response(body + b"\n", status, media_type="application/json")


def show_json(_: Visit, problem: Problem) -> Response:
    """Show what went wrong as a document."""
    return answer_in_json(problem)


async def read_body(visit: Visit, kind: type[B]) -> B:
    """Return what was sent; an empty body stands for ``{}``. Refuses what is not of this kind."""
    body = await visit.body()
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WebRefusal(
            400,
            "Not valid",
            f"The body has to be JSON as openapi.json describes it: {text_of(error)}",
        ) from error
