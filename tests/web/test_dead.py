"""Dead jobs in groups: counted, opened, requeued and discarded as they were shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outlast.model.job import State
from outlast.store.actions import ActionState
from outlast.store.rows import JobFilter
from tests.conformance.kit import eventually
from tests.web.filled_kit import fill
from tests.web.kit import hidden_fields, page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store


async def test_groups_of_dead_jobs_are_counted_and_opened(store: Store) -> None:
    await fill(store, ["mail", "pay"])
    async with page_on(store.url) as page:
        text = await page.see("/dead")
        assert "6 dead jobs in all." in text
        assert "shop/b.py in charge" in text
        only = await page.see("/dead", task="pay")
        assert "shop/a.py in charge" in only
        assert "shop/b.py in charge" not in only
        (group,) = (await store.inspector.dead_groups(JobFilter(task="mail"))).groups
        one = await page.see("/dead/group", group=group.fingerprint)
        assert "3 jobs" in one
        assert f"outlast dead requeue --group {group.fingerprint}" in one
        gone = await page.see("/dead/group", group="0" * 16)
        assert "No dead job is left in this group" in gone
        assert (await page.get("/dead/group")).status_code == 400


async def test_pages_of_a_group_follow_by_key(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.web.dead.ROWS", 2)
    await fill(store, ["mail"])
    (group,) = (await store.inspector.dead_groups(JobFilter())).groups
    ids = (await store.inspector.job_ids(JobFilter(state=State.DEAD))).ids
    async with page_on(store.url) as page:
        first = await page.see("/dead/group", group=group.fingerprint)
        assert f'id="job-{ids[1]}"' in first
        assert f'id="job-{ids[2]}"' not in first
        rest = await page.see("/dead/group", group=group.fingerprint, before=ids[1])
        assert f'id="job-{ids[2]}"' in rest


async def test_a_group_is_requeued_as_it_was_shown_and_the_act_is_recorded(store: Store) -> None:
    await fill(store, ["mail", "pay"])
    (group,) = (await store.inspector.dead_groups(JobFilter(task="mail"))).groups
    async with page_on(store.url) as page:
        text = await page.see("/jobs/requeue", group=group.fingerprint)
        assert "Requeue 3 jobs?" in text
        fields = hidden_fields(text)
        started = await page.submit("/jobs/requeue", **fields, reason="mended")
        assert started.status_code == 303
        (row,) = await store.inspector.actions(1)
        await eventually(lambda: is_over(store, row.id))
        path = f"/actions/{row.id}"
        assert started.headers["location"] == f"..{path}"
        text = await page.see(path)
        assert "3 of 3 jobs" in text
        assert "mended" in text
        left = (await store.inspector.dead_groups(JobFilter())).groups
        assert [one.number for one in left] == [3]
        assert "No dead job is left in this group" in await page.see(
            "/jobs/requeue", group=group.fingerprint
        )
        assert (await page.submit(f"{path}/stop")).status_code == 409


async def is_over(store: Store, action_id: int) -> bool:
    (row,) = await store.inspector.actions(1, action_id + 1)
    return row.state is ActionState.DONE


async def test_more_jobs_than_were_shown_are_left_alone(store: Store) -> None:
    await fill(store, ["mail"])
    (group,) = (await store.inspector.dead_groups(JobFilter())).groups
    async with page_on(store.url) as page:
        text = await page.see("/jobs/discard", group=group.fingerprint)
        fields = hidden_fields(text)
        answer = await page.submit("/jobs/discard", **(fields | {"expected": "2"}))
        assert answer.status_code == 409
        for wrong in ({"as_of": "nan"}, {"up_to_id": "-1"}, {"expected": "x"}):
            assert (await page.submit("/jobs/discard", **(fields | wrong))).status_code == 400
    assert (await store.inspector.dead_groups(JobFilter())).looked_at == 3
