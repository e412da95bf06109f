"""A Django project on PostgreSQL whose hooks around attempts use the database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from harness.scene import Scene, scene
from outlast.model.job import State
from tests.contrib.django_kit import ManagedWorker, ask, manage

pytestmark = pytest.mark.timeout(300)
DROP = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND application_name NOT LIKE 'outlast%' AND backend_type = 'client backend'
"""
ROUND = """
from shop import tasks
print(tasks.session.enqueue().id, tasks.titles.enqueue().id)
"""
FLOW = """
from contextlib import nullcontext
from django.db import connection, transaction
import outlast
from outlast.contrib.django import app
from shop import tasks
def store():
    pages = [tasks.print_order.call(order, 1) for order in (7, 8)]
    return app.enqueue_sync(outlast.group(pages).then(tasks.total.call(outlast.RESULTS)))
with {block}:
    store()
    {then}
"""


@pytest.fixture
async def shop(bare_pg_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """The project, migrated by Django."""
    manage(bare_pg_url, "migrate", "-v", "0")
    async with scene(bare_pg_url, tmp_path, app="") as opened:
        yield opened


def start(shop: Scene, **more: str) -> ManagedWorker:
    worker = ManagedWorker(shop.url, shop.folder, shop.folder / "worker.log", **more)
    shop.workers.append(worker)
    return worker


async def test_jobs_run_after_the_server_has_dropped_sessions_that_hooks_had(shop: Scene) -> None:
    start(shop, BOOKSHOP_HOOKS="1")
    for _ in range(3):
        for job in map(int, ask(shop.url, ROUND).split()):
            row = await shop.ended(job)
            assert (row.state, row.failures) == (State.COMPLETED, 0), row
        async with await psycopg.AsyncConnection.connect(shop.url, autocommit=True) as server:
            (dropped,) = await (await server.execute(DROP)).fetchone() or (0,)
        assert dropped >= 2  # of the plain task's thread, and of the thread of async code


def test_hooks_leave_no_connection_in_a_test(bare_pg_url: str) -> None:
    done = manage(
        bare_pg_url, "test", "shop.checks.check_hooks", "--noinput", code=None, BOOKSHOP_HOOKS="1"
    )
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stderr


@pytest.mark.parametrize(
    ("block", "then", "stored"),
    [
        ("nullcontext()", "pass", 3),
        ("transaction.atomic()", "pass", 3),
        ("transaction.atomic()", "transaction.set_rollback(True)", 0),
    ],
    ids=["outside", "inside", "rolled back"],
)
async def test_a_flow_is_stored_as_a_whole(shop: Scene, block: str, then: str, stored: int) -> None:
    ask(shop.url, FLOW.format(block=block, then=then))
    assert sum((await shop.store.inspector.counts()).values()) == stored
