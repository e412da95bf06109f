"""The pages for newcomers are run: every block of Python, with a worker."""

from __future__ import annotations

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.client.schedules import ScheduleOptions
from outlast.client.task import BoundTask
from outlast.client.task_options import BatchOptions
from outlast.model.job import ENDED, State
from outlast.store.rows import JobFilter, StoredJob
from outlast.testing import isolate
from tests.cases import each_case

FOLDER = Path(__file__).parents[2] / "docs" / "coming-from"
PAGES = sorted(FOLDER.glob("*.md"))
OF_TASKS = set(BatchOptions.__annotations__)
OF_CALLS = set(inspect.signature(BoundTask.using).parameters)
OF_APPS = set(inspect.signature(outlast.App).parameters)
OF_SCHEDULES = set(ScheduleOptions.__annotations__)


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def ours(page: Path) -> list[str]:
    """The second column of the table."""
    rows = [line.split(" | ", 1) for line in page.read_text().splitlines() if line.startswith("|")]
    return [row[1] for row in rows[1:] if len(row) == 2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_the_python_on_a_page_runs_and_its_jobs_complete(
    page: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTLAST_URL", sqlite_url)
    blocks = blocks_of(page)
    assert blocks
    for block in blocks:
        names = await asyncio.to_thread(run, page, block, "__main__")
        await complete_all(names["app"])


def run(page: Path, block: str, name: str) -> dict[str, Any]:
    """Run a block as a module of this name; return what is in it."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(block, page.name, "exec", dont_inherit=True), names)
    return names


async def complete_all(app: outlast.App) -> None:
    async with app.worker(), asyncio.timeout(60):
        rows = await read_jobs(app)
        while any(row.state not in ENDED for row in rows):
            await asyncio.sleep(0.05)
            rows = await read_jobs(app)
    assert rows  # as they were then: a schedule may have added another job since
    assert {row.state for row in rows} == {State.COMPLETED}
    await app.close()


async def read_jobs(app: outlast.App) -> list[StoredJob]:
    return await app.stores.ask(lambda store: store.inspector.jobs(JobFilter()))


@each_case("page", PAGES)
def test_the_options_in_our_column_exist(page: Path) -> None:
    column = "\n".join(ours(page))
    for inside in re.findall(r"\busing\(([^`]*?)\)", column):
        assert set(re.findall(r"(\w+)=", inside)) <= OF_CALLS, inside
    for inside in re.findall(r"@app\.task\(([^`]*?)\)", column):
        assert set(re.findall(r"(\w+)=", inside)) <= OF_TASKS, inside
    for name in re.findall(r"`(\w+)=[^`]*`", column):
        assert name in OF_TASKS | OF_CALLS | OF_APPS | OF_SCHEDULES, name
    for name in re.findall(r"\bapp\.(\w+)\(", column):
        assert hasattr(outlast.App, name), name
    for name in re.findall(r"\battempt\.(\w+)", column):
        assert name in ATTEMPT, name


ATTEMPT = set(dir(outlast.Attempt)) | set(re.findall(r"\w+", str(outlast.Attempt.__doc__)))


def test_the_example_for_tests_runs_as_written() -> None:
    page = (FOLDER / "README.md").read_text()
    (block,) = re.findall(r"^```\n(def test_.*?)^```", page, re.DOTALL | re.MULTILINE)
    app = outlast.App()
    names: dict[str, Any] = {"mail": app.task(name="mail")(lambda to: "sent")}
    exec(block, names)
    with isolate(app) as under_test:
        names["test_a_mail_is_sent"](under_test)


def test_the_tests_of_the_ported_project_run_as_written() -> None:
    page = FOLDER / "celery.md"
    (project,) = blocks_of(page)
    (tests,) = re.findall(r"^```\n(def test_.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    names = run(page, project, "shop.jobs")
    before = set(names)
    exec(tests, names)
    written = [names[name] for name in names if name not in before]
    assert len(written) == 3
    for each in written:
        with isolate(names["app"]) as under_test:
            each(under_test)
