"""Find the user of this machine who has a connection to the page.

A browser sends the cookies of a host to each of its ports, so another user's server on this machine
may receive ours. The kernel knows whose process is at the other end of a local connection.
"""

from __future__ import annotations

import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

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
