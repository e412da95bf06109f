"""Looks at paths, as far as this user may see."""

from __future__ import annotations

import os
from pathlib import Path

from outlast.errors import StoreUnavailable


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
