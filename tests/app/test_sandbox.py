"""The kernel holds the process of a crash test, and all that it starts: nothing real is changed or
reached, whatever the task, its libraries or its children call."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from harness.servers import PostgresServer
from tests.app import sandbox_acts

ROOT = Path(__file__).resolve().parents[2]
FLAGS = 0x80086601  # FS_IOC_GETFLAGS
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


class Real:
    """A folder, a database and servers which no crash test may change or reach."""

    def __init__(self, folder: Path, pg: str, pg_folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder, self.pg = folder, pg
        (folder / "cache" / "sub").mkdir(parents=True)
        for name in ("keep", "cache/a", "cache/sub/b"):
            (folder / name).write_text("precious")
        with contextlib.closing(sqlite3.connect(folder / "real.db")) as db:
            db.executescript("CREATE TABLE t (n); INSERT INTO t VALUES (1), (2), (3)")
        with psycopg.connect(pg) as rows:
            rows.execute("CREATE TABLE t AS SELECT generate_series(1, 10) AS n")
        self.sockets = [stack.enter_context(socket.socket(*kind)) for kind in self.KINDS]
        addresses: list[Any] = [("127.0.0.1", 0)] * 2
        addresses += [str(folder / "stream"), str(folder / "datagrams")]
        for one, address in zip(self.sockets, addresses, strict=True):
            one.bind(address)
            if one.type is socket.SOCK_STREAM:
                one.listen()
            one.setblocking(False)
        self.other = subprocess.Popen(["sleep", "600"])
        stack.callback(self.other.wait)
        stack.callback(self.other.kill)
        self.env = {
            "REAL": str(folder),
            "PG": pg,
            "PG_FOLDER": str(pg_folder),
            "TCP": str(self.sockets[0].getsockname()[1]),
            "UDP": str(self.sockets[1].getsockname()[1]),
            "OTHER_PROCESS": str(self.other.pid),
        }

    KINDS = (
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_UNIX, socket.SOCK_DGRAM),
    )

    def look(self) -> dict[str, object]:
        """Return all that there is to see of it."""
        seen: dict[str, object] = {}
        for path in sorted(self.folder.rglob("*")):
            status = path.lstat()
            kept = (status.st_mode, status.st_uid, status.st_gid, status.st_ino, status.st_mtime_ns)
            seen[str(path)] = (*kept, status.st_nlink)
            if path.is_file():
                with path.open("rb") as file:
                    flags = fcntl.ioctl(file, FLAGS, bytes(8))
                    seen[f"in {path}"] = (file.read(), os.listxattr(path), flags)
        with psycopg.connect(self.pg) as db:
            seen["rows"] = db.execute("SELECT count(*) FROM t").fetchone()
        for kind, one in zip(self.KINDS, self.sockets, strict=True):
            with contextlib.suppress(BlockingIOError):
                reached = one.accept() if kind[1] is socket.SOCK_STREAM else one.recv(9)
                seen[f"reached: {kind}"] = str(reached)
        limits = Path(f"/proc/{self.other.pid}/limits").read_text()
        return {**seen, "process": self.other.poll(), "limits": limits}


@pytest.fixture
def real(
    tmp_path: Path, bare_pg_url: str, pg_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Real]:
    (tmp_path / "real").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with contextlib.ExitStack() as stack:
        real = Real(tmp_path / "real", bare_pg_url, pg_server.folder, stack)
        for name, value in real.env.items():
            monkeypatch.setenv(name, value)
        yield real


def crash_test(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outlast.cli", "crash-test", "tests.app.sandbox_acts:app"]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=100, check=False
    )


def told(output: str) -> dict[str, str]:
    """Return how each act has ended, as the task tells it."""
    return dict(line.split(": ", 1) for line in output.splitlines() if line.split(": ")[0] in NAMES)


NAMES = {*sandbox_acts.ACTS, *sandbox_acts.ALLOWED}


@pytest.mark.xfail(strict=True, reason="a crash test changes and reaches what is real")
def test_a_task_changes_and_reaches_nothing_that_is_real(real: Real) -> None:
    before = real.look()
    said = crash_test("acts")
    assert real.look() == before
    acts = told(said.stderr)
    assert acts.keys() == sandbox_acts.ACTS.keys()
    assert {name: how for name, how in acts.items() if how == "done"} == {}
    assert not Path("own.db").exists()
