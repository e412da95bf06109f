"""Pages rendered a moment ago, for all tabs that ask for the same.

When something has changed, each open tab asks again. All of them are answered from one look at the
store, so the page is rendered once as well: for one user, one address and one state of the reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from outlast.clock import Clock
from outlast.web.reader import StoreReader

KEEP_SECONDS = 1.0
KEPT_MAX = 50  # pages


class RenderedPages:
    """The pages of one site. A page is used again until the store is looked at again, or
    something that was read is forgotten: so none shows less than the hint that it follows."""

    def __init__(self, reader: StoreReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, str]] = {}

    def get(self, key: Hashable, make: Callable[[], str]) -> str:
        """Return the page of this key; where there is none, as it is made now."""
        whole = (key, self._reader.looks, self._reader.forgotten)
        until, text = self._kept.get(whole, (0.0, ""))
        if self._clock.boot() < until:
            return text
        text = make()
        while len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[whole] = (self._clock.boot() + KEEP_SECONDS, text)
        return text
