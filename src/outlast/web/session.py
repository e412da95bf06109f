"""Who may come in by ``outlast web``: one way of the three, each with its plain refusal."""

from __future__ import annotations

import base64
import binascii
import hmac
import stat
from collections.abc import Callable, Sequence
from getpass import getuser
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Protocol

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.clock import draw_secret
from outlast.errors import ConfigError
from outlast.web.access import EVERYTHING, Access
from outlast.web.problem import Problem, answer_plainly

SESSIONS_MAX = 100
REALM = 'Basic realm="Outlast", charset="UTF-8"'

Network = IPv4Network | IPv6Network


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

    def judge(self, request: Request) -> Access | None:
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


class PasswordUsers:
    """Lets in who has a password in the file: a line ``USER:PASSWORD`` each (HTTP Basic)."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError where the file cannot be used, or others may read it."""
        self._passwords = _read_passwords(path)

    def judge(self, request: Request) -> Access | None:
        """Return who has given a right password."""
        user, password = _credentials(request.headers.get("authorization", ""))
        known = self._passwords.get(user)
        right = same(password, known if known is not None else draw_secret())
        return Access(user, can=EVERYTHING) if right and known is not None else None

    def refuse(self, request: Request) -> Response | None:
        """Ask for a password."""
        answer = answer_plainly(Problem(401, "Who are you?", "Sign in to see this page."))
        answer.headers["www-authenticate"] = REALM
        return answer


class ProxyUsers:
    """Lets in whom a proxy has let in: it sets a header, which counts from its address alone."""

    def __init__(self, header: str, networks: Sequence[Network]) -> None:
        self._header = header
        self._networks = networks

    def judge(self, request: Request) -> Access | None:
        """Return who the proxy says it is."""
        user = request.headers.get(self._header, "").strip()
        if not user or request.client is None or not self._is_proxy(request.client.host):
            return None
        return Access(user, can=EVERYTHING)

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._networks)

    def refuse(self, request: Request) -> Response | None:
        """Refuse plainly."""
        return None


class Anyone:
    """Lets everyone in: what ``--no-auth`` asks for."""

    def judge(self, request: Request) -> Access | None:
        """Return the same for all."""
        return Access("anyone", can=EVERYTHING)

    def refuse(self, request: Request) -> Response | None:
        """Refuse plainly."""
        return None


def _read_passwords(path: Path) -> dict[str, str]:
    try:
        if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path} can be read by others: chmod 600 {path}")
        text = path.read_text()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from error
    found: dict[str, str] = {}
    for number, row in enumerate(text.splitlines(), 1):
        user, colon, password = row.strip().partition(":")
        if row.strip() and not row.startswith("#"):
            if not (user and colon and password):
                raise ConfigError(f"{path}, line {number}: write USER:PASSWORD")
            found[user] = password
    if not found:
        raise ConfigError(f"{path} has no line USER:PASSWORD")
    return found


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password
