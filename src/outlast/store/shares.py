"""Shares a budget of rows among many counts, so that a look stays bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K")
SHARE = 100  # rows that are counted for each key at first
PROBE = 2  # rows cost as much as finding where a key's rows begin


class Shares(Generic[K]):
    """Decides what is counted next, and how far, when many keys share one budget of ``most`` rows.

    At first each of ``keys`` is counted up to ``rows``; keys that have reached it share ``most``
    once more (``go_on``) if that leads twice as far. So a few long ones are counted far, and all
    counts together read no more than 2 x ``most`` rows, for any number of keys.
    """

    def __init__(self, most: int, keys: Iterable[K]) -> None:
        self._most = most
        self._is_first = True
        self.keys = list(keys)
        self.rows = self._even_share(SHARE)

    def go_on(self, full: Sequence[K]) -> None:
        """Count the keys that have reached ``rows`` once more, if that leads further."""
        before, self.keys = self.rows, list(full) if self._is_first else []
        self._is_first = False
        self.rows = self._even_share(self._most)
        if self.rows < 2 * before:
            self.keys = []

    def _even_share(self, at_most: int) -> int:
        return max(1, min(at_most, self._most // max(1, len(self.keys)) - PROBE))
