"""Read the store over a few read-only connections, once for all visitors who ask the same.

A result is kept for KEEP_SECONDS, and longer if the read was slow, so that reading takes no more
than SHARE of the time: any number of open pages costs the store one read in that time. The number
and the size of kept results are bounded. The server ends statements that take longer than a second.
A read that fails is forgotten at once, and tried again for the next visitor.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

import msgspec

from outlast.base.clock import Clock
from outlast.client.stores import StoreProvider
from outlast.insight.hiding import Covering, Hiding
from outlast.store.finding import NoWrites
from outlast.store.protocol import Store

T = TypeVar("T")

CONNECTIONS = 3
STATEMENT_SECONDS = 1.0
KEEP_SECONDS = 2.0
SHARE = 0.02  # of the time, for one read: a slow read is repeated less often,
SLOW_KEEP_SECONDS = 10.0  # but at least this often
KEPT_MAX = 200  # reads whose results are kept
KEPT_BYTES = 32 * 1024 * 1024  # of texts in them
_WITHOUT = "without payloads"  # in the key of such a read


class _Look:
    """A read that is done or under way, when it began, and for how many seconds its result is kept
    from then on. It belongs to one event loop."""

    __slots__ = ("began_at", "keep", "loop", "result", "size")

    def __init__(self, began_at: float, keep: float, result: asyncio.Task[Any]) -> None:
        self.began_at, self.keep, self.result, self.size = began_at, keep, result, 0
        self.loop = asyncio.get_running_loop()


class StoreReader:
    """Reads one store.

    Attributes:
        looks: how many reads went to the store; no_writes: why the store takes no writes at
            present, if so.
    """

    def __init__(self, url: str, clock: Clock, hiding: Hiding | None = None) -> None:
        self._hiding = hiding or Hiding()
        self._stores = StoreProvider(
            url,
            enqueues=False,
            connections=CONNECTIONS,
            statement_timeout=STATEMENT_SECONDS,
            read_only=True,
            application="outlast-web",
        )
        self._clock = clock
        self._kept: dict[Hashable, _Look] = {}
        self.looks = 0
        self.no_writes: NoWrites | None = None
        self._asked_at = -KEEP_SECONDS

    async def ask(
        self,
        key: Hashable,
        work: Callable[[Store], Awaitable[T]],
        keep: float = KEEP_SECONDS,
        *,
        payload: bool = True,
    ) -> T:
        """Return the result of ``work(store)``, read at most ``keep`` seconds ago, or up to
        SLOW_KEEP_SECONDS if that read was slow.

        ``key`` names the read, with everything that its result depends on: the same key, the same
        answer. ``payload``: whether the visitor has that right; all that ``work`` reads is covered
        accordingly. A visitor who leaves does not cancel a read for which others wait.
        """
        mine = key if payload else (_WITHOUT, key)
        look = self._kept.get(mine)
        if look is None or self._is_stale(look):
            started = self._start(mine, work, Covering(self._hiding, payload=payload))
            look = self._kept[mine] = _Look(self._clock.boot(), keep, started)
            self._tidy()
        result: T = await asyncio.shield(look.result)
        return result

    def forget_all(self) -> None:
        """Drop all kept results, after a change."""
        self._kept.clear()

    async def close(self) -> None:
        """Release the connections; they open again when needed."""
        self.forget_all()
        await self._stores.close()

    def _start(
        self, key: Hashable, work: Callable[[Store], Awaitable[T]], covering: Covering
    ) -> asyncio.Task[T]:
        async def look() -> T:
            self.looks += 1
            store = await self._stores.store()
            found = await work(covering.view(store))
            if self._clock.boot() >= self._asked_at + KEEP_SECONDS:
                self._asked_at = self._clock.boot()
                self.no_writes = await store.inspector.no_writes()
            return found

        def end(done: asyncio.Task[T]) -> None:
            failed = done.cancelled() or done.exception() is not None
            mine = self._kept.get(key)
            if mine is None or mine.result is not done:
                return
            if failed:
                del self._kept[key]
                return
            took = self._clock.boot() - mine.began_at
            mine.keep = max(mine.keep, min(took / SHARE, SLOW_KEEP_SECONDS))
            mine.size = _size_of(done.result())
            self._tidy()

        task = asyncio.get_running_loop().create_task(look(), name="outlast-web-look")
        task.add_done_callback(end)
        return task

    def _is_stale(self, look: _Look) -> bool:
        if look.loop is not asyncio.get_running_loop():
            return True
        return look.result.done() and self._clock.boot() >= look.began_at + look.keep

    def _tidy(self) -> None:
        """Drop stale results and, if there are too many or they are too large, the oldest."""
        kept = [each for each in self._kept.items() if not self._is_stale(each[1])][-KEPT_MAX:]
        size = sum(look.size for _, look in kept)
        while size > KEPT_BYTES:
            size -= kept.pop(0)[1].size
        self._kept = dict(kept)


def _size_of(value: Any) -> int:
    """Return about how many bytes the texts of a result take."""
    if isinstance(value, str | bytes):
        return sys.getsizeof(value)
    if isinstance(value, msgspec.Struct):
        return sum(_size_of(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, dict):
        return sum(map(_size_of, value.values()))
    return sum(map(_size_of, value)) if isinstance(value, list | tuple) else 0
