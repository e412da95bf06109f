"""Who may come in by a password (HTTP Basic), and what a guess costs.

A browser sends the password with each request, and a check takes some tenths of a second. So one
that was right is known again by a keyed digest, in memory alone. Other passwords are checked one
after another in a thread: any number of guesses takes one processor and 16 MiB, and no answer to
anyone who is signed in waits for them.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from math import ceil
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from outlast.clock import SYSTEM, Clock, secret_bytes
from outlast.passwords import decoy_for, read_users
from outlast.web.access import EVERYTHING, Access
from outlast.web.guesses import Guesses
from outlast.web.problem import Problem, WebRefusal, answer_plainly
from outlast.web.session import Network, is_within

REALM = 'Basic realm="Outlast", charset="UTF-8"'
WAITING_MAX = 20  # requests whose password is to be checked


class PasswordUsers:
    """Lets in who has a password in the file: lines ``USER:HASH``, as ``passwords.py`` writes them.

    ``proxies``: networks of proxies, which name the address that a request has come from.
    """

    def __init__(
        self, path: Path, proxies: Sequence[Network] = (), *, clock: Clock = SYSTEM
    ) -> None:
        """Raises ConfigError where the file cannot be used, or others may read it."""
        self._users = read_users(path)
        self._decoy = decoy_for(next(iter(self._users.values())).cost)
        self._proxies = proxies
        self._guesses = Guesses(clock)
        self._key = secret_bytes(32)
        self._known: dict[str, bytes] = {}  # user -> the mark of the right password
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def judge(self, request: Request) -> Access | None:
        """Return the user whose password is right; None: it is wrong. WebRefusal: too many were."""
        user, password = _credentials(request.headers.get("authorization", ""))
        if not password:
            return None
        mark = self._mark(user, password)
        if self._is_known(user, mark) or await self._check(request, user, password, mark):
            return Access(user, can=EVERYTHING)
        return None

    def _mark(self, user: str, password: str) -> bytes:
        return hashlib.blake2b(f"{user}:{password}".encode(), key=self._key).digest()

    def _is_known(self, user: str, mark: bytes) -> bool:
        return hmac.compare_digest(self._known.get(user, b""), mark)

    async def _check(self, request: Request, user: str, password: str, mark: bytes) -> bool:
        address = address_of(request, self._proxies)
        self._refuse_early(user, address)
        if self._waiting >= WAITING_MAX:
            raise WebRefusal(503, "Busy", "Too many passwords are being checked. Try again.", 1)
        self._waiting += 1
        try:
            async with self._turn:
                if self._is_known(user, mark):
                    return True
                self._refuse_early(user, address)
                return await self._compare(user, password, mark, address)
        finally:
            self._waiting -= 1

    async def _compare(self, user: str, password: str, mark: bytes, address: str) -> bool:
        kept = self._users.get(user)
        is_right = await asyncio.to_thread((kept or self._decoy).is_of, password)
        if kept is None or not is_right:
            self._guesses.count(user, address)
            return False
        self._known[user] = mark
        return True

    def _refuse_early(self, user: str, address: str) -> None:
        wait = ceil(self._guesses.wait(user, address))
        if wait:
            said = f"Too many wrong passwords. The next one is checked in {wait} s."
            raise WebRefusal(429, "Too early", said, wait)

    def refuse(self, request: Request) -> Response | None:
        """Ask for a password."""
        answer = answer_plainly(Problem(401, "Who are you?", "Sign in to see this page."))
        answer.headers["www-authenticate"] = REALM
        return answer


def address_of(request: Request, proxies: Sequence[Network]) -> str:
    """Return the client's address: behind proxies, the one that the outermost trusted proxy has
    seen. What stands before it in X-Forwarded-For may be forged."""
    peer = "" if request.client is None else request.client.host
    written = ",".join(request.headers.getlist("x-forwarded-for"))
    for before in reversed([part.strip() for part in written.split(",") if part.strip()]):
        if not is_within(peer, proxies):
            return peer
        peer = before
    return peer


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password
