"""Keep pages rendered a moment ago, for all tabs that request the same.

When something has changed, each open tab loads again. One read of the store answers all of them, so
the page is rendered once as well: for one user, one address and one state of the reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable

import msgspec

from outlast.base.clock import Clock
from outlast.web.reader import StoreReader

KEEP_SECONDS = 1.0
BYTES_MAX = 2 * 1024 * 1024  # of all kept pages


class RenderedPage(msgspec.Struct, frozen=True):
    """A page as it is sent, and its ETag, with which a browser shows that it has the page."""

    body: bytes
    tag: str


def finish(text: str) -> RenderedPage:
    """Return a page from its text."""
    body = text.encode()
    return RenderedPage(body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


_NONE = RenderedPage(b"", "")


class RenderedPages:
    """The pages of one site. A page is used again until the store is read again, or a kept read is
    forgotten: so no page is older than the hint that it follows."""

    def __init__(self, reader: StoreReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._kept: dict[Hashable, tuple[float, RenderedPage]] = {}
        self._state = (0, 0)
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], str], since: int) -> RenderedPage:
        """Return the page of this key; make it if there is none. ``since``: the reader's
        ``forgotten`` before the first read for the page. If something was forgotten meanwhile,
        other tabs may already have a hint of changes that this page lacks."""
        if since != self._reader.forgotten:
            return finish(make())
        state = (self._reader.looks, since)
        if state != self._state:
            self._state = state
            self._forget_all()
        until, page = self._kept.pop(key, (0.0, _NONE))
        if self._clock.boot() < until:
            self._kept[key] = until, page
            return page
        self._bytes -= len(page.body)
        page = finish(make())
        if self._bytes + len(page.body) > BYTES_MAX:
            self._forget_all()
        self._kept[key] = (self._clock.boot() + KEEP_SECONDS, page)
        self._bytes += len(page.body)
        return page

    def _forget_all(self) -> None:
        self._kept.clear()
        self._bytes = 0
