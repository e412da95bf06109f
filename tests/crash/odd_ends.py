"""Tasks that leave their runner in a state in which their end is hard to report."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import multiprocessing
import os
import sqlite3
import time
from pathlib import Path

import outlast
from harness.journal import note
from tests.crash.tasks import app

tasks = app.tasks
KEPT: list[sqlite3.Connection] = []
FORK = multiprocessing.get_context("fork")


@app.task
def sets_a_variable_that_is_no_text() -> str:
    os.environb[b"NO_TEXT_\xff"] = b"1"
    return "done"


@app.task
async def prints_into_a_pipe_without_a_reader() -> str:
    print("half a line", end="")
    read, write = os.pipe()
    os.dup2(write, 1)
    os.close(write)
    os.close(read)
    return "done"


@app.task
async def waits_beside(flag: str) -> str:
    while not Path(flag).exists():
        await asyncio.sleep(0.02)
    return "done"


@app.task
async def unlocks_the_lock_file(flag: str) -> str:
    fds = lock_files()
    for fd in fds:
        fcntl.flock(fd, fcntl.LOCK_UN)
    note("unlocked", fds=fds)
    return await waits_beside.fn(flag)


def lock_files() -> list[int]:
    """Return this process's descriptors of lock files."""
    links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    return [int(link.name) for link in links if os.path.realpath(link).endswith(".lock")]


@app.task(retries=0)
def saves_in_a_child() -> int | None:
    child = FORK.Process(target=outlast.current().save_sync, args=[1])
    child.start()
    child.join()
    return child.exitcode


@app.task(retries=0)
def terminates_a_child(patience: float) -> int | None:
    child = FORK.Process(target=time.sleep, args=[600])
    child.start()
    child.terminate()
    child.join(patience)
    return child.exitcode


@app.task(retries=0)
def leaves_a_transaction_open() -> None:
    _leave_a_transaction_open()


@app.task(retries=0)
async def leaves_a_transaction_open_in_the_loop() -> None:
    _leave_a_transaction_open()


@app.task(retries=0, batch=2, batch_wait=0.1)
def leaves_a_transaction_open_in_a_batch(items: list[int]) -> list[int]:
    _leave_a_transaction_open()
    return items


@app.task
def completes_with_a_transaction_open() -> None:
    with contextlib.suppress(RuntimeError):
        _leave_a_transaction_open()


@app.task
async def keeps_a_transaction_open() -> None:
    KEPT.append(sqlite3.connect(app.url.removeprefix("sqlite:///")))
    KEPT[0].execute("CREATE TABLE effects (n INTEGER)")
    KEPT[0].execute("INSERT INTO effects VALUES (1)")


@app.task(retries=0)
async def saves_in_its_own_transaction() -> None:
    await keeps_a_transaction_open.fn()
    await outlast.current().save(1)


def _leave_a_transaction_open() -> None:
    connection = sqlite3.connect(app.url.removeprefix("sqlite:///"))
    connection.execute("CREATE TABLE effects (n INTEGER)")
    connection.execute("INSERT INTO effects VALUES (1)")  # begins a transaction
    raise RuntimeError("before the commit")
