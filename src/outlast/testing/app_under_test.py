"""``isolate``: run your application on the test's own store, and let the test check its jobs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from outlast.base.clock import SYSTEM, SystemClock
from outlast.base.config import check_seconds, check_whole
from outlast.base.credentials import redact
from outlast.base.sync import blocking, hop, run_in_background
from outlast.client.app import App
from outlast.client.job import Job
from outlast.client.task import Task
from outlast.errors import ConfigError, UsageError
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import State
from outlast.model.lifecycle import Outcome, OutcomeKind, Transition, decide
from outlast.store.backend import file_of
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, StoredJob
from outlast.store.schedules import Origin
from outlast.store.values import Orphan
from outlast.testing.arguments import WantedCall
from outlast.testing.drain import drain
from outlast.testing.faults import Fault, FaultKind, FaultWatch

JOBS_MAX = 10_000  # of one test
SAVES_MAX = 1_000_000
CONCURRENCY = 10
FILE = "outlast.db"
_BATCH = 500
_FOR_TESTS = re.compile(r"(?<![a-z])test", re.IGNORECASE)  # a word, not the end of "latest"


class AppUnderTest:
    """Your application on the test's own store; ``isolate`` and the fixtures yield it.

    ``enqueued``, ``not_enqueued``, ``jobs`` and ``travel`` are plain calls, even in async tests.
    ``drain`` is awaited; plain tests call ``drain_sync``.

    Attributes:
        app: the application.
        url: the URL of the store. Your own connections to it see committed data.
    """

    app: App
    url: str

    def __init__(self, app: App, clock: TravelClock) -> None:
        self.app = app
        self.url = app.url
        self._clock = clock
        self._fault: Fault | None = None
        self._draining = False

    def __repr__(self) -> str:
        return f"<AppUnderTest {self.app!r}>"

    # -- what was enqueued ---------------------------------------------------------------------

    def enqueued(self, task: Task[..., Any], /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Check that a job of this task was enqueued in this test; return it, the newest if there
        are several. ``job.row`` shows the rest: its queue, when it is due, and so on.

        Args:
            task: the task.
            *args: arguments that the job must have, as the task takes them; none: any arguments
                match.
            **kwargs: the same by name. An argument that the call left out has its default.

        Raises AssertionError, which shows what was enqueued instead.
        """
        wanted = WantedCall(task, args, kwargs)
        jobs = self._read_jobs()
        found = _matching(wanted, jobs)
        if not found:
            raise AssertionError(wanted.describe_missing(jobs))
        return self._job(found[-1])

    def not_enqueued(self, task: Task[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Check that no job of this task, with these arguments, was enqueued in this test."""
        wanted = WantedCall(task, args, kwargs)
        if found := _matching(wanted, self._read_jobs()):
            raise AssertionError(wanted.describe_unwanted(found))

    def jobs(self, task: Task[..., Any] | None = None) -> list[Job[Any]]:
        """Return the jobs of this test, of one task or of all, in the order of their ids. Each has
        its ``row``."""
        jobs = self._read_jobs()
        if task is not None:
            jobs = _matching(WantedCall(task, (), {}), jobs)
        return [self._job(each) for each in jobs]

    def _read_jobs(self) -> list[StoredJob]:
        async def read(store: Store) -> list[StoredJob]:
            return await store.inspector.jobs(JobFilter(limit=JOBS_MAX))

        return run_in_background(lambda: self.app.stores.ask(read))[::-1]

    def _job(self, stored: StoredJob) -> Job[Any]:
        return self.app._job(stored)  # noqa: SLF001

    # -- what a worker does --------------------------------------------------------------------

    async def drain(self, *, may_fail: bool = False, concurrency: int = CONCURRENCY) -> int:
        """Run all jobs that are due, and jobs that these enqueue, until nothing is due; return how
        many attempts have run.

        A worker runs here, in process, as in ``app.worker()``. Jobs that are due later wait for
        ``travel``.

        Args:
            may_fail: whether an attempt may fail. Otherwise a failure is an AssertionError, with
                its traceback.
            concurrency: the most attempts at the same time; 1 while a fault is set.

        Also raises AssertionError if the fault that was set did not happen, or showed that a task
        does not resume or goes on without its lease.
        """
        check_whole("concurrency", concurrency, 1, 1_000)
        return await hop(lambda: self._drain(may_fail, concurrency))

    drain_sync = blocking(drain)

    async def _drain(self, may_fail: bool, concurrency: int) -> int:  # noqa: FBT001
        if self._draining:
            raise UsageError("drain() is already running: a task cannot call it")
        watch = FaultWatch(self._fault, self._clock)
        self._draining, self._fault = True, None
        try:
            await drain(self.app, watch, concurrency)
        finally:
            self._draining = False
        if (fault := watch.find_fault(may_fail=may_fail)) is not None:
            raise AssertionError(fault)
        return watch.count

    def travel(self, seconds: float | timedelta) -> None:
        """Let that much time pass for the store and its workers: delayed jobs fall due, back-offs
        end, schedules tick. ``drain`` then runs the jobs.

        It changes no other clock: a task that reads the time gets the machine's. UsageError on a
        server, which has its own clock.
        """
        ahead = check_seconds("seconds", seconds)
        if file_of(self.url) is None:
            raise UsageError("a server has its own clock: travel() works with a SQLite file only")
        if self._draining:
            raise UsageError("travel() cannot run during drain(): call it before or after")
        declared = list(self.app.schedules.declared.values())
        if declared:  # store them, so that their ticks count from the time before the travel
            run_in_background(
                lambda: self.app.stores.ask(
                    lambda store: store.put_schedules(declared, Origin.CODE)
                )
            )
        self._clock.ahead += ahead

    # -- what goes wrong -----------------------------------------------------------------------

    def crash_after_save(self, n: int = 1, *, task: Task[..., Any] | None = None) -> None:
        """Let the next drain kill the worker once an attempt has saved its ``n``-th checkpoint.

        The job is found orphaned and runs again, from its checkpoint, under a new token; it is
        charged as for a lost worker. This tests whether the task resumes, and does not repeat its
        earlier work.

        The drain fails with AssertionError if no attempt saved that often, or if the next attempt
        never reads ``attempt.checkpoint``. ``task``: only an attempt of this task.
        """
        self._set(FaultKind.CRASH_AFTER_SAVE, check_whole("n", n, 1, SAVES_MAX), task)

    def lose_lease(self, n: int = 1, *, task: Task[..., Any] | None = None) -> None:
        """Let an attempt of the next drain lose its lease just before its ``n``-th checkpoint.

        That checkpoint is refused: the task gets ``LostLease``, and the job runs again. The drain
        fails with AssertionError if the task goes on and saves again. ``task``: only an attempt of
        this task.
        """
        self._set(FaultKind.LOSE_LEASE, check_whole("n", n, 1, SAVES_MAX), task)

    def deliver_twice(self, *, task: Task[..., Any] | None = None) -> None:
        """Let the next drain kill the worker once an attempt has finished, before its end is
        stored.

        So the job runs again, from its last checkpoint, and each effect outside the database
        happens twice unless the task is idempotent. An attempt that ``complete_in`` has completed
        does not run again. ``task``: only an attempt of this task.
        """
        self._set(FaultKind.DELIVER_TWICE, 0, task)

    def _set(self, kind: FaultKind, at: int, task: Task[..., Any] | None) -> None:
        if self._fault is not None:
            raise UsageError(f"{self._fault} is already set for the next drain: set one at a time")
        self._fault = Fault(kind, at, None if task is None else task.name)

    def _check_used(self) -> None:
        if self._fault is not None:
            raise AssertionError(f"{self._fault} was set, but drain() was not called after it")


def _matching(wanted: WantedCall, jobs: Sequence[StoredJob]) -> list[StoredJob]:
    return [each for each in jobs if wanted.is_of(each) and not wanted.find_differences(each)]


@contextmanager
def isolate(app: App, url: str | None = None) -> Iterator[AppUnderTest]:
    """Within the block, keep the jobs of your application in the test's own store.

    Afterwards it uses its former store again. Messengers are not used. For unittest:
    ``self.jobs = self.enterContext(isolate(app))`` in ``setUp``.

    Args:
        app: the application, such as the one of your module ``jobs``.
        url: the URL of the store. Default: a file that is deleted after the block; commits do not
            wait for the disk. On a server: a database whose name contains "test"; Outlast's data in
            it is deleted before and after.

    Raises ConfigError for a URL that cannot be used.
    """
    clock = TravelClock()
    with ExitStack() as stack:
        if url is None:
            folder = tempfile.TemporaryDirectory(prefix="outlast-", ignore_cleanup_errors=True)
            url = url_of(Path(stack.enter_context(folder)))
        if file_of(url) is None:
            check_for_tests(url)
        stack.enter_context(app.stores.replace(url, clock))
        if file_of(url) is None:
            run_in_background(lambda: app.stores.ask(empty))
            stack.callback(run_in_background, lambda: app.stores.ask(empty))
        under_test = AppUnderTest(app, clock)
        yield under_test
        under_test._check_used()  # noqa: SLF001


def url_of(folder: Path) -> str:
    """Return the URL of a store in a file of this folder."""
    return url_of_file(folder.resolve() / FILE)


def url_of_file(file: Path) -> str:
    """Return the URL of a store in this file."""
    return f"sqlite:///{quote(str(file))}"


class TravelClock(SystemClock):
    """A clock that is ``ahead`` seconds ahead of the machine's."""

    ahead = 0.0

    def wall(self) -> float:
        """Seconds since 1970."""
        return super().wall() + self.ahead

    def boot(self) -> float:
        """Seconds since the machine started."""
        return super().boot() + self.ahead


def check_for_tests(url: str) -> None:
    """Raise ConfigError unless the name says that the database, to be emptied, is for tests."""
    name = unquote(urlsplit(url).path.lstrip("/"))
    if not _FOR_TESTS.search(name):
        raise ConfigError(
            f"the jobs of a test's database are deleted, so its name must contain the word 'test':"
            f" {redact(url)} may hold real jobs"
        )


async def empty(store: Store) -> None:
    """Remove all jobs, workers, schedules, pauses and events, by the verbs of any kind of store."""
    for pause in await store.inspector.pauses():
        await store.resume(pause.kind, pause.name)
    for worker in (await store.observe()).workers:
        await store.reap(worker)
    await reclaim_all(store)
    queued = JobFilter(state=State.QUEUED, limit=_BATCH)
    while jobs := await store.inspector.jobs(queued):
        await store.cancel([job.id for job in jobs])
    for schedule in await store.inspector.schedules():
        await store.delete_schedule(schedule.name)
    while await store.prune(
        jobs_older_than=0.0, workers_older_than=0.0, dead_older_than=0.0, events_older_than=0.0
    ):
        pass


async def reclaim_all(store: Store) -> None:
    """Return the jobs of all dead workers to the queue."""
    while len(await store.reclaim(_release, _BATCH)) > 0:
        pass


def _release(orphan: Orphan) -> Transition:
    crash = Crash(kind=CrashKind.LOST_WORKER, message="an earlier test left it running")
    return decide(orphan.facts, Outcome(kind=OutcomeKind.CRASHED, crash=crash), SYSTEM.random)
