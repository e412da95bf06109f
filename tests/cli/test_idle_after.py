"""``outlast worker --idle-after``: it sleeps while it is not needed, and the database with it."""

from __future__ import annotations

import faulthandler
import re
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from harness.servers import PostgresServer
from outlast.store.postgres.store import PostgresStore
from outlast.store.rows import WorkerStatus
from outlast.store.schedules import Origin
from outlast.worker.claims.until_empty import UntilEmpty
from outlast.worker.sleeper import LOOK_SECONDS, NEEDED_SECONDS, Sleeper
from tests.cli.conftest import Outlast
from tests.cli.test_worker import worker
from tests.conformance.kit import Hands, enqueued, job
from tests.conformance.schedules_kit import schedule
from tests.manual_clock import ManualClock
from tests.waiting import until

SHORT = ("--runners", "1", "--heartbeat", "0.2s", "--lease", "1s", "--idle-after", "4s")
OTHERS = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""


DONE = "SELECT count(*) FROM outlast_jobs WHERE state = 'completed'"


def until_it_is(session: psycopg.Connection[Any], statement: str, number: int) -> None:
    until(lambda: session.execute(statement.encode()).fetchone() == (number,), statement)


@pytest.mark.slow
def test_a_sleeping_worker_leaves_the_database_alone_and_runs_what_comes(
    outlast: Outlast, folder: Path, pg_url: str
) -> None:
    with (
        worker(folder, "shop:app", "--url", pg_url, *SHORT) as running,
        psycopg.connect(pg_url, autocommit=True) as session,
    ):
        running.until("worker_stopped")
        until_it_is(session, OTHERS, 0)
        assert "will check for jobs soon" in outlast("doctor", "--url", pg_url).out
        outlast("enqueue", "shop:app", "nap", "0.01", "--url", pg_url)
        until_it_is(session, DONE, 1)
        running.until("worker_stopped", times=2)
        assert running.process.poll() is None
        until_it_is(session, "SELECT count(*) FROM outlast_workers", 1)
        assert running.end() == 0
    assert "will check for jobs soon" not in outlast("doctor", "--url", pg_url).out


ALL = {"log_statement": "all", "log_connections": "on", "log_disconnections": "on"}
OF_SHOP = re.compile(r"^(\S+ \S+) \w+ \[\d+\] shop LOG:", re.MULTILINE)
NAP = 300.0  # seconds


@pytest.mark.long
@pytest.mark.timeout(2 * NAP + 120)
def test_the_database_sees_no_statement_for_five_minutes(folder: Path) -> None:
    """By the log of the server, which has each session and each statement."""
    faulthandler.cancel_dump_traceback_later()  # pytest's own is shorter than this test
    with PostgresServer(settings=ALL) as server:
        url = server.create_database("shop")
        with worker(folder, "shop:app", "--url", url, "--idle-after", "5m") as running:
            running.until("worker_registered", times=2, seconds=2 * NAP + 60)
            assert running.end() == 0
        heard = [datetime.fromisoformat(at) for at in OF_SHOP.findall(server.log.read_text())]
    silences = [(after - before).total_seconds() for before, after in pairwise(heard)]
    assert max(silences) >= NAP


class Watched:
    """A worker to a ``Sleeper``."""

    def __init__(self, hands: Hands) -> None:
        self.me = hands.me
        self.slept: list[float] = []

    def watch_claims(self, until: UntilEmpty) -> None:
        self.until = until

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


async def test_a_worker_sleeps_only_if_it_is_not_needed(pg_url: str) -> None:
    store, clock = PostgresStore(pg_url), ManualClock()
    await store.open()
    hands = await Hands.on(store)
    other = await Hands.on(store, "other")
    watched = Watched(hands)
    sleeper = Sleeper(watched, store, 300.0, clock, at_once=False)  # type: ignore[arg-type]
    request: Any = SimpleNamespace(limit=1)
    reply = await hands.exchange(limit=1)

    watched.until.take_reply([request], reply, is_idle=True)
    clock.advance(299)
    assert await sleeper.run_once() == LOOK_SECONDS
    clock.advance(1)
    assert await sleeper.run_once() == NEEDED_SECONDS, "by another worker"
    await store.set_status(other.me, WorkerStatus.STOPPED)
    await store.put_schedules([schedule("nightly")], Origin.RUN_TIME)
    assert await sleeper.run_once() == NEEDED_SECONDS, "by a schedule"
    await store.delete_schedule("nightly")
    watched.until.take_reply([request], reply, is_idle=False)
    assert await sleeper.run_once() == LOOK_SECONDS, "by an attempt under way"

    await enqueued(store, job(delay=50.0))
    watched.until.take_reply([request], await hands.exchange(limit=1), is_idle=True)
    assert await sleeper.run_once() == LOOK_SECONDS
    clock.advance(300)
    watched.until.take_reply([request], await hands.exchange(limit=1), is_idle=True)
    assert await sleeper.run_once() is None
    assert watched.slept == [pytest.approx(40, abs=10)], "until a job is due"
    await store.close()
