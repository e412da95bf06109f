"""Let a task's code see and steer its own execution: ``outlast.current()`` returns an Attempt.

An attempt speaks to its worker through a ``Link``: a socket in a runner, a method call in
process. Each write carries its token, so an attempt that is no longer the current one
changes nothing: it gets ``LostLease``.
"""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import MAX_PAYLOAD
from outlast.base.credentials import hide_logins
from outlast.base.forks import importing
from outlast.base.sync import blocking, drive, refuse_in_loop, result_of
from outlast.client import steps
from outlast.client.awaiting import running
from outlast.errors import (
    BadArguments,
    LostLease,
    NotInAttempt,
    Snooze,
    Stopped,
    StoreUnavailable,
    UsageError,
    Verdict,
    text_of,
    wait_without_slot,
)
from outlast.insight.row import moment, plain
from outlast.model.crash import Progress, clean
from outlast.payload.codec import check_fits, encode_payload, encode_result, from_json, to_json
from outlast.payload.payloads import PLAIN, Payloads
from outlast.store.protocol import ForeignConnection
from outlast.store.values import Answer, Claimed, NamedStep, StepFound

if TYPE_CHECKING:
    from outlast.client.flow_parts import FlowPart
    from outlast.client.flows import FlowRun

STAGE_MAX = 200  # characters

R = TypeVar("R")
V = TypeVar("V", bound=Verdict)
P = ParamSpec("P")


class StopReason(StrEnum):
    """Why an attempt is asked to stop."""

    CANCEL = "cancel"
    TIMEOUT = "timeout"
    STALLED = "stalled"
    UNRESPONSIVE = "unresponsive"
    DRAIN = "drain"
    LEASE_LOST = "lease_lost"
    PAUSE = "pause"
    BLOCKED = "blocked"


_batch: ContextVar[tuple[Attempt, ...]] = ContextVar("outlast_batch", default=())
_LOCKED = "the job's row is locked, as by a transaction of yours: commit that before you save;"

# One lock for all attempts: it is held only for moments. It is reentrant because a signal handler
# or a finalizer may report or save while its own thread does.
_lock = threading.RLock()


class Unreadable(Verdict):
    """This release lacks the key or the type to read a value that an earlier attempt, a child or a
    sender has kept for this attempt: return the job to the queue for another release, as if its
    arguments could not be read."""

    error: BadArguments

    def __init__(self, error: BadArguments) -> None:
        self.error = error
        super().__init__(text_of(error))


class Link(Protocol):
    """An attempt's connection to its worker. Repeats saves that are answered ``busy``."""

    store_id: str

    @property
    def worker_id(self) -> int:
        """The id of the worker."""
        ...

    def report(self, token: int, progress: Progress) -> None:
        """Pass on progress, from any thread, without blocking."""
        ...

    def save(
        self, job_id: int, token: int, number: int, value_json: str, *, again: bool
    ) -> Future[StepFound]:
        """Save a checkpoint, from any thread; return a future of the store's answer. ``again``: it
        is the checkpoint from which the attempt resumed."""
        ...

    def step(self, job_id: int, token: int, name: str, value_json: str | None) -> Future[StepFound]:
        """Keep the value of a step, or look for it (None), from any thread; return a future of the
        store's answer."""
        ...


class Family(NamedTuple):
    """What attempts do on the store of their application; ``children.py`` has the functions."""

    spawn: Callable[[Attempt, FlowPart, str | None], Awaitable[FlowRun]]
    wait_for: Callable[[Attempt, FlowRun], Awaitable[Any]]
    wait_event: Callable[[Attempt, str, float | timedelta, Any], Awaitable[Any]]


class Attempt:
    """One execution of a job, named by its token.

    Attributes:
        job_id: the job.
        token: the fencing token of this attempt, larger than the token of any earlier attempt. Pass
            it to systems outside the database that can refuse older tokens.
        number: counts the job's attempts from 1.
        failures: charged failures so far.
        task, queue, tenant: the job's.
        deadline: when this attempt is cut off (aware, UTC), or None.
        resources: the value that the application's ``lifespan`` yielded, or None.
        returns: the task's return annotation, or Any.
        max_payload: bytes of JSON that a result or a checkpoint may have.
        completed_in: whether ``complete_in`` has completed this attempt in a transaction.
    """

    job_id: int
    token: int
    number: int
    failures: int
    task: str
    queue: str
    tenant: str | None
    deadline: datetime | None = None
    resources: Any
    returns: Any
    max_payload: int
    completed_in: bool = False
    _clock: Clock = SYSTEM
    _saves = 0
    _progress = Progress()  # the last report
    _stepped = False  # whether it has kept a step
    _awaited: tuple[int, ...] = ()  # jobs whose results it waits for
    _stop_reason: StopReason | None = None
    _noticed = False  # whether the task knows that it was asked to stop
    _verdict: Callable[[], Verdict] | None = None  # makes the first verdict that was raised in it
    _finished = False  # whether the task has called `finish` nevertheless
    _interruptions = 0  # signals from outside that its process had received when it began

    def __init__(
        self,
        link: Link,
        claimed: Claimed,
        *,
        deadline: float | None = None,
        resources: Any = None,
        returns: Any = Any,
        saves: Any = Any,
        max_payload: int = MAX_PAYLOAD,
        payloads: Payloads = PLAIN,
        make_children: Callable[[], Family] | None = None,
    ) -> None:
        """``deadline`` is in seconds since 1970; ``returns`` is the task's return annotation, and
        ``saves`` the type of its checkpoints. ``make_children``: called once the attempt spawns,
        or waits for an event. BadArguments for a checkpoint that ``payloads`` cannot read, or that
        is not of that type: the task must not begin."""
        self._link = link
        self._steps: set[str] = set()  # names used
        self._make_children = make_children
        self._made_children: Family | None = None
        self._claimed = claimed
        self.returns = returns
        self.max_payload = max_payload
        self._payloads = payloads
        saved = claimed.checkpoint
        self._checkpoint = None if saved is None else payloads.decode("checkpoint", saved)
        self._saves_as = saves
        if self._checkpoint is not None and saves is not Any:
            from_json("the checkpoint", self._checkpoint, saves)
        self._went_on_from = self._checkpoint
        self.job_id = claimed.job_id
        self.token = claimed.token
        self.number = claimed.number
        self.failures = claimed.failures
        self.task = claimed.task
        self.queue = claimed.queue
        self.tenant = claimed.tenant
        if deadline is not None:
            self.deadline = datetime.fromtimestamp(deadline, UTC)
        self.resources = resources

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of job {self.job_id} ({self.task}), token {self.token}>"

    @property
    def worker_id(self) -> int:
        """The id of the worker that holds this attempt."""
        return self._link.worker_id

    @property
    def _hide(self) -> Callable[[str], str]:
        """The function that removes secrets from a text."""
        return getattr(self._link, "hide", hide_logins)

    @property
    def is_last_try(self) -> bool:
        """Whether one more charged failure ends the job as ``dead``."""
        return self.failures >= self._claimed.policy.retries

    @property
    def meta(self) -> Any:
        """The notes of ``using(meta={…})`` on the job: a new dict, empty if there are none."""
        return plain(self._claimed.policy.meta or "{}")

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that ``using(labels=[…])`` gave the job."""
        return self._claimed.policy.labels

    @property
    def tick(self) -> datetime | None:
        """The instant for which a schedule planned this job (aware, UTC), even if the job runs
        later; None for a job of no schedule."""
        return moment(self._claimed.policy.tick)

    @property
    def checkpoint(self) -> Any:
        """The checkpoint last saved, by this attempt or an earlier one, or None: as plain JSON, or
        of the type that ``@app.task(checkpoint=…)`` names.

        Each access returns a fresh copy.
        """
        text = self._checkpoint
        return None if text is None else from_json("the checkpoint", text, self._saves_as)

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled. False for every other reason to stop: see ``stopping``."""
        return self._stop_reason is StopReason.CANCEL and self.stopping

    @property
    def stopping(self) -> bool:
        """Whether this attempt was asked to stop; ``stop_reason`` says why.

        A task that has read True here and then returns is *not* finished: it ends as if it had
        called ``check``. If its work is complete nevertheless, it must call ``finish``.
        """
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        """Why this attempt was asked to stop, or None. The first reason stays. Reading it has the
        same effect as reading ``stopping``."""
        if self._stop_reason is not None:
            self._noticed = True
        return self._stop_reason

    def check(self) -> None:
        """Stop here if this attempt was asked to stop: raise ``Stopped``. Else do nothing.

        The reason then decides the end: after a drain the job returns to the queue, uncharged, and
        runs again from its checkpoint; after a cancel it is ``cancelled``; a timeout or stall is
        charged. Do not catch ``Stopped``.
        """
        if (reason := self.stop_reason) is not None:
            raise Stopped(f"asked to stop: {reason}")

    def finish(self, result: R) -> R:
        """Declare the work complete, even if this attempt was asked to stop, or its code has caught
        the ``Snooze`` of a wait. Returns ``result``, for the task to return: ``return
        attempt.finish(result)``."""
        self._finished = True
        return result

    def _stop(self, reason: StopReason | str) -> None:
        """Ask the attempt to stop. For the executor; from any thread."""
        with _lock:
            if self._stop_reason is None:
                self._stop_reason = StopReason(reason)

    def _wait(
        self, seconds: float, why: str, *, blocks: bool = False, event: str | None = None
    ) -> Snooze:
        """Return the verdict by which this attempt waits."""
        return self._ends(
            functools.partial(wait_without_slot, seconds, why, blocks=blocks, event=event)
        )

    def _ends(self, make: Callable[[], V]) -> V:
        """Return one of our verdicts. The first one ends the attempt even if its own code swallows
        it: the executor makes it again, since a kept one would keep alive the frames that it passed
        through."""
        self._verdict = self._verdict or make
        return make()

    def _read(self, read: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the kept value, or raise the verdict that this release cannot read it."""
        try:
            return read(*args, **kwargs)
        except BadArguments as error:
            unreadable = error.with_traceback(None)
        raise self._ends(functools.partial(Unreadable, unreadable))

    def _obeys(self) -> StopReason | None:
        """Return the reason to stop that the task has read, unless it has called ``finish``. For
        the executor."""
        return self._stop_reason if self._noticed and not self._finished else None

    def report(
        self, fraction: float | None = None, message: str | None = None, *, stage: str | None = None
    ) -> None:
        """Tell people how far this attempt has come. Cheap; may be called in any loop and thread.

        ``fraction`` is clipped to 0…1, texts are cut to their limits: odd values never raise. The
        store keeps only the last report.
        """
        progress = Progress(
            fraction=_fraction(fraction),
            stage=_text(stage, self._hide, STAGE_MAX),
            message=_text(message, self._hide),
        )
        with _lock:
            self._progress = progress
        self._tell()

    def _tell(self) -> None:
        waits_for = self._awaited[0] if self._awaited else None
        told = msgspec.structs.replace(self._progress, waits_for=waits_for)
        self._link.report(self.token, told)

    def _awaits(self, job_id: int) -> None:
        """Report that the attempt waits for this job, and holds its slot meanwhile."""
        with _lock:
            self._awaited = (*self._awaited, job_id)
        self._tell()

    def _awaits_no_more(self, job_id: int) -> None:
        with _lock:
            at = self._awaited.index(job_id)
            self._awaited = self._awaited[:at] + self._awaited[at + 1 :]
        self._tell()

    async def save(self, value: Any) -> None:
        """Save ``value`` (any JSON) durably, as the point from which the next attempt continues.

        Once this returns, the value survives the death of this process, host and worker.

        Raises:
            LostLease: the attempt is no longer the current one; nothing was saved.
            BadArguments: the value cannot be encoded, or is too large.
            UsageError: ``complete_in`` has completed this attempt.
            StoreUnavailable: the job's row is locked; the value may or may not be saved.
        """
        if self.completed_in:
            raise UsageError("this attempt was completed in your transaction: nothing can be saved")
        data = to_json("the checkpoint", value)
        if self._saves_as is not Any:
            check_fits("the checkpoint", data, self._saves_as)
        what = "the checkpoint has"
        stored = encode_payload(what, "checkpoint", "save", data, self.max_payload, self._payloads)
        with _lock:
            number = self._saves = self._saves + 1  # no signal is handled in between
        text = data.decode()
        again = text == self._went_on_from and not self._stepped
        saving = self._link.save(self.job_id, self.token, number, stored, again=again)
        answer = (await result_of(saving)).answer
        if answer is Answer.REFUSED:
            raise self._lost("its checkpoint was refused")
        if answer is Answer.BUSY:
            raise StoreUnavailable(f"{_LOCKED} it may or may not be saved")
        with _lock:
            if number == self._saves:
                self._checkpoint = text

    def save_sync(self, value: Any) -> None:
        """As ``save``, for plain functions: blocks until it is done."""
        refuse_in_loop("save")
        drive(self.save(value))

    @overload
    async def step(
        self,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def step(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def step(
        self, name: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Call ``function(*args, **kwargs)`` and keep its value: later attempts of the job get that
        value, and the function is not called again.

        The value is any JSON, of the type that the function is annotated to return. A plain
        function runs in a thread. The function is called again only if its attempt was lost before
        the value was kept: give such work a key that makes repeats harmless, or use ``step_in``.

        Args:
            name: names the step within the job; each is used once in an attempt.
            function: a plain or an ``async`` function; its exceptions are raised here.
            *args: its arguments; they are not compared with the arguments of earlier attempts.
            **kwargs: likewise.

        Raises:
            LostLease: the attempt is no longer the current one; nothing was kept.
            BadArguments: the value cannot be encoded, does not fit the annotation or is too large.
            UsageError: the name was used before in this attempt, or cannot be a name; or
                ``complete_in`` has completed this attempt.
            StoreUnavailable: the job's row is locked; the value may or may not be kept.
        """
        name = steps.check_name(name)
        returns = self._begin_step(name, function)
        if self.number > 1:
            looking = self._link.step(self.job_id, self.token, name, None)
            found = self._found(await result_of(looking))
            if found is not None:
                return self._read_step(name, found, returns)
        try:
            value = await steps.call(function, args, kwargs)
            value, stored = self._encode_step(name, value, returns)
        except BaseException:
            self._steps.discard(name)
            raise
        keeping = self._link.step(self.job_id, self.token, name, stored)
        self._kept(await result_of(keeping))
        return value

    def step_sync(
        self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """As ``step``, for plain functions: blocks until it is done."""
        steps.check_plain(function)
        kept: R = _step_sync(self, name, function, *args, **kwargs)
        return kept

    @overload
    async def step_in(
        self,
        connection: object,
        name: str,
        function: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    @overload
    async def step_in(
        self,
        connection: object,
        name: str,
        function: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R: ...
    async def step_in(
        self,
        connection: object,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """As ``step``, in the caller's own open transaction: the function's writes in it and its
        value are committed together, or not at all, and so exactly once.

        A plain function is called in this thread, where the connection is. Commit soon, and save or
        keep nothing else in between: until the commit, the job's row is locked.
        ``connection`` is of any kind that ``using(connection=…)`` takes, on the same store.

        Raises as ``step``, and ConnectionMismatch as ``complete_in``; UsageError without an open
        transaction. Let the transaction roll back.
        """
        name = steps.check_name(name)
        returns = self._begin_step(name, function)
        try:
            foreign = await self._checked(connection, "step_in")
            step = NamedStep(self.job_id, self.token, name)
            if self.number > 1:
                found = self._found(await foreign.find_step(step))
                if found is not None:
                    return self._read_step(name, found, returns)
            value = function(*args, **kwargs)
            value = await value if inspect.isawaitable(value) else value
            value, stored = self._encode_step(name, value, returns)
            if not await foreign.keep_step(msgspec.structs.replace(step, value=stored)):
                raise self._lost("its step was refused")
        except BaseException:
            self._steps.discard(name)
            raise
        self._stepped = True
        return value

    def step_in_sync(
        self,
        connection: object,
        name: str,
        function: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """As ``step_in``, for plain functions."""
        steps.check_plain(function)
        kept: R = _step_in_sync(self, connection, name, function, *args, **kwargs)
        return kept

    async def sleep(self, seconds: float | timedelta, name: str) -> None:
        """Wait for some time without a slot: end this attempt uncharged, as ``Snooze`` does, and
        run the job again when the time is over. In that attempt the same call returns at once.

        The first attempt to get here saves the wake-up time as a step; later attempts compare it
        with the host's clock. So after a crash a sleep continues, and does not begin again.
        Code before it runs again: put work that must run once into steps.

        Args:
            seconds: how long, from the first call; or a timedelta.
            name: the name of the sleep, which is a step.

        Raises as ``step``, and Snooze, which ends the attempt, even if your code catches it.
        """
        length = Snooze(seconds).seconds

        async def until() -> float:
            return self._clock.wall() + length

        self._sleep_until(name, await self.step(name, until))

    sleep_sync = blocking(sleep)

    def _sleep_until(self, name: str, until: float) -> None:
        left = until - self._clock.wall()
        if left > 0:
            raise self._wait(left, f"it sleeps: {name}")

    async def spawn(self, part: FlowPart, *, name: str | None = None) -> FlowRun:
        """Enqueue a call or a flow as children of this job, once: later attempts that call this, in
        the same order or with the same name, get the same jobs.

        One commit, fenced by the token of this attempt, stores the children and the note that they
        exist. They are kept, with their results, until this job has ended.

        Args:
            part: a call, such as ``resize.call(path)``, or a flow, of at most 100,000 jobs.
            name: names them within this job; needed where their order may differ between attempts,
                as with ``asyncio.gather``.

        Raises:
            LostLease: the attempt is no longer the current one; nothing was enqueued.
            UsageError: an earlier attempt spawned other work in this place, or under this name; or
                an earlier ``spawn`` of this attempt failed: let the attempt end, since the next one
                can tell which children exist.
            QueueFull, StoreUnavailable, …: as ``app.enqueue``.
        """
        return await self._children("spawn").spawn(self, part, name)

    spawn_sync = blocking(spawn)

    async def wait_for(self, children: FlowRun) -> Any:
        """Wait without a slot until the children that ``spawn`` returned have ended: end this
        attempt uncharged, as ``Snooze`` does, and run the job again after that. In that attempt the
        same call returns at once: the result of the last job or, for a group, the list of results.

        Code before it runs again: put work that must run once into steps.

        Raises:
            JobFailed, JobCancelled, JobNotFound: a child has not completed; as ``Job.result``.
            LostLease: the attempt is no longer the current one.
            UsageError: this attempt has not spawned these children.
            Snooze: ends the attempt, even if your code catches it.
        """
        return await self._children("wait_for").wait_for(self, children)

    wait_for_sync = blocking(wait_for)

    @overload
    async def wait_event(self, name: str, *, timeout: float | timedelta) -> Any: ...
    @overload
    async def wait_event(self, name: str, *, timeout: float | timedelta, type: type[R]) -> R: ...
    async def wait_event(
        self,
        name: str,
        *,
        timeout: float | timedelta,
        type: Any = Any,  # noqa: A002
    ) -> Any:
        """Wait without a slot for an event, such as a person's approval, and return its value: end
        this attempt uncharged, as ``Snooze`` does, and run the job again once
        ``app.send_event(name, value)`` has been called or the time is over. In that attempt the
        same call returns, or raises, at once.

        The wait has one outcome for each job: whichever is found first, the event or the timeout,
        is kept as a step, and each later attempt gets the same. An event that was sent earlier
        counts, and so does one that is sent after the timeout but before the job runs. Code before
        the wait runs again: put work that must run once into steps.

        Args:
            name: the event's name; several jobs may wait for one event.
            timeout: seconds from the first call, or a timedelta.
            type: the type that the value is read as; default: any JSON.

        Raises:
            TimeoutError: no event was sent in time.
            BadArguments: the value does not fit ``type``, or is larger than
                ``App(max_payload=…)`` allows here.
            LostLease: the attempt is no longer the current one.
            UsageError: this attempt has waited for it before, or the name is not valid.
            Snooze: ends the attempt, even if your code catches it.
        """
        return await self._children("wait_event").wait_event(self, name, timeout, type)

    @overload
    def wait_event_sync(self, name: str, *, timeout: float | timedelta) -> Any: ...
    @overload
    def wait_event_sync(self, name: str, *, timeout: float | timedelta, type: type[R]) -> R: ...
    def wait_event_sync(
        self,
        name: str,
        *,
        timeout: float | timedelta,
        type: Any = Any,  # noqa: A002
    ) -> Any:
        """As ``wait_event``, for plain functions."""
        return _wait_event_sync(self, name, timeout=timeout, type=type)

    def _children(self, verb: str) -> Family:
        if self._made_children is None:
            if self._make_children is None:
                raise UsageError(f"{verb}() works only in the attempt of a job that a store holds")
            self._made_children = self._make_children()
        return self._made_children

    def _begin_step(self, name: str, function: Callable[..., Any]) -> Any:
        """Take the name of a step; return the type of its value."""
        if self.completed_in:
            raise UsageError("this attempt was completed in your transaction: no step can follow")
        returns = steps.returns_of(function)
        with _lock:
            if name in self._steps:
                raise UsageError(
                    f"the step {name!r} was begun before in this attempt: give each step its own"
                    " name, such as one with a number"
                )
            self._steps.add(name)
        return returns

    def _encode_step(self, name: str, value: Any, returns: Any) -> tuple[Any, str]:
        most, payloads = self.max_payload, self._payloads
        return steps.encode_step(self.job_id, name, value, returns, most, payloads)

    def _read_step(self, name: str, stored: str, returns: Any) -> Any:
        return self._read(steps.decode_step, self.job_id, name, stored, returns, self._payloads)

    def _found(self, found: StepFound) -> str | None:
        """Return what a look for a step has found; LostLease if the attempt is not current."""
        if found.answer is Answer.REFUSED:
            raise self._lost("its step was refused")
        return found.value

    def _kept(self, found: StepFound) -> None:
        self._found(found)
        if found.answer is Answer.BUSY:
            raise StoreUnavailable(f"{_LOCKED} it may or may not be kept")
        self._stepped = True

    async def complete_in(self, connection: object, result: Any = None) -> None:
        """Complete this attempt in the caller's own open transaction, and so exactly once.

        The writes of the transaction and the job's completion are committed together, or not
        at all. The task should then commit and return; its return value is not stored.
        ``connection`` is of any kind that ``using(connection=…)`` takes, on the same store.

        Raises:
            LostLease: the attempt is no longer the current one. Let the transaction roll back.
            UsageError: the connection has no open transaction, or no store holds the job.
            ConnectionMismatch: it is not on this store, or of an unknown kind.
            BadArguments: the result cannot be encoded, or does not fit the return annotation.
        """
        text = encode_result(result, self.returns, self.max_payload, self._payloads)
        if self._verdict is not None and not self._finished:
            raise self._verdict()  # which its own code has swallowed
        foreign = await self._checked(connection)
        if not await foreign.complete(self.job_id, self.token, text):
            earlier = "an earlier complete_in may have completed it"
            raise self._lost(earlier if self.completed_in else "it was not completed")
        self.completed_in = True

    complete_in_sync = blocking(complete_in)

    async def _checked(self, connection: object, verb: str = "complete_in") -> ForeignConnection:
        if not self.token:  # tried without a store: inline, run-task
            raise UsageError(
                f"{verb}() works only in the attempt of a job that a store holds: in a test, use"
                " drain()"
            )
        with importing:
            from outlast.store.foreign import checked

        foreign = await checked(connection, self._link.store_id, clock=self._clock)
        if not await foreign.in_transaction():
            raise UsageError(f"{verb} needs an open transaction: {foreign.begin}")
        return foreign

    def _lost(self, what: str) -> LostLease:
        return LostLease(
            f"attempt {self.number} of job {self.job_id} (token {self.token}) is no longer the"
            f" current one: {what}"
        )


_step_sync: Any = blocking(Attempt.step)
_step_in_sync: Any = blocking(Attempt.step_in)
_wait_event_sync: Any = blocking(Attempt.wait_event)


def current() -> Attempt:
    """Return the attempt that this code runs in; NotInAttempt outside one, and in a batch, which
    has many (``current_batch``).

    It works in the task's coroutine or thread, in asyncio tasks started from it and through
    ``asyncio.to_thread``. Hand the attempt to other threads; child processes cannot save or report.
    """
    if (attempt := find_current()) is None:
        raise NotInAttempt(_IN_BATCH if _batch.get() else None)
    return attempt


_IN_BATCH = "this code runs for a batch of jobs: outlast.current_batch() returns their attempts"


def current_batch() -> list[Attempt]:
    """Return the attempts of the batch that this code runs for, in the order of its items;
    NotInAttempt outside one.

    Each can report, and knows its job; ``save``, ``step``, ``spawn`` and the like are refused.
    """
    if not (attempts := _batch.get()):
        raise NotInAttempt("outlast.current_batch() works only in a task with batch=…")
    return list(attempts)


def find_current() -> Attempt | None:
    """Return the attempt that runs in this context, if any does."""
    return cast("Attempt | None", running.get(None))


def current_token() -> int | None:
    """Return the token of the attempt that runs in this context, if any does."""
    attempt = find_current()
    return None if attempt is None else attempt.token


def set_batch(attempts: Sequence[Attempt]) -> None:
    """Make these what ``current_batch()`` returns in this context."""
    _batch.set(tuple(attempts))


def _fraction(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:
        return None
    return None if math.isnan(number) else min(1.0, max(0.0, number))


def _text(value: Any, hide: Callable[[str], str], limit: int | None = None) -> str | None:
    if value is None:
        return None
    try:
        text = hide(str(value))
    except Exception:
        text = f"<{type(value).__name__}>"
    return clean(text) if limit is None else clean(text, limit)
