"""Encrypted payloads with runners: a worker is killed, the key is changed, one has no key."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from harness.scene import DEADLINE, Scene
from outlast import Encryption
from outlast.model.job import State
from outlast.payload.payloads import MARK
from tests.crash.coded import SECRET, make_app

pytestmark = pytest.mark.timeout(4 * DEADLINE)

OLD, NEW = Encryption.make_key(), Encryption.make_key()


def with_keys(**keys: str) -> dict[str, str]:
    return {
        "OUTLAST_TEST_APP": "tests.crash.coded:app",
        "OUTLAST_TEST_KEYS": json.dumps(keys),
    }


async def key_of(stage: Scene, job: int) -> str:
    checkpoint = await stage.checkpoint(job)
    assert checkpoint is None or checkpoint.startswith(MARK)
    return "" if checkpoint is None else json.loads(checkpoint)[1][-1]


@pytest.mark.slow  # 10 s are the pause of what cannot be decoded
async def test_a_killed_worker_s_job_goes_on_after_a_change_of_the_key(stage: Scene) -> None:
    owner = make_app({"old": OLD}, stage.url)
    job = (await owner.tasks["pay"].enqueue(SECRET)).id
    first = await stage.worker(env=with_keys(old=OLD))

    async def written_by(name: str) -> bool:
        return await key_of(stage, job) == f"aes-256-gcm:{name}"

    await stage.until(lambda: written_by("old"), "a checkpoint by the old key")
    first.signal(signal.SIGKILL)
    first.process.wait()
    stranger = await stage.worker(env=with_keys(other=Encryption.make_key()))

    async def is_handed_back() -> bool:
        return any(each.outcome == "undecodable" for each in await stage.attempts(job))

    await stage.until(is_handed_back, "an attempt without the key")
    stranger.signal(signal.SIGTERM)
    stranger.process.wait()
    await stage.worker(env=with_keys(new=NEW, old=OLD))
    await stage.until(lambda: written_by("new"), "a checkpoint by the new key")
    stage.enough()
    ended = await stage.ended(job)
    assert (ended.state, ended.failures) == (State.COMPLETED, 0)
    reader = make_app({"new": NEW, "old": OLD}, stage.url)
    result: dict[str, Any] = await (await reader.get(job)).result(timeout=DEADLINE)
    assert (result["paid"], result["from"] > 0) == (SECRET, True)
    await check_nothing_shows(stage, job)
    await owner.close()
    await reader.close()


async def test_a_runner_refuses_plain_jobs_where_encryption_is_required(stage: Scene) -> None:
    plain, owner = make_app({}, stage.url), make_app({"k": OLD}, stage.url)
    job = (await plain.tasks["pay"].enqueue(SECRET)).id
    proper = await owner.tasks["pay"].enqueue(SECRET)
    await stage.worker(env=with_keys(k=OLD) | {"OUTLAST_TEST_REQUIRED": "1"})
    stage.enough()
    row = await stage.ended(job)
    assert row.state == State.DEAD
    (attempt,) = await stage.attempts(job)
    assert "not encrypted" in attempt.message
    assert SECRET not in str(attempt)
    assert (await proper.result(timeout=DEADLINE))["paid"] == SECRET
    await plain.close()
    await owner.close()


@pytest.mark.parametrize("keys", [{}, {"k": OLD}], ids=["plain", "encrypted"])
async def test_saving_the_same_again_saves_no_job_that_takes_workers_down(
    stage: Scene, keys: dict[str, str]
) -> None:
    app = make_app(keys, stage.url)
    job = (await app.tasks["takes_its_worker_down"].enqueue()).id
    for _ in range(2):
        (await stage.worker(env=with_keys(**keys))).process.wait(DEADLINE)
    await stage.worker(env=with_keys(**keys))
    row = await stage.ended(job)
    assert (row.state, row.losses) == (State.DEAD, 2)
    assert [each.outcome for each in await stage.attempts(job)] == ["lost_worker"] * 2
    await app.close()


async def check_nothing_shows(stage: Scene, job: int) -> None:
    row = await stage.job(job)
    shown: list[object] = [row.args, row.checkpoint, row.result, *await stage.attempts(job)]
    shown += await stage.store.inspector.schedules()
    assert SECRET not in str(shown)
    assert "aes-256-gcm:new" in str(await stage.store.inspector.schedules())
