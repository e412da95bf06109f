"""The process that takes the steps of an act on many jobs is killed, and another goes on."""

from __future__ import annotations

import asyncio
import sys

import pytest

from outlast.insight import bulk
from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter, begin, go_on, preview, read_action
from outlast.model.job import State
from outlast.store.actions import ActionState
from outlast.store.protocol import Store
from tests.conformance.kit import Hands
from tests.conformance.test_bulk import deaths, ids_in

JOBS = 40
CHILD = """
import asyncio, os, signal, sys
from outlast.insight import bulk
from outlast.store import open_store

bulk.STEP = 1

async def main(url, action_id):
    store = open_store(url)
    await store.open()
    steps = 0
    async for row in bulk.go_on(store, int(action_id)):
        print(row.before_id, flush=True)
        steps += 1
        if steps == 20:  # the killer is late: wait for it
            os.kill(os.getpid(), signal.SIGSTOP)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_an_act_on_many_jobs_goes_on_after_kill_9(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "STEP", 7)
    ids = await deaths(store, await Hands.on(store), JOBS)
    seen = await preview(store, Verb.REQUEUE, BulkFilter())
    action_id = await begin(store, seen, By("ada"))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, store.url, str(action_id), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    for _ in range(4):
        assert await child.stdout.readline(), "it takes steps"
    child.kill()
    await child.wait()
    left = await read_action(store, action_id)
    assert left is not None
    assert left.state is ActionState.RUNNING
    assert 3 <= left.counts["requeued"] < JOBS
    rows = [row async for row in go_on(store, action_id)]
    assert (rows[-1].state, rows[-1].counts) == (ActionState.DONE, {"requeued": JOBS})
    assert await ids_in(store, State.QUEUED) == set(ids)
