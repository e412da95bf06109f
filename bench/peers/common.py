"""Shared by all adapters. It runs in each peer's own environment: the standard library only.

An adapter is a program, ``python with_NAME.py OPERATION [NUMBER…]``:

- ``setup``: make the schema of an empty store;
- ``one N``, ``many N``: enqueue N no-op jobs, one call each, or in bulk; with BENCH_FLOW in flows:
  ``chain``: five in a row; ``group``: ten and then one; ``step``: jobs of ten kept steps each;
- ``timed N GAP [BATCH]``: enqueue N jobs that note how long they waited, BATCH at a time, with
  about GAP seconds between (0.6 to 1.4 of it, so that no poller keeps step); WARM jobs come before
  them and note nothing, since the first calls of a process include its start-up;
- ``nap SECONDS``: enqueue a job that takes this long;
- ``keep BACKLOG SECONDS``: enqueue in bulk for SECONDS, so that about BACKLOG jobs wait;
- ``worker``: work until killed.

A client's last line is JSON: the jobs, the seconds, and the processor seconds of this process.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

URL = os.environ.get("BENCH_URL", "")
RECORD = struct.Struct("<dd")  # when the handler began, and how long its job had waited (or 0)
WARM = 3  # jobs of a timed client that are not timed
DEFAULTS = os.environ.get("BENCH_DEFAULTS") == "1"  # a worker for which nothing is set
FLOW = os.environ.get("BENCH_FLOW", "")  # a kind of flow; "": single jobs
JOBS_OF = {"chain": 5, "group": 11}
BULK = 500  # jobs at once where a backlog is kept up
_marks: dict[int, int] = {}  # the open file, by process: adapters fork


def mark(sent_at: float = 0.0) -> None:
    """Note that a handler has begun: one append to a file in memory, the same for each queue."""
    now = time.monotonic()
    pid = os.getpid()
    if pid not in _marks:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        _marks[pid] = os.open(os.environ["BENCH_MARKS"], flags, 0o666)
    os.write(_marks[pid], RECORD.pack(now, now - sent_at if sent_at else 0.0))


def marked() -> int:
    """Return how many handlers have begun."""
    return os.stat(os.environ["BENCH_MARKS"]).st_size // RECORD.size


def operation() -> str:
    """Return what this program was asked to do."""
    return sys.argv[1]


def numbers() -> list[float]:
    """Return the numbers after the operation."""
    return [float(each) for each in sys.argv[2:]]


def say(jobs: int, began_at: float, cpu: float) -> None:
    """Print the result of a client."""
    seconds, used = time.monotonic() - began_at, time.process_time() - cpu
    print(json.dumps({"jobs": jobs, "seconds": seconds, "cpu": used}), flush=True)


def execute(program: str, *arguments: str) -> None:
    """Become a program of the same environment."""
    os.execv(os.path.join(sys.prefix, "bin", program), [program, *arguments])


async def client(
    one: Callable[[], Awaitable[Any]],
    many: Callable[[int], Awaitable[Any]] | None,
    timed: Callable[[float, int], Awaitable[Any]],
) -> None:
    """Do what a client was asked to do; ``timed`` takes the time and how many to enqueue."""
    jobs, *rest = numbers()
    began_at, cpu = time.monotonic(), time.process_time()
    if operation() == "one":
        for _ in range(int(jobs) // JOBS_OF.get(FLOW, 1)):
            await one()
    elif operation() == "many":
        assert many is not None, "has no way to enqueue many"
        await many(int(jobs))
    elif operation() == "keep":
        assert many is not None, "has no way to enqueue many"
        jobs = await keep(many, int(jobs), rest[0])
    else:
        for _ in range(WARM):
            await timed(0.0, 1)
        due = time.monotonic()
        batch = int(rest[1]) if rest[1:] else 1
        for _ in range(0, int(jobs), batch):
            await timed(time.monotonic(), batch)
            due = max(due + rest[0] * random.uniform(0.6, 1.4), time.monotonic() - 1)
            await asyncio.sleep(due - time.monotonic())
    say(int(jobs), began_at, cpu)


async def keep(many: Callable[[int], Awaitable[Any]], backlog: int, seconds: float) -> int:
    """Keep a backlog of jobs for a time; return how many were enqueued."""
    enqueued, end, before = 0, time.monotonic() + seconds, marked()
    while time.monotonic() < end:
        if enqueued - (marked() - before) < backlog:
            await many(BULK)
            enqueued += BULK
        else:
            await asyncio.sleep(0.005)
    return enqueued


def client_sync(
    one: Callable[[], Any],
    many: Callable[[int], Any] | None,
    timed: Callable[[float], Any],
    nap: Callable[[float], Any] | None = None,
) -> None:
    """Do what a client was asked to do, with a library that blocks."""
    jobs, *rest = numbers()
    began_at, cpu = time.monotonic(), time.process_time()
    if operation() == "one":
        for _ in range(int(jobs) // JOBS_OF.get(FLOW, 1)):
            one()
    elif operation() == "many":
        assert many is not None, "has no way to enqueue many"
        many(int(jobs))
    elif operation() == "nap":
        assert nap is not None, "has no task that takes long"
        nap(jobs)
    else:
        for _ in range(WARM):
            timed(0.0)
        for _ in range(int(jobs)):
            timed(time.monotonic())
            time.sleep(rest[0] * random.uniform(0.6, 1.4))
    say(int(jobs), began_at, cpu)
