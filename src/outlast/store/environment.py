"""Reads facts of this machine for stores and the doctor alike."""

from __future__ import annotations

import ipaddress
import os
import pwd
from pathlib import Path


def owner_unless_own(path: str | Path) -> str | None:
    """Return the name of a file's owner; None if that is this user, or the file does not exist."""
    try:
        uid = os.stat(path).st_uid
    except OSError:
        return None
    if uid == os.geteuid():
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def is_here(host: str) -> bool:
    """Whether a host, with or without a port, is this machine, or a socket on it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]").lower()
    if not name or name.startswith("/") or name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
