"""Crash tests: seeded mistakes are found with their line and remedy, correct tasks are clean, and
nothing leaves the sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, ClassVar

import asyncpg
import httpx
import psycopg
import pytest
import requests
from sqlalchemy import create_engine

import outlast
from examples.analysis_service import app as analysis_service
from examples.automation_registry import app as automation_registry
from examples.census import app as census
from examples.order_import import app as order_import
from harness.certificates import Authority
from outlast.errors import UsageError
from outlast.testing.crashes import CrashReport, crash_test
from outlast.testing.crashes.cases import describe_cases
from tests.app import crash_programs
from tests.app.crash_programs import SERVERS, app, prepare
from tests.cases import each_case

LINES = Path(crash_programs.__file__).read_text().splitlines()


class MailServer(StreamRequestHandler):
    mails: ClassVar[list[bytes]] = []
    tls: ssl.SSLContext

    def handle(self) -> None:
        self.wfile.write(b"220 mail.example.org\r\n")
        while line := self.rfile.readline():
            verb = line.split()[0].upper()
            if verb == b"STARTTLS":
                self.wfile.write(b"220 go on\r\n")
                self.connection = self.tls.wrap_socket(self.connection, server_side=True)
                self.rfile = self.connection.makefile("rb")
                self.wfile = self.connection.makefile("wb", 0)
                continue
            if verb == b"EHLO":
                self.wfile.write(b"250-mail.example.org\r\n250-STARTTLS\r\n")
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                while (part := self.rfile.readline()) != b".\r\n":
                    self.mails.append(part)
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 OK\r\n")

    def finish(self) -> None:
        super().finish()
        self.connection.close()


class WebServer(BaseHTTPRequestHandler):
    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"sent": True}).encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def servers() -> Iterator[None]:
    """A web server and a mail server that note what reaches them."""
    WebServer.bodies.clear()
    MailServer.mails.clear()
    web = ThreadingHTTPServer(("127.0.0.1", 0), WebServer)
    mail = ThreadingTCPServer(("127.0.0.1", 0), MailServer)
    SERVERS.update(http=web.server_address[1], smtp=mail.server_address[1])
    with serving(web), serving(mail):
        yield


@contextmanager
def serving(server: Any) -> Iterator[Any]:
    thread = threading.Thread(target=server.serve_forever, args=[0.01])
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def run(name: str, **options: Any) -> CrashReport:
    task: outlast.Task[[], Any] = getattr(crash_programs, name)

    def call() -> outlast.Call[Any]:
        prepare()
        return task.call()

    return crash_test(app, call, **options)


def line_of(name: str) -> str:
    (number,) = [at for at, line in enumerate(LINES, 1) if "mistake:" in line and name in line]
    return f"crash_programs.py:{number}"


TWICE = "; delivered twice"
MISTAKES = [
    ("imports_again", "rows of orders in shop.db", "complete_in", "killed at 2, 3" + TWICE),
    ("claims_before_it_imports", "rows of entries in ledger.db", "step_in", "killed at 2, 4, 6"),
    (
        "stumbles_over_itself",
        "the job",
        "has left",
        "killed at 2, 3; lease lost at 1, 2, 3" + TWICE,
    ),
    ("starts_over", "checkpoint", "begin at attempt.checkpoint", "killed at 3, 4, 5, 6"),
    ("swallows_the_loss", "LostLease", "do not catch", "lease lost at 1, 2"),
    ("bills_twice", "jobs of bill", "key=", "killed at 2, 3; lease lost at 1, 2, 3; drained at"),
    (
        "notes_each_stop",
        "rows of orders in ledger.db",
        "ON CONFLICT",
        "lease lost at 1; drained at 1, 2, 3" + TWICE,
    ),
    ("appends_again", "report.txt", "os.replace", "killed at 3, 6, 9; lease lost at 1, 2, 3"),
    ("trusts_what_is_there", "report.txt", "os.replace", "killed at 2"),
    ("mails_again", "mail to ada@example.org", "key", "killed at 3; lease lost at 1, 2, 3" + TWICE),
    ("posts_again", "POST 127.0.0.1/mails", "-Key", "killed at 2; lease lost at 1, 2" + TWICE),
    ("posts_never", "POST 127.0.0.1/mails", "save comes before", "killed at 2"),
]


@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("name", "effect", "remedy", "when"), MISTAKES)
def test_a_mistake_is_found_with_its_line_and_remedy(
    name: str, effect: str, remedy: str, when: str
) -> None:
    report = run(name, allow_network=["127.0.0.1"])
    assert [(each.effect, each.line) for each in report.findings] == [(effect, line_of(name))]
    assert remedy in report.findings[0].remedy
    assert describe_cases(report.findings[0].cases).startswith(when)
    with pytest.raises(AssertionError, match=effect):
        report.check()


REAL = [each for each in MISTAKES if each[0] in {"imports_again", "appends_again", "mails_again"}]
REAL.append(("remembers_posts_in_memory", "POST 127.0.0.1/mails", "-Key", "killed at 2"))


@pytest.mark.slow_but("key-killed at 3; lease lost at 1, 2, 3; delivered twice")
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(("name", "effect", "remedy", "when"), REAL)
def test_a_real_kill_shows_the_same_and_what_was_kept_in_memory(
    name: str, effect: str, remedy: str, when: str
) -> None:
    report = run(name, allow_network=["127.0.0.1"], real=True)
    line = line_of(name.replace("remembers_posts_", ""))
    assert [(each.effect, each.line) for each in report.findings] == [(effect, line)]
    assert remedy in report.findings[0].remedy
    assert describe_cases(report.findings[0].cases).startswith(when)


@pytest.mark.slow_but("posts_again")
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize("name", ["appends_again", "posts_again", "mails_again"])
def test_runs_in_several_processes_show_the_same_as_in_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.testing.crashes.runs.RUNS_MIN", 2)
    one, many = (
        run(name, processes=processes, allow_network=["127.0.0.1"]) for processes in (1, 2)
    )
    assert one.findings
    assert many.document() == one.document()


@pytest.mark.slow_but("imports_with_keys")
@pytest.mark.usefixtures("servers")
@pytest.mark.parametrize(
    "name",
    [
        "imports_once",
        "imports_in_steps",
        "imports_with_keys",
        "stamps_rows",
        "stamps_coarsely",
        "writes_whole_files",
        "posts_with_a_key",
    ],
)
def test_a_correct_task_is_clean(name: str) -> None:
    report = run(name, allow_network=["127.0.0.1"])
    assert str(report.findings) == "[]"
    assert ("not compared" in str(report)) == name.startswith("stamps")
    assert len(report.points) >= 2


@pytest.mark.usefixtures("servers")
def test_a_mailer_sends_nothing_without_consent_and_once_with_it() -> None:
    with pytest.raises(UsageError, match=r"--allow-network 127\.0\.0\.1"):
        run("mails_again")
    assert MailServer.mails == []
    assert run("mails_again", allow_network=["127.0.0.1"]).runs > 3
    assert MailServer.mails.count(b"Subject: Hello\r\n") == 1
    assert run("posts_again", allow_network=["127.0.0.1"]).runs > 3
    assert WebServer.bodies == [b'{"to": "ada"}']


outside = outlast.App("sqlite:///own.db")


@outside.task
def leaves(how: str, path: str) -> None:
    if how == "write":
        Path(path).write_text("out")
    elif how == "remove":
        Path(path).unlink()
    elif how == "exit":
        os._exit(3)
    else:
        os.system(f"touch {path}")


@outside.task
def counts(path: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE counts SET n = n + 1")


@pytest.mark.parametrize("how", ["write", "remove", "start", "exit"])
def test_what_would_leave_the_sandbox_is_refused(how: str, folder: Path) -> None:
    there = folder / "there"
    there.write_text("before")
    with pytest.raises(UsageError, match=r"sandbox|by os\._exit"):
        crash_test(outside, leaves.call(how, str(there)))
    assert there.read_text() == "before"
    assert Path.cwd() == folder


@pytest.mark.parametrize("name", ["counts.db", "own.db", "{folder}/far/counts.db"])
def test_a_task_gets_copies_of_the_databases_that_it_names(folder: Path, name: str) -> None:
    path = Path(name.format(folder=folder))
    path.parent.mkdir(exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE counts AS SELECT 7 AS n")
    connection.close()
    report = crash_test(outside, counts.call(str(path)))
    assert [each.times for each in report.findings] == ["1 rows differ"]
    assert sqlite3.connect(path).execute("SELECT n FROM counts").fetchall() == [(7,)]


def test_one_point_is_repeated_alone_and_many_are_sampled() -> None:
    alone = run("imports_again", point=3)
    assert {case.point for finding in alone.findings for case in finding.cases} == {3}
    assert alone.runs == 4
    some = run("imports_again", points_max=1, seed=1)
    assert "1 of 3 points were tried" in str(some)
    assert some.runs == 5
    with pytest.raises(UsageError, match="there is no point 9: the task has 3"):
        run("imports_again", point=9)


@outside.task
def connects(how: str) -> None:
    if how == "psycopg":
        psycopg.connect("postgresql://127.0.0.1:1/shop", connect_timeout=1)
    elif how == "psycopg within SQLAlchemy":
        create_engine("postgresql+psycopg://127.0.0.1:1/shop").connect()
    else:
        asyncio.run(asyncpg.connect("postgresql://127.0.0.1:1/shop"))


@each_case("how", ["psycopg", "psycopg within SQLAlchemy", "asyncpg"])
def test_a_database_that_cannot_be_copied_is_refused(how: str) -> None:
    with pytest.raises(UsageError, match="a database that cannot be copied"):
        crash_test(outside, connects.call(how))


@outside.task
async def posts_and_mails_by_tls(url: str, port: int) -> None:
    (await asyncio.to_thread(requests.post, url, b"1", timeout=10)).raise_for_status()
    async with httpx.AsyncClient() as client:
        (await client.post(url, content=b"2")).raise_for_status()
    (await asyncio.to_thread(httpx.post, url, content=b"3")).raise_for_status()
    with smtplib.SMTP("localhost", port) as server:
        server.starttls(context=ssl.create_default_context())
        server.sendmail("shop@example.org", ["ada@example.org"], "Subject: Hello\r\n\r\n")


@pytest.mark.usefixtures("servers")
def test_what_is_said_over_tls_is_answered_from_a_recording(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(folder)
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(authority.cert))
    MailServer.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    MailServer.tls.load_cert_chain(*authority.sign("server"))
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), WebServer)) as server:
        server.socket = MailServer.tls.wrap_socket(server.socket, server_side=True)
        url = f"https://localhost:{server.server_address[1]}/posts"
        call = posts_and_mails_by_tls.call(url, SERVERS["smtp"])
        report = crash_test(outside, call, allow_network=["localhost"])
    assert {each.effect for each in report.findings} == {
        "POST localhost/posts",
        "mail to ada@example.org",
    }
    assert WebServer.bodies == [b"1", b"2", b"3"]
    assert MailServer.mails.count(b"Subject: Hello\r\n") == 1


@outside.task
def connects_by_hand(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


@pytest.mark.usefixtures("servers")
def test_a_library_that_no_recording_knows_is_refused_even_with_consent() -> None:
    with pytest.raises(UsageError, match="it records only http"):
        crash_test(outside, connects_by_hand.call(SERVERS["http"]), allow_network=["127.0.0.1"])


def make_may() -> outlast.Call[int]:
    engine = order_import.connect()
    order_import.Base.metadata.create_all(engine)
    engine.dispose()
    return order_import.import_file.call("may.csv", [(1, 100), (2, 200)])


def make_analysis() -> outlast.Call[dict[str, Any]]:
    return analysis_service.analyze.call(make_repository(Path.cwd().parent / "tmp"), 2)


def make_repository(folder: Path) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(2):
        (folder / f"{number}.py").write_text("x = 1\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "more"], check=True)
    return str(folder)


def make_census() -> outlast.Call[dict[str, Any]]:
    return census.analyze.call(make_repository(Path.cwd().parent / "tmp"), 2, every=1)


@pytest.mark.slow_but("make_analysis")
@pytest.mark.parametrize(
    ("application", "call"),
    [
        (order_import.app, make_may),
        (order_import.app, order_import.reserve.call(3)),
        (automation_registry.app, automation_registry.describe.call("a.png")),
        (order_import.app, order_import.year_report.call(2)),
        (analysis_service.app, make_analysis),
        (census.app, make_census),
    ],
)
def test_the_examples_are_clean_as_far_as_they_run_in_process(
    application: outlast.App, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", "postgresql://127.0.0.1:1/shop")
    crash_test(application, call, allow_command=["git"]).check()
