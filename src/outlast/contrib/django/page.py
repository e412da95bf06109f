"""Serve the page for operators as a view of Django: for staff, with the admin's permissions.

The page is an ASGI application on the background loop of this process, with a few connections of
its own to the store. It protects its forms itself, so it does not use Django's CSRF tokens.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import quote

from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.core.signals import setting_changed
from django.db import transaction
from django.http import HttpResponse
from django.http.request import split_domain_port
from django.views.decorators.csrf import csrf_exempt

from outlast.base.sync import run_in_background
from outlast.contrib.django.page_settings import SETTING, chosen_settings
from outlast.contrib.django.project import store_url
from outlast.errors import ConfigError, text_of

try:
    from outlast.web.access import Access, Right
    from outlast.web.application import application_of
    from outlast.web.site import Site
except ModuleNotFoundError as missing:
    library = (missing.name or "").partition(".")[0]
    if library not in {"starlette", "jinja2", "prometheus_client"}:
        raise
    raise ImproperlyConfigured(f"the page needs {library}: pip install 'outlast[web]'") from missing

PERMISSIONS = {
    Right.VIEW: "outlast.view_job",
    Right.PAYLOAD: "outlast.view_job",
    Right.REQUEUE: "outlast.requeue_job",
    Right.CANCEL: "outlast.cancel_job",
    Right.DISCARD: "outlast.discard_job",
    Right.BULK: "outlast.bulk_job",
    Right.PAUSE: "outlast.pause_job",
    Right.TRIGGER: "outlast.trigger_schedule",
    Right.LIMIT: "outlast.limit_job",
    Right.DRAIN: "outlast.drain_worker",
}
OF_SCHEDULES = ("schedules", "api/v1/schedules")  # addresses that show schedules, or act on them
VIEW_SCHEDULES = "outlast.view_schedule"
STATE = "outlast.django"  # in the scope of a request: its user


@transaction.non_atomic_requests  # actions are the store's own transactions
@csrf_exempt
@staff_member_required
def show_page(request: Any, within: str = "") -> HttpResponse:
    """Answer as the page does at this address."""
    host = request.get_host()  # refuses a host that is not in ALLOWED_HOSTS
    if within.startswith(OF_SCHEDULES) and not request.user.has_perm(VIEW_SCHEDULES):
        raise PermissionDenied
    _, application = _page(store_url())
    scope, body = _scope_of(request, within, host), request.body
    return run_in_background(lambda: _answer(application, scope, body))


@cache
def _page(url: str) -> tuple[Site, Any]:
    """Return the page on one store; ImproperlyConfigured for invalid settings."""
    try:
        site = Site(
            url,
            lambda asked: asked.scope[STATE],
            hosts=["*"],
            command="python manage.py outlast",
            **chosen_settings(),
        )
    except ConfigError as error:
        raise ImproperlyConfigured(f"{SETTING}: {text_of(error)}") from error
    return site, application_of(site)


def close_page() -> None:
    """Close the page's connections in this process, for example at the end of a test."""
    site, _ = _page(store_url())
    run_in_background(site.close)


def _forget(*, setting: str, **_: Any) -> None:
    if setting == SETTING:
        if _page.cache_info().currsize:
            close_page()
        _page.cache_clear()


setting_changed.connect(_forget)


def _scope_of(request: Any, within: str, host: str) -> dict[str, Any]:
    headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in request.headers.items()
    ]
    name, port = split_domain_port(host)
    user = request.user
    can = [right for right, permission in PERMISSIONS.items() if user.has_perm(permission)]
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": quote(request.path).encode(),
        "root_path": request.path.removesuffix(within).rstrip("/"),
        "query_string": request.META.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "server": (name.strip("[]"), int(port) if port else None),
        "client": (request.META.get("REMOTE_ADDR", ""), 0),
        STATE: Access(user.get_username(), can=can),
    }


async def _answer(application: Any, scope: dict[str, Any], body: bytes) -> HttpResponse:
    response = HttpResponse()
    asked = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        return next(asked, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status_code = message["status"]
            for name, value in message["headers"]:
                response[name.decode("latin-1")] = value.decode("latin-1")
        else:
            response.write(message.get("body", b""))

    await application(scope, receive, send)
    return response
