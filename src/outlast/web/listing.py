"""Read the parameters that lists share from the URL: names to filter by, and the id at which a page
begins (never an offset)."""

from __future__ import annotations

from collections.abc import Mapping

from outlast.web.problem import WebRefusal

ROWS = 50  # of one page
ROWS_MAX = 200
ID_MAX = 2**63 - 1
DIGITS = 19
NAME_MAX = 1_000


def read_number(query: Mapping[str, str], name: str, most: int = ID_MAX) -> int | None:
    """Return a whole number from 1 to ``most`` in the URL; None: it is missing."""
    text = query.get(name)
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS else 0
    if not 1 <= number <= most:
        raise WebRefusal(400, "Not valid", f"{name}= must be a whole number from 1 to {most}.")
    return number


def read_name(query: Mapping[str, str], name: str) -> str | None:
    """Return a name in the URL; None: it is missing."""
    text = query.get(name)
    if text is not None and len(text) > NAME_MAX:
        raise WebRefusal(400, "Not valid", f"{name}= may have at most {NAME_MAX} characters.")
    return text


def require_name(query: Mapping[str, str], name: str) -> str:
    """Return a name that has to be in the URL."""
    found = read_name(query, name)
    if found is None:
        raise WebRefusal(400, "Which one?", f"The address must contain {name}=.")
    return found
