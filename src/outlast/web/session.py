"""Sign users in to ``outlast web``: by a link, by a proxy's header, or anyone. By a password:
``sign_in.py``."""

from __future__ import annotations

import hmac
import sys
from collections.abc import Awaitable, Callable, Sequence
from getpass import getuser
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.base.clock import draw_secret
from outlast.web.access import ANYONE, EVERYTHING, Access
from outlast.web.problem import Problem, answer_for

SESSIONS_MAX = 100
PROXY_HEADER = "x-outlast-proxy"

Network = IPv4Network | IPv6Network
LOOPBACK = (IPv4Network("127.0.0.1"), IPv6Network("::1"))


def local_user() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getuser()
    except (OSError, KeyError):
        return "local"


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


class Users:
    """Decides who may use the page: by default, no one may."""

    def judge(self, request: Request) -> Access | Awaitable[Access | None] | None:
        """Return the user of a request; None: an unknown visitor."""
        return None

    def refuse(self, request: Request) -> Response | None:
        """Return the answer to an unknown visitor; None: a plain refusal."""
        return None


class Anyone(Users):
    """Lets everyone in, for ``--no-auth``."""

    def judge(self, request: Request) -> Access | None:
        """Return the same user for all requests."""
        return Access(ANYONE, can=EVERYTHING)


class LinkSessions(Users):
    """Lets in a visitor with the link from the terminal: it works once, and leaves a cookie.

    A browser sends that cookie to each port of the host, and so to the server of another user of
    this machine. A session belongs to the user whose process opened the link: another user's
    process cannot use it, and a session that was opened on another machine does not count on this
    one.

    ``token`` is the token of the next link; ``on_used`` is called when a link was used, to print
    the next.
    """

    def __init__(self) -> None:
        self.token = draw_secret()
        self.on_used: Callable[[], None] = lambda: None
        self._sessions: list[tuple[str, int | None]] = []  # a cookie, and its user on this machine
        self._access = Access(local_user(), can=EVERYTHING)

    def judge(self, request: Request) -> Access | None:
        """Return the user of one of our cookies."""
        shown = _cookies(request, _cookie_of(request))
        users = [uid for one, uid in self._sessions if any(same(value, one) for value in shown)]
        return self._access if users and _user_of(request) in users else None

    def refuse(self, request: Request) -> Response | None:
        """Accept a link that was not used yet; refuse others."""
        given = request.query_params.get("token", "")
        if request.method != "GET" or not same(given, self.token):
            said = (
                "Open the link that `outlast web` printed. It works once, and this browser then"
                " stays signed in. A program needs a user of --password-file."
            )
            return answer_for(request.url.path, Problem(401, "Sign in", said))
        self.token = draw_secret()
        session = draw_secret()
        kept = [*self._sessions, (session, _user_of(request))]
        self._sessions = kept[-SESSIONS_MAX:]
        answer = RedirectResponse("./", 303)
        answer.set_cookie(_cookie_of(request), session, httponly=True, samesite="strict", path="/")
        self.on_used()
        return answer


def _cookie_of(request: Request) -> str:
    """Return our cookie's name, made from the port: a host's ports share cookies, not pages."""
    return f"outlast-{request.url.port or 0}"


def _cookies(request: Request, name: str) -> list[str]:
    """Return the values of a cookie, without decoding: Python's own parser takes seconds for a long
    quoted value."""
    pairs = (
        pair.strip().partition("=")
        for header in request.headers.getlist("cookie")
        for pair in header.split(";")
    )
    return [value for key, _, value in pairs if key == name]


def _user_of(request: Request) -> int | None:
    """Return the user of this machine who sends a request; None: it comes from another machine."""
    client = request.client
    return uid_of(None if client is None else (client.host, client.port), request.scope["server"])


class ProxyUsers(Users):
    """Lets in users whom a proxy has let in: it sets a header, which counts only from its address.

    ``secret``: the value that the proxy sends as ``X-Outlast-Proxy``. Without a secret, any process
    at an address of ``networks`` may name a user.
    """

    def __init__(self, header: str, networks: Sequence[Network], secret: str = "") -> None:
        self._header = header
        self._networks = networks
        self._secret = secret

    def judge(self, request: Request) -> Access | None:
        """Return the user whom the proxy names; none if there are two such headers: one is
        forged."""
        users = request.headers.getlist(self._header)
        if len(users) != 1 or not users[0].strip() or request.client is None:
            return None
        shown = request.headers.getlist(PROXY_HEADER)
        knows_secret = not self._secret or (len(shown) == 1 and same(shown[0], self._secret))
        is_proxy = knows_secret and is_within(request.client.host, self._networks)
        return Access(users[0].strip(), can=EVERYTHING) if is_proxy else None


def is_within(host: str, networks: Sequence[Network]) -> bool:
    """Whether an address is in one of these networks; a name is in none."""
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return any(address in network for network in networks)


_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7  # columns of a table
_ESTABLISHED = "01"

Address = tuple[str, int | None]


def uid_of(client: Address | None, server: Address | None) -> int | None:
    """Return the numeric id of the user at the client's end of a connection.

    None: that end is not on this machine, is closed, or the system has no such table.
    """
    ends = _shown(client), _shown(server)
    for table in _TABLES:
        for row in _rows_of(table):
            is_meant = row[_LOCAL] in ends[0] and row[_REMOTE] in ends[1]
            if is_meant and row[_STATE] == _ESTABLISHED:
                return int(row[_UID])
    return None


def _shown(end: Address | None) -> set[str]:
    """Return the forms in which the tables show one end: an IPv4 address also as an IPv6 one."""
    try:
        address = None if end is None else ip_address(end[0])
    except ValueError:
        address = None
    if end is None or end[1] is None or address is None:
        return set()
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    forms: list[IPv4Address | IPv6Address] = [address]
    if isinstance(address, IPv4Address):
        forms.append(IPv6Address(f"::ffff:{address}"))
    return {f"{_words(form.packed)}:{end[1]:04X}" for form in forms}


def _words(packed: bytes) -> str:
    """Return an address as the tables show it: as words, in this machine's byte order."""
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _rows_of(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return []
