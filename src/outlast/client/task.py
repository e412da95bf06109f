"""The user's functions as tasks: call them, enqueue them, set options, with their own types.

``Task`` and what ``task.using(…)`` returns share one surface: ``enqueue``, ``enqueue_sync`` and
``call``, typed by the function's own parameters. A wrong call fails here, before anything is
stored.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

import msgspec

from outlast.base.config import check_job_key, check_key, check_name, check_seconds, check_units
from outlast.base.sync import blocking
from outlast.client.error_rules import ErrorRules, Seconds, make_error_rules
from outlast.client.flow_parts import (
    AnyEnd,
    FlowPart,
    Plan,
    check_part,
    make_after,
    plan_of,
    take_inputs,
)
from outlast.client.job import Job
from outlast.client.limits import (
    Limit,
    check_aging,
    check_fair,
    check_limits,
    in_stream,
    make_costs,
    make_limit_keys,
)
from outlast.client.stores import StoreProvider
from outlast.client.task_options import (
    Placement,
    TaskOptions,
    check_moment,
    check_names,
    check_order,
    check_own_runner,
    check_priority,
    make_expiry,
    make_labels,
    make_meta,
    make_on_key,
    make_placement,
    make_policy,
    refuse_unknown,
)
from outlast.errors import BadArguments, ConfigError, KeyInUse, UsageError, text_of
from outlast.model.job import Policy
from outlast.model.limits import Per
from outlast.payload.codec import make_decoder
from outlast.payload.option_words import describe_attribute, meant_for_using
from outlast.payload.signature import Signature
from outlast.store.keys import NOTHING
from outlast.store.values import Enqueued, NewJob, Placed, Upstream, Wants

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """A checked and encoded call of a task, for ``app.enqueue_many`` and flows. Nothing is stored
    yet.

    Attributes:
        task: the task that it calls.
        connection: the caller's own connection, whose transaction the call joins, or None.
    """

    task: Task[..., R_co]
    connection: Any

    def __init__(self, task: Task[..., R_co], job: NewJob, placement: Placement) -> None:
        self.task = task
        self.job = job
        self.connection = placement.connection
        self.followers = placement.followers
        self.is_alone = not (self.followers or job.after or job.policy.inputs)

    def _lay(self, plan: Plan, upstream: tuple[Upstream, ...]) -> list[int]:
        return plan.add_call(self, self.job, upstream, self.followers)

    def _alone(self, where: str) -> NewJob:
        """Return the job of a call that is to be enqueued by itself, or raise UsageError."""
        if not self.is_alone:
            raise UsageError(
                f"{where} takes a call without others before or after it: enqueue the flow in the"
                " task that it calls"
            )
        return self.job

    def __repr__(self) -> str:
        return f"<Call of {self.job.task} {self.job.args[:80]}>"


class BoundTask(Generic[P, R]):
    """A task and where its jobs go: ``enqueue``, ``enqueue_sync`` and ``call``, fully typed."""

    def __init__(self, task: Task[P, R], placement: Placement) -> None:
        self._task = task
        self._placement = placement
        placed = {name: getattr(placement, name) for name in Placed.__struct_fields__}
        policy = placement.adjust(task.policy)
        self._next = NewJob(task=task.name, aliases=task.aliases, policy=policy, **placed)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Return the call, checked and encoded but not stored, for ``app.enqueue_many``.

        Raises BadArguments if the arguments do not fit, cannot be encoded or are too large;
        UsageError with ``using(wait=…)``.
        """
        if self._placement.wait is not None:
            raise UsageError("using(wait=…) is for enqueue: a call is not enqueued yet")
        return Call(self._task, self._job(args, kwargs), self._placement)

    def _job(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewJob:
        task, placement = self._task, self._placement
        bound, policy = task.signature.bind(args, kwargs), self._next.policy
        try:
            encoded = task.signature.encode(bound)
        except BadArguments:  # perhaps of an argument that stands for a result
            inputs = take_inputs(bound, task.name)
            if not inputs:
                raise
            policy = msgspec.structs.replace(policy, inputs=inputs)
            encoded = task.signature.encode(bound)
        job = msgspec.structs.replace(self._next, args=encoded, policy=policy)
        is_plain = task.fair is None and not task.limits and task.aging is None
        if is_plain and placement.cost is None and placement.limit_keys is None:
            return job
        return in_stream(
            job,
            task.limits,
            fair=task.fair,
            aging=task.aging,
            own_priority=task._placement.priority,  # noqa: SLF001
            costs=placement.cost or {},
            keys=placement.limit_keys or {},
        )

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Store a job that calls the task with these arguments; once this returns, it will run.

        With ``using(connection=…)`` it will run once your transaction has been committed.

        Raises:
            BadArguments: they do not fit, cannot be encoded or are too large; nothing is stored.
            KeyInUse: an unfinished job of another task has the key; nothing is stored.
            QueueFull: too many jobs of its queue wait (``app.queue``); nothing is stored.
            JobNotFound: a job of ``using(after=…)`` does not exist; nothing is stored.
            ConnectionMismatch: the connection is not on this store, or of an unknown kind.
            StoreUnavailable: the job may or may not be stored. With ``using(key=…)`` it is safe to
                call again: there is no second job unless the first has ended by then.
        """
        task, placement = self._task, self._placement
        jobs = [self._job(args, kwargs)]
        if placement.followers or placement.after or jobs[0].policy.inputs:
            jobs = plan_of([Call(task, jobs[0], placement)])[0].jobs
        await task.stores.admit(jobs, placement.wait or 0.0)
        stored = await task.stores.enqueue(jobs, placement.connection)
        task.stores.note_stored(jobs, stored)
        return job_of(task, stored[0])

    enqueue_sync = blocking(enqueue)

    @refuse_unknown(
        "using",
        lambda unknown, known: meant_for_using(unknown, known, TaskOptions.__annotations__),
    )
    def using(
        self,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        expires: Seconds | datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        debounce: Seconds | None = None,
        debounce_max: Seconds | None = None,
        until: Literal["start"] | None = None,
        on_conflict: Literal["replace"] | None = None,
        once_per: Seconds | None = None,
        tenant: str | None = None,
        keep: Seconds | None = None,
        meta: Mapping[str, Any] | None = None,
        labels: Collection[str] | None = None,
        cost: Mapping[str, float] | None = None,
        limit_keys: Mapping[str, str] | None = None,
        wait: Seconds | None = None,
        after: Iterable[Job[Any] | AnyEnd | int] | Job[Any] | AnyEnd | int | None = None,
        then: FlowPart | None = None,
        on_dead: FlowPart | None = None,
        connection: Any = None,
    ) -> BoundTask[P, R]:
        """Return the same task with these options for its next jobs; None leaves one as it is.

        Args:
            delay: seconds (or a timedelta) from the store's now until the job is due.
            at: the aware datetime at which it is due; instead of ``delay``.
            expires: seconds (or a timedelta) from the store's now, or an aware datetime: if the job
                has not begun by then, it is ``cancelled`` and does not run. It is for the first
                start: once an attempt has begun, it has no effect.
            queue: the queue to put it in.
            priority: -100 to 100, larger first.
            key: while a job of this task with this key is unfinished, enqueuing returns that job
                (``job.created`` is false); while one of another task is, it raises KeyInUse.
            debounce: instead of ``delay``, with a key: seconds of quiet before the job runs. Each
                further enqueue of the key delays a job that no worker has claimed, and gives it new
                arguments; a job that was claimed is left alone, and a new job follows it.
            debounce_max: the most seconds that a job is delayed, from its first enqueue.
            until: ``"start"``: a job holds its key only until it begins, so that one waits beside
                the one that runs (and may start before that one has ended).
            on_conflict: ``"replace"``: a job with the key that no worker has claimed gets the new
                arguments, the new time, and the queue, priority, tenant and limits of the new call;
                everything else about it stays. ``job.created`` is false. A job that was claimed is
                returned as it is.
            once_per: with a key: seconds (or a timedelta) of a window, such as 3600 for each hour
                of the store's clock. If a job of this task with this key was enqueued in the
                same window, that job is returned, even if it has ended or its row was deleted. An
                unfinished job of an earlier window is returned, too.
            tenant: whose job it is, for your own code, the screens, pauses, and limits and turns
                per tenant.
            keep: seconds (or a timedelta) for which its row is kept once it has completed or was
                cancelled; 0: the commit that ends the job deletes the row, and ``job.result()``
                raises JobNotFound.
            meta: notes on the job, at most 4 KiB of JSON, such as the context of a trace; the task
                sees them as ``attempt.meta``. A later ``using`` replaces them.
            labels: at most 8 names by which people find the job: ``outlast jobs --label NAME``; the
                task sees them as ``attempt.labels``. A later ``using`` replaces them, too.
            cost: what its start takes from the rates of its task's limits, such as
                ``{"openai": 3}``; 1 from each that is not named.
            limit_keys: its keys for limits ``per="limit_key"``: ``{"host": "example.org"}``.
            wait: seconds to wait for room in a queue that is full (``app.queue``); default:
                QueueFull at once. Not within a transaction of yours.
            after: jobs, or their ids, that must complete before it runs; if one of them dies or
                is cancelled, the new job is cancelled. ``outlast.ended(job)``: it runs however that
                job ends.
            then: a call or flow that runs once it has completed; ``outlast.RESULT`` stands for its
                result there.
            on_dead: a call or flow that runs if it dies.
            connection: one of asyncpg, psycopg 3, SQLAlchemy 2, Django, ``sqlite3`` or
                aiosqlite, on the application's own store: the job is part of its transaction.

        Raises ConfigError for an invalid option.
        """
        if sum(each is not None for each in (delay, at, debounce)) > 1:
            raise ConfigError("give one of delay, at and debounce")
        delay = delay if debounce is None else debounce
        changes = {
            "delay": None if delay is None else check_seconds("delay", delay),
            "run_at": None if at is None else check_moment("at", at),
            "queue": None if queue is None else check_name("queue", queue),
            "priority": None if priority is None else check_priority(priority),
            "key": None if key is None else check_job_key(key),
            "on_key": make_on_key(debounce, debounce_max, until, on_conflict, once_per),
            "tenant": None if tenant is None else check_key("tenant", tenant),
            "keep": None if keep is None else check_seconds("keep", keep),
            "meta": None if meta is None else make_meta(meta),
            "labels": None if labels is None else make_labels(labels),
            "cost": None if cost is None else make_costs(cost),
            "limit_keys": None if limit_keys is None else make_limit_keys(limit_keys),
            "wait": None if wait is None else check_seconds("wait", wait),
            "after": None if after is None else make_after(after, self._task.stores),
            "followers": self._followed_by(then, on_dead),
            "connection": connection,
        }
        changes = {name: value for name, value in changes.items() if value is not None}
        if delay is not None or at is not None:  # the later option counts
            changes = {"delay": 0.0, "run_at": None, **changes}
        if expires is not None:
            changes |= make_expiry(expires)
        placement = msgspec.structs.replace(self._placement, **changes)
        check_order(placement)
        if placement.wait is not None and placement.connection is not None:
            raise ConfigError(
                "wait=… would hold your transaction open: enqueue without connection=…"
            )
        return BoundTask(self._task, placement)

    def _followed_by(
        self, then: FlowPart | None, on_dead: FlowPart | None
    ) -> tuple[tuple[FlowPart, Wants], ...] | None:
        """Return what follows its next jobs; a new ``then`` or ``on_dead`` replaces an earlier."""
        found = {wants: part for part, wants in self._placement.followers}
        for part, wants in ((then, Wants.COMPLETED), (on_dead, Wants.DEAD)):
            if part is not None:
                check_part(part)
                found[wants] = part
        return tuple((part, wants) for wants, part in found.items()) or None

    if not TYPE_CHECKING:  # type checkers must not believe that any attribute exists

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(describe_attribute("Task", name), name=name, obj=self)


class Task(BoundTask[P, R]):
    """A function that jobs call by name. Calling the task calls the function directly.

    Attributes:
        name: the name by which jobs call it.
        aliases: its names in earlier releases; jobs may still call it by these.
        fn: the function itself.
        is_async: whether it is an ``async def``.
        own_runner: whether an attempt has its runner process to itself.
        requires: the tags that a worker must have to run it.
        uses: what an attempt uses of its worker's units.
        limits: the limits that its jobs are under.
        fair: ``"tenant"`` if tenants take turns, else None.
        aging: seconds of waiting that a step of priority is worth; None: no waiting outweighs one.
        returns: the return annotation, or Any.
        checkpoint: the type of what it saves, or Any.
        policy: the limits that are copied to each job.
        batch: the most jobs of one call of the function (``BatchTask``); 0: each job is a call.
    """

    name: str
    aliases: tuple[str, ...]
    fn: Callable[P, Any]
    is_async: bool
    own_runner: bool
    requires: frozenset[str]
    uses: dict[str, int]
    limits: tuple[Limit, ...]
    fair: str | None
    aging: float | None
    returns: Any
    checkpoint: Any
    policy: Policy
    batch: int = 0

    def __init__(
        self, fn: Callable[P, Any], stores: StoreProvider, max_payload: int, options: TaskOptions
    ) -> None:
        self.fn = fn
        self.stores = stores
        self.name = _name_of(fn, options.get("name"))
        self.aliases = tuple(
            check_names("aliases", "an alias", options.get("aliases", ()), "names")
        )
        self.is_async = is_async(fn)
        self.own_runner = check_own_runner(options.get("own_runner"), default=not self.is_async)
        self.requires = frozenset(
            check_names("requires", "a tag", options.get("requires", ()), "tags")
        )
        self.uses = check_units("uses", options.get("uses") or {})
        self.limits = check_limits(options.get("limits", ()))
        self.fair = check_fair(options.get("fair"))
        self.aging = check_aging(options.get("aging"))
        if self.aging is not None and any(each.spec.ordered for each in self.limits):
            raise ConfigError("aging lets jobs overtake others, ordered limits do not: choose one")
        if self.fair and any(e.spec.ordered and e.spec.per is not Per.TENANT for e in self.limits):
            raise ConfigError(
                "fair lets tenants overtake others: the ordered limit must be per='tenant'"
            )
        self.signature = Signature(self._of_one(fn), self.name, max_payload, stores.payloads)
        self.returns = self.signature.returns
        self.checkpoint = _check_checkpoint(self.name, options.get("checkpoint", Any))
        self.policy = make_policy(options)
        own = frozenset(each.name for each in self.limits)
        self._error_rules: ErrorRules = make_error_rules(options)._replace(limits=own)
        self.__name__ = self.name
        self.__module__, self.__doc__ = fn.__module__, fn.__doc__
        self.__wrapped__ = fn
        super().__init__(self, make_placement(options))

    def _of_one(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function whose parameters belong to one job."""
        return fn

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function directly, without any queue."""
        return self.fn(*args, **kwargs)

    def __reduce__(self) -> str:
        """Return the name of its function: ``pickle`` finds it in its module, as it does those."""
        return str(getattr(self.fn, "__qualname__", self.name))

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class AsyncTask(Task[P, R]):
    """A task made of an ``async def``."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function; await what it returns."""
        coroutine: Coroutine[Any, Any, R] = self.fn(*args, **kwargs)
        return coroutine


class PlainTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function."""
        result: R = self.fn(*args, **kwargs)
        return result


def is_defined_again(old: Task[..., Any], new: Task[..., Any]) -> bool:
    """Whether a cell of a notebook, or a line at Python's prompt, defines the same function again:
    such code is in no file, so it can only mean a replacement."""
    if hasattr(sys.modules.get("__main__"), "__file__"):
        return False
    places = [(task.fn.__module__, task.fn.__qualname__) for task in (old, new)]
    return places[0] == places[1] and places[0][0] == "__main__"


def _check_checkpoint(task: str, annotation: Any) -> Any:
    """Return the type of a task's checkpoints; ConfigError if JSON can never be read as it."""
    try:
        make_decoder(annotation)
    except Exception as error:
        raise ConfigError(
            f"checkpoint of task {task} must be a type, such as a dataclass or dict[str, int]:"
            f" {text_of(error)}"
        ) from error
    return annotation


def _name_of(fn: Any, name: str | None) -> str:
    """Return the task's name; ConfigError unless ``fn`` is a plain function or ``async def``."""
    if name is not None:
        check_name("a task's name", name)
    wanted = "a task is made of a function (def or async def)"
    if isinstance(fn, type):
        raise ConfigError(f"{wanted}, not of the class {fn.__qualname__}")
    if not callable(fn) or isinstance(fn, staticmethod):
        raise ConfigError(f"{wanted}, not of {ascii(fn)[:80]}")
    if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
        raise ConfigError(f"{wanted}; {fn.__name__} is a generator: its values would be lost")
    own = getattr(fn, "__name__", None)
    if name is None and (own is None or own == "<lambda>"):
        raise ConfigError(f"{wanted}; {ascii(fn)[:80]} has no name of its own: give name=…")
    return name or str(own)


def is_async(fn: Any) -> bool:
    """Whether calling ``fn`` gives a coroutine."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


async def enqueue_plan(stores: StoreProvider, plan: Plan, connection: Any) -> list[Job[Any]]:
    """Store the jobs of a plan, all or none, and return them in its order."""
    for call in plan.calls:
        if call.task.stores is not stores:
            raise UsageError(f"{call.job.task} is a task of another application")
        if call.connection is not None and call.connection is not connection:
            raise UsageError("all calls must have the same connection=…, or none of them")
    await stores.admit(plan.jobs)
    stored = await stores.enqueue(plan.jobs, connection)
    stores.note_stored(plan.jobs, stored)
    return [job_of(call.task, one) for call, one in zip(plan.calls, stored, strict=True)]


def job_of(task: Task[..., R], stored: Enqueued) -> Job[R]:
    """Return the handle on the stored job, or on the unfinished job that has the key."""
    return Job(task.stores, stored, task.name, task.returns)


async def submit(stores: StoreProvider, calls: Sequence[Call[R]]) -> list[Job[R]]:
    """Store calls in their order; return their jobs. All have the same connection."""
    if False in [call.is_alone for call in calls]:
        plan, places = plan_of(calls)
        stored = await enqueue_plan(stores, plan, calls[0].connection)
        return [stored[place] for place in places]
    jobs: list[Job[R]] = []
    left = iter(calls)
    new = [call.job for call in calls]
    await stores.admit(new)

    def take(stored: list[Enqueued]) -> None:
        stores.note_stored(new[len(jobs) : len(jobs) + len(stored)], stored)
        jobs.extend([job_of(call.task, one) for one, call in zip(stored, left, strict=False)])

    try:
        await stores.enqueue_many(new, take, calls[0].connection)
    except KeyInUse as error:
        if jobs:  # of earlier batches: another session may take a key between two batches
            told = f"only the first {len(jobs):,} of {len(calls):,} calls are stored"
            error.stored, error.args = jobs, (text_of(error).replace(NOTHING, told),)
        raise
    return jobs
