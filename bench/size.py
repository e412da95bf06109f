"""A SQLite file of 1,000,000 waiting and 10,000,000 finished jobs, beside one of 10,000 each.

What a client, a worker and each command take on either, in turns: rates, latencies, time and peak
memory. A command starts an interpreter: what that costs is seen on the small file. Some 3 GB of
space are needed where temporary files are made (``TMPDIR``).

    python -m bench size [--rounds N] [--quick]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bench import large_file
from bench.commands import FREQUENT, time_commands
from bench.environment import ground
from bench.kit import tell
from bench.series import Series
from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store import open_store
from outlast.store.protocol import ENQUEUE_MAX, PRUNE_MAX, Store
from outlast.store.values import Claimed, ClaimRequest, NewJob, NewWorker, WorkerRef

WAITING, FINISHED, SMALL = 1_000_000, 10_000_000, 10_000
BATCH = 100  # jobs of an exchange
DRAINED = 4_000  # jobs of a drain
KEPT = 6 * large_file.DAY  # seconds after which a finished job is pruned here
PAUSE = 0.1  # seconds between batches, as the pruner makes it
CROWD_SECONDS = 10.0
DRAINED_MAX = 60_000  # jobs a second that a machine may drain
ENQUEUERS, DRAINERS = 4, 8
MEGABYTE = 1e6

ONCE = ("migrate --after-restore", "dead requeue --all", "cancel {ten_thousand}", "verify")


class File:
    """A file, and the numbers of the jobs in it that commands are asked for."""

    def __init__(self, path: Path, waiting: int, finished: int) -> None:
        self.path = path
        self.name = path.stem
        began_at = time.monotonic()
        self.each = large_file.fill(path, waiting, finished)
        self.seconds = time.monotonic() - began_at
        last = waiting + finished
        self.words = {
            "last": last,
            "finished": waiting * 3 // 10 + finished // 2,
            "ten_thousand": " ".join(map(str, range(last - min(10_000, waiting // 2), last))),
        }

    @property
    def url(self) -> str:
        """The URL of the store."""
        return f"sqlite:///{self.path}"

    def log(self) -> float:
        """Return the megabytes of the write-ahead log."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return log.stat().st_size / MEGABYTE if log.exists() else 0.0


# --- a worker and a client ----------------------------------------------------------------------


def completed(claimed: Claimed) -> Transition:
    """Return the end of a job that did well."""
    return Transition(
        job_id=claimed.job_id,
        token=claimed.token,
        state=State.COMPLETED,
        outcome="completed",
        charge=Charge.NONE,
        failures=claimed.failures,
        losses=claimed.losses,
        result='{"file":"Emma.pdf","pages":1}',
    )


async def register(store: Store) -> WorkerRef:
    """Return a worker on this store."""
    new = NewWorker(name="w", host="h", pid=1, boot_id="b", heartbeat=2, lease=6e3)
    return await store.register(new)


async def drain(store: Store, me: WorkerRef, jobs: int) -> list[float]:
    """Claim and hand in this number of jobs; return the seconds of each exchange."""
    request = ClaimRequest(tasks=large_file.TASKS, limit=BATCH)
    ends: list[Transition] = []
    seconds: list[float] = []
    done = 0
    while done < jobs:
        began_at = time.monotonic()
        claimed = (await store.exchange(me, ends, [request])).claimed
        seconds.append(time.monotonic() - began_at)
        if not claimed:
            raise RuntimeError(f"nothing to claim after {done} of {jobs} jobs")
        ends = [completed(one) for one in claimed]
        done += len(claimed)
    await store.exchange(me, ends, [])
    return seconds


async def top_up(store: Store, jobs: int) -> None:
    """Enqueue as many as are going to be drained."""
    for at in range(0, jobs, ENQUEUE_MAX):
        new = NewJob(task=large_file.TASKS[0], args='{"title":"Emma"}')
        await store.enqueue([new] * min(ENQUEUE_MAX, jobs - at))


async def work(file: File, series: Series, jobs: int) -> float:
    """Note what a client and a worker take, each call by itself; return the jobs a second."""
    began_at = time.monotonic()
    store = open_store(file.url)
    await store.open()
    series.figure(file.name, "open the store", "ms", 1).values.append(since(began_at))
    try:
        new = NewJob(task=large_file.TASKS[0], args='{"title":"Emma"}')
        series.figure(file.name, "enqueue one job", "ms", 2).values.append(
            statistics.median([await timed(lambda: store.enqueue([new])) for _ in range(100)])
        )
        await top_up(store, jobs)
        me = await register(store)
        seconds = await drain(store, me, jobs)
        series.figure(file.name, f"an exchange of {BATCH} jobs", "ms", 1).values.append(
            statistics.median(seconds) * 1e3
        )
        look = statistics.median([await timed(store.observe) for _ in range(20)])
        series.figure(file.name, "a look of the reaper", "ms", 2).values.append(look)
    finally:
        await store.close()
    rate = jobs / sum(seconds)
    series.figure(file.name, "drain, one worker", "jobs/s").values.append(rate)
    return rate


async def timed(call: Callable[[], Any]) -> float:
    """Return the milliseconds that a call takes."""
    began_at = time.monotonic()
    await call()
    return since(began_at)


def since(began_at: float) -> float:
    """Return the milliseconds since then."""
    return (time.monotonic() - began_at) * 1e3


# --- pruning, a crowd and a reader ----------------------------------------------------------------


async def prune(url: str, seconds: float) -> list[float]:
    """Prune as a worker does, for so long; return the milliseconds of each full batch."""
    store = open_store(url)
    await store.open()
    batches: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        began_at = time.monotonic()
        gone = await store.prune(jobs_older_than=KEPT, workers_older_than=KEPT, limit=PRUNE_MAX)
        if gone < PRUNE_MAX:
            break
        batches.append(since(began_at))
        await asyncio.sleep(PAUSE)
    await store.close()
    return batches


async def top_up_for(url: str, seconds: float) -> None:
    """Enqueue at least as many jobs as can be drained in these seconds."""
    store = open_store(url)
    await store.open()
    await top_up(store, int(DRAINED_MAX * seconds))
    await store.close()


async def drain_for(url: str, seconds: float) -> int:
    """Drain for so long; return how many jobs."""
    store = open_store(url)
    await store.open()
    me, done = await register(store), 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done += BATCH * len(await drain(store, me, BATCH * 5))
    await store.close()
    return done


async def enqueue_for(url: str, seconds: float) -> list[float]:
    """Enqueue one job after the other for so long; return the milliseconds of each call."""
    store = open_store(url)
    await store.open()
    calls: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        new = NewJob(task=large_file.TASKS[len(calls) % 20])
        began_at = time.monotonic()
        await store.enqueue([new])
        calls.append(since(began_at))
    await store.close()
    return calls


def apart(work: Callable[[str, float], Any], url: str, seconds: float) -> Any:
    """Run one of these; the processes of a pool call it."""
    return asyncio.run(work(url, seconds))


def beside_pruning(file: File, series: Series, seconds: float) -> None:
    """Note what pruning takes, and what is left of a drain beside it."""
    asyncio.run(top_up_for(file.url, 2 * seconds))
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        alone = pool.apply(apart, (drain_for, file.url, seconds))
        pruning = pool.apply_async(apart, (prune, file.url, seconds))
        beside = pool.apply(apart, (drain_for, file.url, seconds))
        batches: list[float] = pruning.get()
    if batches:
        held = series.figure(file.name, f"prune {PRUNE_MAX:,} jobs, beside a drain", "ms", 1)
        held.values.extend(batches)
        rate = PRUNE_MAX / (PAUSE + statistics.median(batches) / 1e3)
        series.figure(file.name, "pruned by one worker", "jobs/s").values.append(rate)
    share = series.figure(file.name, "a drain beside pruning, as a share of one alone", "", 2)
    share.values.append(beside / max(1, alone))


def crowd(file: File, series: Series, seconds: float) -> None:
    """Note what four clients and eight workers do together, and how large the log becomes."""
    most = 0.0
    asyncio.run(top_up_for(file.url, seconds))
    with multiprocessing.get_context("spawn").Pool(ENQUEUERS + DRAINERS) as pool:
        clients = [
            pool.apply_async(apart, (enqueue_for, file.url, seconds)) for _ in range(ENQUEUERS)
        ]
        workers = [pool.apply_async(apart, (drain_for, file.url, seconds)) for _ in range(DRAINERS)]
        while not all(call.ready() for call in [*clients, *workers]):
            most = max(most, file.log())
            time.sleep(0.05)
        enqueues: list[float] = [one for call in clients for one in call.get()]
        drained = sum(call.get() for call in workers)
    who = f"{ENQUEUERS} clients and {DRAINERS} workers without a pause"
    series.figure(file.name, f"{who}: an enqueue", "ms", 1).values.extend(enqueues)
    series.figure(file.name, f"{who}: drained", "jobs/s").values.append(drained / seconds)
    series.figure(file.name, f"{who}: largest log", "MB").values.append(most)


async def beside_a_reader(file: File, series: Series, jobs: int) -> None:
    """Note how the log grows while a read transaction is open, and what a drain loses."""
    store = open_store(file.url)
    await store.open()
    await top_up(store, 2 * jobs)
    me = await register(store)
    alone = sum(await drain(store, me, jobs))
    with closing(sqlite3.connect(file.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM outlast_schema").fetchone()
        before = file.log()
        beside = sum(await drain(store, me, jobs))
        grown = file.log() - before
    for _ in range(3):
        await store.enqueue([NewJob(task=large_file.TASKS[0])])
    held = "while a read transaction is open"
    each = grown * MEGABYTE / jobs
    series.figure(file.name, f"log per job drained, {held}", "B").values.append(each)
    series.figure(file.name, f"drain {held}, as a share of one without", "", 2).values.append(
        alone / beside
    )
    series.figure(file.name, "log after it has ended, at most", "MB").values.append(file.log())
    await store.close()


# --- all of it ------------------------------------------------------------------------------------


def main(options: Any) -> int:
    """Measure, print and keep; return how many lines have failed."""
    series = Series("size", "a large SQLite file")
    scale = 100 if options.quick else 1
    jobs = max(BATCH * 5, DRAINED // scale)
    with ground() as place, tell("size", 7, 60) as step:
        small = File(place.folder / "small.db", SMALL // min(scale, 10), SMALL // min(scale, 10))
        large = File(place.folder / "large.db", WAITING // scale, FINISHED // scale)
        sizes(series, (large, small))
        step(f"made in {large.seconds:.0f} s")
        for what, measure in parts(series, large, small, options.rounds, jobs, scale).items():
            series.attempt(large.name, what, "", measure)
            step(what)
    return series.finish(whole=not options.quick)


def sizes(series: Series, files: Sequence[File]) -> None:
    """Note how large the files are."""
    for file in files:
        megabytes = file.path.stat().st_size / MEGABYTE
        series.figure(file.name, "size of the file", "MB").values.append(megabytes)
        series.figure(file.name, "of it per finished job", "B").values.append(file.each)


def parts(
    series: Series, large: File, small: File, rounds: int, jobs: int, scale: int
) -> dict[str, Callable[[], None]]:
    """Return what is measured, in its order."""

    def together() -> None:
        for _ in range(rounds):
            rate = asyncio.run(work(large, series, jobs))
            share = rate / asyncio.run(work(small, series, jobs))
            line = series.figure(large.name, "drain, as a share of that of the small file", "", 2)
            line.values.append(share)

    def read_beside() -> None:
        for _ in range(rounds):
            asyncio.run(beside_a_reader(large, series, 5 * jobs))

    seconds = CROWD_SECONDS / min(scale, 10)
    return {
        "a client and a worker": together,
        "commands": lambda: time_commands(series, (large, small), rounds, FREQUENT),
        "pruning": lambda: beside_pruning(large, series, seconds),
        "a crowd": lambda: crowd(large, series, seconds),
        "a reader": read_beside,
        "commands that look at everything": lambda: time_commands(series, (large,), 1, ONCE),
    }
