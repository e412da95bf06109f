"""``outlast.App``: the tasks of one application and the store where its jobs live."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from outlast.base.config import MAX_PAYLOAD, check_name, check_whole, worker_settings
from outlast.base.credentials import redact
from outlast.base.forks import importing
from outlast.base.sync import blocking
from outlast.client import events
from outlast.client.attempt import Attempt
from outlast.client.batches import BatchTask
from outlast.client.flow_parts import FlowPart, check_part, plan_of
from outlast.client.flows import FlowRun, add_label
from outlast.client.hooks import Context, is_taking, make_context
from outlast.client.job import Job, cancel, check_id, not_found, requeue
from outlast.client.limits import Limit, LimitOptions, Limits
from outlast.client.pauses import Paused, choose_target, describe_pause, make_pause
from outlast.client.schedules import ScheduleOptions, Schedules
from outlast.client.stores import StoreProvider
from outlast.client.task import (
    AsyncTask,
    Call,
    PlainTask,
    Task,
    enqueue_plan,
    is_async,
    is_defined_again,
    submit,
)
from outlast.client.task_options import BatchOptions, TaskOptions, check_known, refuse_unknown
from outlast.errors import ConfigError, UnknownTask, UsageError
from outlast.insight.acting import send_event
from outlast.insight.pauses import WAIT_SECONDS, pause_and_wait, read_pauses
from outlast.model.job import SHELL_TASK
from outlast.model.lifecycle import Outcome
from outlast.payload.option_words import describe_attribute, meant_for_apps
from outlast.payload.payloads import PayloadCodec, make_payloads
from outlast.store.rows import StoredJob
from outlast.store.values import Cancelled, Enqueued, Requeued
from outlast.wakeup.kinds import parse

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_MIN_PAYLOAD, _MOST_PAYLOAD = 1024, 16 * 1024**2  # far below a frame between worker and runner


class TaskDecorator(Protocol):
    """The type of ``@app.task(…)`` with options: it turns a function into a task."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> PlainTask[P, R]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Return the task of this function."""
        ...


class BatchDecorator(Protocol):
    """The type of ``@app.task(batch=…)``: it turns a function that takes a list into a task."""

    @overload
    def __call__(
        self, fn: Callable[[list[T]], Coroutine[Any, Any, list[R]]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[T]], Coroutine[Any, Any, None]], /
    ) -> BatchTask[T, None]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], list[R]], /) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, fn: Callable[[list[T]], None], /) -> BatchTask[T, None]: ...
    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Return the task of this function."""
        ...


class WorkerOptions(TypedDict, total=False):
    """The settings of ``WorkerSettings`` as keywords of ``app.worker(…)``; none is required."""

    queues: list[str]
    tags: list[str]
    has: dict[str, int]
    runners: int
    concurrency: int
    heartbeat: float
    lease: float
    drain_timeout: float
    poll: float
    keep_completed: float
    keep_workers: float
    keep_dead: float | None
    max_rss: int | None
    max_jobs_per_runner: int | None
    redact: list[str]
    name: str | None
    instance: str | None
    presence: bool
    shell: bool
    probe_port: int | None
    probe_host: str | None


class App:
    """The tasks of one application, and the store where its jobs live.

    Creating an ``App`` opens no connection: the store is opened at first use, once for each
    process and event loop, and created if it does not exist yet.

    Attributes:
        tasks: the registered tasks by name.
        max_payload: the most bytes of JSON of a job's arguments, a result or a checkpoint.
        schedules: the schedules in the code and in the store: put, pause, trigger, list and so on.
        limits: the limits in the code and in the store: set, hold, reset, list.
        lifespan_fn: called with the app, once per runner: makes a context manager; or None.
        around_fns: called with each attempt, outermost first: make context managers.
    """

    tasks: dict[str, Task[..., Any]]
    max_payload: int
    schedules: Schedules
    limits: Limits
    lifespan_fn: Callable[[App], Context] | None
    around_fns: list[Callable[[Attempt], Context]]
    _provider: type[StoreProvider] = StoreProvider  # opens a store for each event loop

    @refuse_unknown("App", meant_for_apps)
    def __init__(
        self,
        url: str | None = None,
        *,
        wakeup: str | None = None,
        notify: bool = True,
        max_payload: int = MAX_PAYLOAD,
        payloads: Sequence[PayloadCodec] = (),
    ) -> None:
        """Name the store and its limits; open no connection yet.

        Args:
            url: ``sqlite:///jobs.db`` or ``postgresql://user@host/database``; default
                ``$OUTLAST_URL``, else ``sqlite:///outlast.db``.
            wakeup: ``nats://host`` or ``amqp://host``: a messenger that informs workers of new
                jobs, instead of NOTIFY; default ``$OUTLAST_WAKEUP``, else the store's own wake-ups.
            notify: whether enqueuing wakes idle workers at once (PostgreSQL's NOTIFY).
            max_payload: the largest stored size of arguments, a result or a checkpoint, in bytes.
            payloads: codecs for payloads, such as ``[Compression(), Encryption(keys)]``, applied in
                this order; none: plain JSON.

        Raises:
            ConfigError: the URL or a setting is invalid.
        """
        self.max_payload = check_whole("max_payload", max_payload, _MIN_PAYLOAD, _MOST_PAYLOAD)
        if wakeup is not None:
            parse(wakeup)
        self.stores = self._provider(
            url, notify=bool(notify), wakeup=wakeup, payloads=make_payloads(payloads)
        )
        self.tasks = {}
        self.schedules = Schedules(self.stores, self._returns)
        self.limits = Limits(self.stores)
        self.lifespan_fn = None
        self.around_fns = []
        self._end_fns: list[Callable[[Attempt, Outcome], object]] = []  # of outlast.contrib
        self._aliases: dict[str, Task[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<App {redact(self.url)}: {len(self.tasks)} tasks>"

    @property
    def url(self) -> str:
        """The store's address. UsageError if it is set once the store is in use."""
        return self.stores.url

    @url.setter
    def url(self, url: str) -> None:
        self.stores.move(url)

    @property
    def wakeup(self) -> str | None:
        """The messenger's URL: as given, else ``$OUTLAST_WAKEUP``; None: the store's own
        wake-ups."""
        return self.stores.messenger_url

    @overload
    def task(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    @overload
    def task(self, **options: Unpack[BatchOptions]) -> BatchDecorator: ...
    def task(self, *fn: Callable[..., Any], **options: Any) -> Any:
        """Turn a function into a task: ``@app.task``, or ``@app.task(queue=…, retries=…)``.

        Args:
            fn: a ``def`` or ``async def`` of your own.
            **options: the fields of ``TaskOptions``: its name and queue, its limits, where it runs.
                A function that takes the items of many jobs has the fields of ``BatchOptions``.

        Raises:
            ConfigError: an option is invalid, or another task has that name. In a notebook, and
                at Python's prompt, the same function defined again replaces the earlier one.
        """
        check_known(options)
        aliases = options.get("aliases")
        is_alias = isinstance(aliases, Collection) and SHELL_TASK in aliases
        if is_alias or options.get("name") == SHELL_TASK:
            raise ConfigError(f"{SHELL_TASK} is Outlast's own task: choose another name")
        if not fn:
            return lambda function: self._register(function, options)
        return self._register(fn[0], options)

    def _register(self, fn: Callable[..., Any], options: Any) -> Task[..., Any]:
        if isinstance(fn, Task):
            raise ConfigError(
                f"{fn.name} is already a task: to make another of its function, use {fn.name}.fn"
            )
        kind: Any = AsyncTask if is_async(fn) else PlainTask
        if options.get("batch") is not None:
            kind = BatchTask
        elif "batch_wait" in options:
            raise ConfigError("batch_wait needs batch: @app.task(batch=500, batch_wait=2)")
        task: Task[..., Any] = kind(fn, self.stores, self.max_payload, options)
        for name in (task.name, *task.aliases):
            old = self.tasks.get(name) or self._aliases.get(name)
            if old is not None and not is_defined_again(old, task):
                raise ConfigError(f"another task is already called {name!r}: {_mend(old, task)}")
        self.tasks[task.name] = task
        self._aliases.update(dict.fromkeys(task.aliases, task))
        return task

    def find(self, name: str) -> Task[..., Any]:
        """Return the task of that name or alias; UnknownTask, with similar names, if none."""
        task = self.tasks.get(name) or self._aliases.get(name)
        if task is None:
            raise UnknownTask(_unknown(name, [*self.tasks, *self._aliases]))
        return task

    def schedule(self, name: str, call: Call[Any], **options: Unpack[ScheduleOptions]) -> None:
        """Declare a schedule in code: ``app.schedule("nightly", report.call(), cron=…)``.

        Workers announce it together with their tasks; it fires only while a worker announces it.
        The newest declaration is in use; a schedule that no worker has declared for seven days is
        removed.

        Args:
            name: its name, unique in the store.
            call: what each tick enqueues, such as ``report.using(queue="slow").call()``.
            **options: the fields of ``ScheduleOptions``: ``cron`` or ``every``, ``zone`` and so on.

        Raises:
            ConfigError: an option is invalid, or another schedule has that name.
        """
        self.schedules._declare(name, call, options)  # noqa: SLF001

    def limit(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """Declare a limit, for ``@app.task(limits=[…])``: ``app.limit("openai", running=20)``.

        It applies to all workers of the store together. They announce it together with their tasks;
        the newest declaration is in use, unless another was set at run time (``app.limits``).

        Args:
            name: its name, unique in the store.
            **options: the fields of ``LimitOptions``: ``running``, ``rate``, ``burst``, ``per``.

        Raises:
            ConfigError: an option is invalid, or another limit has that name.
        """
        return self.limits._declare(name, options)  # noqa: SLF001

    def queue(self, name: str, *, waiting_max: int) -> None:
        """Let at most ``waiting_max`` jobs of a queue wait, due or not. When the queue is full,
        ``enqueue`` raises QueueFull, or waits for room with ``using(wait=10)``; ``enqueue_many``
        raises QueueFull.

        The maximum applies to every job that this application's code enqueues. It may be exceeded
        by the jobs that all clients enqueue within one second. Ticks of schedules, retries and
        ``on_commit`` are never refused.

        Raises ConfigError for an invalid name or number.
        """
        maxima = self.stores.queues.maxima
        maxima[check_name("a queue", name)] = check_whole("waiting_max", waiting_max, 1, 10**9)

    def lifespan(self, fn: F) -> F:
        """Run ``fn`` once per runner, around all its attempts: engines, models, clients.

        ``fn`` is a generator function (``async def`` or ``def``) that takes the app or nothing and
        yields once. ``attempt.resources`` is the value that it yields. ConfigError if there is a
        lifespan already.
        """
        if self.lifespan_fn is not None:
            raise ConfigError("the application already has a lifespan")
        enter = make_context(fn, "lifespan")
        takes_app = is_taking(fn, "lifespan", "the app or nothing", least=0)
        self.lifespan_fn = enter if takes_app else lambda _: enter()
        return fn

    def around(self, fn: F) -> F:
        """Run ``fn`` around each attempt: a Flask context, a Sentry scope, a tenant's schema.

        ``fn`` is a generator function (``async def`` or ``def``) that takes the attempt and yields
        once. Several are entered in the order in which they were registered, the first outermost.
        An ``async def`` runs in the runner's event loop, and so does every function around an
        async task; a plain ``def`` around a plain task runs in that task's thread, inside the
        others.
        """
        enter = make_context(fn, "around")
        is_taking(fn, "around", "the attempt", least=1)
        self.around_fns.append(enter)
        return fn

    async def enqueue(
        self, flow: FlowPart, *, name: str | None = None, connection: Any = None
    ) -> FlowRun:
        """Store all jobs of a flow, in one commit, and return them.

        Args:
            flow: the result of ``outlast.chain`` or ``outlast.group``.
            name: a label for all its jobs, by which ``outlast jobs --label NAME`` finds them.
            connection: as in ``task.using(connection=…)``; its transaction must be open.

        Raises:
            UsageError: a call has a task of another application, or another connection; or RESULT
                is used where there is no earlier result.
            JobNotFound: a job that a call waits for (``using(after=…)``) does not exist.
            QueueFull, KeyInUse, StoreUnavailable: as ``task.enqueue``; nothing is stored.
        """
        check_part(flow)
        plan, last = plan_of([flow])
        if name is not None:
            plan.jobs = add_label(plan.jobs, name)
        jobs = await enqueue_plan(self.stores, plan, connection)
        return FlowRun(self.stores, flow, jobs, last)

    enqueue_sync = blocking(enqueue)

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Store many calls in their order; return their jobs.

        Up to 5,000 calls, with 64 MiB of arguments, are stored in one statement: all or none. More
        calls are split into statements of that size, so an error may leave the first ones stored.
        If all have the same ``using(connection=…)``, all are part of your transaction.

        Raises:
            UsageError: a call has a task of another application, or another connection.
            QueueFull: too many jobs of a queue wait (``app.queue``); nothing is stored.
            KeyInUse: an unfinished job of another task has one of the keys. That statement, up to
                5,000 calls, is not stored, nor are later ones; ``error.stored`` has the jobs of
                earlier statements.
        """
        listed, stores = list(calls), self.stores
        for call in listed:
            if not isinstance(call, Call):
                raise UsageError("enqueue_many takes calls, such as [analyze.call('a', depth=2)]")
            if call.task.stores is not stores:
                raise UsageError(f"{call.job.task} is a task of another application")
            if call.connection is not listed[0].connection:
                raise UsageError("all calls must have the same connection=…, or none of them")
        return await submit(self.stores, listed) if listed else []

    enqueue_many_sync = blocking(enqueue_many)

    async def send_event(self, name: str, value: Any = None, *, connection: Any = None) -> bool:
        """Send an event, and wake the jobs that wait for it (``attempt.wait_event``), now or later.
        Return whether it is the first event of that name: only the first is kept.

        Workers notice it within a second, and at once on PostgreSQL or on the same machine. An
        event is kept for 30 days, and longer while a job that has waited for it is unfinished.

        Args:
            name: such as ``f"approve:{job_id}"``: up to 190 printable characters.
            value: any JSON; encoded as arguments are (``App(payloads=…)``).
            connection: as in ``task.using(connection=…)``: the event is sent when that commits.

        Raises:
            UsageError: ``name`` is not valid as the name of an event.
            BadArguments: the value cannot be encoded, or is too large.
            ConnectionMismatch, StoreUnavailable: as ``task.enqueue``.
        """
        name = events.check_name(name)
        event = events.encode_event(name, value, self.max_payload, self.stores)
        if connection is not None:
            return await self.stores.ask_on(connection, lambda it: it.send_event(event))
        return await self.stores.ask(lambda store: send_event(store, event, None))

    send_event_sync = blocking(send_event)

    def on_commit(self, session: object, call: Call[Any]) -> None:
        """Store a call in the commit of a SQLAlchemy session: both take effect, or neither.

        Nothing is sent until then. A rollback, including one to a savepoint of the session
        (``begin_nested``), drops the calls that were made since. The session begins
        its transaction if it has none, as it does for ``session.add``. Several calls keep their
        order. Delays count from the commit.

        Args:
            session: a ``Session``, an ``AsyncSession`` or a scoped session, on the application's
                own store. Do not await this call, even with an ``AsyncSession``.
            call: such as ``ship.using(delay=60).call(7)``.

        If a call cannot be stored, the commit fails with the store's error (KeyInUse,
        ConnectionMismatch, StoreUnavailable).

        Raises:
            UsageError: ``session`` is not a session, or the call has a task of another application
                or its own connection.
            ConnectionMismatch: the session's engine uses a driver that is not supported.
        """
        with importing:
            from outlast.client.on_commit import on_commit

        on_commit(self.stores, session, call)

    async def get(self, id: int) -> Job[Any]:  # noqa: A002
        """Return a job, with its row in the store as ``.row``; JobNotFound if there is none."""
        check_id(id)
        row = await self.stores.ask(lambda store: store.inspector.job(id))
        if row is None:
            raise not_found(id)
        return self._job(row)

    get_sync = blocking(get)

    def _job(self, row: StoredJob) -> Job[Any]:
        found = Enqueued(row.id, created=False)
        return Job(self.stores, found, row.task, self._returns(row.task), row)

    def _returns(self, name: str) -> Any:
        task = self.tasks.get(name) or self._aliases.get(name)
        return Any if task is None else task.returns

    async def cancel(self, id: int) -> Cancelled:  # noqa: A002
        """Cancel a queued job at once, or ask a running one to stop; return which was done.

        JobNotFound if there is none.
        """
        return await cancel(self.stores, id)

    cancel_sync = blocking(cancel)

    async def requeue(self, id: int, *, from_scratch: bool = False) -> Requeued:  # noqa: A002
        """Revive a dead or cancelled job, with fresh budgets, from its last checkpoint.

        ``from_scratch`` forgets the checkpoint and what steps have kept: children are spawned, and
        events awaited, again. Returns the effect, which may be none.
        JobNotFound if there is none.
        """
        return await requeue(self.stores, id, from_scratch=from_scratch)

    requeue_sync = blocking(requeue)

    async def pause(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        everything: bool = False,
        reason: str | None = None,
        paused_by: str | None = None,
        stop: bool = False,
        wait: float = WAIT_SECONDS,
    ) -> Paused:
        """Start no more jobs of a queue, of a task, of a tenant, or any at all, until ``resume``.

        Returns once every active worker has acknowledged it, or after ``wait`` seconds with the
        names of the workers that have not (``.unacknowledged``). From then on none of these jobs
        starts, not even one that was claimed before. Running jobs continue or, with ``stop``, are
        asked to stop and return to the queue, uncharged. Pausing the same thing again only updates
        who paused it, why, and ``stop``.

        Raises:
            UsageError: none or several things are named, or a text cannot be stored.
        """
        target = choose_target(queue, task, tenant, everything=everything)
        new = make_pause(target, paused_by=paused_by, reason=reason, stop=stop)
        made, left = await self.stores.ask(lambda store: pause_and_wait(store, new, wait))
        return describe_pause(made, left)

    pause_sync = blocking(pause)

    async def resume(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        tenant: str | None = None,
        everything: bool = False,
    ) -> bool:
        """End the pause of exactly this thing; return whether there was one. Other pauses of the
        same jobs stay in force. Workers take the jobs again within about a second.

        UsageError: none or several things are named.
        """
        target = choose_target(queue, task, tenant, everything=everything)
        return await self.stores.ask(lambda store: store.resume(*target)) is not None

    resume_sync = blocking(resume)

    async def pauses(self) -> list[Paused]:
        """Return all pauses, the oldest first."""
        found = await self.stores.ask(read_pauses)
        return [describe_pause(each, found.unheard(each)) for each in found.pauses]

    pauses_sync = blocking(pauses)

    def worker(self, **settings: Unpack[WorkerOptions]) -> AbstractAsyncContextManager[Any]:
        """Return an ``async with`` block in which this process works on jobs.

        Takes the settings of ``WorkerSettings``, such as ``queues=[…]``. Such a worker can neither
        kill nor isolate a task; ``outlast worker`` can.
        """
        with importing:
            from outlast.worker.in_process import embedded

        if worker_settings(**settings).shell:  # refuses a wrong setting here, not on entering
            raise ConfigError("commands need runners of their own: outlast worker --shell")
        return embedded(self, **settings)

    async def close(self) -> None:
        """Close the connections of this process. They are opened again when needed.

        ``async with app:`` opens them, so that a wrong URL is found at the start, and closes them
        at the end of the block: for the lifespan of a web framework.
        """
        await self.stores.close()

    close_sync = blocking(close)

    async def __aenter__(self) -> Self:
        await self.stores.ask(lambda store: store.store_id())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    if not TYPE_CHECKING:  # type checkers must not believe that any attribute exists

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(describe_attribute("App", name), name=name, obj=self)


def _mend(old: Task[..., Any], new: Task[..., Any]) -> str:
    place, other = _place_of(old), _place_of(new)
    if place != other:
        return f"give name=… to either {place} or {other}"
    return f"{place} is defined twice; if its module was reloaded, reload that of the App before it"


def _place_of(task: Task[..., Any]) -> str:
    return f"{task.fn.__module__}.{getattr(task.fn, '__qualname__', task.name)}"


def _unknown(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3)
    hint = (
        f"did you mean {' or '.join(close)}?"
        if close
        else f"the tasks are: {', '.join(sorted(names))}"
    )
    return f"no task is called {name!r}; {hint if names else 'the application has none'}"
