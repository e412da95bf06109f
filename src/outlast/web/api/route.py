"""Define one address of the API: its parameters, its right, and its answers, always in JSON."""

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
    """An address of the API, with its description.

    Attributes:
        path: below /api/v1, as Starlette writes it.
        handler: answers a visit.
        summary: what it does, in one sentence.
        right, method, by_tenant: as of an ``Endpoint``.
        query: parameters in the URL -> their meaning.
        body: the type of the request's body, if it has one.
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
        """Return the endpoint of this address, for the application."""
        return Endpoint(
            API + self.path,
            self.handler,
            self.right,
            self.method,
            self.by_tenant,
            show_problem=show_json,
        )


def answer_json(document: Any, status: int = 200) -> Response:
    """Return a document as a JSON response."""
    body = msgspec.json.format(msgspec.json.encode(document), indent=2)
    return Response(body + b"\n", status, media_type="application/json")


def show_json(_: Visit, problem: Problem) -> Response:
    """Show a problem as a document."""
    return answer_in_json(problem)


async def read_body(visit: Visit, kind: type[B]) -> B:
    """Return the request's body; an empty one stands for ``{}``. Refuses a body of another kind."""
    body = await visit.body()
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WebRefusal(
            400,
            "Not valid",
            f"The body has to be JSON as openapi.json describes it: {text_of(error)}",
        ) from error
