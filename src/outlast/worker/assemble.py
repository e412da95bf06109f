"""Puts a worker together from its parts, for ``outlast worker`` and for the tests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.config import WorkerSettings
from outlast.base.credentials import make_hider
from outlast.base.forks import importing
from outlast.errors import ConfigError, OutlastError, StoreError, StoreUnavailable, text_of
from outlast.events import emit
from outlast.insight.schedules import call_of
from outlast.runner.garbage import keep_what_is_loaded
from outlast.runner.protocol import RunnerSettings
from outlast.runner.tether import NO_WILL
from outlast.store.backend import backend_of, file_of, open_store
from outlast.store.lockfile import LockFile, boot_id, directory_for
from outlast.store.protocol import NoPresence, PresenceLock, Store
from outlast.store.rows import JobFilter, WorkerStatus
from outlast.store.values import NewWorker, WorkerRef
from outlast.store.wakeup import Wakeup
from outlast.wakeup import open_messenger
from outlast.worker.base import Pool, no_tether
from outlast.worker.lease.last_will import leave_will
from outlast.worker.lease.registration import LEAVE_SECONDS
from outlast.worker.maintenance.pid1 import Pid1
from outlast.worker.probes import Vitals, open_probes
from outlast.worker.runners.output import Lines, OnLine, OnOutput
from outlast.worker.runners.pool import RunnerPool
from outlast.worker.runners.process import RunnerOwner, RunnerProcess
from outlast.worker.runners.recycling import Recycling, find_cgroup
from outlast.worker.runners.reload import CodeWatch, Reloader
from outlast.worker.runners.tether import Tether
from outlast.worker.sleeper import Sleeper
from outlast.worker.worker import Worker

STATEMENT_SECONDS_MAX = 30.0
PRESENCE_SECONDS_MIN = 1.0
IDLE_SECONDS = 10.0  # before an unused connection is closed, except the exchange's
PLACEHOLDER_FD = -1  # filled in at each spawn
SCHEDULES_LOOKED_AT = 500
RETRY_SECONDS = 5.0  # after a look at a database that does not answer
ROWS_LOOKED_AT = 1_000  # when checking whether a queue has jobs


def unique_name(clock: Clock = SYSTEM) -> str:
    """Return ``hostname-pid-random``."""
    return f"{socket.gethostname()}-{os.getpid()}-{int(clock.random() * 16**6):06x}"


async def wakeup_for(
    url: str, wakeup: str | None, store: Store, settings: WorkerSettings, clock: Clock
) -> Wakeup:
    """Return the wake-up that announces new jobs: the messenger's or the store's own."""
    if wakeup is None:
        with importing:
            return backend_of(url).open_wakeup(url, clock)
    store_id = await store.store_id()
    with importing:
        return open_messenger(wakeup, url, store_id, queues=list(settings.queues), clock=clock)


def presence_for(url: str, settings: WorkerSettings, wakeup: Wakeup) -> PresenceLock | None:
    """Return the lock that is this worker's presence; None if the store has no presence."""
    open_presence = backend_of(url).open_presence
    if open_presence is None:
        return None
    if not settings.presence:
        return NoPresence()
    with importing:
        return open_presence(url, max(PRESENCE_SECONDS_MIN, settings.heartbeat), wakeup)


def _make_lock(url: str, name: str) -> LockFile | None:
    try:
        return LockFile.create(directory_for(file_of(url)), name)
    except (OSError, ConfigError) as error:
        emit("lock_file_missing", error=text_of(error))
        return None


def new_worker(
    name: str, settings: WorkerSettings, lock: LockFile | None, release: str | None = None
) -> NewWorker:
    """Return the registration of a worker on this host, in this process."""
    return NewWorker(
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        heartbeat=settings.heartbeat,
        lease=settings.lease,
        queues=list(settings.queues),
        tags=[*settings.tags, *(f"{unit}={count}" for unit, count in settings.has.items())],
        instance=settings.instance,
        release=release or os.environ.get("OUTLAST_RELEASE"),
        lock_path=None if lock is None else str(lock.path),
        lock_device=None if lock is None else lock.device,
        lock_inode=None if lock is None else lock.inode,
    )


@dataclass(eq=False, kw_only=True)
class WorkerParts:
    """The resources opened before a worker and closed after it: its store and its lock file."""

    name: str
    url: str
    settings: WorkerSettings
    store: Store
    wakeup: Wakeup
    lock: LockFile | None
    hide_secrets: Callable[[str], str]
    clock: Clock
    _worker: Worker | None = None

    def make_worker(
        self,
        make_pool: Callable[[Worker], Pool],
        hold_until: Callable[[float], None] = no_tether,
    ) -> Worker:
        """Return the worker, not started. Call it once."""
        seconds = _statement_timeout(self.settings.lease)

        async def open_beating_store() -> Store:
            store = open_store(self.url, statement_timeout=seconds, lock=self.lock)
            await store.open()
            return store

        self._worker = Worker(
            new_worker(self.name, self.settings, self.lock),
            self.settings,
            make_pool,
            store=self.store,
            open_beating_store=open_beating_store,
            wakeup=self.wakeup,
            clock=self.clock,
            hold_until=hold_until,
            presence=presence_for(self.url, self.settings, self.wakeup),
            lock=self.lock,
            hide_secrets=self.hide_secrets,
        )
        return self._worker

    @property
    def has_left(self) -> bool:
        """Whether no row in the store says that the worker lives."""
        return self._worker is None or self._worker.registration.has_left


def _statement_timeout(lease: float) -> float:
    """Return the seconds for a statement: the server's work after the lease's end is useless."""
    return min(STATEMENT_SECONDS_MAX, lease / 2)


@contextlib.asynccontextmanager
async def open_parts(
    url: str,
    wakeup: str | None,
    settings: WorkerSettings,
    clock: Clock,
    *,
    given: Store | None = None,
    **options: Any,
) -> AsyncIterator[WorkerParts]:
    """Open the resources of a worker for the length of a block. ``given``: an open store for it;
    otherwise ``options`` are further options of its own.

    The store has two connections: one is reserved for the exchange. The other serves all other
    duties, whose statements wait for no row lock and are short; it is open only while a worker
    watches, or has other work than running jobs. With a messenger the store sends no NOTIFY.
    """
    name = settings.name or unique_name()
    store = given or open_store(
        url,
        connections=2,
        reserved=1,
        idle_seconds=IDLE_SECONDS,
        notify=wakeup is None,
        statement_timeout=_statement_timeout(settings.lease),
        clock=clock,
        **options,
    )
    lock: LockFile | None = None
    parts: WorkerParts | None = None
    try:
        if given is None:
            await store.open()
        lock = _make_lock(url, name)
        parts = WorkerParts(
            name=name,
            url=url,
            settings=settings,
            store=store,
            wakeup=await wakeup_for(url, wakeup, store, settings, clock),
            lock=lock,
            hide_secrets=make_hider(url, wakeup),
            clock=clock,
        )
        yield parts
    finally:
        if lock is not None:
            # while a row still says that this worker lives, the free file proves that it does not
            lock.release(unlink=parts is None or parts.has_left)
        if given is None:
            await store.close()


@dataclass(eq=False, kw_only=True)
class WorkerProcess:
    """The process of ``outlast worker``: a worker with runners, or one after another, until
    SIGTERM, SIGINT or SIGHUP stops it.

    Args:
        output: gets what runners write, with the pid, and the token of the attempt, if known.
        on_line: gets it instead, line by line, with the pid, and the id and task of the job.
        reload: folders with code of the application, at whose change the runners are replaced.
        logs: keep the output of every attempt in the store.
        until_empty, max_jobs: stop once nothing is left to claim, or this number was claimed.
        idle_after: sleep while it is not needed (``Sleeper``).
        known_queues: the queues of the application's tasks; it warns of others without a job.
    """

    app: str
    url: str
    settings: WorkerSettings
    output: OnOutput
    wakeup: str | None = None
    on_line: OnLine | None = None
    reload: Sequence[str] = ()
    logs: bool = False
    until_empty: bool = False
    max_jobs: int | None = None
    idle_after: float | None = None
    known_queues: Collection[str] = ()
    clock: Clock = SYSTEM

    async def run(self) -> None:
        """Run to the end. Raises ApplicationError, or the store's errors, if it cannot start."""
        signals = _Signals()
        name = self.settings.name or unique_name()
        self.settings = msgspec.structs.replace(self.settings, name=name)
        async with open_probes(self.settings, self.clock) as vitals:
            worker = await self._live(signals, vitals)
            rest = worker.rest
            while rest is not None and not signals.asked.is_set():
                vitals.rest()
                await signals.wait(rest)
                if not signals.asked.is_set():
                    try:
                        worker = await self._live(signals, vitals, was_asleep=True)
                        rest = worker.rest
                    except StoreUnavailable as error:  # it may have to wake first
                        emit("store_unavailable", duty="sleeper", error=text_of(error), count=1)
                        rest = RETRY_SECONDS
            if rest is not None:
                await _note_end(self.url, worker.me)

    async def _live(self, signals: _Signals, vitals: Vitals, *, was_asleep: bool = False) -> Worker:
        async with contextlib.AsyncExitStack() as stack:
            opened = open_parts(self.url, self.wakeup, self.settings, self.clock)
            parts = await stack.enter_async_context(opened)
            tether = _start_tether(parts, stack, notify=self.wakeup is None)
            store_id = await parts.store.store_id()
            await tell_unknown_queues(parts.store, self.settings.queues, self.known_queues)
            make_pool = functools.partial(self._make_pool, parts.lock, store_id, tether)
            worker = parts.make_worker(make_pool, tether.hold_until)
            if os.getpid() == 1:
                worker.take_on(Pid1(tether.children))
            if isinstance(worker.pool, RunnerPool) and self.reload:
                worker.take_on(_watch_code(worker.pool, self.reload, stack))
            if self.until_empty:
                worker.stop_when_empty(self.max_jobs)
            if self.idle_after is not None:
                seconds, clock = self.idle_after, self.clock
                worker.take_on(Sleeper(worker, parts.store, seconds, clock, at_once=was_asleep))
            vitals.attach(worker, tether.is_lost)
            signals.attach(worker)
            keep_what_is_loaded()
            await worker.run()
            return worker

    def _make_pool(
        self,
        lock: LockFile | None,
        store_id: str,
        tether: Tether,
        worker: Worker,
    ) -> RunnerPool:
        if self.logs:
            worker.checkpoints.logs.keep_all()
        lock_fd = None if lock is None else lock.runners_fd
        configured = RunnerSettings(
            app=self.app,
            stacks=PLACEHOLDER_FD,
            concurrency=self.settings.concurrency,
            store_id=store_id,
            url=self.url,
            lock=lock_fd,
            shell=self.settings.shell,
            wakeup=self.wakeup,
            redact=self.settings.redact,
        )
        make_runner = functools.partial(
            RunnerProcess,
            configured,
            clock=self.clock,
            output=self._open_output(worker),
            shared_fds=() if lock_fd is None else (lock_fd,),
        )
        return make_runner_pool(worker, make_runner, self.settings, tether, self.clock)

    def _open_output(self, worker: Worker) -> OnOutput:
        """Return what receives the output of runners: it passes it on, and keeps that of
        attempts."""
        pass_on, keep = self.output, worker.checkpoints.logs.add
        if self.on_line is not None:
            pass_on = Lines(self.on_line, worker.in_flight.job_of).write

        def take(pid: int, data: bytes, token: int | None) -> None:
            pass_on(pid, data, token)
            if token is not None:
                keep(token, data)

        return take


async def _note_end(url: str, me: WorkerRef) -> None:
    store = open_store(url)
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await store.open()
            await store.set_status(me, WorkerStatus.STOPPED, asleep=0.0)
    except (StoreError, TimeoutError) as error:
        emit("store_unavailable", duty="status", error=text_of(error), count=1)
    finally:
        await store.close()


def _start_tether(parts: WorkerParts, stack: contextlib.AsyncExitStack, *, notify: bool) -> Tether:
    will = leave_will(parts.url, parts.lock, notify=notify)
    if will != NO_WILL:
        stack.callback(os.close, will)
    tether = Tether(() if parts.lock is None else (parts.lock.fd,), will)
    stack.callback(tether.stop)
    tether.start()
    return tether


def _watch_code(
    pool: RunnerPool, folders: Sequence[str], stack: contextlib.AsyncExitStack
) -> Reloader:
    reloader, loop = pool.make_reloader(), asyncio.get_running_loop()
    watch = CodeWatch(folders, lambda paths: loop.call_soon_threadsafe(reloader.note, paths))
    watch.start()
    stack.callback(watch.close)
    return reloader


def make_runner_pool(
    worker: Worker,
    make_runner: Callable[[RunnerOwner], RunnerProcess],
    settings: WorkerSettings,
    tether: Tether,
    clock: Clock,
) -> RunnerPool:
    """Return the pool of a worker with runners, none of which is started."""
    return RunnerPool(
        worker,
        make_runner,
        worker.in_flight,
        worker.checkpoints,
        tether,
        size=settings.runners,
        concurrency=1 if settings.max_jobs_per_runner == 1 else settings.concurrency,
        queues=list(settings.queues),
        tags=settings.tags,
        has=settings.has,
        clock=clock,
        recycling=Recycling(
            size=settings.runners,
            clock=clock,
            max_rss=settings.max_rss,
            max_jobs=settings.max_jobs_per_runner,
            cgroup=find_cgroup(),
        ),
    )


class _Signals:
    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._worker: Worker | None = None

    def attach(self, worker: Worker) -> None:
        """Pass signals to this worker from now on, and one that came while it started."""
        self._worker = worker
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a parent may have ignored it
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
            # a closing terminal sends it more than once, and systemd (SendSIGHUP=) after SIGTERM
            loop.add_signal_handler(signal.SIGHUP, self._drain)
        if self.asked.is_set():
            worker.request_drain()

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.asked.wait()

    def _stop(self) -> None:
        self.asked.set()
        if self._worker is not None:
            self._worker.request_stop()

    def _drain(self) -> None:
        self.asked.set()
        if self._worker is not None:
            self._worker.request_drain()


async def tell_unknown_queues(
    store: Store, queues: Collection[str], known: Collection[str]
) -> None:
    """Emit ``queue_unknown`` for each queue without a task (``known``: the tasks' queues), schedule
    or job, with a similar known name. The worker itself handles a store that does not answer."""
    names = {*known}
    if not {*queues} - names:
        return
    with contextlib.suppress(StoreError):
        for row in await store.inspector.schedules(SCHEDULES_LOOKED_AT):
            with contextlib.suppress(OutlastError):
                names.add(call_of(row).queue)
        for queue in sorted({*queues} - names):
            looked = JobFilter(queue=queue, limit=1, look_rows=ROWS_LOOKED_AT)
            if not (await store.inspector.job_ids(looked)).ids:
                near = get_close_matches(queue, sorted(names), n=1)
                emit("queue_unknown", queue=queue, near=near[0] if near else None)
