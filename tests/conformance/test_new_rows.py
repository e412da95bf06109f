"""Each field of a new job reaches its row, in whichever company the job is stored, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.model.job import Policy
from outlast.store.new_rows import STORED
from outlast.store.protocol import Store
from outlast.store.values import NewJob, OnKey, Upstream, Wants
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import enqueued, job
from tests.conformance.limits_kit import limited, need

FAR = 4_000_000_000.0  # seconds since 1970
FIELDS: dict[str, NewJob] = {
    "task": job(task="other"),
    "queue": job(queue="other"),
    "args": job(args='{"n":1}'),
    "priority": job(priority=7),
    "policy": job(policy=Policy(retries=9, timeout=5.0, keep=60.0)),
    "tenant": job(tenant="acme"),
    "delay": job(delay=1_000.0),
    "run_at": job(run_at=FAR),
    "expires": job(expires=1_000.0),
    "expires_at": job(expires_at=FAR),
    "key": job(key="k"),
    "stream": limited(need("a")),
    "needs": limited(need("a", "k"), need("b"), tenant="acme", fair="acme"),
    "aged_by": limited(need("a"), aged_by=-60.0),
    "after": job(after=(Upstream(-1, Wants.ENDED),)),
}
"""A job with a value of its own in each field that is stored."""
NOT_STORED = {
    "aliases": job(aliases=("older",)),
    "on_key": job(key="k", on_key=OnKey(replaces=True, until_start=True)),
}


def test_each_field_of_a_new_job_is_looked_at() -> None:
    assert {*FIELDS, *NOT_STORED} == {*NewJob.__struct_fields__}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_is_in_its_own_row_in_any_company(
    store: Store, store_url: str, field: str
) -> None:
    plain, one, keyed = job(), FIELDS[field], job(key="another")
    usual = (await _rows(store, store_url, plain, plain))[0]
    mine = (await _rows(store, store_url, plain, one))[1]
    assert mine != usual
    companies = [(plain, one), (plain, one, plain), (plain, plain, one), (plain, one, keyed)]
    if not one.after:
        companies += [(one,), (one, plain)]
    if one.key is None:
        companies += [(plain, one, one), (plain, plain, one, one, keyed)]
    for jobs in companies:
        told = [mine if each is one else usual for each in jobs if each is not keyed]
        assert (await _rows(store, store_url, *jobs))[: len(told)] == told


async def _rows(store: Store, url: str, *jobs: NewJob) -> list[dict[str, Any]]:
    """Return what these jobs have in their rows when they are stored together, in their order, and
    delete them."""
    ids = await enqueued(store, *jobs)
    async with raw(url) as file:
        columns = ", ".join(STORED)
        found = [
            dict(zip(STORED, row, strict=True))
            for job_id in ids
            for row in await file.rows(f"SELECT {columns} FROM outlast_jobs WHERE id = {job_id}")
        ]
        for table in ("outlast_dependencies", "outlast_jobs"):
            await file.run(f"DELETE FROM {table}")
    assert len(found) == len(jobs)
    return [_without_the_clock(row) for row in found]


def _without_the_clock(row: dict[str, Any]) -> dict[str, Any]:
    now = row.pop("enqueued_at")
    for name in ("run_at", "expires_at"):
        if row[name] not in {FAR, None}:
            row[name] = round(row[name] - now, 3)
    has_aged = row["aged"] is not None
    row["aged"] = round(row["aged"] / 1000 - now, 1) if has_aged else None
    row["position"] = row["position"] is not None
    del row["awaited"]  # whether another job waits for it, which is no field of its own
    return row
