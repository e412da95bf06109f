"""A worker with passwords in its URLs shows them nowhere.

Everything that real processes show is searched for the password: the arguments of all of them, the
environment of those that need no store, the log in both forms, every row of every table, and what
the commands print.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil
import pytest

from harness.scene import DEADLINE, ROOT, Scene, WorkerProcess
from outlast.client.app import App
from outlast.runner.shell.task import add_to
from outlast.store.values import NewJob
from tests.cli.forked import ForkServer
from tests.crash.kit import all_rows, scene

pytestmark = pytest.mark.timeout(4 * DEADLINE + 120)

SECRET = "Zecret"  # a part of it is a leak, too
PASSWORD = f"{SECRET}/p@ss:w?rd#1"
WRITTEN = quote(PASSWORD, safe="")
MESSENGERS = [f"nats://me:{WRITTEN}@127.0.0.1:1", f"amqp://me:{WRITTEN}@127.0.0.1:1/v"]
COMMANDS = ["workers", "jobs", "job 1", "why 1", "dead list", "stats", "verify", "doctor"]


def with_password(url: str) -> str:
    return url.replace("postgres@", f"postgres:{WRITTEN}@")


def environ_of(url: str, wakeup: str) -> dict[str, str]:
    return {
        "OUTLAST_URL": url,
        "OUTLAST_WAKEUP": wakeup,
        "OUTLAST_TEST_APP": "tests.crash.leaky:app",
        "OUTLAST_TEST_NO_URL": "it is in the environment",
    }


async def enqueue(stage: Scene, task: str, queue: str = "default", **args: object) -> int:
    new = NewJob(task=task, queue=queue, args=json.dumps(args))
    return (await stage.store.enqueue([new]))[0].job_id


async def run_all(stage: Scene) -> None:
    """Run the careless application, and a command that shows its environment for a while."""
    raised = await enqueue(stage, "raises_its_url")
    for job in (raised, await enqueue(stage, "dies_with_its_url")):
        row = await stage.ended(job)
        assert row.state == "dead"
    await enqueue(stage, "enqueues")
    script = "env; touch shown; until [ -e journal.enough ]; do sleep 0.1; done; exit 3"
    shell = add_to(App(stage.url), retries=0)
    call = shell.call(argv=["bash", "-c", script], cwd=str(stage.folder))
    await stage.store.enqueue([call.job])

    await stage.noted(1)  # the job that a task has enqueued
    await stage.until((stage.folder / "shown").exists, "the command")


class Shown(NamedTuple):
    """What anyone on the machine can read of a process."""

    cmdline: str
    environ: str


def kinds_of(worker: WorkerProcess) -> dict[str, list[Shown]]:
    """Return the processes by what they are: the project's own, and those of commands."""
    found: dict[str, list[Shown]] = {"worker": [], "runner": [], "tether": [], "other": []}
    for process in worker.tree():
        try:
            shown = Shown(" ".join(process.cmdline()), repr(process.environ()))
        except psutil.NoSuchProcess:
            continue  # the command's "sleep" ends ten times a second
        line = shown.cmdline
        name = next((kind for kind in found if f"{kind}.py" in line or f".{kind}" in line), None)
        kind = "runner" if "outlast.runner.main" in line else name or "other"
        found["worker" if process.pid == worker.pid else kind].append(shown)
    return found


def check_processes(worker: WorkerProcess) -> None:
    kinds = kinds_of(worker)
    assert len(kinds["runner"]) >= 2, kinds
    assert kinds["tether"], kinds
    assert kinds["other"], "the command"
    for process in [each for kind in kinds.values() for each in kind]:
        assert SECRET not in process.cmdline
    for process in kinds["tether"] + kinds["other"]:
        assert SECRET not in process.environ


SaidBy = Callable[[list[str], str, str, Path], str]


@pytest.fixture(scope="module")
def said_by() -> Iterator[SaidBy]:
    """Return what runs a command with these addresses, and returns what it says."""
    with ForkServer(os.environ) as server:

        def run(command: list[str], url: str, wakeup: str, folder: Path) -> str:
            env = {
                **os.environ,
                **environ_of(url, wakeup),
                "OUTLAST_DEBUG": "1",
                "OUTLAST_TEST_JOURNAL": str(folder / "unused"),
            }
            done = server.run(command, cwd=ROOT, env=env, timeout=DEADLINE)
            return done.stdout + done.stderr

        yield run


@pytest.mark.parametrize("wakeup", MESSENGERS, ids=["nats", "amqp"])
async def test_no_output_of_a_worker_contains_a_password(
    pg_url: str, wakeup: str, tmp_path: Path, said_by: SaidBy
) -> None:
    url = with_password(pg_url)
    async with scene(url, tmp_path) as stage:
        worker = await stage.worker("--shell", "--runners", "3", env=environ_of(url, wakeup))
        await stage.told(worker, "wakeup_lost")
        await run_all(stage)
        check_processes(worker)
        for command in COMMANDS:
            for more in ([], ["--json"]):
                said = said_by([*command.split(), *more], url, wakeup, tmp_path)
                assert said, command
                assert SECRET not in said, command
        stage.enough()
        await worker.left(signal.SIGTERM)
        assert SECRET not in await all_rows(pg_url)
        log = worker.log.read_text()
        assert "***" in log, "the task has printed it, and the log has hidden it"
        assert SECRET not in log


@pytest.mark.short
async def test_the_log_for_people_has_no_password_either(pg_url: str, tmp_path: Path) -> None:
    url = with_password(pg_url)
    async with scene(url, tmp_path) as stage:
        worker = await stage.worker("--log-format", "text", env=environ_of(url, MESSENGERS[0]))

        await stage.until(lambda: "is ready" in worker.log.read_text(), "a worker that is ready")
        await worker.left(signal.SIGTERM)
        log = worker.log.read_text()
        assert "postgres:***@" in log
        assert SECRET not in log


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{WRITTEN}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?password={WRITTEN}&user=me",
        f"postgresql://me:{WRITTEN}@127.0.0.1:1/db?sslmode=nonsense",
        f"postgresql://me:{PASSWORD}@127.0.0.1:1/db",
        f"postgresql://me:{SECRET}[@127.0.0.1:1/db",
        f"postgres:me:{PASSWORD}@127.0.0.1:1/db",
        f"mysql://me:{WRITTEN}@127.0.0.1:1/db",
    ],
)
@pytest.mark.parametrize("command", [["workers"], ["doctor"], ["worker", "tests.crash.leaky:app"]])
def test_a_store_that_cannot_be_used_is_named_without_its_password(
    url: str, command: list[str], tmp_path: Path, said_by: SaidBy
) -> None:
    said = said_by(command, url, "", tmp_path)
    assert "outlast:" in said or "PROBLEM" in said.upper()
    assert SECRET not in said


async def test_a_password_among_the_arguments_is_warned_of(pg_url: str, tmp_path: Path) -> None:
    async with scene(with_password(pg_url), tmp_path) as stage:
        worker = await stage.worker()
        await stage.told(worker, "secret_in_arguments")
        runners = kinds_of(worker)["runner"]
        assert runners
        assert SECRET not in repr([each.cmdline for each in runners])
