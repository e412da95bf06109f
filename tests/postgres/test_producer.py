"""A role that may enqueue by SQL and do nothing else, with psql alone; one that may only look."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import pytest

from harness.servers import PostgresServer
from outlast.errors import NotPermitted, StoreError
from outlast.model.job import State
from outlast.model.schedule_plan import Overlap
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import JobFilter
from outlast.store.values import Purpose
from outlast.worker.maintenance.scheduler import firing_of
from tests.conformance.kit import TASK, Hands, job, new_worker
from tests.conformance.schedules_kit import due_one, fire_one, put_one, row_of

ROLE = "outlast_producer"
OF_TABLES = [
    "SELECT 1 FROM {}",
    "DELETE FROM {}",
    "INSERT INTO {} DEFAULT VALUES",
    "TRUNCATE {}",
    "DROP TABLE {}",
]
OF_SEQUENCES = ["SELECT nextval('{}')", "SELECT setval('{}', 1)", "SELECT * FROM {}"]
VERBS = {"r": OF_TABLES, "v": OF_TABLES, "S": OF_SEQUENCES}
Psql = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def announced(pg_url: str, pg_server: PostgresServer) -> None:
    """The tasks that a worker has announced."""
    known = ", ".join(f"('{task}', '[]', false, 0)" for task in (TASK, "task"))
    database = pg_url.rpartition("/")[2].partition("?")[0]
    pg_server.sql(
        f"INSERT INTO outlast_tasks (name, limits, fair, priority) VALUES {known}", database
    )


@pytest.fixture
def as_role(pg_url: str, pg_server: PostgresServer) -> Iterator[str]:
    name = pg_url.rpartition("/")[2].partition("?")[0]
    pg_server.sql(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN", name)
    yield f"postgresql://{ROLE}@{pg_url.partition('@')[2]}"
    pg_server.sql(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}", name)


@pytest.fixture
def psql(as_role: str, pg_server: PostgresServer) -> Psql:
    def run(statements: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(pg_server.bin / "psql"), "-X", "-qAt", as_role],
            input=statements,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


async def granted(pg_url: str, purpose: Purpose, **more: Any) -> list[str]:
    owner = PostgresStore(pg_url)
    try:
        return await owner.grant(ROLE, purpose, **more)
    finally:
        await owner.close()


async def test_a_producer_blocks_ticks_with_the_key_of_a_call_and_with_no_other(
    pg_url: str, psql: Psql
) -> None:
    """The key of a call is shared on purpose: a tick is skipped while a job of it is unfinished."""
    await granted(pg_url, Purpose.PRODUCE)
    store = PostgresStore(pg_url)
    await store.open()
    await put_one(store, call=job(key="report"), overlap=Overlap.ALLOW)
    assert psql(f"SELECT outlast_enqueue_v1('{TASK}', '{{}}', key => 'report')").returncode == 0
    refused = psql(f"SELECT outlast_enqueue_v1('{TASK}', key => 'outlast:schedule:nightly')")
    assert "key begins as the keys of schedules do" in refused.stderr
    (forged,) = await store.inspector.jobs(JobFilter())
    due = await due_one(store)
    answer = await fire_one(store, firing_of(due, due.since + 60.0))
    assert (answer.jobs, answer.in_the_way) == ([None], forged.id)
    assert (await row_of(store)).last_skip_job == forged.id, "its page names the job"
    await store.close()


async def test_psql_alone_enqueues_as_a_role_that_may_do_nothing_else(
    pg_url: str, psql: Psql, session: Any
) -> None:
    call = f"SELECT outlast_enqueue_v1('{TASK}', '{{\"order\": 7}}', key => 'order:7', delay => 0)"
    refused = psql(call)
    assert "permission denied for function outlast_enqueue_v1" in refused.stderr
    # as a careful administrator sets it: no privilege comes from PUBLIC
    await session.execute("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC")
    told = await granted(pg_url, Purpose.PRODUCE)
    assert [re.sub(r"\(.*", "", each) for each in told] == [
        "EXECUTE ON FUNCTION outlast_enqueue_v1"
    ]
    assert psql(call).stdout.strip().isdigit()

    store = PostgresStore(pg_url)
    hands = await Hands.on(store)
    (claimed,) = await hands.claim()
    assert claimed.args == '{"order": 7}'
    await store.close()

    tables = await session.fetch(
        "SELECT c.relname, c.relkind::text FROM pg_class c WHERE c.relname LIKE 'outlast%'"
        " AND c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v', 'S')"
    )
    verbs = [verb.format(name) for name, kind in tables for verb in VERBS[kind]]
    assert len(verbs) > 50
    told_each = psql("\n".join(f"{verb};" for verb in verbs)).stderr.splitlines()
    errors = [line for line in told_each if "ERROR:" in line]
    assert len(errors) == len(verbs)
    wanted = re.compile(
        "permission denied|must be owner|cannot insert|cannot delete from view|is not a table"
    )
    assert [line for line in errors if not wanted.search(line)] == []


async def test_no_other_kind_of_role_may_call_it(
    pg_url: str, psql: Psql, session: Any, as_role: str
) -> None:
    for purpose in (Purpose.WORKER, Purpose.ENQUEUE, Purpose.VIEW):
        assert not any("outlast_enqueue_v1" in each for each in await granted(pg_url, purpose))
    assert "permission denied for function" in psql("SELECT outlast_enqueue_v1('a')").stderr


@pytest.mark.parametrize("purpose", [Purpose.PRODUCE, Purpose.ENQUEUE])
async def test_a_role_that_enqueues_sends_events_only_if_that_was_granted(
    pg_url: str, psql: Psql, purpose: Purpose
) -> None:
    """An event may answer a job that waits for a person's approval."""
    await granted(pg_url, purpose)
    sends = "SELECT outlast_send_event_v1('approve:7', '{}')"
    assert "permission denied for function" in psql(sends).stderr
    encoded = "SELECT outlast_keep_event_v1('approve:8', '[null]')"
    assert "permission denied for function" in psql(encoded).stderr
    told = await granted(pg_url, purpose, events=True)
    assert any("outlast_send_event_v1" in each for each in told)
    assert psql(sends).stdout.strip() == "t"
    is_python = purpose is Purpose.ENQUEUE
    assert (psql(encoded).stdout.strip() == "t") == is_python


async def test_a_function_that_runs_as_its_owner_needs_a_grant(
    pg_url: str, session: Any, as_role: str
) -> None:
    """Else a role without any right could free a key, and block clients that enqueue with it."""
    found = "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace"
    mine = f"{found} AND has_function_privilege('{ROLE}', oid, 'EXECUTE')"

    async def own() -> list[str]:
        return [each["proname"] for each in await session.fetch(mine)]

    assert len(await session.fetch(found)) == 10
    assert await own() == []
    await granted(pg_url, Purpose.VIEW)
    assert await own() == []
    await granted(pg_url, Purpose.ENQUEUE)
    assert sorted(await own()) == [
        "outlast_add_lanes_v1",
        "outlast_depend_v1",
        "outlast_fill_window_v1",
        "outlast_free_keys_v1",
        "outlast_label_v1",
        "outlast_replace_v1",
        "outlast_take_window_v1",
    ]


async def test_each_verb_of_ours_is_refused_to_it(pg_url: str, as_role: str) -> None:
    await granted(pg_url, Purpose.PRODUCE)
    store = PostgresStore(as_role)
    with pytest.raises(StoreError):
        await store.open()
    await store.close()
    owner = PostgresStore(pg_url)
    await owner.open()
    (stored,) = await owner.enqueue([job()])
    await owner.close()
    store = PostgresStore(as_role)
    for verb in (
        lambda: store.enqueue([job()]),
        lambda: store.cancel([stored.job_id]),
        lambda: store.requeue([stored.job_id]),
        lambda: store.discard([stored.job_id]),
        lambda: store.register(new_worker()),
        lambda: store.inspector.jobs(JobFilter()),
        lambda: store.inspector.job(stored.job_id),
        lambda: store.prune(jobs_older_than=-1, workers_older_than=-1, dead_older_than=-1),
    ):
        with pytest.raises(StoreError):
            await verb()
    await store.close()


async def test_the_callers_search_path_does_not_mislead_it(
    pg_url: str, psql: Psql, session: Any
) -> None:
    """It finds names in the schema where it was created, and runs no function of the caller's."""
    await granted(pg_url, Purpose.PRODUCE)
    await session.execute(f"CREATE SCHEMA trap AUTHORIZATION {ROLE}")
    done = psql(
        "CREATE TABLE trap.outlast_jobs (LIKE pg_class);"
        "CREATE FUNCTION trap.outlast_refuse_args_v1(text) RETURNS void LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''caught as %'', current_user; END';"
        "CREATE TEMP TABLE outlast_jobs (id int);"
        "SET standard_conforming_strings = off; SET escape_string_warning = off;"
        "SET search_path = trap, public;"
        "SELECT public.outlast_enqueue_v1('task')"
    )
    assert done.stdout.strip().isdigit(), done.stderr
    blank = psql("SET standard_conforming_strings = off; SELECT public.outlast_enqueue_v1('a b')")
    assert "without blanks" in blank.stderr
    assert await session.fetchval("SELECT count(*) FROM outlast_jobs") == 1


async def test_its_path_is_one_schema_and_no_temporary_table(pg_url: str, session: Any) -> None:
    """Not the migrator's own path: with "$user" that would be the owner's name."""
    (config,) = await session.fetchrow(
        "SELECT proconfig FROM pg_proc WHERE proname = 'outlast_enqueue_v1'"
    )
    path = next(each for each in config if each.startswith("search_path="))
    assert path.replace('"', "") == "search_path=public, pg_temp"


async def test_its_commit_wakes_listeners(pg_url: str, psql: Psql, session: Any) -> None:
    await granted(pg_url, Purpose.PRODUCE)
    heard: list[str] = []
    channel = await session.fetchval("SELECT outlast_channel_v1()")
    await session.add_listener(channel, lambda *told: heard.append(told[-1]))
    assert psql("SELECT outlast_enqueue_v1('task', queue => 'mail')").stderr == ""
    chain = (
        "SELECT outlast_enqueue_v1('task', after => ARRAY[outlast_enqueue_v1('task', delay => 60)])"
    )
    assert psql(chain).stderr == ""
    await session.fetch("SELECT 1")  # what was notified before has arrived with this answer
    assert [re.sub(r"\d+", "N", each, count=1) for each in heard] == ["jobs:N:1:mail"]


async def test_a_viewer_may_read_all_and_change_nothing(pg_url: str, as_role: str) -> None:
    await granted(pg_url, Purpose.VIEW)
    store = PostgresStore(as_role)
    await store.open()
    owner = PostgresStore(pg_url)
    await owner.open()
    (stored,) = await owner.enqueue([job()])
    await owner.close()
    inspector = store.inspector
    for state in (None, *State):
        await inspector.job_ids(JobFilter(state=state))
    await inspector.job_ids(JobFilter(label="a"))
    assert await inspector.job(stored.job_id) is not None
    await inspector.attempts(stored.job_id)
    await inspector.logs(stored.job_id)
    await inspector.place(stored.job_id)
    for read in (
        inspector.workers,
        inspector.refusals,
        inspector.statistics,
        inspector.environment,
        inspector.held,
        inspector.history,
        inspector.counts,
        inspector.pauses,
        inspector.schedules,
        inspector.last_token,
        store.migrations,
        store.store_id,
    ):
        await read()
    for verb in (
        lambda: store.enqueue([job()]),
        lambda: store.cancel([stored.job_id]),
        lambda: store.discard([stored.job_id]),
        lambda: store.register(new_worker()),
    ):
        with pytest.raises(NotPermitted):
            await verb()
    await store.close()


@pytest.mark.parametrize("ends", ["commit", "rollback"])
async def test_two_that_enqueue_one_key_at_once_make_one_job(
    pg_url: str, session: Any, ends: str
) -> None:
    """The second waits for the first, and sees how it ended."""
    call = "SELECT outlast_enqueue_v1('task', key => 'k')"
    waits = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
    )
    first, second = await asyncpg.connect(pg_url), await asyncpg.connect(pg_url)
    transaction = first.transaction()
    await transaction.start()
    one = await first.fetchval(call)
    other = asyncio.create_task(second.fetchval(call))
    while not await session.fetchval(waits):
        assert not other.done()
        await asyncio.sleep(0.01)
    await getattr(transaction, ends)()
    assert (await other == one) is (ends == "commit")
    assert await session.fetchval("SELECT count(*) FROM outlast_jobs") == 1
    await first.close()
    await second.close()
