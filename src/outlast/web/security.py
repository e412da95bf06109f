"""Check each request, and set the security headers of each answer.

A page that can requeue jobs is a target: of other sites that make a browser send a form, and of
names that are made to resolve to this address (DNS rebinding). So the Host has to be known, and a
request that changes something has to come from a page of the same origin. Another site can open a
page, and make a browser ask for nothing else: browsers send a password even for an image. No answer
allows another origin to read it, no page can be put into a frame, and no script runs that is not
ours.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outlast.base.http_server import is_address, name_of
from outlast.base.text import line
from outlast.web.problem import Problem, answer_for

_DIGITS = re.compile(r"[0-9]+")
_DIGITS_MAX = 1000  # Python refuses to read longer numbers
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
        " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer, the Origin of our own forms is null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class SecurityGuard:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        """``hosts``: names by which the page may be requested; ``*``: any. Addresses and localhost
        are always allowed: no foreign site has them as its name."""
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        problem = self._find_problem(scope, Headers(scope=scope))
        answer = self._app if problem is None else answer_for(scope["path"], problem)
        await answer(scope, receive, send_guarded)

    def _find_problem(self, scope: Scope, headers: Headers) -> Problem | None:
        host = ", ".join(headers.getlist("host"))
        if not self._is_known(host):
            return Problem(
                421,
                "Unknown host",
                f"This page does not answer to the name {name_of(host)!r}. To allow that name:"
                " dashboard(hosts=[…]) or outlast web --allow-host NAME.",
            )
        if any(len(digits) >= _DIGITS_MAX for digits in _DIGITS.findall(scope["path"])):
            return Problem(404, "No such page", "No id of a job, worker or action is that long.")
        if is_same_origin(headers) or (scope["method"] in SAFE_METHODS and is_visit(headers)):
            return None
        origin = line(", ".join(headers.getlist("origin"))) or "none"
        return Problem(
            403,
            "From another site",
            "Another site may link to this page; any other request must come from this page itself."
            " A browser says so by Sec-Fetch-Site, or else by an Origin that equals Host: here the"
            f" Origin is {origin}, and the Host {line(host)}. A proxy must pass on the Host with"
            " its port: for nginx, proxy_set_header Host $http_host. A program must send"
            " Sec-Fetch-Site: none.",
        )

    def _is_known(self, host: str) -> bool:
        name = name_of(host)
        return "*" in self._hosts or name in self._hosts or is_address(name)


def is_same_origin(headers: Headers) -> bool:
    """Whether a request comes from a page of ours, or from no page at all. If a header occurs
    twice, both values have to show that."""
    if sites := headers.getlist("sec-fetch-site"):
        return OWN_SITES.issuperset(sites)
    origins, host = headers.getlist("origin"), headers.get("host", "").lower()
    return bool(origins) and all(_place_of(origin) == host != "" for origin in origins)


def is_visit(headers: Headers) -> bool:
    """Whether a request opens a page in a tab, or was not sent by a page of another site. Over
    plain HTTP under a name, a browser does not tell which site has an image or a script sent."""
    if headers.getlist("sec-fetch-site"):
        mode, goal = headers.getlist("sec-fetch-mode"), headers.getlist("sec-fetch-dest")
        return mode == ["navigate"] and goal == ["document"]
    return not headers.getlist("origin")


def _place_of(origin: str) -> str | None:
    """Return the host and the port of an Origin; None: it has none."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None
