"""Sign users in by a password (HTTP Basic), and make guesses expensive.

A browser sends the password with each request, and a check takes some tenths of a second. So a
password that was right is recognized by a keyed digest, kept only in memory. Other passwords are
checked one after another in a thread: any number of guesses takes one processor and 16 MiB, and
signed-in users never wait for them. If too many requests wait, the next one is refused.

Failures are counted by the address that they came from, and by the name that was tried. Each
address and name has some tries at once, and then one in a while. A try that comes too early is not
checked and not counted, so the longest wait is known. Counts lie in slots, chosen by a digest with
a key of this process: memory is bounded, a flood cannot displace a count, and a name that does not
exist is slowed down like one that does. An address that has not failed lately does not wait for
the name: otherwise anyone who guesses could keep the owner of a name out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
from array import array
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from math import ceil
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from outlast.base.clock import SYSTEM, Clock, secret_bytes
from outlast.base.passwords import decoy_for, read_users
from outlast.web.access import EVERYTHING, Access
from outlast.web.problem import Problem, WebRefusal, answer_plainly
from outlast.web.session import Network, Users, is_within

REALM = 'Basic realm="Outlast", charset="UTF-8"'
WAITING_MAX = 20  # requests whose password is checked, or waits for that


class PasswordUsers(Users):
    """Lets in users with a password in the file: lines ``USER:HASH``, as ``passwords.py`` writes
    them.

    ``proxies``: networks of proxies, which pass on the client's address.
    """

    def __init__(
        self, path: Path, proxies: Sequence[Network] = (), *, clock: Clock = SYSTEM
    ) -> None:
        """Raises ConfigError if the file cannot be used, or others may read it."""
        self._users = read_users(path)
        self._decoy = decoy_for(next(iter(self._users.values())).cost)
        self._proxies = proxies
        self._guesses = Guesses(clock)
        self._key = secret_bytes(32)
        self._known: dict[str, bytes] = {}  # user -> the digest of the right password
        self._waiting = 0
        self._turn = asyncio.Lock()

    async def judge(self, request: Request) -> Access | None:
        """Return the user whose password is right; None: it is wrong. WebRefusal after too many
        guesses."""
        user, password = _credentials(request.headers.get("authorization", ""))
        if not password:
            return None
        mark = hashlib.blake2b(f"{user}:{password}".encode(), key=self._key).digest()
        if self._is_known(user, mark) or await self._check(request, user, password, mark):
            return Access(user, can=EVERYTHING)
        return None

    def _is_known(self, user: str, mark: bytes) -> bool:
        return hmac.compare_digest(self._known.get(user, b""), mark)

    async def _check(self, request: Request, user: str, password: str, mark: bytes) -> bool:
        address = address_of(request, self._proxies)
        self._refuse_early(user, address)
        if self._waiting >= WAITING_MAX:
            said = "Too many passwords are being checked. Try again."
            raise WebRefusal(503, "Busy", said, 1)
        self._waiting += 1
        # shielded: the thread goes on if the request is cancelled, as when its client leaves
        return await asyncio.shield(self._check_in_turn(user, address, password, mark))

    async def _check_in_turn(self, user: str, address: str, password: str, mark: bytes) -> bool:
        try:
            async with self._turn:
                return await self._check_now(user, address, password, mark)
        finally:
            self._waiting -= 1

    async def _check_now(self, user: str, address: str, password: str, mark: bytes) -> bool:
        if self._is_known(user, mark):
            return True
        self._refuse_early(user, address)
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
    """Return the client's address: behind proxies, the address that the outermost trusted proxy has
    seen. Addresses before it in X-Forwarded-For may be forged."""
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


SLOTS = 4096
ADDRESS_TRIES, ADDRESS_SECONDS = 5, 30.0
NAME_TRIES, NAME_SECONDS = 20, 2.0
IPV6_HOST_BITS = 80  # one site may have a /48: 65,536 networks to guess from


class _Debts:
    """Failures by slot: the time at which they are paid off, one every ``seconds``."""

    def __init__(self, tries: int, seconds: float) -> None:
        self._free = (tries - 1) * seconds
        self._seconds = seconds
        self._key = secret_bytes(16)
        self._paid_at = array("d", bytes(8 * SLOTS))

    def _slot(self, what: str) -> int:
        mark = hashlib.blake2b(what.encode("utf-8", "replace"), digest_size=4, key=self._key)
        return int.from_bytes(mark.digest(), "big") % SLOTS

    def debt(self, what: str, now: float) -> float:
        return max(0.0, self._paid_at[self._slot(what)] - now)

    def wait(self, what: str, now: float) -> float:
        return max(0.0, self.debt(what, now) - self._free)

    def add(self, what: str, now: float) -> None:
        slot = self._slot(what)
        self._paid_at[slot] = max(self._paid_at[slot], now) + self._seconds


class Guesses:
    """Recent failures, by address and by name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._addresses = _Debts(ADDRESS_TRIES, ADDRESS_SECONDS)
        self._names = _Debts(NAME_TRIES, NAME_SECONDS)

    def wait(self, name: str, address: str) -> float:
        """Return how many seconds the next try has to wait; 0: it may be made now."""
        now, origin = self._clock.boot(), origin_of(address)
        if not self._addresses.debt(origin, now):
            return 0.0
        return max(self._addresses.wait(origin, now), self._names.wait(name, now))

    def count(self, name: str, address: str) -> None:
        """Count a failure."""
        now = self._clock.boot()
        self._addresses.add(origin_of(address), now)
        self._names.add(name, now)


def origin_of(address: str) -> str:
    """Return the key under which an address is counted: for IPv6, its /48."""
    found = _parse(address)
    return str(int(found) >> IPV6_HOST_BITS if isinstance(found, IPv6Address) else found)


def _parse(address: str) -> IPv4Address | IPv6Address | str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
