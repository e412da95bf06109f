"""Define the addresses of the API: parameters, rights, and answers, always in JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from outlast.errors import text_of
from outlast.web.access import Right
from outlast.web.endpoint import Endpoint
from outlast.web.problem import API, Problem, WebRefusal, answer_in_json, answer_json
from outlast.web.visit import Visit

B = TypeVar("B", bound=msgspec.Struct)
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])


class ApiRoute(Endpoint, frozen=True):
    """An address of the API, with its description.

    Attributes:
        summary: what it does, in one sentence.
        query: parameters in the URL -> their meaning.
        body: the type of the request's body, if it has one.
    """

    summary: str = ""
    query: Mapping[str, str] = {}
    body: type[msgspec.Struct] | None = None


class ApiRoutes(list[ApiRoute]):
    """The addresses of one file of the API."""

    def at(
        self,
        path: str,
        right: Right = Right.VIEW,
        *,
        body: type[msgspec.Struct] | None = None,
        by_tenant: bool = False,
        query: Mapping[str, str] | None = None,
        summary: str = "",
    ) -> Callable[[H], H]:
        """Serve a path below /api/v1, as Starlette writes it, by the decorated function.

        It gets the visit and, if there is a ``body``, that of a POST; it returns a document or a
        response. Its docstring is the summary unless one is given.
        """

        def add(handler: H) -> H:
            async def answer(visit: Visit) -> Response:
                sent = () if body is None else (await _read_body(visit, body),)
                told = await handler(visit, *sent)
                return told if isinstance(told, Response) else answer_json(told)

            method = "GET" if body is None else "POST"
            said = " ".join((summary or handler.__doc__ or "").split())
            common = (API + path, answer, right, method, by_tenant, show_json)
            self.append(ApiRoute(*common, summary=said, query=query or {}, body=body))
            return handler

        return add


def show_json(_: Visit, problem: Problem) -> Response:
    """Show a problem as a document."""
    return answer_in_json(problem)


async def _read_body(visit: Visit, kind: type[B]) -> B:
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
