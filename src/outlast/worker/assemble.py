"""Puts a worker together from its parts, for ``outlast worker`` and for the tests."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
from collections.abc import Callable

from outlast.clock import SYSTEM, Clock
from outlast.config import WorkerSettings
from outlast.credentials import hiding_secrets
from outlast.errors import ConfigError, text_of
from outlast.events import emit
from outlast.runner.garbage import keep_what_is_loaded
from outlast.runner.settings import RunnerSettings
from outlast.store.backend import backend_of, file_of, open_store
from outlast.store.lockfile import LockFile, boot_id, directory_for
from outlast.store.presence import NoPresence, PresenceLock
from outlast.store.protocol import Store
from outlast.store.values import NewWorker
from outlast.store.wakeup import Wakeup
from outlast.wakeup import open_messenger
from outlast.worker.maintenance.pid1 import Pid1
from outlast.worker.runners.memory import find_cgroup
from outlast.worker.runners.output import Lines, OnLine, Output
from outlast.worker.runners.pool import RunnerPool
from outlast.worker.runners.process import RunnerProcess
from outlast.worker.runners.recycling import Recycling
from outlast.worker.runners.tether import Tether
from outlast.worker.service import Duty
from outlast.worker.worker import Worker

STATEMENT_SECONDS_MAX = 30.0
PRESENCE_SECONDS_MIN = 1.0
PLACEHOLDER_FD = -1  # filled in at each spawn


def unique_name(clock: Clock = SYSTEM) -> str:
    """Return ``hostname-pid-random``."""
    return f"{socket.gethostname()}-{os.getpid()}-{int(clock.random() * 16**6):06x}"


async def open_main_store(url: str, lease: float, wakeup: str | None = None) -> Store:
    """Return the store for a worker's main loop, opened. With a messenger it sends no NOTIFY.

    Of its two connections one is the exchange's, and one is the reaper's and all others': what they
    do there waits for no row, and the pruner's batches are short.
    """
    store = open_store(
        url,
        connections=2,
        reserved=1,
        notify=wakeup is None,
        statement_timeout=_statement_timeout(lease),
    )
    await store.open()
    return store


def _statement_timeout(lease: float) -> float:
    """Return the seconds for a statement: work of the server after the lease's end is useless."""
    return min(STATEMENT_SECONDS_MAX, lease / 2)


async def open_beating_store(url: str, lease: float, lock: LockFile | None) -> Store:
    """Return a store of its own for the heartbeat, opened."""
    store = open_store(url, statement_timeout=_statement_timeout(lease), lock=lock)
    await store.open()
    return store


async def wakeup_for(
    url: str, wakeup: str | None, store: Store, settings: WorkerSettings, clock: Clock
) -> Wakeup:
    """Return what tells a worker of new jobs: the messenger, or the store's own way."""
    if wakeup is None:
        return backend_of(url).open_wakeup(url, clock)
    store_id = await store.store_id()
    return open_messenger(wakeup, url, store_id, queues=list(settings.queues), clock=clock)


def presence_for(url: str, settings: WorkerSettings) -> PresenceLock | None:
    """Return what holds this worker's presence; None on a store that knows none."""
    open_presence = backend_of(url).open_presence
    if open_presence is None:
        return None
    if not settings.presence:
        return NoPresence()
    return open_presence(url, max(PRESENCE_SECONDS_MIN, settings.heartbeat))


def lock_for(url: str, name: str) -> LockFile | None:
    """Return this worker's lock file, or None (said in an event) where there can be none."""
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
        tags=list(settings.tags),
        instance=settings.instance,
        release=release or os.environ.get("OUTLAST_RELEASE"),
        lock_path=None if lock is None else str(lock.path),
        lock_device=None if lock is None else lock.device,
        lock_inode=None if lock is None else lock.inode,
    )


async def run_worker(
    app: str,
    url: str,
    settings: WorkerSettings,
    *,
    wakeup: str | None = None,
    on_line: OnLine | None = None,
    clock: Clock = SYSTEM,
) -> None:
    """Run a worker with runners until it is told to stop by SIGTERM, SIGINT or SIGHUP.

    What runners write goes to stderr as it is, or to ``on_line(pid, text, job)``, line by
    line; ``job`` is id and task of the job whose line it is, where that is known.
    Raises ApplicationError when the application cannot be imported, and the store's errors
    when it cannot be opened.
    """
    name = settings.name or unique_name()
    store = await open_main_store(url, settings.lease, wakeup)
    lock = lock_for(url, name)
    tether = Tether(() if lock is None else (lock.fd,))
    output = Output() if on_line is None else Lines(on_line)
    worker: Worker | None = None
    try:
        tether.start()
        worker = await _assembled(
            app, url, wakeup, name, settings, store, lock, tether, output, clock
        )
        _obey_signals(worker)
        keep_what_is_loaded()
        await worker.run()
    finally:
        tether.stop()
        if lock is not None:
            # while a row still says that this worker lives, its file is the proof that it does not
            lock.release(unlink=worker is None or worker.registration.has_left)
        await store.close()
        output.close()


async def _assembled(
    app: str,
    url: str,
    wakeup: str | None,
    name: str,
    settings: WorkerSettings,
    store: Store,
    lock: LockFile | None,
    tether: Tether,
    output: Output | Lines,
    clock: Clock,
) -> Worker:
    worker = Worker(
        new_worker(name, settings, lock),
        settings,
        store=store,
        open_beating_store=functools.partial(open_beating_store, url, settings.lease, lock),
        wakeup=await wakeup_for(url, wakeup, store, settings, clock),
        clock=clock,
        hold_until=tether.hold_until,
        presence=presence_for(url, settings),
        lock=lock,
        hide_secrets=hiding_secrets(url, wakeup),
    )
    if isinstance(output, Lines):
        output.job_of = worker.ledger.job_of
    birth = RunnerSettings(
        app=app,
        stacks=PLACEHOLDER_FD,
        concurrency=settings.concurrency,
        store_id=await store.store_id(),
        url=url,
        lock=None if lock is None else lock.runners_fd,
        shell=settings.shell,
        wakeup=wakeup,
    )
    make = functools.partial(
        RunnerProcess,
        birth,
        clock=clock,
        on_output=output.write,
        on_failure=worker.fail,
        shared_fds=() if lock is None else (lock.runners_fd,),
    )
    pool = _pool(worker, make, settings, tether, clock)
    worker.attach(pool, *_duties_of_the_first_process(pool, tether))
    return worker


def _duties_of_the_first_process(pool: RunnerPool, tether: Tether) -> list[Duty]:
    if os.getpid() != 1:
        return []
    return [Pid1(lambda: {tether.pid, *(runner.pid for runner in pool.runners)})]


def _pool(
    worker: Worker,
    make: Callable[..., RunnerProcess],
    settings: WorkerSettings,
    tether: Tether,
    clock: Clock,
) -> RunnerPool:
    return RunnerPool(
        make,
        worker.ledger,
        worker.checkpoints,
        size=settings.runners,
        concurrency=settings.concurrency,
        queues=list(settings.queues),
        tags=settings.tags,
        clock=clock,
        recycling=Recycling(
            size=settings.runners,
            clock=clock,
            max_rss=settings.max_rss,
            max_jobs=settings.max_jobs_per_runner,
            cgroup=find_cgroup(),
        ),
        trusted=worker.registration.trusted,
        draining=lambda: worker.registration.draining,
        on_begin=worker.on_begin,
        on_change=worker.on_change,
        on_broken=worker.fail,
        on_group=lambda pgid, born: tether.add(pgid) if born else tether.drop(pgid),
    )


def _obey_signals(worker: Worker) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by a parent, no death would be told
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.request_stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        # a terminal that closes says it more than once, and systemd (SendSIGHUP=) after SIGTERM
        loop.add_signal_handler(signal.SIGHUP, worker.request_drain)
