"""`manage.py outlast`: workers of a project that die, and the rest of the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.scene import ROOT, Scene, scene
from outlast.model.job import State
from tests.cli.test_worker import LEFT
from tests.contrib.django_kit import ManagedWorker, ask, manage

pytestmark = pytest.mark.timeout(900)  # many processes, on a busy machine
ENQUEUE = """
from django.db import connection, transaction
from shop import models, tasks
order = models.Order.objects.create(title="Emma")
try:
    with transaction.atomic():
        tasks.mail.enqueue("lost")
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
with transaction.atomic():
    once = tasks.hangs_once.enqueue({path!r})
    job = tasks.print_order.using(connection=connection).enqueue_sync(order.pk, 5)
print(once.id, job.id)
"""
TELL = """
import json
from outlast.contrib.django.tasks_api import PACKAGE
backend = __import__(PACKAGE, fromlist=["default_task_backend"]).default_task_backend
result = backend.get_result({id!r})  # of a task that this process has not imported
print(json.dumps({{
    "status": result.status.value,
    "attempts": result.attempts,
    "workers": len(set(result.worker_ids)),
    "value": result.return_value if result.is_finished else None,
    "errors": [[error.exception_class.__name__, error.traceback] for error in result.errors],
}}))
"""


@pytest.fixture
async def shop(bare_store_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """The project on a store of each kind, migrated by Django."""
    manage(bare_store_url, "migrate", "-v", "0")
    async with scene(bare_store_url, tmp_path, app="") as opened:
        yield opened


async def start(shop: Scene) -> ManagedWorker:
    """Start a worker; wait until it knows the tasks of the project."""
    before = {row.id for row in await shop.worker_rows()}
    log = shop.folder / f"worker-{len(shop.workers)}.log"
    worker = ManagedWorker(shop.url, shop.folder, log)
    shop.workers.append(worker)

    async def knows_its_tasks() -> bool:
        assert worker.process.poll() is None, log.read_text()
        rows = [row for row in await shop.worker_rows() if row.id not in before]
        return any(
            {"shop.tasks.print_order", "shop.tasks.hangs_once"} <= set(row.tasks) for row in rows
        )

    await shop.until(knows_its_tasks, "a worker that knows the project's tasks")
    worker.remember()
    return worker


@pytest.mark.slow
async def test_what_a_killed_worker_leaves_is_done_by_the_next(shop: Scene) -> None:
    path = shop.folder / "hangs"
    once, job = map(int, ask(shop.url, ENQUEUE.format(path=str(path))).split())
    assert sum((await shop.store.inspector.counts()).values()) == 2  # what was rolled back is not
    first = await start(shop)

    async def is_half_way() -> bool:
        return path.exists() and await shop.checkpoint(job) == "3"

    await shop.until(is_half_way, "both jobs to run")
    running = json.loads(ask(shop.url, TELL.format(id=str(once))))
    assert (running["status"], running["attempts"], running["errors"]) == ("RUNNING", 1, [])
    first.kill_tree()

    await start(shop)
    assert (await shop.ended(job)).result == '"5 pages in attempt 2"'
    assert (await shop.ended(once)).state is State.COMPLETED
    told = json.loads(ask(shop.url, TELL.format(id=str(once))))
    assert (told["status"], told["value"]) == ("SUCCESSFUL", "attempt 2")
    assert (told["attempts"], told["workers"]) == (2, 2)
    ((name, text),) = told["errors"]
    assert name == "JobFailed"
    assert "lost_worker" in text


@pytest.mark.slow_on("postgres")
def test_the_command_line_is_on_the_project_s_store(bare_store_url: str) -> None:
    manage(bare_store_url, "migrate", "-v", "0")
    manage(bare_store_url, "outlast", "enqueue", "shop.tasks.mail", '"ann"', "--delay", "1h")
    jobs = json.loads(manage(bare_store_url, "outlast", "jobs", "--json").stdout)["jobs"]
    assert [(each["task"], each["phase"]) for each in jobs] == [("shop.tasks.mail", "scheduled")]
    told = manage(bare_store_url, "outlast", "--settings=settings", "job", str(jobs[0]["id"]))
    assert '["ann"]' in told.stdout
    wrong = manage(bare_store_url, "outlast", "job", "7", code=1)
    assert "there is no job 7" in wrong.stderr
    doctor = manage(bare_store_url, "outlast", "doctor", "--json", code=None)
    fixes = {each["name"]: each["fix"] for each in json.loads(doctor.stdout)["findings"]}
    assert fixes["workers"] == "Start one: `python manage.py outlast worker`."
    usage = manage(bare_store_url, "outlast", "why", "x", code=2).stderr
    assert "run `python manage.py outlast why --help`" in usage
    assert "no task is called" in manage(bare_store_url, "outlast", "enqueue", "x", code=2).stderr


def test_a_worker_ends_although_a_thread_goes_on(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(LEFT)
    manage(sqlite_url, "migrate", "-v", "0")
    done = manage(
        sqlite_url,
        *("outlast", "worker", "--until-empty", "--setup", "left:start"),
        python=sys.executable,
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(tmp_path)]),
        OUTLAST_RUN_DIR=str(tmp_path / "run"),
    )
    assert "make its threads daemons: feed" in done.stderr


def test_a_call_that_the_function_does_not_take_is_not_enqueued(bare_store_url: str) -> None:
    manage(bare_store_url, "migrate", "-v", "0")
    for arguments, said in {
        (): "missing a required argument: 'to'",
        ('"ann"', "2"): "too many positional arguments",
        ('"ann"', "txet=1"): "unexpected keyword argument 'txet'",
    }.items():
        refused = manage(
            bare_store_url, "outlast", "enqueue", "shop.tasks.mail", *arguments, code=2
        )
        assert said in refused.stderr
    assert not json.loads(manage(bare_store_url, "outlast", "jobs", "--json").stdout)["jobs"]


def test_a_database_without_our_tables_is_named(bare_store_url: str) -> None:
    lines = "from shop import tasks", "try: tasks.count.enqueue()"
    code = "\n".join((*lines, "except Exception as error: print(repr(error))"))
    told = ask(bare_store_url, code)
    assert told.startswith("ImproperlyConfigured"), told
    assert "manage.py migrate" in told


def test_a_database_that_no_worker_can_see_is_refused() -> None:
    for command in ("worker", "jobs"):
        told = manage("sqlite:///:memory:", "outlast", command, code=2)
        assert "in the memory of this process" in told.stderr


NEIGHBOURS = """
from shop import tasks
print(tasks.holds_the_thread.enqueue({path!r}).id)
"""
LATER = """
from shop import tasks
print(tasks.mail_later.enqueue("Emma").id)
"""


@pytest.mark.slow
async def test_async_tasks_begin_and_end_beside_a_slow_query_of_a_neighbour(shop: Scene) -> None:
    path = shop.folder / "go_on"
    await start(shop)
    slow = int(ask(shop.url, NEIGHBOURS.format(path=str(path))))

    async def is_held() -> bool:
        return path.with_name("go_on.held").exists()

    await shop.until(is_held, "the thread to be held")
    try:
        quick = int(ask(shop.url, LATER))
        assert (await shop.ended(quick)).state is State.COMPLETED
        assert (await shop.job(slow)).state is State.RUNNING
    finally:
        path.touch()
    assert (await shop.ended(slow)).state is State.COMPLETED
