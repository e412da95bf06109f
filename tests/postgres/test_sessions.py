"""How many sessions workers hold, and what those of one process share."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from typing import Any

import pytest

import outlast
from outlast.store.postgres.shared_wakeup import SharedWakeup
from outlast.store.protocol import Store
from outlast.store.values import NewJob
from outlast.worker.in_process import embedded
from tests.postgres.kit import until
from tests.postgres.test_wakeup import END_LISTENER
from tests.postgres.wakeup_kit import Heard

WORKERS = 3
OF_EACH = {"outlast": 3, "outlast presence": 1}  # its exchange, its other calls and its beats
SHARED = {"outlast wakeup": 1}


@pytest.fixture
async def app(
    pg_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> AsyncIterator[outlast.App]:
    monkeypatch.setenv("OUTLAST_RUN_DIR", str(tmp_path / "run"))
    made = outlast.App(pg_url)
    yield made
    await made.close()


async def sessions(session: Any, besides: Collection[int] = ()) -> dict[int, str]:
    """The sessions of Outlast in this database, with what they are for."""
    rows = await session.fetch(
        "SELECT pid, application_name FROM pg_stat_activity"
        " WHERE datname = current_database() AND starts_with(application_name, 'outlast')"
    )
    return {row["pid"]: row["application_name"] for row in rows if row["pid"] not in besides}


@pytest.mark.parametrize("presence", [True, False])
async def test_a_worker_holds_so_many_sessions_and_no_more(
    app: outlast.App, store: Store, session: Any, presence: bool
) -> None:
    done: list[int] = []

    @app.task
    async def work(number: int) -> None:
        done.append(number)

    await store.observe()
    besides = {*await sessions(session)}
    each = OF_EACH if presence else {"outlast": 3}
    expected = Counter({name: WORKERS * count for name, count in each.items()} | SHARED)

    async def held() -> Counter[str]:
        return Counter((await sessions(session, besides)).values())

    async def all_are_there() -> bool:
        return await held() == expected

    async def all_are_done() -> bool:
        return len(done) == 50

    async with AsyncExitStack() as stack:
        for _ in range(WORKERS):
            await stack.enter_async_context(embedded(app, presence=presence))
        await until(all_are_there)
        await store.enqueue([work.call(n).job for n in range(50)])
        await until(all_are_done)
        await until(all_are_there)  # one that was replaced may be seen for an instant

    async def all_have_left() -> bool:
        return not await held()

    await until(all_have_left)


async def test_workers_of_one_loop_hear_by_one_session(
    pg_url: str, store: Store, session: Any
) -> None:
    first, second = Heard(), Heard()
    wakeups = [SharedWakeup(pg_url), SharedWakeup(pg_url)]
    await wakeups[0].start(first)
    await first.hears("")
    await wakeups[1].start(second)
    assert second.words == [""], "it looks: what was sent before, it has not heard"
    assert list((await sessions(session)).values()).count("outlast wakeup") == 1
    await store.enqueue([NewJob(task="t", queue="both")])
    for each in (first, second):
        await each.hears("jobs:1:both")
    second.words.clear()
    await wakeups[0].close()
    await wakeups[0].close()
    assert wakeups[0].health.trouble == "closed"
    assert wakeups[1].health.good
    await store.enqueue([NewJob(task="t", queue="one")])
    await second.hears("jobs:1:one")
    assert "jobs:1:one" not in first.words
    await session.execute(END_LISTENER)
    await second.hears("")
    await wakeups[1].close()

    async def none_listens() -> bool:
        return "outlast wakeup" not in (await sessions(session)).values()

    await until(none_listens)


async def test_after_the_last_one_has_left_another_session_listens(pg_url: str) -> None:
    for _ in range(2):
        heard, wakeup = Heard(), SharedWakeup(pg_url)
        await wakeup.start(heard)
        await heard.hears("")
        await wakeup.close()
