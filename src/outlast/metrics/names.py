"""Which names are told apart in labels: each is a series to keep for those who store numbers."""

from __future__ import annotations

from outlast.base.text import line
from outlast.store.minutes import OTHER

QUEUES_MAX, TASKS_MAX = 200, 500
NAME_MAX = 200  # characters of a name


class Names:
    """The names that have a label of their own: the first that were seen. A name keeps its label as
    long as the program runs, so that no counter falls because another name came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def label(self, name: str) -> str:
        """Return the label of a name: itself, made safe, or ``_other``."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= self._most:
                return OTHER
            known = self._known[name] = line(name, NAME_MAX)
        return known
