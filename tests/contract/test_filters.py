"""A filter of jobs chooses the same jobs for commands, for the API and on the page."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from harness.stores import opened
from outlast.cli import main
from outlast.model.crash import Crash, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.rows import JobFilter
from outlast.web.problem import API
from tests.conformance.hostile_kit import raw
from tests.conformance.kit import TASK, Hands, ended, enqueued, job
from tests.web.kit import page_on

WANTED = {
    "queue": "post", "task": "mail", "tenant": "acme", "label": "eu", "args": "ADA",
    "error": "no mailbox", "since": "1h", "group": "", "state": "dead",
}  # fmt: skip


async def fill(url: str) -> tuple[str, list[int]]:
    """Fill a store with two dead jobs, of which one died long ago, and a queued one; return the
    group of the first, and their ids."""
    tasks = ["mail", TASK]
    about = Policy(retries=0, labels=("eu",))
    wanted = job(task="mail", queue="post", tenant="acme", args='["ada"]', policy=about)
    async with opened(url) as store:
        ids = await enqueued(store, wanted, job(policy=Policy(retries=0)))
        hands = await Hands.on(store, tasks=tasks)
        for one in await hands.claim(tasks=tasks):
            said = "no mailbox" if one.task == "mail" else "it broke"
            crash = Crash(kind=CrashKind.ERROR, message=said)
            await hands.hand_in(ended(one, OutcomeKind.DEAD, crash=crash, message=said))
        ids += await enqueued(store, job())
        async with raw(url) as file:
            await file.run(
                "UPDATE outlast_jobs SET ended_at = 1, started_at = 1, enqueued_at = 1"
                f" WHERE id = {ids[1]}"
            )
        (group,) = (await store.inspector.dead_groups(JobFilter(task="mail"))).groups
    return str(group.fingerprint), ids


def test_a_filter_chooses_the_same_jobs_at_each_door(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    group, (wanted, old, queued) = asyncio.run(fill(url))
    listed = {name: {wanted} for name in WANTED}
    listed |= {"since": {wanted, queued}, "state": {wanted, old}}
    dead = {name: ids - {queued} for name, ids in listed.items() if name != "state"}

    async def ask() -> tuple[dict[str, set[int]], dict[str, set[int]]]:
        by_api, on_page = {}, {}
        async with page_on(url) as page:
            for name, value in (WANTED | {"group": group}).items():
                shown = await page.see("/jobs", **{name: value})
                on_page[name] = {int(one) for one in re.findall(r'id="job-(\d+)"', shown)}
                told = json.loads(await page.see(f"{API}/jobs", **{name: value}))
                by_api[name] = {one["id"] for one in told["jobs"]}
            for state in set(State) - {State.DEAD}:  # of which no job is in a group
                told = json.loads(await page.see(f"{API}/jobs", group=group, state=state.value))
                assert told["jobs"] == []
        return by_api, on_page

    def run(*command: str) -> dict[str, set[int]]:
        found = {}
        for name, value in (WANTED | {"group": group}).items():
            if name == "state" and command != ("jobs",):
                continue
            main([*command, f"--{name}", value, "--url", url, "--json"])
            found[name] = {one["id"] for one in json.loads(capsys.readouterr().out)["jobs"]}
        return found

    assert asyncio.run(ask()) == (listed, listed)
    assert (run("jobs"), run("dead", "list")) == (listed, dead)
