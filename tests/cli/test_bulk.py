"""Commands with a filter: what matches is shown first, changed in steps, resumed after a break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from outlast.insight.acting import By, Verb
from outlast.insight.bulk import BulkFilter, begin, preview
from outlast.model.crash import Crash, CrashKind
from outlast.model.lifecycle import OutcomeKind
from outlast.store.values import NewJob
from tests.cli.conftest import SECONDS, Outlast, environment
from tests.cli.rows import opened
from tests.conformance.kit import Hands, ended, enqueued

TASKS = ("mail", "render")


async def _dead(url: str) -> dict[str, list[int]]:
    async with opened(url) as store:
        hands = await Hands.on(store, tasks=list(TASKS))
        ids: dict[str, list[int]] = {"refused": [], "late": []}
        for n in range(6):
            kind = "refused" if n % 2 else "late"
            ids[kind] += await enqueued(store, NewJob(task=TASKS[n % 2], args=f'{{"n":{n}}}'))
            (claimed,) = await hands.claim(1, tasks=list(TASKS))
            crash = Crash(kind=CrashKind.ERROR, message=f"Connection {kind}")
            await hands.hand_in(
                ended(claimed, OutcomeKind.DEAD, crash=crash, message=crash.message)
            )
    return ids


@pytest.fixture
def dead(store_url: str) -> tuple[str, dict[str, list[int]]]:
    """A store with six dead jobs, and their ids by what ended them."""
    return store_url, asyncio.run(_dead(store_url))


def left(outlast: Outlast, url: str) -> set[int]:
    return {job["id"] for job in outlast("dead", "list", "--url", url, "--json").json()["jobs"]}


def test_a_dry_run_counts_and_changes_nothing(outlast: Outlast, dead) -> None:
    url, ids = dead
    said = outlast("dead", "requeue", "--error", "REFUSED", "--dry-run", "--url", url)
    assert said.code == 0, said.err
    first, *sample = said.out.splitlines()
    assert first == "3 dead jobs would be requeued, the newest:"
    assert [int(line.split()[0]) for line in sample] == sorted(ids["refused"], reverse=True)
    assert sample[0].endswith("n=5")
    said = outlast("dead", "discard", "--all", "--dry-run", "--url", url)
    assert said.out.startswith("6 dead jobs would be discarded")
    none = outlast("dead", "requeue", "--task", "none", "--dry-run", "--url", url)
    assert none.out == "0 dead jobs would be requeued\n"
    assert left(outlast, url) == {*ids["refused"], *ids["late"]}


def test_a_group_is_counted_and_narrowed(outlast: Outlast, dead) -> None:
    url, _ = dead
    groups = outlast("dead", "groups", "--url", url, "--json").json()["groups"]
    late, other = groups[0], groups[1]
    assert late["number"] == other["number"] == 3
    chosen = ("--group", late["group"], "--url", url)
    dry = outlast("dead", "requeue", *chosen, "--dry-run")
    assert dry.out.startswith("3 dead jobs would be requeued, the newest:"), dry.err
    text = "late" if late["message"].endswith("late") else "refused"
    assert outlast("dead", "discard", *chosen, "--error", "none").out == "0 jobs discarded\n"
    said = outlast("dead", "requeue", *chosen, "--error", text, "--since", "2h")
    assert (said.code, said.out) == (0, "3 jobs requeued\n"), said.err
    assert [
        one["group"] for one in outlast("dead", "groups", "--url", url, "--json").json()["groups"]
    ] == [other["group"]]


def test_a_span_of_nothing_chooses_no_job(outlast: Outlast, dead) -> None:
    url, ids = dead
    said = outlast("dead", "discard", "--since", "0", "--url", url)
    assert (said.code, said.out) == (0, "0 jobs discarded\n"), said.err
    assert left(outlast, url) == {*ids["refused"], *ids["late"]}


def test_all_that_match_are_requeued_and_no_others(outlast: Outlast, dead) -> None:
    url, ids = dead
    filters = ("--error", "refused", "--task", "render", "--since", "2h")
    said = outlast("dead", "requeue", *filters, "--url", url)
    assert (said.code, said.out) == (0, "3 jobs requeued\n"), said.err
    assert left(outlast, url) == set(ids["late"])
    again = outlast("dead", "requeue", *filters, "--url", url)
    assert (again.code, again.out) == (0, "0 jobs requeued\n")
    (one,) = outlast("actions", "--url", url, "--json").json()["actions"]
    assert (one["verb"], one["counts"], one["state"]) == ("requeue", {"requeued": 3}, "done")
    said = outlast("dead", "discard", "--error", "late", "--url", url)
    assert (said.code, said.out) == (0, "3 jobs discarded\n")


async def _waiting(url: str) -> tuple[list[int], int]:
    async with opened(url) as store:
        hands = await Hands.on(store, "one", tasks=list(TASKS))
        (runs,) = await enqueued(store, NewJob(task="mail", args="[]", queue="slow"))
        await hands.claim(1, tasks=["mail"])
        wait = [
            (await enqueued(store, NewJob(task="mail", args="[]", queue="slow")))[0] for _ in "ab"
        ]
        await enqueued(store, NewJob(task="mail", args="[]", tenant="acme"))
    return wait, runs


def test_jobs_that_wait_or_run_are_cancelled_by_a_filter(outlast: Outlast, store_url: str) -> None:
    url = store_url
    wait, runs = asyncio.run(_waiting(url))
    chosen = ("--queue", "slow", "--task", "mail", "--url", url)
    dry = outlast("cancel", *chosen, "--dry-run")
    first, *sample = dry.out.splitlines()
    assert first == "2 queued jobs would be cancelled, the newest:"
    assert [int(line.split()[0]) for line in sample] == sorted(wait, reverse=True)
    assert outlast("cancel", *chosen).out == "2 jobs cancelled\n"
    assert outlast("cancel", *chosen).out == "0 jobs cancelled\n"
    asked = outlast("cancel", *chosen, "--state", "running", "--dry-run")
    assert asked.out.startswith("1 running job would be asked to stop, the newest:")
    assert outlast("cancel", *chosen, "--state", "running").out == "1 job asked to stop\n"
    assert outlast("job", runs, "--json", "--url", url).json()["cancel_requested"]
    assert outlast("cancel", "--label", "none", "--tenant", "acme", "--url", url).code == 0
    outlast("cancel", "--queue", "slow", "--state", "dead", "--url", url).refused(
        2, "queued, blocked or running"
    )
    outlast("cancel", 1, "--queue", "slow", "--url", url).refused(2, "name the jobs")
    outlast("cancel", 1, "--dry-run", "--url", url).refused(
        2, "need a filter: leave out the job ids"
    )
    left = outlast("jobs", "--state", "queued", "--json", "--url", url).json()["jobs"]
    assert [one["tenant"] for one in left] == ["acme"]


def test_what_was_interrupted_is_gone_on_with(outlast: Outlast, dead) -> None:
    url, ids = dead

    async def begun() -> int:
        async with opened(url) as store:
            seen = await preview(store, Verb.REQUEUE, BulkFilter(error="late"))
            return await begin(store, seen, By("a process that died"))

    action = asyncio.run(begun())
    said = outlast("actions", "resume", action, "--url", url)
    assert (said.code, said.out) == (0, "3 jobs requeued\n"), said.err
    assert left(outlast, url) == set(ids["refused"])
    assert outlast("actions", "resume", action, "--url", url).out == "3 jobs requeued\n"
    outlast("actions", "resume", 99, "--url", url).refused(1, "there is no action 99")


def test_what_stays_as_it_is_is_named(outlast: Outlast, store_url: str) -> None:
    async def dead_twice() -> tuple[int, ...]:
        async with opened(store_url) as store:
            hands = await Hands.on(store, tasks=list(TASKS))
            ids = []
            for _ in "ab":
                ids += await enqueued(store, NewJob(task="mail", args="[]", key="k"))
                (claimed,) = await hands.claim(1, tasks=list(TASKS))
                await hands.hand_in(ended(claimed, OutcomeKind.DEAD))
        return tuple(ids)

    first, second = asyncio.run(dead_twice())
    said = outlast("dead", "requeue", "--all", "--url", store_url)
    assert said.out == "1 job requeued\n"
    said.refused(
        1,
        "some jobs are unchanged: 1 key taken",
        f"outlast: job {second} cannot be requeued: an unfinished job has its key",
    )
    (one,) = outlast("actions", "--url", store_url, "--json").json()["actions"]
    assert (one["filter"], one["counts"]) == ({}, {"requeued": 1, "key_taken": 1})
    assert outlast("job", first, "--url", store_url, "--json").json()["state"] == "queued"


def test_a_terminal_shows_a_bar(dead, folder: Path) -> None:
    url, _ = dead
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal, ThreadPoolExecutor() as threads:
        shown = threads.submit(_read_to_the_end, terminal)
        try:
            said = subprocess.run(
                [sys.executable, "-m", "outlast.cli", "dead", "requeue", "--error", "late"],
                cwd=folder,
                env=environment(OUTLAST_URL=url, TERM="xterm", COLUMNS="80"),
                stdout=subprocess.PIPE,
                stderr=theirs,
                timeout=SECONDS,
                check=True,
            )
        finally:
            os.close(theirs)
    assert said.stdout == b"3 jobs requeued\n"
    assert b"action 1" in shown.result()


def _read_to_the_end(terminal: BinaryIO) -> bytes:
    """Read what a terminal shows until it is closed: one read returns 4 KB, which a bar that waits
    fills within seconds."""
    shown = b""
    with contextlib.suppress(OSError):  # EIO: it is closed
        while part := terminal.read(100_000):
            shown += part
    return shown
