"""Check whether something has changed, once for all open pages, and only while there are any."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice, zip_longest

import msgspec

from outlast.base.clock import Clock
from outlast.errors import OutlastError
from outlast.insight.availability import health
from outlast.insight.queries import read_workers
from outlast.insight.stats import Overview, read_overview
from outlast.model.job import State
from outlast.store.protocol import Store
from outlast.store.rows import StoredJob, WorkerRow
from outlast.web.reader import StoreReader

LOOK_SECONDS = 0.7  # between two reads of jobs
SLOW = 3  # reads of jobs for each read of all else, at least
SLOW_MAX = 14  # and at most, if reads take long:
SHARE = 0.02  # of the time, for all reads of the page
CLIENTS_MAX = 500
JOBS_MAX = 500  # watched at once
LOGS_MAX = 20  # running jobs whose lines are watched at once


def _numbers(seen: Overview) -> object:
    """Return all numbers except the age of the oldest job, which changes by itself."""
    stats = seen.stats
    queues = [each | {"oldest_due_seconds": None} for each in stats["queues"]]
    return stats | {"queues": queues}


def _standings(workers: Sequence[WorkerRow]) -> object:
    return [
        (one.id, one.status, one.running, one.failing, one.drain_requested, health(one, 0.0))
        for one in workers
    ]


async def _workers(store: Store) -> object:
    return _standings(await read_workers(store))


async def _logs(store: Store, job_id: int) -> object:
    return await store.inspector.logs(job_id)


async def _refusals(store: Store) -> object:
    return await store.inspector.refusals(limit=1)


_ALONE: dict[str, Callable[[Store], Awaitable[object]]] = {
    "workers": _workers,
    "refusals": _refusals,
}
"""Topic -> what is looked at."""
TOPICS = frozenset({"stats", *_ALONE})


class LivePage:
    """An open page of a user, and its topics. ``ended``: another user's page took its place."""

    def __init__(self, topics: frozenset[str], user: str) -> None:
        self.topics, self.user = topics, user
        self.ended = False
        self.hinted = asyncio.Event()


class Sampler:
    """Reads the topics of its clients, and hints at changes. It belongs to one event loop."""

    def __init__(self, reader: StoreReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._clients: dict[LivePage, None] = {}  # the oldest first
        self._seen: dict[str, object] = {}
        self._spent = 0.0
        self._task: asyncio.Task[None] | None = None
        self.stopped = asyncio.Event()

    def has_room(self, user: str) -> bool:
        """Whether a page of this user may be live: there are not too many live pages, or another
        user with more of them gives one up."""
        if len(self._clients) < CLIENTS_MAX:
            return True
        pages = Counter(each.user for each in self._clients)
        return max(pages.values()) > pages[user] + 1

    def join(self, topics: frozenset[str], user: str = "") -> LivePage:
        """Add a client; the first one starts the sampler. If there are too many, end a page of the
        user with the most."""
        client = LivePage(topics, user)
        self._clients[client] = None
        if len(self._clients) > CLIENTS_MAX:
            self._end_one()
        if self._task is None or self._task.done():
            self._seen, self._spent = {}, self._reader.spent
            self._task = asyncio.get_running_loop().create_task(
                self._run(), name="outlast-web-sampler"
            )
        return client

    def _end_one(self) -> None:
        most = Counter(each.user for each in self._clients).most_common(1)[0][0]
        oldest = next(each for each in self._clients if each.user == most)
        oldest.ended = True
        oldest.hinted.set()
        del self._clients[oldest]

    def leave(self, client: LivePage) -> None:
        """Remove a client; without any, the sampler ends."""
        self._clients.pop(client, None)
        if not self._clients and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        rest, was_away = 0, False  # reads of jobs until the next read of all else
        while True:
            changed: set[str] = set()
            try:
                changed = await self._look(slow=rest == 0 or self._has_new_topic())
                is_away = False
            except OutlastError:  # the pages show that themselves, once they load
                is_away = True
            if is_away != was_away:
                self._reader.forget_all()
            self._hint(None if is_away != was_away else changed)
            rest, was_away = 0 if is_away else (rest or self._choose_rest()) - 1, is_away
            await self._clock.sleep(LOOK_SECONDS)

    def _has_new_topic(self) -> bool:
        """Whether a client has a topic of which no numbers were read: changes are found by
        comparing with them, so the first read must not come late."""
        return any(TOPICS & client.topics - self._seen.keys() for client in self._clients)

    def _choose_rest(self) -> int:
        """Return how many reads of jobs come before the next read of all else. The reads of pages
        after the last hint count, too: the hint caused them."""
        spent, self._spent = self._reader.spent - self._spent, self._reader.spent
        return min(max(SLOW, math.ceil(spent / SHARE / LOOK_SECONDS)), SLOW_MAX)

    def _hint(self, changed: set[str] | None) -> None:
        """Hint at these topics; None: at all topics, since the store went away or is back."""
        for client in self._clients:
            if changed is None or client.topics & changed:
                client.hinted.set()

    async def _look(self, *, slow: bool) -> set[str]:
        """Return the topics that have changed since they were last read."""
        wanted = {topic for client in self._clients for topic in client.topics}
        self._seen = {topic: mark for topic, mark in self._seen.items() if topic in wanted}
        rows, changed = await self._look_at_jobs({topic for topic in wanted if ":" in topic})
        if not slow:
            return changed
        printing = [row.id for row in rows if row.state is State.RUNNING]
        logs = await self._look_at_logs([one for one in printing if f"logs:{one}" in wanted])
        return changed | logs | await self._look_at_all_else(wanted)

    async def _look_at_all_else(self, wanted: set[str]) -> set[str]:
        """Read all topics except jobs. If one has changed, the earlier reads of pages are
        forgotten, so that pages that get the hint see the change."""
        began_at = self._clock.boot()
        changed = await self._look_at_all() if "stats" in wanted else set()
        for topic in sorted(wanted & _ALONE.keys()):
            if topic == "workers" and "stats" in wanted:
                continue  # they were read with all others
            self._reader.forget(("topic", topic))
            if self._note(topic, await self._reader.ask(("topic", topic), _ALONE[topic])):
                changed.add(topic)
        if changed:
            self._reader.forget_before(began_at)
        return changed

    async def _look_at_all(self) -> set[str]:
        """Read numbers and workers; pages that load now are shown the same read."""
        self._reader.forget("overview")
        seen = await self._reader.ask("overview", read_overview)
        changed = {"stats"} if self._note("stats", _numbers(seen)) else set()
        if self._note("workers", _standings(seen.workers)):
            changed.add("workers")
        return changed

    def _watched(self) -> list[int]:
        """Return the jobs to read: each page's first job, then each page's second, and so on, so
        that no page takes the places of others."""
        asked = [sorted(topic for topic in each.topics if ":" in topic) for each in self._clients]
        rounds = (topic for turn in zip_longest(*asked) for topic in turn if topic is not None)
        ids = dict.fromkeys(int(topic.partition(":")[2]) for topic in rounds)
        return sorted(islice(ids, JOBS_MAX))

    async def _look_at_jobs(self, topics: set[str]) -> tuple[list[StoredJob], set[str]]:
        ids = self._watched()
        if not ids:
            return [], set()
        self._reader.forget(("topic", "jobs"))
        rows = await self._reader.ask(
            ("topic", "jobs"), lambda store: store.inspector.jobs_of(ids, 0)
        )
        standing = {row.id: _standing(row) for row in rows}
        changed = {one for one in ids if self._note(f"job:{one}", standing.get(one))}
        self._reader.forget(*((kind, one) for one in changed for kind in ("job", "logs")))
        return rows, {f"job:{one}" for one in changed}

    async def _look_at_logs(self, ids: list[int]) -> set[str]:
        """Read the output of running jobs: a job that has ended prints nothing more."""
        changed: set[str] = set()
        for one in ids[:LOGS_MAX]:
            key = ("topic", "logs", one)
            self._reader.forget(key)
            found = await self._reader.ask(key, partial(_logs, job_id=one))
            if self._note(f"logs:{one}", found):
                changed.add(f"logs:{one}")
                self._reader.forget(("logs", one))
        return changed

    def _note(self, topic: str, found: object) -> bool:
        """Note a topic's value; return whether it has changed."""
        mark = hash(msgspec.msgpack.encode(found))
        known = self._seen.get(topic)
        self._seen[topic] = mark
        return known is not None and known != mark


def _standing(row: StoredJob) -> object:
    """Return the parts of a job's row that its page shows, without large columns."""
    return msgspec.structs.replace(row, args="")
