"""What is cut says so, on pages, in the terminal and for programs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from outlast.cli.program import run
from outlast.insight import deaths, history, limits
from outlast.store import limit_counts
from outlast.store.minutes import Counted, CountKind
from outlast.web import deaths as shared
from outlast.web import queues, tasks, workers
from tests.conformance.kit import Hands, enqueued, job
from tests.conformance.limits_kit import limited, need
from tests.web.filled_kit import fill
from tests.web.kit import page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store

CUTS = [
    (limits, "LIMITS_SHOWN"), (limit_counts, "LIMITS_SHOWN"), (limit_counts, "PERMITS_SHOWN"),
    (history, "SERIES_MAX"), (queues, "QUEUES_SHOWN"), (queues, "LANES_SHOWN"),
    (tasks, "TASKS_SHOWN"), (workers, "LIVE_SHOWN"), (workers, "HELD_SHOWN"),
    (shared, "SHARED_SHOWN"), (deaths, "GROUPS_SHOWN"),
]  # fmt: skip
PAGES = {
    "/limits": "There may be more",
    "/limits/limit?name=a": "There are more keys",
    "/queues": "more queue",
    "/queues/queue?name=a": "1 more lane",
    "/tasks": "more tasks",
    "/workers": "not shown",
    "/workers/1": "It runs more than these",
    "/deaths": "1 more shared death",
    "/dead": "There are more groups",
}
COMMANDS = {
    ("limits",): "there may be more",
    ("limits", "show", "a"): "there are more keys",
}
DOCUMENTS = {
    "/limits": lambda found: found["more"],
    "/limits/a": lambda found: "permits" in found["limit"]["at_least"],
    "/history?by=task": lambda found: found["more"],
    "/history?by=outcome": lambda found: not found["more"],
}


@pytest.mark.on_both_stores
async def test_what_is_cut_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(store, ["a", "b"])
    await enqueued(store, *[limited(need("a", key)) for key in "kl"])
    await (await Hands.on(store, "taker")).claim(9)
    await enqueued(store, job(queue="a"))
    for task in "ab":
        one = Counted(kind=CountKind.ATTEMPT, queue="q", task=task, outcome="completed", jobs=1)
        await store.note_minute(1, ord(task), [one])
    for module, name in CUTS:
        monkeypatch.setattr(module, name, 1)
    async with page_on(store.url) as page:
        for path, words in PAGES.items():
            assert words in (await page.get(path)).text, path
        for path, is_said in DOCUMENTS.items():
            assert is_said((await page.get(f"/api/v1{path}")).json()), path
    for command, words in COMMANDS.items():
        assert await asyncio.to_thread(run, [*command, "--url", store.url]) == 0
        assert words in capsys.readouterr().out, command
