"""``outlast worker --until-empty`` runs the jobs that are there, and exits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.stores import opened
from outlast import App
from outlast.model.crash import CrashKind
from tests.cli.conftest import Outlast
from tests.cli.test_worker import SECONDS, worker
from tests.conformance.kit import Hands, crashed, enqueued, job

MANY = 700  # queues: more than one exchange looks at


NOTHING = """
import outlast

app = outlast.App()


@app.task
async def nap() -> None:
    pass
"""


async def nap() -> None:
    """Do nothing."""


def states(outlast: Outlast, url: str) -> dict[int, str]:
    document = outlast("jobs", "--limit", "9999", "--json", "--url", url).json()
    return {job["id"]: job["state"] for job in document["jobs"]}


def run_until_empty(folder: Path, url: str, *options: str, app: str = "shop:app") -> str:
    options = ("--url", url, "--runners", "1", "--until-empty", *options)
    with worker(folder, app, *options) as running:
        assert running.process.wait(SECONDS) == 0, running.log.read_text()
        return running.log.read_text()


@pytest.mark.parametrize("option", [["--until-empty"], ["--idle-after", "99"]])
def test_a_worker_that_runs_no_task_would_never_find_its_queues_empty(
    outlast: Outlast, folder: Path, pg_url: str, option: list[str]
) -> None:
    (folder / "bare.py").write_text("import outlast\n\napp = outlast.App()\n")
    said = outlast("worker", "bare:app", "--url", pg_url, *option)
    assert said.code == 2
    assert "bare:app has no task that this worker can run" in said.err
    assert "import the modules of its tasks where the app is made" in said.err


@pytest.mark.slow_on("postgres")
def test_a_worker_runs_the_jobs_that_are_there_and_exits(
    outlast: Outlast, folder: Path, store_url: str
) -> None:
    for _ in range(3):
        outlast("enqueue", "shop:app", "nap", "0.01", "--url", store_url)
    outlast("enqueue", "shop:app", "nap", "0", "--delay", "1h", "--url", store_url)
    run_until_empty(folder, store_url)
    assert sorted(states(outlast, store_url).values()) == ["completed"] * 3 + ["queued"]
    run_until_empty(folder, store_url)  # there is nothing now
    assert sorted(states(outlast, store_url).values()) == ["completed"] * 3 + ["queued"]


def test_a_worker_runs_no_more_attempts_than_it_may(
    outlast: Outlast, folder: Path, store_url: str
) -> None:
    for _ in range(5):
        outlast("enqueue", "shop:app", "nap", "0.01", "--url", store_url)
    log = run_until_empty(folder, store_url, "--max-jobs", "2")
    assert log.count("attempt_started") == 2
    assert sorted(states(outlast, store_url).values()) == ["completed"] * 2 + ["queued"] * 3


@pytest.mark.slow
def test_a_worker_leaves_paused_jobs(outlast: Outlast, folder: Path, store_url: str) -> None:
    outlast("enqueue", "shop:app", "nap", "0", "--url", store_url)
    outlast("pause", "all", "--url", store_url)
    run_until_empty(folder, store_url)
    assert list(states(outlast, store_url).values()) == ["queued"]


@pytest.mark.slow
def test_a_worker_looks_at_all_queues_before_it_exits(
    outlast: Outlast, folder: Path, store_url: str
) -> None:
    """Many queues whose first jobs cannot run are no reason to leave."""
    app = App(store_url)
    task = app.task(nap)
    calls = [task.using(queue=f"q{n:04}", delay=3600).call() for n in range(MANY)]
    app.enqueue_many_sync([*calls, *(task.using(queue=f"z{n:04}").call() for n in range(MANY))])
    app.close_sync()
    (folder / "shop.py").write_text(NOTHING)
    run_until_empty(folder, store_url)
    ended = list(states(outlast, store_url).values())
    assert ended.count("completed") == MANY


async def suspect(url: str, count: int) -> None:
    """Make suspects of this many jobs, as the death of a runner that they shared does."""
    async with opened(url) as store:
        hands = await Hands.on(store)
        await enqueued(store, *[job(task="nap", args='{"seconds": 0}') for _ in range(count)])
        claimed = await hands.claim(tasks=["nap"])
        await hands.hand_in(*[crashed(one, CrashKind.BYSTANDER, incident=1) for one in claimed])


def test_a_worker_runs_suspects_before_it_exits(
    outlast: Outlast, folder: Path, store_url: str
) -> None:
    """They have a runner beyond the pool's size, which comes only seconds after the first ones."""
    asyncio.run(suspect(store_url, 2))
    run_until_empty(folder, store_url)
    assert list(states(outlast, store_url).values()) == ["completed"] * 2


POLLS = """
import outlast

app = outlast.App()


@app.task
async def poll() -> str:
    if outlast.current().number < 7:
        raise outlast.Snooze(1)
    return "the worker has not left"
"""


@pytest.mark.slow
def test_a_worker_leaves_a_job_that_snoozes_each_second(
    outlast: Outlast, folder: Path, pg_url: str
) -> None:
    (folder / "shop.py").write_text(POLLS)
    outlast("enqueue", "shop:app", "poll", "--url", pg_url)
    log = run_until_empty(folder, pg_url)
    assert list(states(outlast, pg_url).values()) == ["queued"], log
    assert log.count("attempt_started") <= 3


LIMITED = """
import outlast

app = outlast.App()
orders = app.limit("orders", running=1, per="limit_key", ordered=True)


@app.task(limits=[orders])
async def order(n: int) -> None:
    pass


@app.task
async def tick() -> None:
    pass


def begin_late() -> None:
    # the scheduler's first run takes a second, as on a busy host
    import asyncio

    from outlast.worker.maintenance.scheduler import Scheduler

    run, seen = Scheduler.run_once, set()

    async def run_once(self):
        if self not in seen:
            seen.add(self)
            await asyncio.sleep(1)
        return await run(self)

    Scheduler.run_once = run_once
"""


@pytest.mark.slow_on("postgres")
def test_a_worker_runs_jobs_under_limits_and_due_ticks_before_it_exits(
    outlast: Outlast, folder: Path, store_url: str
) -> None:
    """It is the first that declares the limits, and the only one that fires."""
    (folder / "limited.py").write_text(LIMITED)
    app = App(store_url)
    orders = app.limit("orders", running=1, per="limit_key", ordered=True)

    @app.task(name="order", limits=[orders])
    async def order(n: int) -> None: ...

    @app.task(name="tick")
    async def tick() -> None: ...

    calls = [order.using(limit_keys={"orders": "ada"}).call(n) for n in range(20)]
    app.enqueue_many_sync(calls)
    app.schedules.put_sync("tick", tick.call(), every=1)  # due before the worker has started
    app.close_sync()
    run_until_empty(folder, store_url, "--setup", "limited:begin_late", app="limited:app")
    document = outlast("jobs", "--limit", "99", "--json", "--url", store_url).json()
    ended = [job["task"] for job in document["jobs"] if job["state"] == "completed"]
    assert ended.count("order") == 20
    assert ended.count("tick") >= 1


FOLLOWING = """
from typing import Any

import outlast

key = outlast.Encryption({"k": bytes(range(32))}, required=True)
app = outlast.App(payloads=[key])


@app.task(logs=True)
async def asks() -> Any:
    print("it asks")
    return await outlast.current().wait_event("answer", timeout=3600)


@app.task(uses={"gpu": 1})
async def answers() -> None:
    await app.send_event("answer", 42)


@app.task(batch=3, batch_wait=0.2)
async def items(numbers: list[int]) -> list[int]:
    return numbers


@app.task
async def parent() -> Any:
    attempt = outlast.current()
    first = await attempt.step("first", int)
    await attempt.save(first)
    children = await attempt.spawn(outlast.group([items.call(n) for n in range(5)]))
    found = await attempt.wait_for(children)
    await answers.enqueue()
    return found


@app.task
async def starts() -> None:
    await app.enqueue(outlast.chain(parent.call(), asks.call()))
    await asks.using(key="asks", debounce=0.1).enqueue()
"""


@pytest.mark.slow_on("postgres")
def test_a_worker_runs_all_that_follows_from_what_it_runs(
    outlast: Outlast, folder: Path, store_url: str
) -> None:
    """It sees no end of its work in a child, a link of a chain, an item that gathers, or a job that
    waits for an event that another one sends, while any of them is to come."""
    (folder / "follows.py").write_text(FOLLOWING)
    outlast("enqueue", "follows:app", "starts", "--url", store_url)
    log = run_until_empty(folder, store_url, "--has", "gpu=1", app="follows:app")
    document = outlast("jobs", "--limit", "99", "--json", "--url", store_url).json()
    assert {job["state"] for job in document["jobs"]} == {"completed"}, log
    tasks = [job["task"] for job in document["jobs"]]
    assert [tasks.count(name) for name in ("asks", "items", "answers")] == [2, 5, 1]
    (asked, *_) = [job["id"] for job in document["jobs"] if job["task"] == "asks"]
    assert "it asks" in outlast("logs", str(asked), "--url", store_url).out
