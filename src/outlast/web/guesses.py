"""Slow down visitors who guess passwords, but not users who have one.

Failures are counted by the address that they came from, and by the name that was tried. Each
address and name has some tries at once, and then one in a while. A try that comes too early is not
checked and not counted, so the longest wait is known. Counts lie in slots, chosen by a digest with
a key of this process: memory is bounded, a flood cannot displace a count, and a name that does not
exist is slowed down like one that does.

An address that has not failed lately does not wait for the name: otherwise anyone who guesses could
keep the owner of a name out.
"""

from __future__ import annotations

import hashlib
from array import array
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from outlast.base.clock import Clock, secret_bytes

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
