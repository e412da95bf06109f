"""Commands that only read: tables for people, a JSON document for programs, nothing created."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from harness.servers import PostgresServer
from outlast.model.lifecycle import OutcomeKind
from outlast.store.values import NewJob
from tests.cases import each_case
from tests.cli.conftest import Filled, Outlast, environment
from tests.cli.rows import opened
from tests.conformance.kit import Hands, ended, enqueued, new_worker


async def test_worker_names_are_not_cut_at_eighty_columns(
    outlast: Outlast, sqlite_url: str
) -> None:
    async with opened(sqlite_url) as store:
        name = "web-frontend-7d9c5b8c6-abcde-12345-a1b2c3"
        await store.register(new_worker(name, host="web-frontend-7d9c5b8c6-abcde", lease=9e9))
    said = outlast("workers", "--url", sqlite_url, COLUMNS="80").out
    assert name in said
    assert all(len(text) <= 80 for text in said.splitlines())


def test_the_stacks_of_a_crash_are_shown_on_request(rows: Filled) -> None:
    assert "Fatal Python error" not in rows("job", rows.ids["dead"]).out
    assert "Fatal Python error" in rows("job", rows.ids["dead"], "--stacks").out


def test_dead_jobs_are_listed_with_why(filled: Filled) -> None:
    said = filled("dead", "list")
    assert "error: ada@example.org: mailbox unknown" in said.out
    (job,) = filled("dead", "list", "--json").json()["jobs"]
    assert job["id"] == filled.ids["dead"]
    assert job["error"] == "error: ada@example.org: mailbox unknown"
    for elsewhere in (["--queue", "none"], ["--tenant", "other"]):
        assert filled("dead", "list", *elsewhere).out == "no dead jobs\n"
    assert "acme" in filled("jobs", "--state", "dead").out


@pytest.mark.parametrize("columns", [80, 140])
def test_lines_fit_the_terminal(rows: Filled, columns: int) -> None:
    for command in (["jobs"], ["workers"], ["dead", "list"]):
        said = rows(*command, COLUMNS=str(columns))
        assert max(map(len, said.out.splitlines())) <= columns
    assert "unservable" in rows("jobs", COLUMNS="80").out


def test_in_a_pipe_there_are_no_colours_and_nothing_is_cut(rows: Filled) -> None:
    said = rows("jobs")
    assert "\x1b" not in said.out
    assert "…" not in said.out
    assert "\x1b" not in rows("job", rows.ids["dead"]).out


def test_on_a_terminal_there_are_colours(rows: Filled, folder: Path) -> None:
    parent, child = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "outlast.cli", "jobs", "--url", rows.url],
        cwd=folder,
        env=environment(TERM="xterm-256color", COLUMNS="100"),
        stdin=subprocess.DEVNULL,
        stdout=child,
        check=True,
    )
    os.close(child)
    assert b"\x1b[1;31mdead" in os.read(parent, 65_536)
    os.close(parent)


def test_texts_of_tasks_cannot_send_terminal_control_codes(rows: Filled) -> None:
    said = rows("job", rows.ids["dead"])
    assert r"\x1b[31mred\x1b[0m" in said.out
    queued = rows("job", rows.ids["queued"])
    assert "\u202e" not in queued.out
    assert "\x07" not in queued.out


def test_a_terminal_without_unicode_gets_ascii(new_interpreter: Outlast, rows: Filled) -> None:
    for command in (["jobs"], ["job", rows.ids["running"]]):
        said = new_interpreter(*command, "--url", rows.url, PYTHONIOENCODING="ascii")
        assert said.code == 0, said.err
        assert "###" in said.out
        assert said.out.isascii()


def test_a_closed_output_pipe_is_not_an_error(rows: Filled, folder: Path) -> None:
    command = f"{sys.executable} -m outlast.cli jobs --json --url {rows.url} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, check=True
    )
    assert done.stdout == b"{\n"
    assert done.stderr == b""


@each_case("command", [["jobs"], ["cancel", "1"], ["migrate", "--after-restore"]])
def test_a_missing_file_is_an_error_and_is_not_created(
    outlast: Outlast, folder: Path, command: list[str]
) -> None:
    said = outlast(*command, "--url", "sqlite:///missing.db")
    said.refused(1 if "--after-restore" in command else 3, str(folder / "missing.db"))
    assert said.out == ""
    assert not list(folder.glob("missing.db*"))


def test_an_empty_database_is_an_error_and_stays_empty(
    outlast: Outlast, bare_pg_url: str, pg_server: PostgresServer
) -> None:
    outlast("jobs", "--url", bare_pg_url).refused(3, "not an Outlast store yet", "outlast migrate")
    outlast("cancel", "1", "--url", bare_pg_url).refused(3, "not an Outlast store yet")
    name = bare_pg_url.rpartition("/")[2].partition("?")[0]
    tables = pg_server.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'outlast%'", name)
    assert tables.strip() == "0"


def test_the_environment_names_the_store(outlast: Outlast, rows: Filled) -> None:
    document = json.loads(outlast("jobs", "--json", OUTLAST_URL=rows.url).out)
    assert len(document["jobs"]) == len(rows.ids)


def test_a_job_with_very_many_snoozes_is_shown_on_one_page(
    outlast: Outlast, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/poller.db"

    async def poll() -> int:
        async with opened(url) as store:
            (job_id,) = await enqueued(store)
            hands = await Hands.on(store)
            for _ in range(1_234):
                claimed = await hands.claim_one()
                await hands.hand_in(ended(claimed, OutcomeKind.SNOOZED, delay=0.0))
        return job_id

    job_id = asyncio.run(poll())
    said = outlast("job", str(job_id), "--url", url).out
    assert "1234 attempts, 1,204 of them kept as a number only" in said
    assert "1,204 more" in said
    document = outlast("job", str(job_id), "--url", url, "--json").json()
    assert (len(document["attempts"]), document["attempts_dropped"]) == (30, 1_204)
    why = outlast("why", str(job_id), "--url", url).out
    assert "snoozed 1234 times in a row" in why
    assert outlast("verify", "--url", url).code == 0


def test_an_attempt_that_was_released_says_why(outlast: Outlast, store_url: str) -> None:
    async def release() -> int:
        async with opened(store_url) as store:
            (job_id,) = await enqueued(store)
            claimed = await (hands := await Hands.on(store)).claim_one()
            await hands.hand_in(
                ended(claimed, OutcomeKind.RELEASED, message="its worker is leaving")
            )
        return job_id

    said = outlast("job", str(asyncio.run(release())), "--url", store_url).out
    assert "attempt 1, released: its worker is leaving\n" in said


def test_a_time_outside_the_calendar_breaks_no_json_document(
    outlast: Outlast, store_url: str
) -> None:
    async def plant() -> int:
        async with opened(store_url) as store:
            late = NewJob(task="render", run_at=253_402_300_800.0 + 43_200)
            (job_id, _) = await enqueued(store, late, NewJob(task="render"))
        return job_id

    job_id = asyncio.run(plant())
    document = outlast("jobs", "--url", store_url, "--json").json()
    assert [one["run_at"][:4] for one in document["jobs"] if one["id"] == job_id] == ["9999"]
    for command in (("jobs",), ("job", str(job_id)), ("why", str(job_id)), ("stats",)):
        assert outlast(*command, "--url", store_url).code == 0
        assert outlast(*command, "--url", store_url, "--json").code == 0


@each_case("command", [["jobs"], ["why", "1"]])
def test_output_to_a_pipe_does_not_import_rich(
    outlast: Outlast, new_interpreter: Outlast, folder: Path, command: list[str]
) -> None:
    application = folder / "shelf.py"
    application.write_text("import outlast\napp = outlast.App()\n@app.task\ndef put(): ...\n")
    outlast("enqueue", "shelf:app", "put")
    said = new_interpreter(*command, PYTHONPROFILEIMPORTTIME="1")
    assert said.code == 0
    assert {"outlast.cli.show", "rich"} & set(said.err.split()) == {"outlast.cli.show"}


@each_case("command", [["jobs"], ["why", "1"], ["job", "1", "--json"]])
def test_a_state_of_a_newer_release_is_reported(
    outlast: Outlast, folder: Path, command: list[str]
) -> None:
    application = folder / "shelf.py"
    application.write_text("import outlast\napp = outlast.App()\n@app.task\ndef put(): ...\n")
    outlast("enqueue", "shelf:app", "put")
    with closing(sqlite3.connect(folder / "outlast.db")) as file:
        file.execute("PRAGMA ignore_check_constraints = 1")
        file.execute("UPDATE outlast_jobs SET state = 'napping'")
        file.commit()
    outlast(*command).refused(3, "the state 'napping', which this release does not know")
