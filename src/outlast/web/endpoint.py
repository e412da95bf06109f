"""Define one address of the page: who may request it, and how its errors are shown.

An endpoint names the right that it needs, and is closed to users of one tenant unless it declares
that it keeps to their jobs. So a new page that forgets to declare it shows them nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from outlast.errors import OutlastError
from outlast.web.access import Right
from outlast.web.problem import Problem, WebRefusal, answer_for, problem_of, say_when
from outlast.web.site import Site
from outlast.web.visit import Visit

T = TypeVar("T")


def show_page(visit: Visit, problem: Problem) -> Response:
    """Show a problem as a page."""
    return visit.show("error.html", status=problem.status, problem=problem)


H = TypeVar("H", bound=Callable[[Visit], Awaitable[Response]])


class Endpoint(msgspec.Struct, frozen=True):
    """An address of the page.

    Attributes:
        path: as Starlette writes it: ``/jobs/{job_id:int}``. A name of a queue or task is never
            part of a path (it may be ``..``): it goes into the query.
        handler: answers a visit.
        right: the right that the user needs.
        method: GET, POST, or one that is refused.
        by_tenant: whether it keeps to the jobs of ``visit.access.tenant``; if not, users of one
            tenant are refused.
        show_problem: shows a problem.
    """

    path: str
    handler: Callable[[Visit], Awaitable[Response]]
    right: Right = Right.VIEW
    method: str = "GET"
    by_tenant: bool = False
    show_problem: Callable[[Visit, Problem], Response] = show_page

    def route(self, site: Site) -> Route:
        """Return the route of this endpoint on a site."""

        async def answer(request: Request) -> Response:
            return await self._answer(site, request)

        return Route(self.path, answer, methods=[self.method], name=self.path)

    async def _answer(self, site: Site, request: Request) -> Response:
        try:
            access = await _result_of(site.judge(request))
        except WebRefusal as refused:
            return answer_for(request.url.path, refused.problem)
        if access is None:
            return await _refuse_stranger(site, request)
        visit = Visit(site, request, access.reading() if site.read_only else access)
        try:
            self._check(visit)
            return await self.handler(visit)
        except OutlastError as error:
            problem = problem_of(error, visit.cover)
            return say_when(self.show_problem(visit, problem), problem)

    def _check(self, visit: Visit) -> None:
        visit.require(self.right)
        access = visit.access
        if access.tenant is not None and not self.by_tenant:
            said = f"This shows all tenants; {access.user} may see only {access.tenant}."
            raise WebRefusal(403, "Not for one tenant", said)


class Endpoints(list[Endpoint]):
    """The addresses of one file of pages."""

    def at(
        self, path: str, right: Right = Right.VIEW, method: str = "GET", *, by_tenant: bool = False
    ) -> Callable[[H], H]:
        """Serve a path by the decorated function; the parameters are those of ``Endpoint``."""

        def add(handler: H) -> H:
            self.append(Endpoint(path, handler, right, method, by_tenant))
            return handler

        return add


async def _result_of(answer: T | Awaitable[T]) -> T:
    return cast("T", await answer if inspect.isawaitable(answer) else answer)


async def _refuse_stranger(site: Site, request: Request) -> Response:
    problem = Problem(401, "Sign in", "You have to sign in to see this page.")
    if site.refuse is None:
        return answer_for(request.url.path, problem)
    return await _result_of(site.refuse(request)) or answer_for(request.url.path, problem)
