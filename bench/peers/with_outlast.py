"""Outlast, by what its users type. BENCH_MODE: ``inprocess``, or ``runners``; BENCH_PLAIN=1:
plain functions instead of coroutines; BENCH_DEFAULTS=1: a worker that nothing is set for.

Only by public names: `bench against` runs it with older commits, too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(__file__))  # runners import this as a module

import uvloop
from common import FLOW, JOBS_OF, URL, client, mark, numbers, operation

import outlast

MODE = os.environ.get("BENCH_MODE", "runners")
PLAIN = os.environ.get("BENCH_PLAIN") == "1"
RUNNERS = os.environ.get("BENCH_RUNNERS", "1")
CONCURRENCY = os.environ.get("BENCH_CONCURRENCY", "500")
LANES = int(os.environ.get("BENCH_LANES", "1"))
BULK = 55_000  # calls in memory at a time
PRIORITIES = int(os.environ.get("BENCH_PRIORITIES", "1"))
KEYS = int(os.environ.get("BENCH_LIMIT_KEYS", "0"))  # 0: under no limit
CAP = int(os.environ.get("BENCH_LIMIT_RUNNING", "1"))  # of each key
PARKED = int(os.environ.get("BENCH_PARKED", "0"))  # jobs of one key, whose holders never end
TENANTS = int(os.environ.get("BENCH_TENANTS", "0"))  # of the jobs of one lane, by turns
FAIR = os.environ.get("BENCH_FAIR") == "1"  # one tenant enqueues many, 100 others the timed ones

app = outlast.App(URL or None)
limited = {}
fair = {"fair": "tenant"} if FAIR else {}
if KEYS:
    limited["limits"] = [app.limit("bench", running=CAP, per="limit_key")]

if PLAIN:

    @app.task(own_runner=False)
    def noop(value: int) -> None:
        mark()

else:

    @app.task(**limited, **fair)
    async def noop(value: int) -> None:
        mark()


@app.task(**fair)
async def timed(sent_at: float) -> None:
    mark(sent_at)


@app.task(max_losses=100, **(limited if PARKED else {}))
async def sleeper(seconds: float) -> None:
    mark()
    await asyncio.sleep(seconds)


@app.task
async def keeps(how: str) -> None:
    """Keep ten values, each for good before the next one: as steps, or as checkpoints."""
    mark()
    attempt = outlast.current()
    for n in range(10):
        if how == "step":
            await attempt.step(str(n), value)
        else:
            await attempt.save(n)


async def value() -> int:
    return 1


@app.task
async def spawns(children: int) -> None:
    """Not counted itself."""
    attempt = outlast.current()
    await attempt.wait_for(await attempt.spawn(outlast.group([noop.call(1)] * children)))


async def many_flows(jobs: int) -> None:
    """Enqueue flows of this number of jobs, or this number of jobs that wait for another."""
    one = noop.call(1)
    if FLOW in {"step", "save"}:
        await app.enqueue_many([keeps.call(FLOW)] * jobs)
    elif FLOW == "spawn":
        await spawns.enqueue(jobs)
    elif FLOW == "wide":
        await app.enqueue(outlast.group([one] * (jobs - 1)).then(timed.call(1.0)))
    elif FLOW == "wait":
        first = await noop.using(delay=1e6).enqueue(1)
        await app.enqueue_many([noop.using(after=[first]).call(1)] * jobs)
    else:
        chain = outlast.chain(one, one, one, one, one)
        part = chain if FLOW == "chain" else outlast.group([one] * 10).then(one)
        for at in range(0, jobs, BULK):
            await app.enqueue(outlast.group([part] * (min(BULK, jobs - at) // JOBS_OF[FLOW])))


async def many_limited(jobs: int) -> None:
    """Enqueue, spread over BENCH_LIMIT_KEYS keys of a limit."""
    parked = sleeper.using(limit_keys={"bench": "parked"}) if PARKED else sleeper
    for at in range(0, PARKED, BULK):
        await app.enqueue_many([parked.call(3600.0)] * min(BULK, PARKED - at))
    calls = [noop.using(limit_keys={"bench": str(n)}).call(1) for n in range(KEYS)]
    for at in range(0, jobs, BULK):
        size = min(BULK, jobs - at)
        await app.enqueue_many([calls[(at + n) % len(calls)] for n in range(size)])


async def many(jobs: int) -> None:
    """Enqueue, spread over BENCH_LANES queues and BENCH_PRIORITIES priorities, or BENCH_TENANTS."""
    if KEYS or FLOW:
        await (many_limited if KEYS else many_flows)(jobs)
        return
    one = noop.using(tenant="flood").call(1) if FAIR else noop.call(1)
    lanes = [
        noop.using(queue=f"lane{queue}", priority=priority).call(1)
        for queue in range(LANES)
        for priority in range(PRIORITIES)
    ]
    tenants = [noop.using(tenant=f"t{n}").call(1) for n in range(TENANTS)]
    calls = tenants or ([one] if LANES == PRIORITIES == 1 else lanes)
    for at in range(0, jobs, BULK):
        size = min(BULK, jobs - at)
        await app.enqueue_many([calls[(at + n) % len(calls)] for n in range(size)])


async def send_timed(now: float, jobs: int) -> None:
    if jobs == 1:
        await timed.enqueue(now)
    elif FAIR:
        await app.enqueue_many([timed.using(tenant=str(n % 100)).call(now) for n in range(jobs)])
    else:
        await app.enqueue_many([timed.call(now)] * jobs)


async def work() -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with app.worker(concurrency=int(CONCURRENCY)):
        await over.wait()


async def connect() -> None:
    """Open the store, and make its tables where there are none."""
    with contextlib.suppress(outlast.JobNotFound):
        await app.get(1)


async def main() -> None:
    if operation() == "setup":
        await connect()
    elif operation() == "worker":
        await work()
    elif operation() == "cap":
        await app.limits.set("bench", running=int(numbers()[0]))
        print(json.dumps({"at": time.monotonic()}), flush=True)
    elif operation() == "nap":
        await sleeper.enqueue(numbers()[0])
    elif operation() == "sleepers":
        jobs, seconds = numbers()
        await app.enqueue_many([sleeper.call(seconds)] * int(jobs))
    else:
        await connect()  # as for the others: a client that is timed is connected
        await client(lambda: noop.enqueue(1), many, send_timed)
    await app.close()


if __name__ == "__main__":
    if operation() == "worker" and MODE == "runners":
        options = ["--runners", RUNNERS, "--concurrency", CONCURRENCY]
        if os.environ.get("BENCH_DEFAULTS") == "1":
            options = []
        command = [sys.executable, "-m", "outlast", "worker", "with_outlast:app", *options]
        os.chdir(os.path.dirname(os.path.abspath(__file__)))
        os.execv(sys.executable, command)
    uvloop.run(main())
