"""Sign users in by a password (HTTP Basic), and make guesses expensive.

A browser sends the password with each request, and a check takes some tenths of a second. So a
password that was right is recognized by a keyed digest, kept only in memory. Other passwords are
checked one after another in a thread: any number of guesses takes one processor and 16 MiB, and
signed-in users never wait for them. If too many requests wait, a network with more of them gives
way to one with fewer: a flood from some networks cannot keep out users in another.

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
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
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
WAITING_MAX = 20  # requests that wait for a check of their password


class PasswordQueue:
    """The queue for checks of passwords: one check at a time, in order of arrival, at most
    WAITING_MAX requests including the current one.

    A newcomer to a full queue takes the place of the last request of the most crowded network, if
    that network has more in the queue than the newcomer's own would have then ("longest queue
    drop": McKenney, Stochastic Fairness Queueing, 1990).
    """

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def take(self, network: str) -> AsyncGenerator[None]:
        """Wait for a turn, and have it. WebRefusal: too many wait."""
        if self._is_taken:
            await self._wait(network)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, network: str) -> None:
        if len(self._waiting) >= WAITING_MAX - 1:
            self._make_room(network)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((network, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting = [each for each in self._waiting if each[1] is not turn]
            elif turn.exception() is None:  # its turn came just as its request ended
                self._pass_on()
            raise

    def _make_room(self, network: str) -> None:
        crowds = Counter(each for each, _ in self._waiting)
        crowd, most = crowds.most_common(1)[0]
        busy = WebRefusal(503, "Busy", "Too many passwords are being checked. Try again.", 1)
        if most <= crowds[network] + 1:
            raise busy
        last = max(at for at, (each, _) in enumerate(self._waiting) if each == crowd)
        self._waiting.pop(last)[1].set_exception(busy)

    def _pass_on(self) -> None:
        if self._waiting:
            self._waiting.pop(0)[1].set_result(None)
        else:
            self._is_taken = False


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
        self._queue = PasswordQueue()

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
        async with self._queue.take(network_of(address)):
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


def network_of(address: str) -> str:
    """Return the large network of an address, as a provider has it: its /16, for IPv6 its /32."""
    found = _parse(address)
    if isinstance(found, str):
        return found
    return str(ip_network((found, 32 if isinstance(found, IPv6Address) else 16), strict=False))


def _parse(address: str) -> IPv4Address | IPv6Address | str:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found
