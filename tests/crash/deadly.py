"""Tasks that end their runner, or their worker."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

import outlast
from harness.journal import JOURNAL, begin
from tests.crash.application import app


@app.task(backoff_first=0.01, backoff_max=0.02)
def exits() -> None:
    begin()
    print("about to exit", flush=True)
    os._exit(1)


@app.task(backoff_first=0.01, backoff_max=0.02)
def exits_unless(path: str) -> str:
    begin()
    if not Path(path).exists():
        os._exit(1)
    return "ran"


@app.task(retries=0)
def dereferences_null() -> None:
    begin()
    ctypes.string_at(0)


@app.task(retries=0)
def dies_with_all_its_evidence() -> None:
    begin()
    attempt = outlast.current()
    attempt.report(0.25, "page 1 of 4", stage="rendering")
    attempt.save_sync({"page": 1})
    for n in range(60):
        print(f"line {n} with password=hunter2")
    sys.stdout.flush()
    until = time.process_time() + 0.3
    while time.process_time() < until:
        sum(range(1000))
    ctypes.string_at(0)


@app.task(retries=0)
def speaks_and_dies() -> None:
    sys.stdout.buffer.write(b"last words\x00\xff\n")
    sys.stdout.flush()
    os._exit(3)


@app.task(retries=0)
async def writes_a_bad_frame() -> None:
    """Find the socket to the worker and write rubbish to it."""
    import socket
    import stat

    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                sock = socket.socket(fileno=os.dup(fd))
                if sock.family == socket.AF_UNIX and sock.getsockname() == "":
                    sock.sendall(b"\xff\xff\xff\xff rubbish")
        except OSError:
            continue
    await asyncio.sleep(600)


@app.task(retries=0)
async def ends_its_loop(how: str) -> None:
    begin()
    threading.Thread(target=time.sleep, args=(600,)).start()  # an ordinary exit would wait for it
    if how == "exit":
        asyncio.get_running_loop().call_soon(sys.exit, 5)
    elif how == "stop":
        asyncio.get_running_loop().stop()
    else:
        for task in asyncio.all_tasks():
            task.cancel()
    await asyncio.sleep(600)


def starts() -> int:
    return sum('"event": "start"' in line for line in JOURNAL.read_text().splitlines())


def kill_own_worker() -> None:
    """kill -9 of the worker and all below it, this process last."""
    import psutil  # thousands of runners import this module, few need it

    worker = psutil.Process(os.getppid())
    below = [each for each in worker.children(recursive=True) if each.pid != os.getpid()]
    for process in [worker, *below]:
        process.suspend()
    for process in [*below, worker]:
        process.kill()
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(backoff_first=0.05, backoff_max=0.1)
async def in_a_crowd(how: str = "", crowd: int = 8, waits: int = 1) -> str:
    """The first ``waits`` attempts wait for each other, so that none is alone when it dies. Then
    one dies, in the way asked for, each time; its neighbours wait, and return in later attempts."""
    attempt = begin()
    while attempt.number <= waits and starts() < crowd * attempt.number:
        await asyncio.sleep(0.01)
    if how == "null":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(1)
    elif how == "worker":
        kill_own_worker()
    if attempt.number <= waits:
        await asyncio.sleep(600)
    return f"attempt {attempt.number}"
