"""Put the page together: all endpoints, and the guard before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from outlast.errors import UnknownTask
from outlast.web import (
    action_log,
    api,
    bulk,
    dead,
    deaths,
    flows,
    job,
    jobs,
    limits,
    overview,
    queues,
    refusals,
    schedules,
    system,
    tasks,
    workers,
)
from outlast.web.access import Judge, Right
from outlast.web.endpoint import Endpoint
from outlast.web.problem import Problem, WebRefusal, answer_for
from outlast.web.render import ROUTE
from outlast.web.security import SecurityGuard
from outlast.web.site import Site
from outlast.web.visit import Visit, path_of

if TYPE_CHECKING:
    from outlast.client.app import App

PAGES: tuple[ModuleType, ...] = (overview, jobs, bulk, job, flows, dead, deaths)
PAGES += (queues, tasks, workers, schedules, limits, refusals, action_log, system, api)
ENDPOINTS: list[Endpoint] = [each for page in PAGES for each in page.ENDPOINTS]


def dashboard(
    app: App | str,
    *,
    access: Judge,
    name: str = "",
    colour: str = "",
    hide: str | None = None,
    hide_keys: Iterable[str] = (),
    hosts: Collection[str] = (),
    read_only: bool = False,
) -> ASGIApp:
    """Return the page as an ASGI application, to be mounted under any path of yours.

    Args:
        app: your application, or the URL of its store. The page opens its own connections: three
            that only read, and one for actions.
        access: called with each request (``starlette.requests.Request``); returns ``Access``, or
            None for an unknown visitor. May be a coroutine function. There is no default.
        name: the name of this installation, such as ``"production"``, shown on each page.
        colour: its colour: red, orange, yellow, green, blue, purple or grey.
        hide: a regular expression: each value, message or line of output in which it matches is
            covered; names (of queues, tasks, tenants, limits, workers, schedules, users) stay
            visible.
        hide_keys: names of arguments and of other keys, such as ``password`` or ``*token*``, in any
            case: values under them are covered, and so is each text that has one as a word.
        hosts: the names by which browsers reach the page; ``["*"]``: any. Addresses and localhost
            are always allowed.
        read_only: no user may change anything.

    Raises:
        ConfigError: a setting is invalid.
    """
    url = app if isinstance(app, str) else app.url
    return application_of(
        Site(
            url,
            access,
            name=name,
            colour=colour,
            hide=hide,
            hide_keys=hide_keys,
            hosts=hosts,
            read_only=read_only,
            encryption_of=(lambda _: "none") if isinstance(app, str) else encryption_in(app),
        )
    )


def encryption_in(app: App) -> Callable[[str], str]:
    """Return a function from a task's name to how the application reads its plain payloads."""

    def encryption_of(task: str) -> str:
        try:
            app.find(task)
        except UnknownTask:
            return "none"
        return app.stores.payloads.encryption

    return encryption_of


def application_of(site: Site) -> ASGIApp:
    """Return the ASGI application of a site."""

    @asynccontextmanager
    async def close_at_end(_: Starlette) -> AsyncIterator[None]:
        site.bulk.look_for_left()
        yield
        await site.close()

    missing = Endpoint("/{path:path}", _miss, Right.VIEW, by_tenant=True)
    routes: list[BaseRoute] = [ROUTE, *(each.route(site) for each in (*ENDPOINTS, missing))]
    if site.prefix:
        first = f"{site.prefix.rpartition('/')[2]}/"  # relative: a proxy may speak HTTPS
        below = Mount(site.prefix, routes=routes)
        routes = [Route(site.prefix, lambda _: RedirectResponse(first)), below]
    refusals = {404: _answer_odd}
    app = Starlette(routes=routes, lifespan=close_at_end, exception_handlers=refusals)
    return SecurityGuard(app, site.hosts)


async def _answer_odd(request: Request, _: Exception) -> Response:
    """Answer at an address with a line break, which no route matches."""
    path = path_of(request)
    return answer_for(path, Problem(404, "No such page", f"There is nothing at {path}."))


async def _miss(visit: Visit) -> Response:
    raise WebRefusal(404, "No such page", f"There is nothing at {visit.path}.")
