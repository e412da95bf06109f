"""Reads facts of this machine and its files for stores and the doctor alike."""

from __future__ import annotations

import ipaddress
import os
import pwd
from pathlib import Path

from outlast.errors import StoreUnavailable


def owner_unless_own(path: str | Path) -> str | None:
    """Return the name of a file's owner; None if it is this user, or there is no file."""
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


def is_there(path: Path) -> bool:
    """Whether anything exists at this path. StoreUnavailable if that cannot be seen."""
    return mode_of(path) is not None


def mode_of(path: Path) -> int | None:
    """Return the type and permissions of the file at this path; None: there is none."""
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise StoreUnavailable(
            f"{path} cannot be reached: this user may not enter one of the directories above it"
        ) from error
    except OSError as error:  # a name that is too long, a link to itself
        raise StoreUnavailable(f"{path} cannot be reached: {error.strerror}") from error
