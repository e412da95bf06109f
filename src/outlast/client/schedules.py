"""Schedules: ``app.schedule(…)`` declares one in code, ``app.schedules`` has all at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, TypedDict, TypeVar, Unpack

import msgspec

from outlast.base.clock import SYSTEM
from outlast.base.config import check_name, check_seconds
from outlast.base.sync import blocking
from outlast.client.error_rules import Seconds
from outlast.client.job import Job
from outlast.client.stores import StoreProvider
from outlast.client.task import Call
from outlast.errors import ConfigError, UsageError
from outlast.insight.acting import check_deleted, declared_by_code
from outlast.insight.queries import no_schedule, read_schedule, read_schedules
from outlast.insight.schedules import Schedule, job_now, jobs_between, schedule_of
from outlast.model.schedule import Spec
from outlast.model.schedule_plan import GRACE_SECONDS, CatchUp, Overlap
from outlast.payload.option_words import near, no_such_options
from outlast.payload.payloads import PLAIN
from outlast.store.schedules import NewSchedule, Put, ScheduleRow
from outlast.store.values import Enqueued, NewJob

E = TypeVar("E", bound=StrEnum)


class ScheduleOptions(TypedDict, total=False):
    """When a schedule fires, and what becomes of ticks that are late or overlap.

    Attributes:
        cron: five fields (minute, hour, day of the month, month, day of the week), or
            ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``, ``@yearly``.
        every: whole seconds between two ticks, counted from 1970; instead of ``cron``.
        zone: the time zone of ``cron``, such as ``Europe/Berlin``; default: ``UTC``.
        jitter: the most seconds by which a job is due after its tick; the actual number depends on
            the schedule's name and the tick; default: 0.
        overlap: ``skip`` (the default): a tick has no job while the job of an earlier tick is
            unfinished; ``allow``: each tick has a job.
        catch_up: which of the ticks that passed while no worker ran get a job: the ``last`` (the
            default), ``all`` (at most 100; needs ``overlap="allow"``) or ``none``.
        grace: seconds by which a tick may be late, at least 1; a later tick is missed; default: a
            day.
    """

    cron: str | None
    every: Seconds | None
    zone: str
    jitter: Seconds
    overlap: Literal["skip", "allow"]
    catch_up: Literal["last", "all", "none"]
    grace: Seconds


def make_schedule(
    name: str, call: Call[Any], options: Mapping[str, Any], stores: StoreProvider
) -> NewSchedule:
    """Return a schedule, checked. ConfigError names an invalid field."""
    known = ScheduleOptions.__annotations__
    if unknown := sorted(options.keys() - known.keys()):
        raise ConfigError(
            no_such_options("a schedule", {each: near(each, known) for each in unknown}, known)
        )
    check_name("a schedule's name", name)
    spec = Spec(
        cron=options.get("cron"),
        every=_whole(options.get("every")),
        zone=options.get("zone", "UTC"),
        jitter=check_seconds("jitter", options.get("jitter", 0)),
    )
    overlap = _one_of("overlap", Overlap, options.get("overlap", Overlap.SKIP))
    catch_up = _one_of("catch_up", CatchUp, options.get("catch_up", CatchUp.LAST))
    if catch_up is CatchUp.ALL and overlap is Overlap.SKIP:
        raise ConfigError(
            "catch_up='all' needs overlap='allow': with 'skip', the first job that catches up would"
            " make the schedule skip the others"
        )
    job = _check_call(call, stores, overlap)
    if job.expires is not None and job.expires <= spec.jitter:
        raise ConfigError(
            f"expires ({job.expires:g} s) must be above jitter ({spec.jitter:g} s): otherwise some"
            " jobs would expire before they are due"
        )
    return NewSchedule(
        name=name,
        call=job,
        spec=msgspec.json.encode(spec).decode(),
        overlap=overlap,
        catch_up=catch_up,
        grace=_check_grace(options.get("grace", GRACE_SECONDS)),
    )


def _check_grace(value: Any) -> float:
    grace = check_seconds("grace", value)
    if grace < 1:
        raise ConfigError(
            f"grace must be at least 1 second, not {grace:g}: each tick is some milliseconds late,"
            " and a tick that is later than grace is missed"
        )
    return grace


def _check_call(call: object, stores: StoreProvider, overlap: Overlap) -> NewJob:
    if not isinstance(call, Call):
        raise ConfigError("a schedule takes a call, such as report.call() or report.call('acme')")
    if call.task.stores is not stores:
        raise ConfigError(f"{call.job.task} is a task of another application")
    if call.connection is not None:
        raise ConfigError("the call of a schedule cannot have connection=…: give schedules.put one")
    if call.job.run_at is not None or call.job.delay:
        raise ConfigError("the call of a schedule cannot have at=… or delay=…: its ticks say when")
    if call.job.expires_at is not None:
        raise ConfigError(
            "the call of a schedule takes expires=… in seconds, not as a point in time, after which"
            " none of its jobs would run"
        )
    if call.job.key is not None and overlap is Overlap.SKIP:
        raise ConfigError(
            "the call of a schedule has a key=…, which needs overlap='allow': with 'skip' its jobs"
            " have the schedule's own key"
        )
    if call.job.on_key is not None:
        raise ConfigError("the call of a schedule cannot have once_per=…, until=… or on_conflict=…")
    job = call._alone("a schedule")  # noqa: SLF001
    return msgspec.structs.replace(job, args=_encode_alike(call))


def _encode_alike(call: Call[Any]) -> str:
    """Encode arguments identically on each worker: they are part of the schedule's version. A
    worker copies them into the jobs encoded, and needs no key for that."""
    payloads = call.task.stores.payloads
    if payloads is PLAIN:
        return call.job.args
    return payloads.encode_same("args", payloads.decode("args", call.job.args))


def _whole(every: Any) -> Any:
    """Return whole seconds as an int, any other value unchanged, for the spec to refuse."""
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    return int(seconds) if isinstance(seconds, float) and seconds.is_integer() else seconds


def _one_of(what: str, kind: type[E], value: Any) -> E:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(each.value) for each in kind)
        raise ConfigError(f"{what} must be one of {known}, not {ascii(value)[:80]}") from None


class Schedules:
    """The schedules of an application's store: ``app.schedules``.

    A schedule that is put here lives in the store until it is deleted. A schedule that the code
    declares (``app.schedule``) is changed in the code; it can be paused, resumed, triggered and
    backfilled here.

    Attributes:
        declared: the schedules of this application's code, by name.
    """

    declared: dict[str, Any]

    def __init__(self, stores: StoreProvider, returns: Callable[[str], Any]) -> None:
        self._stores = stores
        self._returns = returns
        self.declared = {}

    def __repr__(self) -> str:
        return f"<Schedules: {len(self.declared)} of the code>"

    def _declare(self, name: str, call: Call[Any], options: ScheduleOptions) -> None:
        """Note a schedule of the code, for ``App.schedule``."""
        new = make_schedule(name, call, options, self._stores)
        if name in self.declared:
            raise ConfigError(
                f"another schedule is already called {name!r}: give this one another name"
            )
        self.declared[name] = new

    async def put(
        self,
        name: str,
        call: Call[Any],
        *,
        connection: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Store a schedule, or replace the one of that name. It begins at the first tick after now.

        A schedule whose ticks stay the same continues where it was: only its call and its rules
        change.

        Args:
            name: its name.
            call: what each tick enqueues, such as ``report.using(queue="slow").call()``.
            connection: as for ``using(connection=…)``: the schedule is part of your transaction.
            **options: the fields of ``ScheduleOptions``.

        Raises:
            ConfigError: an option is invalid.
            UsageError: the code of an application declares a schedule of that name.
        """
        new = make_schedule(name, call, options, self._stores)
        if name in self.declared:
            raise declared_by_code(name, "change")
        (answer,) = await self._stores.ask_on(connection, lambda it: it.put_schedules([new]))
        if answer is Put.TAKEN:
            raise declared_by_code(name, "change")

    put_sync = blocking(put)

    async def pause(self, name: str) -> None:
        """Stop a schedule from firing until it is resumed. Its jobs continue. ScheduleNotFound."""
        await self._pause(name, paused=True)

    pause_sync = blocking(pause)

    async def resume(self, name: str) -> None:
        """Let a schedule fire again, from the first tick after now. ScheduleNotFound."""
        await self._pause(name, paused=False)

    resume_sync = blocking(resume)

    async def _pause(self, name: str, *, paused: bool) -> None:
        if not await self._stores.ask(lambda store: store.pause_schedule(name, paused=paused)):
            raise no_schedule(name)

    async def trigger(self, name: str) -> Job[Any]:
        """Enqueue a schedule's call now, even while it is paused; its tick is this second.

        With ``overlap="skip"``, while the job of an earlier tick is unfinished, it returns that job
        (``job.created`` is false). ScheduleNotFound.
        """
        job = job_now(await self._row(name), SYSTEM.wall())
        (stored,) = await self._stores.enqueue([job])
        return self._job(job, stored)

    trigger_sync = blocking(trigger)

    async def backfill(self, name: str, start: datetime, end: datetime) -> Sequence[Job[Any]]:
        """Enqueue a job for each tick from ``start`` (included) to ``end`` (not included), all due
        now, whether or not those ticks had jobs before. Return them in the order of their ticks.

        Calling it again while such a job is unfinished returns that job.

        Raises:
            ScheduleNotFound: there is no such schedule.
            UsageError: a time has no zone, or there are more than 10,000 ticks.
        """
        first, last = (_instant(what, at) for what, at in (("start", start), ("end", end)))
        wanted = jobs_between(await self._row(name), first, last)
        stored: list[Enqueued] = []
        await self._stores.enqueue_many(wanted, stored.extend)
        return [self._job(job, one) for job, one in zip(wanted, stored, strict=True)]

    backfill_sync = blocking(backfill)

    async def delete(self, name: str, *, connection: Any = None) -> None:
        """Delete a schedule; its jobs stay. ``connection``: as for ``put``.

        Raises:
            ScheduleNotFound: there is no such schedule.
            UsageError: the code of an application declares it.
        """
        if name in self.declared:
            raise declared_by_code(name, "delete")
        check_deleted(
            name, await self._stores.ask_on(connection, lambda it: it.delete_schedule(name))
        )

    delete_sync = blocking(delete)

    async def list(self) -> Sequence[Schedule]:
        """Return all schedules by name: the schedules that were put at run time, and the schedules
        that code declares, or has declared in the last seven days."""
        rows = await self._stores.ask(read_schedules)
        return [schedule_of(row, self._stores.payloads) for row in rows]

    list_sync = blocking(list)  # noqa: A003

    async def get(self, name: str) -> Schedule:
        """Return one schedule; ScheduleNotFound if there is none of that name."""
        return schedule_of(await self._row(name), self._stores.payloads)

    get_sync = blocking(get)

    async def _row(self, name: str) -> ScheduleRow:
        return await self._stores.ask(lambda store: read_schedule(store, name))

    def _job(self, job: NewJob, stored: Enqueued) -> Job[Any]:
        return Job(self._stores, stored, job.task, self._returns(job.task))


def _instant(what: str, at: object) -> float:
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise UsageError(
            f"{what} must be a datetime with a zone, such as datetime(2030, 1, 1, tzinfo=UTC)"
        )
    return at.timestamp()
