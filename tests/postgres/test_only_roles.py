"""What a role of `--only` can do to rows of others: each of its privileges is abused.

A privilege that no row of ``ATTACKS`` names is an error: say there what it could be abused for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import product
from string import Template
from typing import Any

import asyncpg
import pytest

from outlast.model.job import Policy
from outlast.store.postgres.store import PostgresStore
from outlast.store.values import NewJob, OnKey, Purpose, Upstream
from tests.conformance.kit import TASK, Hands, ended, enqueued, job, on
from tests.conformance.limits_kit import declare, limited, need

ROLE = "outlast_only"
PRIVILEGES = f"""
SELECT a.privilege_type || ' ' || c.relname
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE a.grantee = '{ROLE}'::regrole AND a.privilege_type <> 'SELECT'
UNION
SELECT a.privilege_type || ' ' || c.relname
FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid CROSS JOIN LATERAL aclexplode(t.attacl) a
WHERE a.grantee = '{ROLE}'::regrole AND a.privilege_type <> 'SELECT'
UNION
SELECT 'EXECUTE ' || p.proname FROM pg_proc p CROSS JOIN LATERAL aclexplode(p.proacl) a
WHERE a.grantee = '{ROLE}'::regrole AND p.prosecdef
"""
OF_OTHERS = """
WITH one AS (
    SELECT to_jsonb(j) - 'awaited' AS row FROM outlast_jobs j WHERE j.id = ANY ($1)
    UNION ALL SELECT to_jsonb(d) FROM outlast_dependencies d WHERE d.job_id = ANY ($1)
    UNION ALL SELECT to_jsonb(l) FROM outlast_labels l WHERE l.job_id = ANY ($1)
    UNION ALL SELECT to_jsonb(l) FROM outlast_limits l
    UNION ALL SELECT to_jsonb(e) FROM outlast_events e
    UNION ALL SELECT to_jsonb(t) FROM outlast_tasks t
    UNION ALL SELECT to_jsonb(p) FROM outlast_pauses p)
SELECT jsonb_agg(row ORDER BY row)::text FROM one
"""

# Of the role's own jobs, $own has ended, $open is not due, and one is stored with the attack.
STORE = """WITH m AS (
    INSERT INTO outlast_jobs (
        task, queue, args, priority, run_at, enqueued_at, policy, state, awaited)
    VALUES ('mine', 'default', '{}', 0, 0, 0, '{}', 'blocked', true) RETURNING id)
SELECT set_config('my.job', id::text, true) FROM m;
"""
MINE = "current_setting('my.job')::bigint"
LOOK = "INSERT INTO outlast_upstream_notices (job_id, is_new) VALUES ($own, false);"
WINDOW = "SELECT outlast_take_window_v1('$once', 'app.work', 1e9);"


def depend(jobs: str, upstreams: str, place: int) -> str:
    """What makes jobs wait for others, or, below zero, the parents of others."""
    rows = f"ARRAY[{jobs}]::bigint[], ARRAY[{upstreams}]::bigint[]"
    return f"SELECT outlast_depend_v1({rows}, '{{1}}', '{{2}}', '{{{place}}}')"


def stream(task: str = TASK, needs: str = "$needs", rank: int = 0) -> str:
    """A job of the role's in the stream of others."""
    return f"""
INSERT INTO outlast_jobs (
    task, queue, args, priority, run_at, enqueued_at, policy, position, stream, needs)
VALUES ('{task}', 'default', '{{}}', {rank}, 0, 0, '{{}}', -5, $stream, '{needs}');
INSERT INTO outlast_notices (stream, arrived, task, queue)
VALUES ($stream, true, '{task}', 'default')"""


ATTACKS = {
    "INSERT outlast_jobs": [
        stream(task="unknown"),
        stream(task="mine"),
        stream(needs="[]"),
        stream(needs="no JSON"),
        stream(needs='[[$permit,"other","",1]]'),
        stream(rank=7),
        stream().replace("$stream", "$other_stream"),
        stream(needs='[[$permit,"other","",1]]').replace("$stream", "$other_stream"),
    ],
    "INSERT outlast_notices": [
        "INSERT INTO outlast_notices (stream, arrived) VALUES ($stream, true), (NULL, true)",
        *(
            "INSERT INTO outlast_notices (stream, arrived, task, queue) VALUES"
            f" ($stream, true, '{task}', '{queue}')"
            for task, queue in [("mine", "default"), (TASK, "other"), (TASK, "default")]
        ),
    ],
    "INSERT outlast_dependencies": [
        f"INSERT INTO outlast_dependencies VALUES ($own, $queued, 1, 2, -1); {LOOK}",
        f"INSERT INTO outlast_dependencies VALUES ($open, $cancelled, 1, 2, -1); {LOOK}",
        "INSERT INTO outlast_dependencies VALUES ($waits, $own, 1, 2, 7)",
        "INSERT INTO outlast_dependencies VALUES ($waits, $own, 0, 1, 9)",
    ],
    "INSERT outlast_upstream_notices": [LOOK, LOOK.replace("$own", "$plain")],
    "EXECUTE outlast_depend_v1": [
        depend("$waits", "$own", 7),
        depend("$own", "$plain", 1),
        depend("$open", "$plain", 1),
        STORE + depend(MINE, "$queued", -1),
        STORE + depend(f"{MINE}, $waits", "$own, $own", 3),
    ],
    "EXECUTE outlast_add_lanes_v1": [
        "SELECT outlast_add_lanes_v1('{app.work,x}', '{default,x}', '{0,0}')"
    ],
    "INSERT outlast_labels": ["INSERT INTO outlast_labels VALUES ($plain, 'mine')"],
    "EXECUTE outlast_label_v1": ["""SELECT outlast_label_v1(ARRAY[$plain], ARRAY['["mine"]'])"""],
    "INSERT outlast_windows": [
        "INSERT INTO outlast_windows VALUES ('$once', 'app.work', $own, '3000-01-01')"
    ],
    "UPDATE outlast_windows": ["UPDATE outlast_windows SET until = '3000-01-01', job_id = $own"],
    "EXECUTE outlast_take_window_v1": [WINDOW],
    "EXECUTE outlast_fill_window_v1": [
        f"{WINDOW.replace('1e9', '60')} SELECT outlast_fill_window_v1('$once', '{TASK}', {job_id})"
        for job_id in ("$own", "$plain")
    ]
    + [f"{STORE} {WINDOW} SELECT outlast_fill_window_v1('$once', 'app.work', {MINE})"],
    "EXECUTE outlast_replace_v1": [
        """SELECT outlast_replace_v1(
            '$key', '{app.work}', '{"to": "eve"}', 0, NULL, NULL, 0, true, true, true,
            'default', 0, NULL, NULL, NULL)"""
    ],
    "EXECUTE outlast_free_keys_v1": ["SELECT outlast_free_keys_v1('{$key}')"],
    "EXECUTE outlast_enqueue_v1": [
        f"SELECT outlast_enqueue_v1('{TASK}', key => '$key')",
        f"SELECT outlast_enqueue_v1('{TASK}', after => '{{$plain, $waits, $cancelled}}')",
        f"SELECT outlast_enqueue_v1('{TASK}', key => '$once', once_per => 1e9)",
    ],
    "EXECUTE outlast_send_event_v1": ["SELECT outlast_send_event_v1('$once')"],
    "EXECUTE outlast_keep_event_v1": ["SELECT outlast_keep_event_v1('$once', '[1]')"],
    "USAGE outlast_position_seq": ["SELECT nextval('outlast_position_seq')"],
    "INSERT outlast_schedules": [],  # SECURITY.md, "By design"
    "UPDATE outlast_schedules": [],
}


@pytest.fixture(params=[Purpose.ENQUEUE, Purpose.PRODUCE, Purpose.VIEW])
async def role(
    request: pytest.FixtureRequest, pg_url: str, store: PostgresStore, session: Any
) -> AsyncIterator[Any]:
    """A session of a role with the privileges of each purpose but a worker's."""
    await session.execute(f"DROP ROLE IF EXISTS {ROLE}; CREATE ROLE {ROLE} LOGIN")
    await session.execute(f"INSERT INTO outlast_tasks VALUES ('{TASK}', '[]', false, NULL, 0)")
    await store.grant(ROLE, request.param)
    connection = await asyncpg.connect(f"postgresql://{ROLE}@{pg_url.partition('@')[2]}")
    yield connection
    await connection.close()
    await session.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


@pytest.mark.slow_but("enqueue")  # which may do the most
async def test_no_privilege_of_a_role_that_may_not_work_changes_a_row_of_others(
    store: PostgresStore, hands: Hands, session: Any, role: Any
) -> None:
    held = {row[0] for row in await session.fetch(PRIVILEGES)}
    assert held <= set(ATTACKS)
    harmed = []
    for privilege, attacks in ATTACKS.items():
        for number, (attack, works) in enumerate(product(attacks, [True, False])):
            others = await Others.on(store, session, f"{privilege} {number}")
            await _work(hands)
            before = await others.seen()
            with suppress(asyncpg.PostgresError):
                async with role.transaction():
                    await role.execute(Template(attack).substitute(others.names))
            if works:  # else what others do next meets the attack in one exchange
                await _work(hands)
            is_changed = await others.seen() != before
            if is_changed or await others.cannot_go_on(hands) or await others.seen() != before:
                harmed.append((works, attack))
    assert harmed == []


async def _work(hands: Hands) -> list[int]:
    done = []
    for _ in range(4):
        claimed = await hands.claim(tasks=[TASK, "mine"])
        await hands.hand_in(*map(ended, claimed))
        done += [each.job_id for each in claimed]
    return done


@pytest.mark.parametrize("role", [Purpose.ENQUEUE], indirect=True)
async def test_verify_finds_jobs_that_name_the_stream_of_others(
    store: PostgresStore, hands: Hands, session: Any, role: Any
) -> None:
    others = await Others.on(store, session, "it")
    assert await store.inspector.forgotten() == []
    await role.execute(Template(stream(task="mine")).substitute(others.names))
    await _work(hands)
    (found,) = await store.inspector.forgotten()
    assert (found.task, found.name) == ("mine", None)
    assert not await others.cannot_go_on(hands)


@pytest.mark.parametrize("role", [Purpose.ENQUEUE], indirect=True)
async def test_what_was_stored_before_or_within_a_savepoint_is_new_to_the_whole_transaction(
    store: PostgresStore, hands: Hands, role: Any
) -> None:
    """Django opens a savepoint for each atomic block within another."""
    (there,) = await enqueued(store, job(delay=3_600.0))
    labelled = Policy(labels=("a",))
    async with role.transaction():
        first = await on(role).enqueue([job(after=(Upstream(there),)), job(policy=labelled)])
        async with role.transaction():
            second = await on(role).enqueue([job(), job(after=(Upstream(-1),), policy=labelled)])
            with suppress(RuntimeError):
                async with role.transaction():
                    await on(role).enqueue([job(after=(Upstream(there),))])
                    raise RuntimeError
        ids = [each.job_id for each in (*first, *second)]
        for job_id in ids:
            await role.execute("SELECT outlast_check_new_v1($1)", [job_id])
        third = await on(role).enqueue([job(after=(Upstream(ids[1]), Upstream(ids[3])))])
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await role.execute("SELECT outlast_check_new_v1($1)", [ids[0]])
    assert await _work(hands) == [ids[1], ids[2], ids[3], third[0].job_id]


class Others:
    """Jobs of others, and some of the role's, which those of ``names`` are."""

    def __init__(self, store: PostgresStore, session: Any, name: str) -> None:
        self._store = store
        self._session = session
        self._limited = limited(need(f"a {name}"))
        self._once = job(key=f"once {name}", on_key=OnKey(window=60.0))
        self._ids: list[int] = []
        self.names: dict[str, Any] = {}

    @classmethod
    async def on(cls, store: PostgresStore, session: Any, name: str) -> Others:
        self = cls(store, session, name)
        await declare(store, f"a {name}", running=5)
        later: dict[str, Any] = {"delay": 3_600.0}
        own, opened, plain, cancelled, upstream, _ = await enqueued(
            store, job(**later), job(**later), job(key=f"key {name}", **later), job(**later),
            job(**later), limited(need(f"a {name}"), **later),
        )  # fmt: skip
        (waits,) = await enqueued(store, job(after=(Upstream(upstream),)))
        await store.cancel([own, cancelled])
        self._ids = [plain, cancelled, upstream, waits]
        self.names = {
            "own": own, "open": opened, "plain": plain, "cancelled": cancelled, "waits": waits,
            "queued": upstream,
            "key": f"key {name}", "once": self._once.key, "stream": self._limited.stream,
            "needs": self._limited.needs, "permit": need(f"a {name}").permit,
            "other_stream": limited(need(f"b {name}")).stream,
        }  # fmt: skip
        return self

    async def seen(self) -> str:
        return await self._session.fetchval(OF_OTHERS, self._ids)

    async def cannot_go_on(self, hands: Hands) -> list[NewJob]:
        """Return the new jobs of others that are swallowed, or do not start."""
        unfinished = "SELECT id FROM outlast_jobs WHERE ended_at IS NULL AND id <> ALL ($1)"
        rest = [row[0] for row in await self._session.fetch(unfinished, self._ids)]
        await self._store.cancel(rest)  # so that none of the role's has the key
        new = [self._limited, self._once]
        made = await self._store.enqueue(new)
        done = await _work(hands)
        return [
            one
            for one, stored in zip(new, made, strict=True)
            if not stored.created or stored.job_id not in done
        ]
