"""What ``--redact`` matches is nowhere in the store, whole or cut: texts are redacted, then cut."""

from __future__ import annotations

from pathlib import Path

import pytest

import outlast
from harness.scene import DEADLINE
from outlast.model.job import Policy
from outlast.store import open_store
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import NewJob
from tests.crash import careless
from tests.crash.kit import JSON, scene

pytestmark = pytest.mark.timeout(4 * DEADLINE + 60)
PATTERN = r"zq\w+qz"
PIECES = [careless.SECRET[at : at + 6] for at in range(len(careless.SECRET) - 5)]
TASKS = ("pay", "give_up")


def calls() -> list[NewJob]:
    """Return calls whose texts are cut at other letters of the secret."""
    policy = Policy(retries=0, logs=True)
    return [
        NewJob(task=name, args=f'{{"shift":{shift}}}', policy=policy)
        for name in TASKS
        for shift in range(0, 17, 4)
    ]


async def all_said(store: Store) -> str:
    """Return all that the store has of all jobs."""
    look = store.inspector
    rows = await look.jobs(JobFilter())
    assert {row.state for row in rows} == {"dead"}
    said = [repr(rows)]
    for row in rows:
        said += [repr(await look.attempts(row.id)), repr(await look.logs(row.id))]
    return "\n".join(said)


def check(said: str) -> None:
    assert "[redacted]" in said
    assert [piece for piece in PIECES if piece in said] == []


async def test_no_piece_of_what_is_redacted_is_stored(store_url: str, tmp_path: Path) -> None:
    env = {"OUTLAST_TEST_APP": "tests.crash.careless:app"}
    async with scene(store_url, tmp_path) as stage:
        worker = await stage.worker(*JSON, "--redact", PATTERN, env=env)
        for stored in await stage.store.enqueue(calls()):
            await stage.ended(stored.job_id)
        check(await all_said(stage.store))
        log = worker.log.read_text()
        told = [  # what tasks print is passed on as it is: the log is their stdout
            line for line in log.splitlines() if line.startswith('{"') and '"text": ' not in line
        ]
        check("[redacted]" + "\n".join(told))


async def test_no_piece_of_what_is_redacted_is_stored_in_process(store_url: str) -> None:
    app = outlast.App(store_url)
    for task in (careless.pay, careless.give_up):
        name = task.name
        app.task(retries=0, name=name)(task.fn)
    store = open_store(store_url)
    await store.open()
    try:
        stored = await store.enqueue(calls())
        async with app.worker(redact=[PATTERN]):
            for one in stored:
                with pytest.raises(outlast.JobFailed) as failed:
                    await (await app.get(one.job_id)).result(timeout=DEADLINE)
                assert not [piece for piece in PIECES if piece in str(failed.value)]
        check(await all_said(store))
    finally:
        await store.close()
        await app.close()
