"""The ways to die that bench/recovery.py measures.

Each case plays one round on a fresh stage and says what it saw: seconds from the moment named in
``since`` to the closing of the first attempt (noticed) and to the second start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from bench import tasks
from harness.other_host import as_on
from harness.proxy import Proxy, proxied
from harness.scene import ROOT, Scene, WorkerProcess, boot

BOTH = ("sqlite", "postgres")
POSTGRES = ("postgres",)
SHORT = ("--heartbeat", "1", "--lease", "6")
INSTANCE = ("--instance", "pod-0")
SHORT_LEASE, DEFAULT_LEASE = 6.0, 60.0


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One round. Times in seconds; ``cause`` is why the attempt was closed, as its row says it;
    ``gone``: every process of the first attempt had ended before the second began; ``stack``:
    the crash report's stacks name the task's function."""

    start: float
    noticed: float
    cause: str
    gone: bool
    stack: bool | None = None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the table. ``target`` is for the median of ``start``, in seconds; ``seconds``
    is about how long a round takes; ``rounds`` is the most rounds of a slow one."""

    name: str
    since: str
    play: Callable[[Scene], Awaitable[Seen]]
    target: float | None
    seconds: float = 4.0
    stores: tuple[str, ...] = BOTH
    rounds: int | None = None


class Held(msgspec.Struct, frozen=True):
    """A job that is running, its worker, and what the first attempt noted at its start."""

    job: int
    worker: WorkerProcess
    first: dict[str, Any]


async def held(
    stage: Scene,
    task: Any,
    *options: str,
    url: str | None = None,
    env: dict[str, str] | None = None,
) -> Held:
    """Start a worker, and a job on it."""
    direct = stage.url
    stage.url = url or direct
    worker = await another(stage, *options, env=env)
    stage.url = direct
    (enqueued,) = await stage.store.enqueue([task.call().job])
    return Held(enqueued.job_id, worker, await stage.started(1))


async def another(stage: Scene, *options: str, env: dict[str, str] | None = None) -> WorkerProcess:
    """Start one more worker."""
    return await stage.worker("--runners", "2", *options, env=env or own_run_dir(stage))


def own_run_dir(stage: Scene) -> dict[str, str]:
    """Give each worker a directory of its own for its lock file (on PostgreSQL)."""
    return {"OUTLAST_RUN_DIR": str(stage.folder / f"run-{len(stage.workers)}")}


def hide_lock_files(stage: Scene) -> None:
    """Hide from all workers which ones are alive, as from another host."""
    for lock in stage.lock_files():
        lock.unlink()


async def seen(stage: Scene, one: Held, since: float, deadline: float) -> Seen:
    """Wait for the second start; say how long after ``since`` (on the boot clock) it was."""
    second = await stage.started(2, deadline)
    (closed,) = [each for each in await stage.attempts(one.job) if each.number == 1]
    to_boot = boot() - time.time()
    stacks = closed.crash.stacks if closed.crash is not None else None
    message = closed.message.replace(f"{ROOT}/", "")
    return Seen(
        start=second["at"] - since,
        noticed=closed.ended_at + to_boot - since,
        cause=f"{closed.outcome}: {message.partition(': ')[2] or message}",
        gone=not second["still_alive"],
        stack=None if stacks is None else "_once" in stacks,
    )


# --- deaths of processes ----------------------------------------------------------------------


async def runner_killed(stage: Scene) -> Seen:
    one = await held(stage, tasks.waits_once)
    killed_at = boot()
    os.kill(one.first["pid"], signal.SIGKILL)
    return await seen(stage, one, killed_at, 30)


async def tree_killed(stage: Scene) -> Seen:
    one = await held(stage, tasks.waits_once)
    await another(stage)
    killed_at = boot()
    one.worker.kill_tree()
    return await seen(stage, one, killed_at, 90)


async def worker_alone_killed(stage: Scene) -> Seen:
    one = await held(stage, tasks.waits_once)
    await another(stage)
    killed_at = boot()
    one.worker.signal(signal.SIGKILL)
    return await seen(stage, one, killed_at, 90)


async def worker_alone_killed_elsewhere(stage: Scene) -> Seen:
    one = await held(stage, tasks.waits_once, env=as_on("one", stage.folder))
    await another(stage, env=as_on("two", stage.folder))
    killed_at = boot()
    one.worker.signal(signal.SIGKILL)
    return await seen(stage, one, killed_at, 90)


async def other_host_killed(stage: Scene) -> Seen:
    one = await held(stage, tasks.waits_once)
    await another(stage)
    hide_lock_files(stage)
    killed_at = boot()
    one.worker.kill_tree()
    return await seen(stage, one, killed_at, 90)


def restarted(*, from_process: bool) -> Callable[[Scene], Awaitable[Seen]]:
    """Start the worker that held the job again; time counts from its process or from its row."""

    async def play(stage: Scene) -> Seen:
        one = await held(stage, tasks.waits_once)
        one.worker.kill_tree()
        started_at = boot()
        await another(stage)
        if not from_process:
            rows = await stage.worker_rows()
            started_at = rows[-1].started_at + boot() - time.time()
        return await seen(stage, one, started_at, 90)

    return play


async def restarted_elsewhere(stage: Scene) -> Seen:
    """Start the worker again on another host, as a pod: only its name shows that it is the same."""
    one = await held(stage, tasks.waits_once, *INSTANCE)
    hide_lock_files(stage)
    one.worker.kill_tree()
    started_at = boot()
    await another(stage, *INSTANCE)
    return await seen(stage, one, started_at, 90)


# --- silence ----------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def behind_proxy(stage: Scene, *options: str) -> AsyncIterator[tuple[Held, Proxy]]:
    """Yield a worker with a job behind a proxy; another is beside it, and lock files are hidden."""
    async with proxied(stage.url) as (proxy, through):
        one = await held(stage, tasks.sleeps_once, *options, url=through)
        await another(stage, *options)
        hide_lock_files(stage)
        yield one, proxy


def host_lost(lease: float, *options: str) -> Callable[[Scene], Awaitable[Seen]]:
    async def play(stage: Scene) -> Seen:
        async with behind_proxy(stage, *options) as (one, proxy):
            lost_at = boot()
            proxy.hold()
            return await seen(stage, one, lost_at, lease + 30)

    return play


def paused(lease: float, *options: str) -> Callable[[Scene], Awaitable[Seen]]:
    async def play(stage: Scene) -> Seen:
        one = await held(stage, tasks.sleeps_once, *options)
        await another(stage, *options)
        await stage.stop(one.worker.signal)
        return await seen(stage, one, boot(), lease + 30)

    return play


# --- attempts that hang -----------------------------------------------------------------------


def past_limit(task: Any) -> Callable[[Scene], Awaitable[Seen]]:
    async def play(stage: Scene) -> Seen:
        one = await held(stage, task)
        return await seen(stage, one, one.first["at"] + tasks.LIMIT, 60)

    return play


KILL, LIMIT = "the kill", f"the limit of {tasks.LIMIT:g} s"
CASES = (
    Case(name="runner killed", since=KILL, play=runner_killed, target=0.25, seconds=3),
    Case(name="worker tree killed, another on the host", since=KILL, play=tree_killed, target=1),
    Case(name="worker process alone killed", since=KILL, play=worker_alone_killed, target=1),
    Case(
        name="worker process alone killed, another on another host",
        since=KILL,
        play=worker_alone_killed_elsewhere,
        target=0.6,
        stores=POSTGRES,
    ),
    Case(
        name="worker tree killed, another on another host",
        since=KILL,
        play=other_host_killed,
        target=5,
        seconds=9,
        stores=POSTGRES,
    ),
    Case(
        name="only worker killed, started again",
        since="the new process",
        play=restarted(from_process=True),
        target=1,
    ),
    Case(
        name="only worker killed, started again: from the registration",
        since="the new worker's row",
        play=restarted(from_process=False),
        target=1,
    ),
    Case(
        name="only worker killed, started again with its --instance name, no lock file",
        since="the new process",
        play=restarted_elsewhere,
        target=1,
    ),
    Case(
        name="host lost, lease 6 s",
        since="the cut",
        play=host_lost(SHORT_LEASE, *SHORT),
        target=SHORT_LEASE + 2,
        seconds=12,
        stores=POSTGRES,
    ),
    Case(
        name="host lost, lease 60 s (default)",
        since="the cut",
        play=host_lost(DEFAULT_LEASE),
        target=DEFAULT_LEASE + 2,
        seconds=68,
        stores=POSTGRES,
        rounds=2,
    ),
    Case(
        name="worker paused, lease 6 s",
        since="SIGSTOP",
        play=paused(SHORT_LEASE, *SHORT),
        target=SHORT_LEASE + 2,
        seconds=12,
    ),
    Case(
        name="worker paused, lease 60 s (default)",
        since="SIGSTOP",
        play=paused(DEFAULT_LEASE),
        target=DEFAULT_LEASE + 2,
        seconds=68,
        rounds=1,
    ),
    *(
        Case(name=name, since=LIMIT, play=past_limit(task), target=2, seconds=6)
        for name, task in (
            ("hung plain task", tasks.hangs_once),
            ("hung async task, deaf to its cancellation", tasks.hangs_once_async),
            ("loop blocked in Python", tasks.blocks_loop_once),
            ("loop blocked in C, GIL held", tasks.blocks_loop_in_c_once),
            ("loop blocked in C, by unresponsive_timeout", tasks.answers_nothing_once),
        )
    ),
)
