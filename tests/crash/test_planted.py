"""What real runners and workers let out of what their tasks hold: into the bytes of the database,
logs in both formats, spans and events. Each channel shows exactly what SECURITY.md says.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import outlast
from harness.scene import DEADLINE, Scene
from outlast.model.job import ENDED, Policy
from outlast.store.values import NewJob
from tests.conformance.planted_kit import PATTERN
from tests.crash import planted, told
from tests.crash.kit import all_rows, scene
from tests.crash.planted import GIVEN, PRINTED, REPORTED, SAID, long, plant

pytestmark = pytest.mark.timeout(4 * DEADLINE)
KEY = outlast.Encryption.make_key()
MORE = {"raises": {"shift": 3}}  # arguments of some tasks, beside the secret


async def enqueue_all(app: outlast.App, stage: Scene) -> list[int]:
    """Enqueue each task with a secret, and one whose arguments do not fit; return the ids."""
    encode = app.stores.payloads.encode
    policy = Policy(retries=0, meta=json.dumps({"m": plant("meta")}), labels=(plant("label"),))
    texts: list[tuple[str, object]] = [("narrow", {"count": plant("wrong argument")})]
    texts += [("narrow", {"colour": long("wrong choice", 300)})]
    texts += [("narrow", {plant("name of an argument"): 1})]
    texts += [("narrow", long("no object", 50))]
    jobs = [
        NewJob(task=task, args=encode("args", json.dumps(args)), policy=Policy(retries=0))
        for task, args in texts
    ]
    stored = [one.job_id for one in await stage.store.enqueue(jobs)]
    given: dict[str, Any] = {"labels": policy.labels, "meta": json.loads(policy.meta or "")}
    for name in app.tasks.keys() - {"narrow"}:
        task = app.tasks[name].using(key=f"{name} {plant('key')}", **given)
        stored.append((await task.enqueue(card=long("argument", 300), **MORE.get(name, {}))).id)
    call = app.tasks["works"].call(card=long("argument of a schedule", 300))
    await app.schedules.put("nightly", call, every=3_600)
    return [*stored, (await app.schedules.trigger("nightly")).id]


@pytest.fixture
def stores(sqlite_url: str, pg_url: str) -> dict[str, str]:
    """A store of each kind, for one format of logs each."""
    return {"json": sqlite_url, "text": pg_url}


async def all_tried(stage: Scene, ids: list[int]) -> bool:
    """Whether each has ended, or was handed back since its arguments cannot be read."""
    for job in [await stage.job(one) for one in ids]:
        if job.state not in ENDED and not await stage.attempts(job.id):
            return False
    return True


async def content(stage: Scene) -> str:
    """Return the bytes of the database."""
    if stage.url.startswith("sqlite"):
        files = [one for one in stage.folder.glob("outlast.db*") if one.is_file()]
        assert any(one.name.endswith("-wal") for one in files)
        return "".join(one.read_bytes().decode("latin-1") for one in files)
    return await all_rows(stage.url)


async def channels(url: str, folder: Path, *options: str, **env: str) -> dict[str, set[str]]:
    """Run all tasks; return what is found of their secrets, by channel."""
    env |= {"OUTLAST_TEST_APP": "tests.crash.planted:app", "OUTLAST_TEST_KEY": KEY}
    options += ("--setup", "tests.crash.planted:set_up_worker")
    async with scene(url, folder) as stage:
        app = planted.make_app(KEY, url)
        ids = await enqueue_all(app, stage)
        await app.close()
        worker = await stage.worker(*options, env=env)
        await stage.until(lambda: all_tried(stage, ids), "an attempt of each job")
        await worker.left(signal.SIGTERM)
        texts = {"database": await content(stage), "log": worker.log.read_text()}
        texts |= {each: json.dumps(told.read(folder, each)) for each in ("spans", "events")}
        return {name: planted.SECRETS.found(text) for name, text in texts.items()}


@pytest.mark.parametrize("log_format", ["json", "text"])
async def test_each_channel_holds_what_it_says_and_no_payload(
    stores: dict[str, str], tmp_path: Path, log_format: str
) -> None:
    assert await channels(stores[log_format], tmp_path, "--log-format", log_format) == {
        "database": GIVEN | REPORTED | PRINTED | SAID,
        "log": PRINTED | SAID,
        "spans": SAID,
        "events": SAID | {"output"},
    }


@pytest.mark.parametrize("log_format", ["text", "json"])
async def test_no_channel_holds_what_is_redacted_but_for_what_was_given_and_printed(
    stores: dict[str, str], tmp_path: Path, log_format: str
) -> None:
    options = ("--log-format", log_format, "--redact", PATTERN)
    assert await channels(stores[log_format], tmp_path, *options, OUTLAST_TEST_VARIABLES="1") == {
        "database": GIVEN,
        "log": PRINTED,  # passed on as it is
        "spans": set(),
        "events": set(),  # with the values of variables, as is the SDK's default
    }


@pytest.mark.slow
async def test_values_of_variables_go_to_sentry_where_its_sdk_sends_them(
    sqlite_url: str, tmp_path: Path
) -> None:
    """So they would be found where they must not be."""
    found = await channels(sqlite_url, tmp_path, OUTLAST_TEST_VARIABLES="1")
    assert {"argument", "local variable"} <= found["events"]
