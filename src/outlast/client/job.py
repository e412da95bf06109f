"""The handle on one enqueued job: wait for its result, read it, cancel it, requeue it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import check_seconds
from outlast.base.sync import blocking
from outlast.client.awaiting import awaiting
from outlast.client.looks import looks_at
from outlast.errors import JobCancelled, JobFailed, JobNotFound, UsageError
from outlast.insight.queries import read_phase
from outlast.insight.row import JobRow, row_of
from outlast.model.job import ENDED, State
from outlast.payload.codec import decode_result
from outlast.payload.option_words import describe_attribute
from outlast.store.rows import EXPIRED, UPSTREAM
from outlast.store.values import Cancelled, Enqueued, Requeued

if TYPE_CHECKING:
    from outlast.client.stores import StoreProvider
    from outlast.store.protocol import Store
    from outlast.store.rows import StoredJob

R = TypeVar("R")

TELL_SECONDS = 1.0  # of waiting in an attempt, before its progress says so
POLL_FIRST, POLL_MAX, POLL_GROWTH = 0.02, 0.25, 1.5  # seconds, seconds, factor
ID_LIMIT = 2**63


class Job(Generic[R]):
    """A job, as a handle: cheap to make, holds no connection.

    Attributes:
        id: the job's number.
        task: the name of its task.
        created: False if an unfinished job already had the key: this is that job.
        same_args: False when that job has other arguments than the call that returned it.
        row: the job as last read from the store, as a ``JobRow``; None before the first read.
    """

    id: int
    task: str
    created: bool
    same_args: bool

    __slots__ = (
        "__weakref__",
        "_returns",
        "_row",
        "_stored",
        "_stores",
        "created",
        "id",
        "same_args",
        "task",
    )

    def __init__(
        self,
        stores: StoreProvider,
        enqueued: Enqueued,
        task: str,
        returns: Any = Any,
        stored: StoredJob | None = None,
    ) -> None:
        """``returns`` is the task's return annotation, by which ``result`` is decoded; ``stored``
        is the job as read from the store, if it was. By name, arguments would double the cost."""
        self._stores = stores
        self._returns = returns
        self.id = enqueued.job_id
        self.task = task
        self.created = enqueued.created
        self.same_args = enqueued.same_args
        self._stored = stored
        self._row: JobRow | None = None

    @property
    def row(self) -> JobRow | None:
        """The job as last read from the store; None before the first read."""
        if self._row is None and self._stored is not None:
            self._row = row_of(self._stored, self._stores.payloads)
        return self._row

    def __repr__(self) -> str:
        state = f", {self._stored.state}" if self._stored else ""
        return f"<Job {self.id}: {self.task}{state}>"

    async def refresh(self) -> JobRow:
        """Read the job again; return it and keep it as ``row``. JobNotFound if it was deleted."""
        await self._stores.ask(self._look)
        assert self.row is not None
        return self.row

    refresh_sync = blocking(refresh)

    async def status(self) -> str:
        """Read the job again; return its phase, in words for people: ``queued``, ``scheduled``,
        ``waiting`` (for an event), ``retrying``, ``suspect`` (waits to be run alone),
        ``unservable`` (no active worker knows the task, has the tags that it requires and serves
        the queue), ``paused``, ``limited`` (a limit is full), ``throttled`` (the rate of a limit
        or a hold lets nothing start now), ``blocked`` (waits for other jobs), ``running``,
        ``completed``, ``dead`` or ``cancelled``."""

        async def look(store: Store) -> str:
            return await read_phase(store, await self._look(store))

        return await self._stores.ask(look)

    status_sync = blocking(status)

    async def result(self, timeout: float | None = None) -> R:
        """Wait until the job has ended; return its result, of the task's return type.

        ``timeout`` is in seconds; None waits forever, 0 checks once. A task that waits for another
        job keeps its slot: if all slots are held by waiting tasks, the awaited jobs never begin.

        Raises:
            JobFailed: it is dead; ``.report`` is the crash report of its last attempt.
            JobCancelled: it was cancelled; ``.reason`` is ``expired`` if it had not begun in time,
                and ``upstream`` if a job that it waited for did not end as required.
            TimeoutError: it has not ended by then; the job continues.
            ConfigError: ``timeout`` is not a span of time.
            JobNotFound: its row was deleted, which ``keep=0`` does when the job ends.
            BadArguments: the result is not of this release's return type.
            StoreUnavailable: it cannot be read; the job itself continues.
        """
        most = None if timeout is None else check_seconds("timeout", timeout)
        with awaiting(self.id) as tell:
            return await self._stores.ask(lambda store: self._wait(store, most, SYSTEM, tell))

    result_sync = blocking(result)

    async def cancel(self) -> Cancelled:
        """Cancel it, or ask its running attempt to stop; return which. JobNotFound if deleted."""
        return await cancel(self._stores, self.id)

    cancel_sync = blocking(cancel)

    async def requeue(self, *, from_scratch: bool = False) -> Requeued:
        """Revive it if it is dead or cancelled; ``from_scratch``: as in `app.requeue`.

        Returns the effect, which may be none. JobNotFound if it was deleted.
        """
        return await requeue(self._stores, self.id, from_scratch=from_scratch)

    requeue_sync = blocking(requeue)

    async def _look(self, store: Store) -> StoredJob:
        stored = await store.inspector.job(self.id)
        if stored is None:
            raise not_found(self.id)
        self._stored, self._row = stored, None
        return stored

    async def _wait(
        self, store: Store, timeout: float | None, clock: Clock, tell: Callable[[], None]
    ) -> R:
        started, pause = clock.boot(), POLL_FIRST
        row = await self._look(store)
        while True:
            if row.state is State.COMPLETED:
                value: R = decode_result(row.result, self._returns, self._stores.payloads)
                return value
            if row.state is State.DEAD or (
                row.state is State.CANCELLED
                and not (row.reason == UPSTREAM and await store.inspector.returns(self.id))
            ):
                await _raise_end(store, row)
            left = pause if timeout is None else started + timeout - clock.boot()
            if left <= 0:
                raise TimeoutError(
                    f"job {self.id} ({self.task}) is {row.state} after {timeout:g} s:"
                    f" `outlast why {self.id}` says what it waits for"
                )
            if clock.boot() - started >= TELL_SECONDS:
                tell()
            if pause == POLL_MAX:  # it has waited for long: read when all others do
                await clock.sleep(min(_until_common_look(clock.boot()), left))
            else:
                await clock.sleep(min(pause, left))
                pause = min(POLL_MAX, pause * POLL_GROWTH)
            row = await self._look_with_others(store)

    async def _look_with_others(self, store: Store) -> StoredJob:
        """Read the job in one statement with all other calls of this loop that wait for a job."""
        seen = await looks_at(store).ask(store, self.id)
        if seen.row is None or (seen.row.state in ENDED and not seen.is_whole):
            return await self._look(store)
        if seen.is_whole:
            self._stored, self._row = seen.row, None
        return seen.row

    if not TYPE_CHECKING:  # type checkers must not believe that any attribute exists

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(describe_attribute("Job", name), name=name, obj=self)


def _until_common_look(now: float) -> float:
    """Return the seconds until the next time at which all waiting calls read; more than zero."""
    left = POLL_MAX - now % POLL_MAX
    return left if left >= POLL_FIRST else left + POLL_MAX


async def _raise_end(store: Store, row: StoredJob) -> NoReturn:
    attempts = await store.inspector.attempts(row.id)
    last = attempts[-1] if attempts else None
    why = f": {last.message}" if last and last.message else ""
    if row.state is State.CANCELLED:
        if row.reason == EXPIRED:
            raise JobCancelled(
                f"job {row.id} ({row.task}) expired: it had not begun in time", reason=EXPIRED
            )
        if row.reason == UPSTREAM:
            raise JobCancelled(
                f"job {row.id} ({row.task}) was cancelled: a job that it waited for did not end"
                f" as required (`outlast why {row.id}` names it)",
                reason=UPSTREAM,
            )
        raise JobCancelled(f"job {row.id} ({row.task}) was cancelled{why}")
    how = f", {last.outcome}" if last and last.outcome != row.state else ""
    raise JobFailed(
        f"job {row.id} ({row.task}) is dead{how}{why}", report=last.crash if last else None
    )


def check_id(job_id: object) -> None:
    """Raise UsageError for a value that cannot be an id."""
    if isinstance(job_id, bool) or not isinstance(job_id, int) or not 0 < job_id < ID_LIMIT:
        raise UsageError(f"the id of a job is a whole number above 0, not {ascii(job_id)[:80]}")


def not_found(job_id: int) -> JobNotFound:
    """Return the error for an id that names no job."""
    return JobNotFound(f"there is no job {job_id}: the id is wrong, or the job was deleted")


async def _one(
    stores: StoreProvider, job_id: int, verb: Callable[[Store], Awaitable[dict[int, R]]]
) -> R:
    check_id(job_id)
    answers = await stores.ask(verb)
    if job_id not in answers:
        raise not_found(job_id)
    return answers[job_id]


async def cancel(stores: StoreProvider, job_id: int) -> Cancelled:
    """Cancel one job; JobNotFound if no job has that id."""
    return await _one(stores, job_id, lambda store: store.cancel([job_id]))


async def requeue(stores: StoreProvider, job_id: int, *, from_scratch: bool) -> Requeued:
    """Requeue one job; JobNotFound if no job has that id."""
    return await _one(
        stores, job_id, lambda store: store.requeue([job_id], from_scratch=from_scratch)
    )
