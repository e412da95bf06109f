"""Sign users in by a password (HTTP Basic), and let guesses cost no more than one processor.

A browser sends the password with each request, and a check takes some tenths of a second. So a
password that was right is recognized by a keyed digest, kept only in memory: users who have signed
in never wait. Other passwords are checked one at a time in a thread, the next one a second after a
wrong one; if too many wait, the next request is refused. So guesses hold up others who sign in for
the first time: for them there is the link of ``outlast web``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from outlast.base.clock import SYSTEM, Clock, secret_bytes
from outlast.base.passwords import DIGEST_BYTES, SALT_BYTES, PasswordHash, read_users
from outlast.web.access import EVERYTHING, Access
from outlast.web.problem import Problem, WebRefusal, answer_for
from outlast.web.session import Users

REALM = 'Basic realm="Outlast", charset="UTF-8"'
WAITING_MAX = 20  # requests whose password is checked, or waits for that
WRONG_SECONDS = 1.0  # from a wrong password to the next check


class PasswordUsers(Users):
    """Lets in users with a password in the file, as ``passwords.py`` writes it."""

    def __init__(self, path: Path, *, clock: Clock = SYSTEM) -> None:
        """Raises ConfigError if the file cannot be used, or others may read it."""
        self._users = read_users(path)
        self._decoy = PasswordHash(secret_bytes(SALT_BYTES), secret_bytes(DIGEST_BYTES))
        self._clock = clock
        self._key = secret_bytes(32)
        self._known: dict[str, bytes] = {}  # user -> the digest of the right password
        self._waiting = 0
        self._turn = asyncio.Lock()

    async def judge(self, request: Request) -> Access | None:
        """Return the user whose password is right; None: it is wrong. WebRefusal if too many wait
        to be checked."""
        user, password = _credentials(request.headers.get("authorization", ""))
        if not password:
            return None
        mark = hashlib.blake2b(f"{user}:{password}".encode(), key=self._key).digest()
        if not self._is_known(user, mark):
            if self._waiting >= WAITING_MAX:
                said = "Too many passwords are being checked. Try again."
                raise WebRefusal(503, "Busy", said, WAITING_MAX)
            self._waiting += 1
            # shielded: the thread goes on if the request is cancelled, as when its client leaves
            await asyncio.shield(self._check(user, password, mark))
        return Access(user, can=EVERYTHING) if self._is_known(user, mark) else None

    def _is_known(self, user: str, mark: bytes) -> bool:
        return hmac.compare_digest(self._known.get(user, b""), mark)

    async def _check(self, user: str, password: str, mark: bytes) -> None:
        """Keep the digest of a password that is right."""
        try:
            async with self._turn:
                if self._is_known(user, mark):
                    return
                kept = self._users.get(user, self._decoy)
                if await asyncio.to_thread(kept.is_of, password) and user in self._users:
                    self._known[user] = mark
                else:
                    await self._clock.sleep(WRONG_SECONDS)
        finally:
            self._waiting -= 1

    def refuse(self, request: Request) -> Response | None:
        """Ask for a password."""
        problem = Problem(401, "Sign in", "Sign in to see this page.")
        answer = answer_for(request.url.path, problem)
        answer.headers["www-authenticate"] = REALM
        return answer


def _credentials(header: str) -> tuple[str, str]:
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return user, password
