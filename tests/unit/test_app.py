"""The application: its tasks, its hooks, its jobs, on both stores."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import pytest

import outlast
import outlast.store
import outlast.stores
from outlast.config import WorkerSettings, parse_size, worker_settings
from outlast.errors import ConfigError, JobNotFound, UnknownTask, UsageError
from outlast.model.job import State
from outlast.store.rows import JobFilter
from outlast.store.values import Cancelled, Requeued
from outlast.task import Call


def application(url: str | None) -> outlast.App:
    app = outlast.App(url)

    @app.task
    async def analyze(repo: str, depth: int = 100) -> dict[str, int]:
        return {"depth": depth}

    @app.task(queue="mail", retries=1, aliases=["send"])
    def mail(to: str) -> int:
        return len(to)

    return app


@pytest.fixture
async def app(store_url):
    app = application(store_url)
    yield app
    await app.close()


# ---------------------------------------------------------------------------------- the URL


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "mysql://h/db", "sqlite:", "sqlite://", "postgresql://", "://"]
)
def test_a_wrong_url_names_a_right_one(url, monkeypatch):
    monkeypatch.setenv("OUTLAST_URL", "redis://user:secret@host")
    with pytest.raises(ConfigError, match=r"write sqlite:///jobs.db .* or postgresql://") as caught:
        print(outlast.App(url or None).url)
    assert "secret" not in str(caught.value)


def test_an_empty_url_is_not_the_default(monkeypatch):
    """``App(os.environ.get("DATABASE_URL", ""))`` must not make a file that no worker reads."""
    monkeypatch.setenv("OUTLAST_URL", "sqlite:///elsewhere.db")
    with pytest.raises(ConfigError, match="'' is not the URL of a store"):
        outlast.App("")


def test_the_url_is_given_or_from_the_environment_or_a_local_file(monkeypatch):
    monkeypatch.setenv("OUTLAST_URL", "sqlite:///env.db")
    assert outlast.App("sqlite:///given.db").url == "sqlite:///given.db"
    assert outlast.App().url == "sqlite:///env.db"
    monkeypatch.delenv("OUTLAST_URL")
    assert outlast.App().url == "sqlite:///outlast.db"


async def test_the_url_can_be_changed_until_it_is_used(sqlite_url):
    app = application("sqlite:///elsewhere.db")
    app.url = sqlite_url
    await app.tasks["mail"].enqueue("a")
    with pytest.raises(UsageError, match="already uses"):
        app.url = "sqlite:///third.db"
    await app.close()


@pytest.mark.parametrize("limit", [0, 1023, 2**31, "1 MiB", True])
def test_a_limit_that_cannot_work_is_refused(limit):
    with pytest.raises(ConfigError, match="max_payload"):
        outlast.App(max_payload=limit)


# -------------------------------------------------------------------------------- the tasks


def test_an_unknown_task_is_refused_with_similar_names():
    app = application(None)
    assert app.find("send") is app.tasks["mail"]
    with pytest.raises(UnknownTask, match="'analyse'; did you mean analyze"):
        app.find("analyse")
    with pytest.raises(UnknownTask, match="there are: analyze, mail, send"):
        app.find("zzz")
    with pytest.raises(UnknownTask, match="the application has none"):
        outlast.App().find("x")


async def test_a_job_is_stored_as_the_task_and_the_call_have_it(app):
    job = await app.tasks["mail"].using(priority=5, key="k", tenant="t", delay=60).enqueue("a")
    row = await job.refresh()
    assert (row.task, row.queue, row.args, row.state) == ("mail", "mail", {"to": "a"}, "queued")
    assert (row.priority, row.key, row.tenant, row.policy.retries) == (5, "k", "t", 1)
    assert row.waiting
    assert (row.run_at - row.enqueued_at).total_seconds() == pytest.approx(60, abs=1)
    assert await job.status() == "scheduled"


async def test_a_key_names_the_unfinished_job(app):
    mail = app.tasks["mail"].using(key="k")
    first, second = await mail.enqueue("a"), await mail.enqueue("b")
    assert (first.created, second.created, first.id) == (True, False, second.id)
    await first.cancel()
    assert (await mail.enqueue("c")).created


async def test_many_jobs_keep_their_order_beyond_one_statement(app):
    calls = [app.tasks["mail"].call(str(n)) for n in range(5_003)]
    jobs = await app.enqueue_many(calls)
    ids = [job.id for job in jobs]
    assert ids == sorted(set(ids))
    assert (await app.get(ids[5_002])).row.args == {"to": "5002"}
    assert await app.enqueue_many([]) == []


async def test_equal_calls_are_stored_with_equal_arguments(app):
    analyze = app.tasks["analyze"].using(key="k")
    first = await analyze.enqueue("a", 5)
    same = await analyze.enqueue(depth=5, repo="a")
    other = await analyze.enqueue("a", 6)
    assert (first.same_args, same.same_args, other.same_args) == (True, True, False)
    assert {same.id, other.id} == {first.id}
    assert not other.created


async def test_a_key_of_another_task_is_an_error_for_one_job_and_for_many(app):
    first = await app.tasks["mail"].using(key="k").enqueue("a")
    analyze = app.tasks["analyze"]
    with pytest.raises(outlast.KeyInUse) as raised:
        await analyze.using(key="k").enqueue("a")
    assert (raised.value.task, raised.value.job_id) == ("mail", first.id)
    with pytest.raises(outlast.KeyInUse):
        await app.enqueue_many([analyze.call("b"), analyze.using(key="k").call("c")])
    assert [row.id for row in await (await app.stores.store()).inspector.jobs(JobFilter())] == [
        first.id
    ]


async def test_one_statement_is_bounded_in_bytes(app, monkeypatch):
    monkeypatch.setattr(outlast.stores, "ENQUEUE_BYTES", 25)
    store, sizes = await app.stores.store(), []

    async def noting(jobs):
        sizes.append([len(job.args) for job in jobs])
        return await enqueue(jobs)

    enqueue = store.enqueue
    monkeypatch.setattr(store, "enqueue", noting)
    texts = ["", "abcd", "x" * 50, "", ""]
    jobs = await app.enqueue_many([app.tasks["mail"].call(text) for text in texts])
    assert sizes == [[9, 13], [59], [9, 9]]
    assert len({job.id for job in jobs}) == 5


async def test_handles_are_made_while_the_store_writes_the_next_batch(app, monkeypatch):
    """In their order, while the store is busy; the rest, once it has answered for the last."""
    monkeypatch.setattr(outlast.stores, "ENQUEUE_MAX", 2)
    analyze, mail = app.tasks["analyze"].call("r"), app.tasks["mail"].call("a")
    store, seen, began = await app.stores.store(), [], []
    real = store.enqueue

    async def enqueue(batch):
        began.append(len(batch))
        stored = await real(batch)
        seen.append(len(made))
        return stored

    made: list[Any] = []
    monkeypatch.setattr(store, "enqueue", enqueue)
    jobs = [call.job for call in (analyze, mail, mail, analyze, mail)]
    await app.stores.enqueue_many(jobs, made.extend)
    assert (began, seen) == ([2, 2, 1], [0, 2, 4])
    rows = [(await app.get(one.job_id)).row for one in made]
    assert [row.task for row in rows] == ["analyze", "mail", "mail", "analyze", "mail"]


async def test_a_failed_batch_ends_the_call_and_earlier_batches_stay(app, monkeypatch):
    monkeypatch.setattr(outlast.stores, "ENQUEUE_MAX", 2)
    mail = app.tasks["mail"]
    bad = Call(mail, msgspec.structs.replace(mail.call("x").job, priority=1_000), None)
    with pytest.raises(outlast.OutlastError):
        await app.enqueue_many([mail.call("1"), mail.call("2"), bad, mail.call("4")])
    rows = await (await app.stores.store()).inspector.jobs(JobFilter())
    assert sorted(row.args for row in rows) == ['{"to":"1"}', '{"to":"2"}']


async def test_many_takes_calls_of_this_application_only(app):
    other = application(app.url)
    with pytest.raises(UsageError, match="another application"):
        await app.enqueue_many([app.tasks["mail"].call("a"), other.tasks["mail"].call("b")])
    with pytest.raises(UsageError, match="takes calls"):
        await app.enqueue_many([app.tasks["mail"]])


async def test_get_cancel_and_requeue_by_id(app):
    job = await app.tasks["mail"].enqueue("a")
    same = await app.get(job.id)
    assert (same.id, same.task, same.created) == (job.id, "mail", False)
    assert await app.cancel(job.id) is Cancelled.CANCELLED
    assert await app.cancel(job.id) is Cancelled.ENDED
    assert await app.requeue(job.id) is Requeued.REQUEUED
    assert await same.requeue(from_scratch=True) is Requeued.NOT_ENDED
    assert (await same.refresh()).state is State.QUEUED


async def test_an_id_that_names_no_job_is_not_found(app):
    for call in (app.get, app.cancel, app.requeue):
        with pytest.raises(JobNotFound, match="there is no job 999"):
            await call(999)
        for wrong in ("1", None, True, -1, 2**63, 1.5):
            with pytest.raises(UsageError, match="the id of a job is a whole number"):
                await call(wrong)


# -------------------------------------------------------------- loops, threads and processes


def test_plain_code_and_several_loops_use_one_application(bare_store_url):
    app = application(bare_store_url)
    first = app.tasks["mail"].enqueue_sync("a")

    async def work() -> int:
        job = await app.tasks["mail"].enqueue("b")
        return job.id

    ids = [asyncio.run(work()) for _ in range(3)]
    assert ids == sorted(ids)
    assert first.id < ids[0]
    assert app.get_sync(ids[2]).status_sync() == "unservable"
    app.close_sync()
    assert app.tasks["mail"].enqueue_sync("c").id > ids[2]
    app.close_sync()


async def test_many_coroutines_at_once_open_one_store(app, monkeypatch):
    opened = []
    real = outlast.store.open_store

    def count(url: str, **settings: Any) -> Any:
        opened.append(url)
        return real(url, **settings)

    monkeypatch.setattr("outlast.store.open_store", count)
    await asyncio.gather(*(app.tasks["mail"].enqueue("a") for _ in range(20)))
    assert opened == [app.url]


async def test_a_store_that_could_not_be_opened_is_tried_again(tmp_path):
    folder = tmp_path / "later"
    app = application(f"sqlite:///{folder}/jobs.db")
    with pytest.raises(outlast.OutlastError):
        await app.tasks["mail"].enqueue("a")
    folder.mkdir()
    assert (await app.tasks["mail"].enqueue("a")).id == 1
    await app.close()


def test_closing_does_not_wait_for_a_loop_that_ends_meanwhile(sqlite_url, monkeypatch):
    """It closes its store by itself, and cancels what it was asked for."""
    app, used, asked = application(sqlite_url), threading.Event(), threading.Event()
    ends: list[Any] = []
    kept: list[Any] = []

    async def close(opened: Any) -> None:
        kept.append(opened)
        asked.set()
        await asyncio.Event().wait()

    async def work() -> None:
        await app.tasks["mail"].enqueue("a")
        used.set()
        await asyncio.to_thread(asked.wait, 30)

    def end() -> None:
        ends.append(app.close_sync())

    monkeypatch.setattr(outlast.stores._Opened, "close", close)
    other = threading.Thread(target=lambda: asyncio.run(work()))
    other.start()
    assert used.wait(30)
    closing = threading.Thread(target=end, daemon=True)
    closing.start()
    other.join(30)
    closing.join(30)
    assert ends == [None]


def test_a_forked_child_enqueues_through_connections_of_its_own(store_url):
    app = application(store_url)
    app.tasks["mail"].enqueue_sync("parent")
    reader, writer = os.pipe()

    def enqueue() -> None:
        os.write(writer, str(app.tasks["mail"].enqueue_sync("child").id).encode())

    child = multiprocessing.get_context("fork").Process(target=enqueue)
    child.start()
    child.join(30)
    os.close(writer)
    with os.fdopen(reader) as answer:
        job = app.get_sync(int(answer.read()))
    assert job.row is not None
    assert job.row.args == {"to": "child"}
    assert app.tasks["mail"].enqueue_sync("parent").id > job.id
    app.close_sync()


# --------------------------------------------------------------------------------- the hooks


async def agenerator(app: outlast.App) -> Any:
    yield app


def generator() -> Any:
    yield "resources"


@pytest.mark.parametrize(
    "fn", [generator, contextmanager(generator), agenerator, asynccontextmanager(agenerator)]
)
async def test_a_lifespan_yields_once_taking_the_app_or_nothing(fn):
    app = outlast.App()
    assert app.lifespan(fn) is fn
    assert app.lifespan_fn is not None
    context: Any = app.lifespan_fn(app)
    if hasattr(context, "__aenter__"):
        async with context as resources:
            assert resources is app
    else:
        with context as resources:
            assert resources == "resources"


def outer(attempt: Any) -> Any:
    yield "outer", attempt


def inner(attempt: Any) -> Any:
    yield "inner", attempt


def test_arounds_are_kept_outermost_first():
    app = outlast.App()
    app.around(outer)
    app.around(contextmanager(inner))
    entered: list[Any] = []
    for around in app.around_fns:
        context: Any = around("attempt")  # type: ignore[arg-type]
        with context as value:
            entered.append(value)
    assert entered == [("outer", "attempt"), ("inner", "attempt")]


async def coroutine(app: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (coroutine, "yields once"),
        (print, "yields once"),
        (5, "yields once"),
        (lambda a, b: (yield), "takes the app or nothing"),
    ],
)
def test_an_invalid_lifespan_is_refused(fn, says):
    app = outlast.App()
    with pytest.raises(ConfigError, match=says):
        app.lifespan(fn)
    assert app.lifespan_fn is None


def test_there_is_one_lifespan_and_an_around_takes_the_attempt():
    app = outlast.App()
    app.lifespan(generator)
    with pytest.raises(ConfigError, match="a lifespan already"):
        app.lifespan(generator)
    with pytest.raises(ConfigError, match="takes the attempt"):
        app.around(generator)


# ------------------------------------------------------------------------ worker's settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"queue": ["a"]}, "a worker has no setting queue; there are: queues"),
        ({"queues": "mail"}, "queues must be a list of names"),
        ({"queues": ["a b"]}, "a queue must be"),
        ({"runners": 0}, "runners must be a whole number from 1"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"heartbeat": 0}, "heartbeat must be above 0"),
        ({"heartbeat": 30}, "at least three times the heartbeat"),
        ({"lease": float("nan")}, "lease"),
        ({"drain_timeout": -1}, "drain_timeout"),
        ({"poll": 0}, "poll"),
        ({"keep_completed_seconds": -1}, "keep_completed_seconds"),
        ({"keep_workers_seconds": None}, "keep_workers_seconds"),
        ({"name": "a,b"}, "the worker's name"),
        ({"max_rss": 1024}, "max_rss must be bytes, at least 16777216"),
        ({"max_rss": "500M"}, "max_rss must be bytes"),
        ({"max_jobs_per_runner": 0}, "max_jobs_per_runner must be a whole number from 1"),
        ({"redact": "secret"}, "redact must be a list"),
        ({"redact": ["("]}, "redact '\\('.* is no regular expression: missing"),
        ({"redact": [1]}, "redact 1 is no regular expression"),
        ({"redact": ["x*"]}, "matches where there is nothing"),
        ({"redact": ["a{99999999999999999999}"]}, "is no regular expression"),
        ({"redact": ["(" * 5_000]}, "is no regular expression"),
        ({"lease": 10**400}, "lease must be seconds from 0"),
    ],
    ids=str,
)
def test_a_setting_of_a_worker_that_cannot_work_is_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        worker_settings(**settings)
    with pytest.raises(ConfigError, match=says):
        outlast.App().worker(**settings)


def test_a_number_too_long_for_python_to_print_is_refused():
    with pytest.raises(ConfigError, match="from 1 to 256, not this int"):
        worker_settings(runners=10**5_000)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500M", 500 * 2**20),
        ("2G", 2 * 2**30),
        ("1.5g", 3 * 2**29),
        ("300MiB", 300 * 2**20),
        ("20000KB", 20_000 * 1024),
        (" 33554432 ", 2**25),
    ],
)
def test_a_size_can_be_written_short(text, size):
    assert parse_size("--max-rss", text) == size


@pytest.mark.parametrize("text", ["", "M", "-5M", "5T", "1e9", "5 0M", "0x10", "9" * 30])
def test_an_invalid_size_is_refused(text):
    with pytest.raises(ConfigError, match=r"--max-rss must be a size such as 500M or 2G"):
        parse_size("--max-rss", text)


def test_the_default_settings_of_a_worker_are_valid():
    settings = WorkerSettings()
    assert 1 <= settings.runners <= 4
    assert (settings.concurrency, settings.heartbeat, settings.lease) == (10, 2.0, 60.0)
    assert (settings.drain_timeout, settings.poll, settings.queues) == (25.0, 1.0, [])


@pytest.mark.parametrize("options", [{"name": "outlast.shell"}, {"aliases": ["outlast.shell"]}])
def test_the_task_name_of_shell_commands_is_reserved(options):
    app = outlast.App("sqlite:///x.db")
    with pytest.raises(ConfigError, match="Outlast's own"):

        @app.task(**options)
        def mine() -> None: ...


def test_a_worker_in_process_cannot_run_shell_commands():
    with pytest.raises(ConfigError, match="outlast worker --shell"):
        outlast.App("sqlite:///x.db").worker(shell=True)
