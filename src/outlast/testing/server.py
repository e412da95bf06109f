"""A database on a server for tests: the tables stay, and what is in Outlast's own is removed.

By the verbs of the store alone, so each kind of store can be emptied. Only a database whose name
says that it is for tests is touched.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from outlast.base.clock import SYSTEM
from outlast.base.credentials import redact
from outlast.errors import ConfigError
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import Orphan

BATCH = 500
_FOR_TESTS = re.compile(r"(?<![a-z])test", re.IGNORECASE)  # a word, not the end of "latest"


def check_for_tests(url: str) -> None:
    """Raise ConfigError unless the name of the database says that it is for tests."""
    name = unquote(urlsplit(url).path.lstrip("/"))
    if not _FOR_TESTS.search(name):
        raise ConfigError(
            f"the jobs of a test's database are deleted, so its name must contain the word 'test':"
            f" {redact(url)} may hold jobs that are meant"
        )


async def empty(store: Store) -> None:
    """Remove all jobs, workers, schedules and pauses."""
    for pause in await store.inspector.pauses():
        await store.resume(pause.kind, pause.name)
    for worker in (await store.observe()).workers:
        await store.reap(worker)
    while len(await store.reclaim(_release, BATCH)) > 0:
        pass
    queued = JobFilter(state=State.QUEUED, limit=BATCH)
    while jobs := await store.inspector.jobs(queued):
        await store.cancel([job.id for job in jobs])
    for schedule in await store.inspector.schedules():
        await store.delete_schedule(schedule.name)
    while await store.prune(jobs_older_than=0.0, workers_older_than=0.0, dead_older_than=0.0):
        pass


def _release(orphan: Orphan) -> Transition:
    crash = Crash(kind=CrashKind.LOST_WORKER, message="an earlier test has left it")
    return decide(orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash), SYSTEM.random)
