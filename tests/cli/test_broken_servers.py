"""Every command against a database of PostgreSQL that is broken in each way, and against a server
that is none or goes away in the middle.

As `test_broken_files.py`; `test_stores.py`, `tests/postgres/test_privileges.py` and
`test_search_path.py` show roles and paths that do not fit.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psycopg
import pytest

from harness.servers import PostgresServer
from tests.cli.assault import SECONDS, Assault, writes
from tests.cli.attacks import OF_A_LIMIT, Attack, Broken, uses_jobs
from tests.cli.forked import ForkServer
from tests.cli.rows import populated

pytestmark = pytest.mark.slow  # test_stores.py has some of it

NOT_YET = Broken(("is not an Outlast store yet: `outlast migrate` makes it one",), makers=True)
UNKNOWN = Broken(("was made by another build of Outlast",))


def without(*names: str) -> Callable[[Attack], bool]:
    """Return what is true of all commands but these."""
    return lambda attack: attack.name not in names


BARE: dict[str, tuple[list[str], Broken]] = {
    "empty": ([], NOT_YET),
    "of another program": (["CREATE TABLE mine (id integer)"], NOT_YET),
    "with another table of jobs": (
        ["CREATE TABLE outlast_jobs (id integer)"],
        Broken(("no row in outlast_schema that says what made it",)),
    ),
    "with another table of steps": (
        ["CREATE TABLE outlast_schema (id integer)"],
        Broken(("a column is missing", "restore a backup")),
    ),
}
SPOILT: dict[str, tuple[list[str], Broken]] = {
    "newer": (
        ["UPDATE outlast_schema SET compatible_from = '99.0'"],
        Broken(("serves Outlast 99.0 and later", "install a newer Outlast")),
    ),
    "of another build": (["UPDATE outlast_schema SET checksum = 'x'"], UNKNOWN),
    "of an invalid version": (
        ["UPDATE outlast_schema SET compatible_from = 'soon'"],
        Broken(("'soon'",)),
    ),
    "without a note of its steps": (
        ["DELETE FROM outlast_schema"],
        Broken(("no row in outlast_schema",)),
    ),
    "without its jobs": (
        ["DROP TABLE outlast_jobs CASCADE"],
        Broken(
            ("is missing", "restore a backup"),
            refused=uses_jobs,
        ),
    ),
    "without a column": (
        ["ALTER TABLE outlast_jobs RENAME COLUMN queue TO lane"],
        Broken(codes=(0, 1, 3)),  # not every command reads it
    ),
    "without its functions": (
        [
            """DO $$ DECLARE one record; BEGIN
            FOR one IN SELECT oid::regprocedure AS name FROM pg_proc WHERE proname LIKE 'outlast%'
            LOOP EXECUTE 'DROP FUNCTION ' || one.name || ' CASCADE'; END LOOP; END $$"""
        ],
        Broken(codes=(0, 1, 3)),
    ),
    "read-only": (
        ["ALTER DATABASE {} SET default_transaction_read_only = on"],
        # commands about a limit look for it before they write
        Broken(
            ("read-only",),
            refused=lambda attack: writes(attack) and attack.name not in {"migrate", *OF_A_LIMIT},
        ),
    ),
    "closed to sessions": (
        ["ALTER DATABASE {} ALLOW_CONNECTIONS false"],
        Broken(("cannot connect",)),
    ),
}
# find no job that they could change; write to a table of its own
UNHINDERED = {"requeue", "cancel", "flow skip", "pause"}
LOCKS = {
    "its jobs": ("LOCK outlast_jobs", uses_jobs),
    "its steps": ("LOCK outlast_schema", lambda _: True),
    "against writers": (
        "LOCK outlast_jobs, outlast_workers IN SHARE MODE",
        lambda attack: writes(attack) and uses_jobs(attack) and attack.name not in UNHINDERED,
    ),
}


@pytest.fixture
def assault(fork_server: ForkServer, folder: Path) -> Callable[[str, Broken], Assault]:
    """Return what makes an assault on the database of a URL."""
    return lambda url, broken: Assault(fork_server, folder, url, broken)


Against = Callable[[str, Broken], Assault]


def database_of(url: str) -> str:
    return url.rpartition("/")[2].partition("?")[0]


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.replace("{}", database_of(url)).encode())


@pytest.mark.parametrize("name", BARE)
def test_each_command_against_a_database_that_is(
    assault: Against, bare_pg_url: str, name: str
) -> None:
    statements, broken = BARE[name]
    run(bare_pg_url, *statements)
    made, turn = assault(bare_pg_url, broken), [*BARE].index(name)
    made.run_each(turn, share=3, patience=SECONDS)  # it answers, be it slowly
    assert not made.failures, made.told()


@pytest.mark.parametrize("name", SPOILT)
def test_each_command_against_a_store_that_is(
    assault: Against, pg_url: str, pg_server: PostgresServer, name: str
) -> None:
    statements, broken = SPOILT[name]
    populated(pg_url)
    with psycopg.connect(pg_server.url(), autocommit=True) as other:
        for statement in statements:
            if "DATABASE" in statement:
                other.execute(statement.format(database_of(pg_url)).encode())
            else:
                run(pg_url, statement)
    made, turn = assault(pg_url, broken), [*SPOILT].index(name)
    made.run_each(turn, share=3, patience=SECONDS)
    assert not made.failures, made.told()


@pytest.mark.parametrize("name", LOCKS)
def test_each_command_against_a_store_whose_rows_are_locked(
    assault: Against, pg_url: str, name: str
) -> None:
    lock, refused = LOCKS[name]
    populated(pg_url)
    made = assault(pg_url, Broken(("another session may hold a lock",), refused=refused))
    with psycopg.connect(pg_url) as session:
        session.execute(lock.encode())
        made.run_each(1, reach=SECONDS)  # the turn of migrate --check
    assert not made.failures, made.told()


class Impostor:
    """A server that answers each connection with these bytes, or passes on as many of a real one
    and then goes away."""

    def __init__(self, answer: bytes | None, *, target: int = 0, most: int = 0) -> None:
        self._answer = answer
        self._target = target
        self._most = most
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._server = threading.Thread(target=self._serve, daemon=True)
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)  # ends an accept() that another thread is in
        self._server.join()
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.ExitStack() as kept, contextlib.suppress(OSError):
            while True:
                client = kept.enter_context(self._socket.accept()[0])
                if self._answer is not None:
                    with contextlib.suppress(OSError):  # it may have gone already
                        client.sendall(self._answer)
                elif self._target:
                    threading.Thread(target=self._pass, args=(client.dup(),), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as server, client:
            upward = threading.Thread(target=_copy, args=(client, server, 1 << 40), daemon=True)
            upward.start()
            _copy(server, client, self._most)
            for each in (client, server):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            upward.join()


def _copy(source: socket.socket, target: socket.socket, most: int) -> None:
    with contextlib.suppress(OSError):
        while most > 0 and (data := source.recv(min(most, 65_536))):
            most -= len(data)
            target.sendall(data)


AWAY = Broken(("cannot connect to postgresql://app:***@127.0.0.1:",))


def at(port: int) -> str:
    return f"postgresql://app:hush@127.0.0.1:{port}/shop"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"N" + b"E\x00\x00\x00\x08none\x00",
        b"N" + b"\x00" * 5_000,
        b"NR\x00\x00\x00\x08\xff\xff\xff\xff",
        b"-ERR unknown command\r\n",
        b"E",
    ],
    ids=["silent", "HTTP", "an error", "zeros", "an unknown way to log in", "Redis", "E"],
)
def test_each_command_against_a_server_that_is_none(assault: Against, answer: bytes | None) -> None:
    with Impostor(answer) as server:
        made, turn = assault(at(server.port), AWAY), len(answer or b"")
        made.run_each(turn)
    assert not made.failures, made.told()


def test_each_command_against_a_port_without_a_server(assault: Against) -> None:
    made, turn = assault(at(1), AWAY), 0
    made.run_each(turn)
    assert not made.failures, made.told()


@pytest.mark.parametrize("most", [1, 20, 400, 600, 1_000, 2_000, 4_000, 8_000])
def test_each_command_against_a_server_that_goes_away_in_the_middle(
    assault: Against, pg_url: str, pg_server: PostgresServer, most: int
) -> None:
    """After a number of bytes of its answers, on each connection."""
    populated(pg_url)
    with Impostor(None, target=pg_server.port, most=most) as server:
        url = pg_url.replace(f":{pg_server.port}/", f":{server.port}/")
        made, turn = assault(url, Broken(codes=(0, 1, 3))), most // 20
        made.run_each(turn, share=3)
    assert not made.failures, made.told()


@pytest.mark.parametrize(
    ("before", "after"), [("/outlast", "/none_outlast"), ("postgres@", "no_such_role@")]
)
def test_each_command_with_a_login_that_is_none(
    assault: Against, pg_url: str, before: str, after: str
) -> None:
    made, turn = assault(pg_url.replace(before, after, 1), Broken(codes=(2, 3))), len(after)
    made.run_each(turn)
    assert not made.failures, made.told()
