"""Crash tests: mistakes are found with their line and remedy, and correct tasks are clean."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any, ClassVar

import pytest

from outlast.errors import UsageError
from outlast.testing.crashes import CrashReport, crash_test
from outlast.testing.crashes.cases import describe_cases
from tests.app import crash_libraries, crash_programs
from tests.cases import each_case

LINES = Path(crash_programs.__file__).read_text().splitlines()


class MailServer(StreamRequestHandler):
    mails: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 mail.example.org\r\n")
        while line := self.rfile.readline():
            verb = line.split()[0].upper()
            if verb == b"EHLO":
                self.wfile.write(b"250-mail.example.org\r\n")
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                while (part := self.rfile.readline()) != b".\r\n":
                    self.mails.append(part)
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 OK\r\n")


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


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    """Of a web server and a mail server that note what reaches them."""
    web = ThreadingHTTPServer(("127.0.0.1", 0), WebServer)
    mail = ThreadingTCPServer(("127.0.0.1", 0), MailServer)
    with serving(web), serving(mail):
        yield {"http": web.server_address[1], "smtp": mail.server_address[1]}


@pytest.fixture
def servers(ports: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    WebServer.bodies.clear()
    MailServer.mails.clear()
    for name, port in ports.items():
        monkeypatch.setenv(f"{name}_port", str(port))
    return ports


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


PROGRAMS = crash_programs.__name__
LIBRARIES = crash_libraries.__name__


def run(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> CrashReport:
    given = {"name": name, **(arguments or {})}
    return crash_test(f"{PROGRAMS}:app", f"{PROGRAMS}:call", arguments=given, **options)


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
    ("mails_again", "mail to ada@example.org", "key", "killed at 2; lease lost at 1, 2" + TWICE),
    ("posts_again", "POST 127.0.0.1/mails", "-Key", "killed at 2; lease lost at 1, 2" + TWICE),
    ("remembers_posts_in_memory", "POST 127.0.0.1/mails", "-Key", "killed at 2"),
    ("posts_never", "POST 127.0.0.1/mails", "save comes before", "killed at 2"),
]


@pytest.mark.slow_but("imports_again", "swallows_the_loss", "appends_again", "posts_again")
@pytest.mark.parametrize(
    ("name", "effect", "remedy", "when"), MISTAKES, ids=[each[0] for each in MISTAKES]
)
def test_a_mistake_is_found_with_its_line_and_remedy(
    servers: dict[str, int], name: str, effect: str, remedy: str, when: str
) -> None:
    report = run(name, allow_connect=[*servers.values()])
    line = line_of(name.replace("remembers_posts_", ""))
    assert [(each.effect, each.line) for each in report.findings] == [(effect, line)]
    assert remedy in report.findings[0].remedy
    assert describe_cases(report.findings[0].cases).startswith(when)
    with pytest.raises(AssertionError, match=effect):
        report.check()


@pytest.mark.slow_but("imports_once", "keeps_its_connections")
@pytest.mark.parametrize(
    "name",
    [
        "imports_once",
        "imports_in_steps",
        "imports_with_keys",
        "keeps_its_connections",
        "stamps_rows",
        "stamps_coarsely",
        "writes_whole_files",
        "posts_with_a_key",
    ],
)
def test_a_correct_task_is_clean(servers: dict[str, int], name: str) -> None:
    report = run(name, allow_connect=[*servers.values()])
    assert str(report.findings) == "[]"
    assert ("not compared" in str(report)) == name.startswith("stamps")
    assert len(report.points) >= 2


@pytest.mark.usefixtures("servers")
def test_a_mailer_sends_nothing_without_consent() -> None:
    with pytest.raises(UsageError, match="--allow-connect PORT"):
        run("mails_again")
    assert MailServer.mails == []


@pytest.mark.slow
def test_requests_of_each_library_are_counted(servers: dict[str, int]) -> None:
    url = {"url": f"http://127.0.0.1:{servers['http']}/posts"}
    report = crash_test(
        f"{LIBRARIES}:app",
        f"{LIBRARIES}:post",
        arguments=url,
        allow_connect=[servers["http"]],
    )
    assert [each.kind for each in report.points] == ["request"] * 3
    assert {each.effect for each in report.findings} == {"POST 127.0.0.1/posts"}
    assert {*WebServer.bodies} == {b"1", b"2", b"3"}


@each_case(("how", "says"), [("start", "--allow-command true"), ("exit", "must not end it")])
def test_what_the_runs_would_not_see_or_survive_is_refused(how: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run("leaves", {"how": how})


def test_a_database_is_copied_that_is_named_as_of_one_moment(folder: Path) -> None:
    with closing(sqlite3.connect("counts.db")) as writer:
        writer.executescript("PRAGMA journal_mode = WAL; CREATE TABLE counts AS SELECT 7 AS n")
        report = run("counts", {"path": "counts.db"}, copy=["counts.db"])
        assert [each.times for each in report.findings] == ["1 rows differ"]
        assert writer.execute("SELECT n FROM counts").fetchall() == [(7,)]
    (folder / "far").mkdir()
    (folder / "counts.db").rename(folder / "far" / "counts.db")
    report = run("counts", {"path": "far/counts.db"}, copy=["far"])
    assert [each.effect for each in report.findings] == ["rows of counts in far/counts.db"]
    assert [each.name for each in (folder / "far").iterdir()] == ["counts.db"]  # nothing beside it
    with pytest.raises(UsageError, match="start in a folder above it"):
        run("counts", {"path": "x"}, copy=["../x"])


def test_one_point_is_repeated_alone_and_many_are_sampled() -> None:
    alone = run("imports_again", point=3)
    assert {case.point for finding in alone.findings for case in finding.cases} == {3}
    assert alone.runs == 4
    some = run("imports_again", points_max=1, seed=1)
    assert "1 of 3 points were tried" in str(some)
    assert some.runs == 5
    with pytest.raises(UsageError, match="there is no point 9: the task has 3"):
        run("imports_again", point=9)


def make_repository(folder: Path) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(2):
        (folder / f"{number}.py").write_text("x = 1\n")
        subprocess.run([*git, "add", "-A"], check=True)
        subprocess.run([*git, "commit", "-qm", "more"], check=True)
    return str(folder)


@pytest.mark.slow_but("may")
@pytest.mark.parametrize(
    ("example", "call", "name"),
    [
        ("order_import", "make_may", "may"),
        ("order_import", "of_an_example", "reserve"),
        ("automation_registry", "of_an_example", "describe"),
        ("order_import", "of_an_example", "year_report"),
        ("analysis_service", "of_an_example", "analyze"),
        ("census", "of_an_example", "census"),
    ],
)
def test_the_examples_are_clean_as_far_as_they_run_in_process(
    example: str, call: str, name: str, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("OUTLAST_URL", "postgresql://127.0.0.1:1/shop")
    arguments = {} if name == "may" else {"name": name}
    if name in {"analyze", "census"}:
        arguments["folder"] = make_repository(folder)
    crash_test(
        f"examples.{example}.app:app",
        f"{LIBRARIES}:{call}",
        arguments=arguments,
        allow_command=["git"],
    ).check()
