"""Wake-ups by NOTIFY: what sends one, who hears it, and a listener that was lost."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import asyncpg
import msgspec
import pytest

from outlast.errors import ConfigError
from outlast.model.crash import CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.store.postgres import wakeup as postgres_wakeup
from outlast.store.postgres.store import PostgresStore
from outlast.store.postgres.wakeup import PostgresWakeup
from outlast.store.protocol import Store
from outlast.store.values import NewJob
from tests.conformance.kit import Hands, crashed, ended, enqueued, job
from tests.conformance.verbs_kit import LOCK
from tests.postgres import wakeup_kit
from tests.postgres.wakeup_kit import Heard
from tests.unit.worker.worker_kit import heard_fields

END_LISTENER = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE application_name = 'outlast wakeup' AND datname = current_database()"""


heard = wakeup_kit.heard


class Counted:
    """Counts the checks of a listener."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()

    def counting(self) -> Any:
        real = PostgresWakeup._still_listens

        async def check(wakeup: Any, *rest: Any) -> bool:
            self.count += 1
            self._more.set()
            return await real(wakeup, *rest)

        return check

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(30):
            while self.count < count:
                self._more.clear()
                await self._more.wait()


async def test_stores_in_other_schemas_of_the_database_are_not_heard(
    pg_url: str, store: Store, heard: Heard, session: Any
) -> None:
    """Their positions mean other jobs, and their workers may have the same queues and tasks."""
    await session.execute("CREATE SCHEMA another")
    another = PostgresStore(f"{pg_url}?options=-csearch_path%3Danother")
    await another.open()
    there = Heard()
    wakeup = PostgresWakeup(f"{pg_url}?options=-csearch_path%3Danother")
    await wakeup.start(there)
    await there.hears("")
    await another.enqueue([NewJob(task="t", queue="there")])
    await there.hears("jobs:1:there")
    await store.enqueue([NewJob(task="t", queue="here")])
    await heard.hears("jobs:1:here")
    assert heard.words == ["jobs:1:here"]
    await another.enqueue([NewJob(task="t", queue="last")])
    await there.hears("jobs:1:last")
    assert [word for word in there.words if word] == ["jobs:1:there", "jobs:1:last"]
    await wakeup.close()
    await another.close()


async def test_a_listener_notices_that_the_tables_are_others(
    pg_url: str, store: Store, heard: Heard, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_wakeup, "CHECK_EVERY_SECONDS", 0.05)
    again = Heard()
    wakeup = PostgresWakeup(pg_url)
    await wakeup.start(again)
    await again.hears("")
    again.words.clear()
    await session.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    other = PostgresStore(pg_url)
    await other.open()
    await again.hears("")
    await other.enqueue([NewJob(task="t", queue="new")])
    await again.hears("jobs:1:new")
    await wakeup.close()
    await other.close()


async def test_an_enqueue_wakes_once_per_queue(store: Store, heard: Heard) -> None:
    await store.enqueue([*[NewJob(task="t", queue="a")] * 5, NewJob(task="t", queue="b", delay=60)])
    await store.enqueue([NewJob(task="t", queue="end", key="k")])
    await heard.hears("jobs:1:end")
    assert heard.words == ["jobs:5:a", "jobs:1:end"]


async def test_a_store_without_notify_sends_no_wake_ups(
    store: Store, heard: Heard, pg_url: str
) -> None:
    silent = PostgresStore(pg_url, notify=False)
    await silent.enqueue([NewJob(task="t", queue="a")])
    await store.enqueue([NewJob(task="t", queue="end")])
    await heard.hears("jobs:1:end")
    assert heard.words == ["jobs:1:end"]
    await silent.close()


async def test_a_death_that_a_tether_tells_of_wakes_all(store: Store, heard: Heard) -> None:
    named: dict[str, Any] = {"boot_id": LOCK.boot_id, "lock_path": LOCK.path}
    dead = await Hands.on(store, lock_device=LOCK.device, lock_inode=LOCK.inode, **named)
    await store.tell_gone(LOCK, None)
    await heard.hears(f"gone:{dead.me.worker_id}")


async def test_a_cancel_request_wakes_the_worker_that_runs_the_job(
    store: Store, hands: Hands, heard: Heard
) -> None:
    (job_id,) = await enqueued(store)
    await hands.claim_one()
    await store.cancel([job_id])
    await heard.hears(f"cancel:{hands.me.worker_id}")


async def test_a_request_to_drain_wakes_the_worker(
    store: Store, hands: Hands, heard: Heard
) -> None:
    await store.request_drain([hands.me.worker_id])
    await heard.hears(f"drain:{hands.me.worker_id}")


async def test_a_request_for_a_stack_wakes_the_worker_that_runs_the_job(
    store: Store, hands: Hands, heard: Heard
) -> None:
    await enqueued(store)
    claimed = await hands.claim_one()
    assert await store.ask_stack(claimed.job_id, claimed.token, seen="", then="1:1")
    await heard.hears(f"stack:{hands.me.worker_id}")


async def test_no_queue_name_is_mistaken_for_a_request(
    store: Store, hands: Hands, heard: Heard
) -> None:
    names = [
        f"{kind}:{hands.me.worker_id}" for kind in ("cancel", "drain", "stack", "jobs", "taken")
    ]
    told = []
    for name in names:
        new = NewJob(task="t", queue=name)
        keyed = [msgspec.structs.replace(new, key=f"{name}/{number}") for number in range(3)]
        late = msgspec.structs.replace(new, delay=60)
        for batch in ([new], [new, new], [new, late], keyed[:1], keyed[1:]):  # a statement each
            await store.enqueue(batch)
            due = [each for each in batch if not each.delay]
            told.append(f"jobs:{len(due)}:{name}")
    await store.enqueue([NewJob(task="t", queue="end")])
    await heard.hears("jobs:1:end")
    assert heard.words == [*told, "jobs:1:end"]


async def test_a_job_given_back_wakes_unless_the_same_exchange_takes_it(
    store: Store, hands: Hands, heard: Heard
) -> None:
    await enqueued(store, job(queue="q"))
    await heard.hears("jobs:1:q")
    heard.words.clear()
    reply = await hands.exchange(ended(await hands.claim_one(), OutcomeKind.RELEASED), limit=1)
    assert len(reply.claimed) == 1
    await hands.hand_in(ended(reply.claimed[0], OutcomeKind.RELEASED))
    await store.enqueue([NewJob(task="t", queue="end")])
    await heard.hears("jobs:1:end")
    assert heard.words == ["jobs:1:q", "jobs:1:end"]


async def test_a_lost_listener_reconnects_and_looks_at_all_queues(
    store: Store, heard: Heard, session: Any
) -> None:
    await session.execute(END_LISTENER)
    await heard.hears("")
    await store.enqueue([NewJob(task="t", queue="after")])
    await heard.hears("jobs:1:after")


async def test_a_listener_notifies_itself_once_and_then_asks_whether_it_listens(
    pg_url: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server wakes all sessions that listen, on any channel, for each notification."""
    monkeypatch.setattr(postgres_wakeup, "CHECK_EVERY_SECONDS", 0.0)
    checks, heard, wakeup, ears = Counted(), Heard(), PostgresWakeup(pg_url), Heard()
    monkeypatch.setattr(PostgresWakeup, "_still_listens", checks.counting())
    await wakeup.start(heard)
    await heard.hears("")
    own = await wakeup.borrow(10.0)
    assert own is not None
    channel = f"outlast_echo_{own.connection.get_server_pid()}"
    await session.add_listener(channel, lambda *said: ears(said[-1]))
    await checks.reach(checks.count + 20)
    await session.execute(f"NOTIFY {channel}, 'end'")
    await ears.hears("end")
    assert ears.words == ["end"]
    assert wakeup.health.good
    await wakeup.close()
    await own.connection.close()


async def test_a_session_that_listens_no_longer_is_left_for_another(
    pg_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a pooler has put another session of the server behind the connection."""
    monkeypatch.setattr(postgres_wakeup, "CHECK_EVERY_SECONDS", 0.0)
    heard, wakeup = Heard(), PostgresWakeup(pg_url)
    await wakeup.start(heard)
    await heard.hears("")
    own = await wakeup.borrow(10.0)
    assert own is not None
    heard.words.clear()
    async with own.turn:
        await own.connection.execute("UNLISTEN *")
    await heard.hears("")
    await store.enqueue([NewJob(task="t", queue="after")])
    await heard.hears("jobs:1:after")
    await wakeup.close()


async def test_a_listener_survives_a_connection_whose_session_the_server_is_just_ending(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, wakeup = Heard(), PostgresWakeup(pg_url)
    error = asyncpg.InternalClientError("cannot switch to state 12; another operation (2)")
    failing = AsyncMock(side_effect=error)
    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "add_listener", failing)
        await wakeup.start(heard)
        async with asyncio.timeout(30):
            while not failing.called:
                await asyncio.sleep(0.01)
    await heard.hears("")
    await wakeup.close()


async def test_a_server_that_does_not_answer_a_listen_is_left_within_seconds(
    pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would wait for more than the 25 seconds of ``hears``."""
    monkeypatch.setattr(postgres_wakeup, "ECHO_SECONDS", 1.0)
    heard, wakeup, asked = Heard(), PostgresWakeup(pg_url), asyncio.Event()

    async def is_never_answered(_self: object, _channel: str, _callback: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(asyncpg.Connection, "add_listener", is_never_answered)
        await wakeup.start(heard)
        async with asyncio.timeout(30):
            await asked.wait()
    await heard.hears("")
    await wakeup.close()


async def test_a_listener_reports_any_failure_and_listens_again(
    pg_url: str, store: Store, heard: Heard, monkeypatch: pytest.MonkeyPatch, session: Any
) -> None:
    """For example by a removed certificate. Its task must not end unnoticed."""
    failing = AsyncMock(side_effect=ConfigError("the certificate is gone"))
    with monkeypatch.context() as patch, heard_fields() as events:
        patch.setattr(postgres_wakeup, "connect_spare", failing)
        await session.execute(END_LISTENER)
        async with asyncio.timeout(30):
            while not failing.called:
                await asyncio.sleep(0.01)
    assert [fields["kind"] for name, fields in events if name == "wakeup_lost"] == ["notify"]
    await heard.hears("")


async def test_suspects_that_can_run_wake_and_so_do_those_that_are_cleared(
    store: Store, hands: Hands, heard: Heard
) -> None:
    await enqueued(store, job(queue="culprit"), job(queue="other"))
    claimed = {one.queue: one for one in await hands.claim()}
    end = crashed(claimed["culprit"], CrashKind.BYSTANDER, incident=1)
    heard.words.clear()
    await hands.hand_in(end)
    await heard.hears("queue:culprit")  # it has no position: all look
    await hands.hand_in(crashed(claimed["other"], CrashKind.BYSTANDER, incident=1))
    (culprit,) = await hands.claim(solo=1, queues=["culprit"])
    heard.words.clear()
    await hands.hand_in(crashed(culprit, CrashKind.SIGNALLED, delay=60.0))
    await heard.hears("jobs:1:other")
    assert "queue:culprit" not in heard.words
