"""Keys and fences: services that remember them do work once, and refuse a late attempt."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from contextvars import Context, copy_context
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import asyncpg
import httpx
import psycopg
import pytest

import outlast
from outlast.errors import LostLease, NotInAttempt, UsageError
from outlast.fences import FENCES_TABLE, check_row, guard_put, guard_sql, make_headers, make_key
from outlast.testing import isolate

app = outlast.App("sqlite:///unused.db")
attempts: list[Context] = []


@app.task(retries=1)
def fails_once() -> None:
    attempts.append(copy_context())
    if len(attempts) % 2:
        raise ConnectionError


def run_job() -> tuple[Context, Context]:
    """Return two attempts of one job; the first has lost its lease without knowing it."""
    with isolate(app) as jobs:
        fails_once.enqueue_sync()
        for _ in range(2):
            jobs.drain_sync(may_fail=True)
            jobs.travel(600)
    return attempts[-2], attempts[-1]


@pytest.fixture(scope="module")
def contexts() -> tuple[Context, Context]:
    return run_job()


class Service(BaseHTTPRequestHandler):
    """Remembers keys and the largest token, and keeps objects as S3 does."""

    done: dict[str, str]
    objects: dict[str, tuple[str, str]]  # path -> tag, token
    largest: int

    def do_POST(self) -> None:
        token = int(self.headers["Fencing-Token"])
        if token < Service.largest:
            self.answer(409)
            return
        Service.largest = token
        self.done.setdefault(self.headers["Idempotency-Key"], self.headers["Fencing-Token"])
        self.answer(200, by=self.done[self.headers["Idempotency-Key"]])

    def do_HEAD(self) -> None:
        if self.path not in self.objects:
            self.answer(404)
            return
        tag, token = self.objects[self.path]
        self.answer(200, etag=tag, token=token)

    def do_PUT(self) -> None:
        tag, _ = self.objects.get(self.path, (None, ""))
        new_only, same = self.headers["If-None-Match"] == "*", self.headers["If-Match"]
        if (tag and new_only) or (same and same != tag):
            self.answer(412)
            return
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.objects[self.path] = (f'"{body}"', self.headers["x-amz-meta-outlast-token"])
        self.answer(200)

    def answer(self, status: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    Service.done, Service.objects, Service.largest = {}, {}, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.server_address[1]}") as own:
        yield own
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_service_does_the_work_of_a_key_once_and_refuses_an_older_token(
    contexts: tuple[Context, Context], client: httpx.Client
) -> None:
    def post(step: str) -> httpx.Response:
        return client.post("/work", headers=make_headers(step))

    early, late = contexts
    first = early.run(post, "mail")
    repeat = late.run(post, "mail")
    assert (first.status_code, repeat.headers["by"]) == (200, first.headers["by"])
    assert early.run(post, "mail").status_code == 409
    assert late.run(post, "bill").headers["by"] > first.headers["by"]
    assert len(Service.done) == 2


def test_a_key_belongs_to_one_step_of_one_job_in_one_store(
    contexts: tuple[Context, Context],
) -> None:
    early, late = contexts
    other, _ = run_job()  # the same id, in another store
    assert early.run(make_key) == late.run(make_key)
    assert len({early.run(make_key), early.run(make_key, "mail"), other.run(make_key)}) == 3
    with pytest.raises(NotInAttempt):
        make_key()


def put(client: httpx.Client, name: str, body: str, head: dict[str, Any] | None) -> int:
    """As ``put_object`` of an S3 client sends it."""
    given = guard_put(head)
    headers = {f"x-amz-meta-{key}": value for key, value in given.pop("Metadata").items()}
    names = {"IfMatch": "If-Match", "IfNoneMatch": "If-None-Match"}
    headers |= {names[key]: value for key, value in given.items()}
    return client.put(f"/{name}", content=body, headers=headers).status_code


def read_head(client: httpx.Client, name: str) -> dict[str, Any] | None:
    answer = client.head(f"/{name}")
    if answer.status_code == 404:
        return None
    return {
        "ETag": answer.headers["etag"],
        "Metadata": {"outlast-token": answer.headers["token"]},
    }


def test_an_object_is_not_overwritten_by_a_late_attempt(
    contexts: tuple[Context, Context], client: httpx.Client
) -> None:
    early, late = contexts
    assert early.run(put, client, "report", "1", None) == 200
    before = read_head(client, "report")
    assert late.run(put, client, "report", "2", None) == 412  # it is there meanwhile
    assert late.run(put, client, "report", "2", before) == 200
    assert early.run(put, client, "report", "3", before) == 412  # it had read before
    with pytest.raises(LostLease):
        early.run(put, client, "report", "3", read_head(client, "report"))
    assert late.run(put, client, "report", "4", read_head(client, "report")) == 200


Execute = Callable[[Context, str], None]


def on_sqlite(_: str) -> Iterator[Execute]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(FENCES_TABLE)
        yield lambda attempt, name: check_row(
            connection.execute(*attempt.run(guard_sql, name)).fetchone()
        )


def on_psycopg(url: str) -> Iterator[Execute]:
    with psycopg.connect(url) as connection:
        connection.execute(FENCES_TABLE)
        yield lambda attempt, name: check_row(
            connection.execute(*attempt.run(guard_sql, name, "%s")).fetchone()
        )


def on_asyncpg(url: str) -> Iterator[Execute]:
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(url))
        runner.run(connection.execute(FENCES_TABLE))

        def execute(attempt: Context, name: str) -> None:
            statement, values = attempt.run(guard_sql, name, "$1")
            check_row(runner.run(connection.fetchrow(statement, *values)))

        yield execute
        runner.run(connection.close())


@pytest.mark.parametrize("connect", [on_sqlite, on_psycopg, on_asyncpg])
def test_a_database_refuses_an_attempt_behind_a_later_one(
    connect: Callable[[str], Iterator[Execute]],
    contexts: tuple[Context, Context],
    request: pytest.FixtureRequest,
) -> None:
    url = "" if connect is on_sqlite else request.getfixturevalue("bare_pg_url")
    early, late = contexts
    for execute in connect(url):
        execute(early, "invoice 7")
        execute(early, "invoice 7")
        execute(late, "invoice 7")
        execute(early, "invoice 8")
        with pytest.raises(LostLease):
            execute(early, "invoice 7")
        execute(late, "invoice 7")


def test_a_mark_that_no_library_uses_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\?, %s, \$1"):
        guard_sql("invoice 7", ":1")
