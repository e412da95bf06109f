"""The pages about web frameworks: their code, under their own tests and under a real server."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import outlast
from outlast.base.sync import drive
from outlast.store.rows import JobFilter
from tests.app.pages_kit import DOCS, run_pytest, write_files
from tests.conformance.connections_kit import of_library

DEADLINE = 90.0
OTHERS = """
import httpx
import jobs
import litestar.testing
import pytest
import with_litestar
import with_starlette

async def test_starlette(outlast_postgres):
    transport = httpx.ASGITransport(app=with_starlette.api)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        async with with_starlette.lifespan(with_starlette.api):
            await check(client, outlast_postgres)

def test_litestar(outlast_postgres):
    with litestar.testing.TestClient(with_litestar.api) as client:
        job = client.post("/books/7/render").json()["job"]
        outlast_postgres.enqueued(jobs.render, 7, jobs.Layout(pages=3))
        outlast_postgres.drain_sync()
        assert client.get(f"/jobs/{job}").json() == {"status": "completed"}

async def check(client, outlast_postgres):
    answer = await client.post("/books/7/render")
    assert answer.status_code == 202
    outlast_postgres.enqueued(jobs.render, 7, jobs.Layout(pages=3))
    await outlast_postgres.drain()
    told = await client.get(f"/jobs/{answer.json()['job']}")
    assert told.json() == {"status": "completed"}
"""


BROUGHT = {"fastapi": {"pydantic", "starlette"}}  # with it


@pytest.mark.parametrize("page", ["fastapi.md", "flask.md"])
def test_a_page_installs_what_its_programs_import(page: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    text = (DOCS / page).read_text()
    named = " ".join(re.findall(r"pip install ([^`\n]*)", text)).replace("'", "")
    installed = {re.split(r"[\[<>=]", each)[0] for each in named.split()}
    installed |= set().union(*(BROUGHT.get(each, set()) for each in installed))
    files = list(tmp_path.glob("*.py"))
    code = "\n".join(file.read_text() for file in files)
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    ours = {file.stem for file in files}
    assert imported - ours - set(sys.stdlib_module_names) <= installed
    settings = [file.read_text() for file in tmp_path.glob("*.ini")]
    assert not any("asyncio_mode" in each for each in settings) or "pytest-asyncio" in installed


@pytest.mark.slow
def test_the_page_about_fastapi_does_what_it_says(tmp_path: Path, pg_url: str) -> None:
    write_files("fastapi.md", tmp_path)
    (tmp_path / "test_others.py").write_text(OTHERS)
    env = {"DATABASE_URL": of_library(pg_url, "asyncpg"), "OUTLAST_URL": pg_url}
    done = run_pytest(tmp_path, OUTLAST_TEST_POSTGRES=pg_url, **env)
    assert re.search(r"\b7 passed\b", done.stdout), done.stdout + done.stderr


@pytest.mark.slow
def test_the_page_about_flask_does_what_it_says(tmp_path: Path) -> None:
    write_files("flask.md", tmp_path)
    done = run_pytest(tmp_path, DATABASE_URL="sqlite://")
    assert re.search(r"\b6 passed\b", done.stdout), done.stdout + done.stderr


@pytest.mark.slow
def test_the_first_call_of_the_page_about_flask_is_answered(tmp_path: Path) -> None:
    """After its commands, and with nothing else."""
    write_files("flask.md", tmp_path)
    page = (DOCS / "flask.md").read_text()
    (variables,) = re.findall(r"^\$ export (.*)$", page, re.MULTILINE)
    (tables,) = re.findall(r"^\$ python -c '(.*?)'", page, re.MULTILINE)
    (sent,) = re.findall(r"^\$ curl .* -d '(.*?)' http\S*(/books)$", page, re.MULTILINE)
    ask = f"import main; print(main.api.test_client().post('{sent[1]}', json={sent[0]}).json)"
    env = {**os.environ, **dict(each.split("=") for each in variables.split())}
    for command in (["-m", "outlast", "migrate"], ["-c", tables], ["-c", ask]):
        told = subprocess.check_output([sys.executable, *command], cwd=tmp_path, env=env, text=True)
    assert told == "{'book': 1, 'job': 1}\n"


# ------------------------------------------------------------------------ a real server

GATED = """
import asyncio
import pathlib
import outlast
from jobs import app

@app.task
async def gate(path: str) -> None:
    outlast.current().report(0.5, "at the gate")
    while not pathlib.Path(path).exists():
        await asyncio.sleep(0.05)
"""


@contextlib.contextmanager
def running(folder: Path, env: dict[str, str], *command: str, fd: int) -> Iterator[None]:
    """Run a program of the page; it ends by SIGTERM, as in production."""
    with (folder / f"{command[0]}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env=env,
            stdout=log,
            stderr=log,
            pass_fds=[fd],
        )
        try:
            yield
            process.terminate()
            assert process.wait(DEADLINE) in {0, -15}
        except BaseException:
            print((folder / f"{command[0]}.log").read_text())
            raise
        finally:
            process.kill()
            process.wait()


def follow(client: httpx.Client, job: int) -> Iterator[dict[str, object]]:
    """Yield what is streamed until the job has ended."""
    with client.stream("GET", f"/jobs/{job}/progress") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


@pytest.mark.slow
def test_requests_under_uvicorn_and_a_worker_beside_it(tmp_path: Path, pg_url: str) -> None:
    """A request's rows and jobs are one commit; progress is streamed while the job runs."""
    write_files("fastapi.md", tmp_path)
    (tmp_path / "gated.py").write_text(GATED)
    library = of_library(pg_url, "asyncpg")
    env = {**os.environ, "DATABASE_URL": library, "OUTLAST_URL": pg_url, "PYTHONPATH": "."}
    app = outlast.App(pg_url)
    gate = app.task(name="gate")(lambda path: None)
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as stack:
        fd = listener.fileno()
        stack.enter_context(running(tmp_path, env, "uvicorn", "main:api", "--fd", str(fd), fd=fd))
        port = listener.getsockname()[1]  # it takes connections, which wait until the server is up
        base = f"http://127.0.0.1:{port}"
        client = stack.enter_context(httpx.Client(base_url=base, timeout=DEADLINE))
        new = {"title": "Emma", "layout": {"pages": 4}}
        added = client.post("/books", json=new)
        assert (added.status_code, client.post("/books", json=new).status_code) == (201, 409)
        assert client.get("/jobs/1000").status_code == 404

        stack.enter_context(running(tmp_path, env, "outlast", "worker", "gated:app", fd=fd))
        streamed = list(follow(client, added.json()["job"]))
        end = {"status": "ready", "fraction": 1.0, "message": "page 4 in Garamond"}
        assert streamed[-1] == end

        waits = gate.enqueue_sync(str(tmp_path / "open"))
        shown = []
        for told in follow(client, waits.id):
            shown.append((told["status"], told["message"]))
            if told["message"] == "at the gate":
                (tmp_path / "open").touch()
        assert ("working", "at the gate") in shown
        assert shown[-1][0] == "ready"
    jobs = app.stores.ask(lambda store: store.inspector.jobs(JobFilter()))
    assert sorted((job.task, job.state) for job in drive(jobs)) == [
        ("count_pages", "completed"),
        ("gate", "completed"),
        ("render", "completed"),
    ]
    app.close_sync()
