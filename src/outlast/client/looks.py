"""Read the jobs for which the calls of one event loop wait, all in one statement.

A call that waits for a result reads its job again and again. A thousand such calls would ask the
store a thousand times as often; here one trip at a time serves all calls that asked meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from weakref import WeakKeyDictionary

from outlast.store.protocol import Store
from outlast.store.rows import StoredJob

IDS_MAX = 1000  # in one statement


class Seen(NamedTuple):
    """A job as read, None if it is gone. ``is_whole``: with arguments, checkpoint and result."""

    row: StoredJob | None
    is_whole: bool


Asked = dict[int, "asyncio.Future[Seen]"]


class SharedLooks:
    """The reads that were requested and have not begun, for a single event loop."""

    def __init__(self) -> None:
        self._asked: Asked = {}
        self._looking: asyncio.Task[None] | None = None

    async def ask(self, store: Store, job_id: int) -> Seen:
        """Return the job, by a read that begins after this call: whole if it is the only job
        requested."""
        found = self._asked.get(job_id)
        if found is None:
            found = self._asked[job_id] = asyncio.get_running_loop().create_future()
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look(store))
        return await asyncio.shield(found)  # other calls may wait for it, too

    async def _look(self, store: Store) -> None:
        try:
            while self._asked:
                batch = {each: self._asked.pop(each) for each in [*self._asked][:IDS_MAX]}
                await _answer(store, batch)
        finally:
            self._looking = None


async def _answer(store: Store, batch: Asked) -> None:
    try:
        if len(batch) == 1:
            (job_id,) = batch
            seen = {job_id: Seen(await store.inspector.job(job_id), is_whole=True)}
        else:
            rows = await store.inspector.jobs_of([*batch], 0)
            seen = {row.id: Seen(row, is_whole=False) for row in rows}
    except Exception as error:
        for found in batch.values():
            found.set_exception(error)
            found.exception()  # mark it retrieved, even if no call waits for it any more
        return
    except BaseException:  # the loop ends
        for found in batch.values():
            found.cancel()
        raise
    for job_id, found in batch.items():
        found.set_result(seen.get(job_id, Seen(None, is_whole=True)))


_looks: WeakKeyDictionary[Store, SharedLooks] = WeakKeyDictionary()


def looks_at(store: Store) -> SharedLooks:
    """Return the shared reads of a store, which belongs to one event loop."""
    found = _looks.get(store)
    return _looks.setdefault(store, SharedLooks()) if found is None else found
