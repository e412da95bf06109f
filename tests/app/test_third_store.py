"""A third store is one entry: applications, workers, callers and the doctor need nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import outlast
from outlast.base import credentials
from outlast.base.credentials import redact
from outlast.cli import main
from outlast.errors import ConfigError
from outlast.store import backend
from outlast.store.backend import all_callers, register
from tests.app.third_store import Third, ThirdConnection

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 60.0  # seconds until a test says that something never happened


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Iterator[Third]:
    """The third store, for one test."""
    monkeypatch.setattr(backend, "_backends", [*backend._backends])
    monkeypatch.setattr(backend, "FILE_SCHEMES", files := {*credentials.FILE_SCHEMES})
    monkeypatch.setattr(credentials, "FILE_SCHEMES", files)
    entry = Third()
    register(entry.backend)
    yield entry
    all_callers.cache_clear()


@pytest.fixture
def url(third: Third, tmp_path: Path) -> str:
    return f"third:///{tmp_path / 'jobs.db'}"


def application(url: str) -> outlast.App:
    app = outlast.App(url)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    return app


async def test_a_job_runs(third: Third, url: str, tmp_path: Path) -> None:
    app = application(url)
    async with app.worker():
        job = await app.tasks["double"].enqueue(21)
        assert await job.result(timeout=DEADLINE) == 42
        assert list((tmp_path / "jobs.db-locks").glob("*.lock"))
    await app.close()
    assert sorted(third.asked) == ["presence", "wakeup"]


MODULE = """
import outlast
from outlast.store.backend import register
from tests.app.third_store import Third

register(Third().backend)
app = outlast.App()

@app.task
async def double(number: int) -> int:
    return 2 * number
"""
COMMAND = "import third_app, sys; from outlast.cli import main; sys.exit(main(sys.argv[1:]))"


def test_a_worker_and_its_runners_are_processes_of_their_own(url: str, tmp_path: Path) -> None:
    (tmp_path / "third_app.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    app = application(url)
    worker = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "worker", "third_app:app", "--url", url, "--runners", "1"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    try:
        job = app.tasks["double"].enqueue_sync(21)
        assert job.result_sync(timeout=DEADLINE) == 42
    finally:
        worker.terminate()
        code = worker.wait(DEADLINE)
        app.close_sync()
    assert code == 0


async def test_a_job_is_part_of_the_callers_transaction(url: str, tmp_path: Path) -> None:
    app = application(url)
    before = await app.tasks["double"].enqueue(1)
    mine = ThirdConnection(tmp_path / "jobs.db")
    job = await app.tasks["double"].using(connection=mine).enqueue(2)
    mine.raw.rollback()
    with pytest.raises(outlast.JobNotFound):
        await app.get(job.id)
    assert (await app.get(before.id)).id == before.id
    mine.raw.close()
    await app.close()


def test_the_doctor_makes_its_checks(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    app = application(url)
    app.tasks["double"].enqueue_sync(1)
    app.close_sync()
    code = main(["doctor", "--json", "--url", url])
    document = json.loads(capsys.readouterr().out)
    found = {one["name"]: one for one in document["findings"]}
    assert found["third_pages"]["sentence"] == "There are 3 pages for 0 workers."
    assert found["lock_directory"]["sentence"].startswith(f"Lock files are in {document['store']}-")
    assert not {"durability", "sqlite_library", "tls"} & set(found)
    assert code == (document["problems"] > 0)


def test_a_command_makes_no_file(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["jobs", "--url", url]) == 3
    assert "there is no database file" in capsys.readouterr().err


def test_its_urls_name_files(url: str) -> None:
    assert redact(f"{url} a@b") == f"{url} a@b"
    with pytest.raises(ConfigError, match="a messenger is for jobs on a server"):
        asyncio.run(_publish(url))


async def _publish(url: str) -> None:
    app = outlast.App(url, wakeup="nats://localhost")
    await app.stores.store()


def test_the_refusal_of_an_unknown_connection_names_its_own(url: str) -> None:
    app = application(url)
    with pytest.raises(outlast.ConnectionMismatch, match="ThirdConnection"):
        app.tasks["double"].using(connection=object()).enqueue_sync(1)
    app.close_sync()


def test_without_its_entry_it_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a store"):
        outlast.App(f"third:///{tmp_path / 'jobs.db'}")
    assert redact("third:///a b@c.db") == "third://***"
