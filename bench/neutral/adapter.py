"""Outlast under the neutral harness, github.com/hardbyte/postgresql-job-queue-benchmarking.

It speaks that harness's protocol (CONTRIBUTING_ADAPTERS.md there, read at 93677ca): settings in
environment variables, one JSON document a line on stdout, notes on stderr, an end by SIGTERM. The
worker runs in this process, as those of the other adapters do, with its defaults but for the
number of attempts at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

import outlast

URL = os.environ["DATABASE_URL"]
RATE = float(os.environ.get("PRODUCER_RATE", "800"))  # jobs a second
RATE_FILE = os.environ.get("PRODUCER_RATE_CONTROL_FILE")
IS_FIXED = os.environ.get("PRODUCER_MODE", "fixed") == "fixed"
DEPTH = int(os.environ.get("TARGET_DEPTH", "1000"))
BATCH = int(os.environ.get("PRODUCER_BATCH_MAX", "128"))
BATCH_SECONDS = float(os.environ.get("PRODUCER_BATCH_MS", "10")) / 1000
WORKERS = int(os.environ.get("WORKER_COUNT", "32"))
WORK_SECONDS = float(os.environ.get("JOB_WORK_MS", "1")) / 1000
PAYLOAD = "x" * int(os.environ.get("JOB_PAYLOAD_BYTES", "256"))
EVERY = float(os.environ.get("SAMPLE_EVERY_S", "5"))
INSTANCE = int(os.environ.get("BENCH_INSTANCE_ID", "0"))
WINDOW_SECONDS = 30.0
LATENCIES_MAX = 32_768  # in the window: memory is bounded
LOOK_SECONDS = EVERY if IS_FIXED else 0.2  # between two counts of what waits
QUEUED = "SELECT count(*) FROM outlast_jobs WHERE state = 'queued'"
MANIFEST = json.loads(Path(__file__).with_name("adapter.json").read_text())

app = outlast.App(URL)
latencies: deque[tuple[float, float]] = deque(maxlen=LATENCIES_MAX)
counts = {"enqueued": 0, "completed": 0, "queued": 0}


@app.task
async def work(created_at: float, padding: str) -> None:
    """Do nothing for a while."""
    latencies.append((time.monotonic(), 1000 * max(0.0, time.time() - created_at)))
    await asyncio.sleep(WORK_SECONDS)
    counts["completed"] += 1


def say(**document: object) -> None:
    """Write one line of the protocol."""
    print(json.dumps({**document, "instance_id": INSTANCE}), flush=True)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rate() -> float:
    """Return the rate that is asked for now."""
    if RATE_FILE is not None:
        with contextlib.suppress(OSError, ValueError):
            return float(Path(RATE_FILE).read_text())
    return RATE


async def produce() -> None:
    """Enqueue at the rate, by the time that has passed, or up to a number of waiting jobs."""
    credit, then = 0.0, time.monotonic()
    while True:
        await asyncio.sleep(BATCH_SECONDS)
        at = time.monotonic()
        credit, then = credit + rate() * (at - then), at
        due = int(credit) if IS_FIXED else DEPTH - counts["queued"]
        if (size := min(BATCH, due)) <= 0:
            continue
        credit = min(credit - size, rate()) if IS_FIXED else 0.0  # a debt of a second, at most
        try:
            await app.enqueue_many([work.call(time.time(), PAYLOAD) for _ in range(size)])
        except outlast.OutlastError as error:
            print(f"enqueue: {error}", file=sys.stderr, flush=True)
        else:
            counts["enqueued"] += size


async def count_queued() -> None:
    """Keep the number of waiting jobs: the first instance reports it, a target depth needs it."""
    while INSTANCE == 0 or not IS_FIXED:
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            connection = await asyncpg.connect(URL)
            try:
                while True:
                    counts["queued"] = await connection.fetchval(QUEUED)
                    await asyncio.sleep(LOOK_SECONDS)
            finally:
                connection.terminate()
        await asyncio.sleep(LOOK_SECONDS)


async def sample() -> None:
    """Write the samples, at whole multiples of their period."""
    await asyncio.sleep(EVERY - time.time() % EVERY)
    before, then = dict(counts), time.monotonic()
    while True:
        await asyncio.sleep(EVERY - time.time() % EVERY)
        at = time.monotonic()
        seen = sorted(each for since, each in latencies if since >= at - WINDOW_SECONDS) or [0.0]
        metrics = {
            f"claim_p{part}_ms": (seen[min(len(seen) - 1, len(seen) * part // 100)], WINDOW_SECONDS)
            for part in (50, 95, 99)
        }
        for name, key in (("enqueue_rate", "enqueued"), ("completion_rate", "completed")):
            metrics[name] = ((counts[key] - before[key]) / (at - then), EVERY)
        if INSTANCE == 0:  # what is the same for all
            metrics["queue_depth"] = (float(counts["queued"]), 0.0)
            metrics["producer_target_rate"] = (rate() if IS_FIXED else 0.0, 0.0)
        before, then = dict(counts), at
        common = {"t": now(), "system": "outlast", "kind": "adapter", "subject_kind": "adapter"}
        for metric, (value, window) in metrics.items():
            say(**common, subject="", metric=metric, value=value, window_s=window)


async def main() -> None:
    """Run the scenario ``long_horizon`` until SIGTERM; ``migrate_only`` makes the schema."""
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    with contextlib.suppress(outlast.JobNotFound):
        await app.get(1)  # makes the schema where there is none
    scenario = os.environ.get("SCENARIO", "long_horizon")
    if scenario == "long_horizon":
        described = {name: MANIFEST[name] for name in ("event_tables", "extensions")}
        version = {"version": outlast.__version__, "schema_version": "1", "started_at": now()}
        database = urlsplit(URL).path.lstrip("/")
        say(kind="descriptor", system="outlast", db_name=database, **described, **version)
        async with app.worker(concurrency=WORKERS, drain_timeout=1.0):
            duties = [asyncio.create_task(each()) for each in (produce, count_queued, sample)]
            await over.wait()
            for duty in duties:
                duty.cancel()
    elif scenario != "migrate_only":
        sys.exit(f"scenario {scenario}: only long_horizon and migrate_only")
    await app.close()


if __name__ == "__main__":
    asyncio.run(main())
