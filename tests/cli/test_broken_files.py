"""Every command against a SQLite file that is broken in each way: a sentence that helps, the exit
code that the documentation names, nothing written, and an end.

`test_stores.py` and `test_reading.py` show single commands, with all that they say.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.assault import ATTACKS, WORKER, Assault, writes
from tests.cli.attacks import GIVEN, Broken, commands, uses_jobs
from tests.cli.conftest import APPLICATION
from tests.cli.forked import ForkServer
from tests.cli.rows import populated

pytestmark = pytest.mark.slow  # test_stores.py has some of it

STRANGER = 65_534  # a user id that owns nothing
NAME = "jobs.db"
URL = f"sqlite:///{NAME}"


def sql(*statements: str) -> Callable[[Path], None]:
    """Return what runs statements on a file."""

    def spoil(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
            for statement in statements:
                file.execute(statement)

    return spoil


def filled_with(data: bytes, offset: int = 0, beside: str = "") -> Callable[[Path], None]:
    """Return what writes these bytes over a file, or over one beside it."""

    def spoil(path: Path) -> None:
        with path.with_name(path.name + beside).open("r+b" if not beside else "wb") as file:
            file.truncate(None if offset else 0)
            file.seek(offset)
            file.write(data)

    return spoil


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 8192 * 4096)


def damaged(path: Path) -> None:
    filled_with(b"\xff" * (path.stat().st_size - 100), offset=100)(path)


def odd_pages(path: Path) -> None:
    """Put each second page into the place of the one before it."""
    pages = [path.read_bytes()[at : at + 4096] for at in range(0, path.stat().st_size, 4096)]
    path.write_bytes(pages[0] + b"".join(pages[at ^ 1] for at in range(2, len(pages) // 2 * 2)))


def without_it(path: Path, make: Callable[[Path], object] = lambda _: None) -> None:
    path.unlink()
    make(path)


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what puts something else in the place of a file."""
    return functools.partial(without_it, make=make)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        before = os.getcwd()
        os.chdir(path.parent)  # its whole path may be too long
        made.bind(path.name)
        os.chdir(before)


def a_link_to(target: str) -> Callable[[Path], None]:
    return replaced_by(lambda path: path.symlink_to(target))


NOT_THERE = Broken(("there is no database file", "`outlast migrate` creates"), makers=True)
NOT_YET = Broken(("is not an Outlast store yet: `outlast migrate` makes it one",), makers=True)
NO_DATABASE = Broken(("is not a SQLite database", "restore a backup"))
NO_FILE = Broken(("is not a file",), codes=(2,))
DAMAGED = Broken(codes=(0, 1, 3))  # what is damaged may not be met
UNKNOWN = Broken(("was made by another build of Outlast",))

SPOILT: dict[str, tuple[Callable[[Path], object], Broken]] = {
    "missing": (Path.unlink, NOT_THERE),
    "empty": (functools.partial(os.truncate, length=0), NOT_YET),
    "of another program": (replaced_by(sql("CREATE TABLE mine (id)")), NOT_YET),
    "a text": (filled_with(b"this is a text, and no database" * 300), NO_DATABASE),
    "a few bytes": (filled_with(b"SQLite format 3"), NO_DATABASE),
    "damaged": (damaged, NO_DATABASE),
    "cut in the middle": (cut, DAMAGED),
    "with pages that changed places": (odd_pages, DAMAGED),
    "beside the log of another file": (filled_with(os.urandom(9000), beside="-wal"), DAMAGED),
    "beside a damaged index of its log": (filled_with(os.urandom(9000), beside="-shm"), DAMAGED),
    "newer": (
        sql("UPDATE outlast_schema SET compatible_from = '99.0'"),
        Broken(("serves Outlast 99.0 and later", "install a newer Outlast")),
    ),
    "of another build": (sql("UPDATE outlast_schema SET checksum = 'x'"), UNKNOWN),
    "half-migrated": (
        sql("DELETE FROM outlast_schema"),
        Broken(("outlast_",)),
    ),
    "of an invalid version": (
        sql("UPDATE outlast_schema SET compatible_from = 'soon'"),
        Broken(("'soon'",)),
    ),
    "without its jobs": (
        sql("DROP VIEW IF EXISTS outlast_history", "DROP TABLE outlast_jobs"),
        Broken(
            ("lacks part of the schema", "restore a backup"),
            refused=uses_jobs,
        ),
    ),
    "with another table of jobs": (
        sql(
            "DROP VIEW IF EXISTS outlast_history",
            "DROP TABLE outlast_jobs",
            "CREATE TABLE outlast_jobs (id)",
        ),
        Broken(
            ("lacks part of the schema", "restore a backup"),
            refused=uses_jobs,
        ),
    ),
    "a directory": (replaced_by(Path.mkdir), Broken(("is a directory",), codes=(2,))),
    "a pipe": (replaced_by(os.mkfifo), NO_FILE),
    "a socket": (replaced_by(a_socket), NO_FILE),
    "a device": (a_link_to("/dev/null"), NO_FILE),
    "a terminal": (a_link_to("/dev/tty"), NO_FILE),
    "a link to nothing": (a_link_to("none.db"), NOT_THERE),
    "a link to itself": (a_link_to(NAME), Broken((NAME,))),
}
WITH_A_WORKER = {"a text", "newer", "half-migrated", "a pipe"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store with a job of every kind."""
    path = tmp_path_factory.mktemp("whole") / NAME
    populated(f"sqlite:///{path}")
    return path.read_bytes()


@pytest.fixture
def place(whole: bytes) -> Iterator[Path]:
    """A directory that every user may enter, with a store and an application in it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "shop.py").write_text(APPLICATION)
        (Path(folder) / NAME).write_bytes(whole)
        yield Path(folder)


def test_each_argument_of_a_command_is_known_here() -> None:
    names = {
        each.metavar.rstrip("…")
        for _, command in commands()
        for each in command.params
        if each.param_type_name == "argument" and each.required
    }
    assert names - {"VALUE", "FRACTION"} <= set(GIVEN), "say in GIVEN what it is attacked with"
    assert len(ATTACKS) > 30


@pytest.mark.parametrize("name", SPOILT)
def test_each_command_against_a_file_that_is(
    fork_server: ForkServer, place: Path, name: str
) -> None:
    spoil, broken = SPOILT[name]
    spoil(place / NAME)
    assault = Assault(fork_server, place, URL, broken)
    assault.run_each([*SPOILT].index(name), share=3)
    if name in WITH_A_WORKER:
        assault.run(WORKER)
    assert not assault.failures, assault.told()


READ_ONLY = Broken(("it is read-only", "must be able to write the file and its directory"))
LOCKED = ("stayed locked by", "end it")


@pytest.mark.parametrize(
    ("folder", "mode"), [(0o555, 0o444), (0o555, 0o400), (0o444, 0o444)], ids=oct
)
def test_each_command_of_a_user_who_may_not(
    fork_server: ForkServer, place: Path, folder: int, mode: int
) -> None:
    """The file is its owner's; another user may read it, or not even enter its directory."""
    inside = place / "inside"
    inside.mkdir()
    (place / NAME).rename(inside / NAME)
    (inside / NAME).chmod(mode)
    inside.chmod(folder)
    odd = {} if os.getuid() else {"user": STRANGER}
    broken = READ_ONLY if (folder, mode) == (0o555, 0o444) else Broken((NAME, "this user"))
    assault = Assault(fork_server, place, f"sqlite:///inside/{NAME}", broken)
    assault.run_each(folder + mode, **odd)
    inside.chmod(0o755)
    assert not assault.failures, assault.told()


@contextlib.contextmanager
def held(path: Path, begin: str) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        for statement in begin.split(";"):
            file.execute(statement).fetchall()
        yield


@pytest.mark.parametrize(
    ("begin", "broken"),
    [
        ("BEGIN IMMEDIATE", Broken(LOCKED, refused=writes)),
        ("PRAGMA locking_mode = exclusive; BEGIN EXCLUSIVE", Broken(LOCKED)),
        ("PRAGMA journal_mode = delete; BEGIN EXCLUSIVE", Broken(LOCKED)),
        ("BEGIN; SELECT count(*) FROM outlast_jobs", Broken(codes=(0, 1))),
    ],
    ids=["by a writer", "by one that blocks readers", "out of WAL mode", "by a reader"],
)
def test_each_command_against_a_file_that_is_locked(
    fork_server: ForkServer, place: Path, begin: str, broken: Broken
) -> None:
    # to look into the file would end the lock that this process has on it
    assault = Assault(fork_server, place, URL, broken, looks=False)
    with held(place / NAME, begin):
        assault.run_each(len(begin))
    assert not assault.failures, assault.told()


@pytest.mark.parametrize(
    ("url", "broken"),
    [
        ("sqlite:///none/jobs.db", Broken(("none",))),
        ("sqlite:///jobs.db/jobs.db", Broken(("jobs.db",))),
        (f"sqlite:///{'x' * 300}.db", Broken(("too long",), codes=(2, 3))),
        ("sqlite:////dev/full", NO_FILE),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_each_command_against_a_place_that_can_be_none(
    fork_server: ForkServer, place: Path, url: str, broken: Broken
) -> None:
    assault = Assault(fork_server, place, url, broken)
    assault.run_each(len(url))
    assert not assault.failures, assault.told()
