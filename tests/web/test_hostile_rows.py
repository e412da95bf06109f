"""A row of another program breaks no page: each column of what a page shows, with odd numbers."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from harness.stores import opened
from outlast.cli import main
from outlast.cli.errors import DONE
from tests.conformance.hostile_kit import Raw, raw, victims
from tests.conformance.test_hostile_rows import ATTEMPTS, JOBS, WORKERS, batched
from tests.web.kit import page_on

PROGRESS = [f'{{"fraction":{number}}}' for number in ("1e308", "-1e308", "7")]
CRASHES = [f'{{"kind":"error","progress":{one}}}' for one in PROGRESS]
VALUES = [f"'{one}'" for one in ("NaN", "Infinity", "9e14", "-9e14", *PROGRESS, *CRASHES)]
FIRST = 10_000  # id of a copy of the worker's row
MANY = 10  # columns in one store, whose jobs are claimed at once
SOME = [("jobs", "started_at"), ("jobs", "progress"), ("attempts", "crash")]
SOME += [("workers", "started_at")]


async def spoil(url: str, columns: list[tuple[str, str]]) -> list[str]:
    """Write each value into each of these columns, in a row of its own; return the pages of these
    rows."""
    odd = list(product(columns, VALUES))
    pages = []
    async with opened(url) as store, raw(url) as file:
        _, running, dead, *_ = await victims(store, len(odd))
        for number, ((table, column), value) in enumerate(odd):
            if table == "workers":
                if await _copy_worker(file, FIRST + number, column, value):
                    pages.append(f"/workers/{FIRST + number}")
                continue
            for job_id in (running[number], dead[number]):
                key = "id" if table == "jobs" else "job_id"
                row = f"UPDATE outlast_{table} SET {column} = {value} WHERE {key} = {job_id}"
                pages += [f"/jobs/{job_id}"] if await file.run(row) else []
    return pages


async def _copy_worker(file: Raw, worker: int, column: str, value: str) -> bool:
    names = sorted(await file.columns("outlast_workers"))
    told = {name: name for name in names} | {"id": str(worker), "registration": "NULL"}
    values = ", ".join((told | {column: value}).values())
    return await file.run(
        f"INSERT INTO outlast_workers ({', '.join(names)}) SELECT {values} FROM outlast_workers"
        " WHERE status = 'active' ORDER BY id LIMIT 1"
    )


async def broken(url: str, pages: list[str]) -> list[str]:
    """Return the pages that cannot be shown."""
    async with page_on(url) as page:
        lists = ["/", "/jobs", "/jobs?state=running", "/jobs?state=dead", "/dead", "/workers"]
        found = []
        for each in [*lists, *pages]:
            try:
                answer = await page.get(each)
            except (ArithmeticError, TypeError, ValueError) as error:
                found.append(f"{each}: {error!r}")
            else:
                found += [f"{each}: {answer.status_code}"] if answer.is_server_error else []
    return found


def test_no_odd_number_breaks_a_page_or_a_report(
    store_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages = asyncio.run(spoil(store_url, SOME))
    assert asyncio.run(broken(store_url, pages)) == []
    for page in pages:
        if page.startswith("/jobs/"):
            assert main(["job", page.removeprefix("/jobs/"), "--url", store_url]) == DONE
    assert "100%" in capsys.readouterr().out


ALL = [
    *(("jobs", one) for one in JOBS),
    *(("attempts", one) for one in ATTEMPTS),
    *(("workers", one) for one in WORKERS if one not in {"id", "registration"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("columns", batched(ALL, MANY))
def test_no_odd_number_in_any_column_breaks_a_page(
    store_url: str, columns: list[tuple[str, str]]
) -> None:
    pages = asyncio.run(spoil(store_url, columns))
    assert asyncio.run(broken(store_url, pages)) == []
