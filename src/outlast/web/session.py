"""Who may come in by ``outlast web``: by a link, by a proxy's header, or anyone. By a password:
``sign_in.py``."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from getpass import getuser
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.clock import draw_secret
from outlast.web.access import EVERYTHING, Access
from outlast.web.problem import Problem, answer_plainly

SESSIONS_MAX = 100

Network = IPv4Network | IPv6Network
LOOPBACK = (IPv4Network("127.0.0.1"), IPv6Network("::1"))


def local_user() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getuser()
    except (OSError, KeyError):
        return "local"


def same(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not depend on how far they are."""
    return hmac.compare_digest(one.encode(), other.encode())


class Users(Protocol):
    """Who may come in."""

    def judge(self, request: Request) -> Access | Awaitable[Access | None] | None:
        """Return who a request is of; None: a stranger."""
        ...

    def refuse(self, request: Request) -> Response | None:
        """Answer a stranger; None: a plain refusal."""
        ...


class LinkSessions:
    """Lets in whom the terminal lets in: its link works once, and leaves a cookie in the browser.

    ``token`` is that of the next link; ``on_used`` is called when one was used, to print another.
    """

    def __init__(self) -> None:
        self.token = draw_secret()
        self.on_used: Callable[[], None] = lambda: None
        self._sessions: list[str] = []
        self._access = Access(local_user(), can=EVERYTHING)

    def judge(self, request: Request) -> Access | None:
        """Return who has a cookie of ours."""
        shown = request.cookies.get(_cookie_of(request), "")
        return self._access if any(same(shown, one) for one in self._sessions) else None

    def refuse(self, request: Request) -> Response | None:
        """Take a link that was not used yet; refuse others."""
        given = request.query_params.get("token", "")
        if request.method != "GET" or not same(given, self.token):
            said = "Open the link that `outlast web` has printed. It works once; this browser keeps"
            return answer_plainly(Problem(401, "Who are you?", f"{said} the session."))
        self.token = draw_secret()
        session = draw_secret()
        self._sessions = [*self._sessions, session][-SESSIONS_MAX:]
        answer = RedirectResponse("./", 303)
        answer.set_cookie(_cookie_of(request), session, httponly=True, samesite="strict", path="/")
        self.on_used()
        return answer


def _cookie_of(request: Request) -> str:
    """Return the name of our cookie: cookies are of a host, and each port has its own page."""
    return f"outlast-{request.url.port or 0}"


class ProxyUsers:
    """Lets in whom a proxy has let in: it sets a header, which counts from its address alone."""

    def __init__(self, header: str, networks: Sequence[Network]) -> None:
        self._header = header
        self._networks = networks

    def judge(self, request: Request) -> Access | None:
        """Return who the proxy says it is. Of two such headers, one is not the proxy's."""
        users = request.headers.getlist(self._header)
        if len(users) != 1 or not users[0].strip() or request.client is None:
            return None
        is_proxy = is_within(request.client.host, self._networks)
        return Access(users[0].strip(), can=EVERYTHING) if is_proxy else None

    def refuse(self, request: Request) -> Response | None:
        """Refuse plainly."""
        return None


def is_within(host: str, networks: Sequence[Network]) -> bool:
    """Whether an address is of one of these networks; a name is of none."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


class Anyone:
    """Lets everyone in: what ``--no-auth`` asks for."""

    def judge(self, request: Request) -> Access | None:
        """Return the same for all."""
        return Access("anyone", can=EVERYTHING)

    def refuse(self, request: Request) -> Response | None:
        """Refuse plainly."""
        return None
