"""Find the user who runs a command: the name written to the record of actions."""

from __future__ import annotations

import getpass
import socket

from outlast.insight.acting import By


def whoami() -> str | None:
    """Return ``USER@HOST``; None for a user without a name, as in a container."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError, ImportError):
        return None


def me(reason: str | None = None) -> By:
    """Return who acts, and why."""
    return By(whoami() or "a user without a name", reason)
