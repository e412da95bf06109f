"""All pages beside the first ones: empty and full, with hostile names, and for one tenant."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest

from outlast.base.config import NAME_MAX
from outlast.model.pause import PauseKind
from outlast.store.minutes import Counted
from outlast.store.rows import JobFilter
from outlast.store.values import Save
from outlast.web.access import READING
from tests.conformance.kit import TASK, Hands, enqueued, job
from tests.conformance.schedules_kit import put_one
from tests.web.filled_kit import SCRIPT, fill
from tests.web.kit import let_in, page_on

if TYPE_CHECKING:
    from outlast.store.protocol import Store

PAGES = [
    "/dead", "/deaths", "/queues", "/tasks", "/workers", "/schedules", "/refusals", "/actions",
    "/system", "/flows",
]  # fmt: skip
FOR_TENANTS = {"/dead", "/deaths", "/flows"}


def links_of(text: str, base: str) -> set[str]:
    """Return where a page leads, as a browser resolves it."""
    found = re.findall(r'<a [^>]*href="([^"]+)"', text)
    return {urljoin(f"http://localhost{base}", one.replace("&amp;", "&")) for one in found}


async def test_a_store_that_is_away_is_said_on_all_pages_without_its_password() -> None:
    with socket.socket() as free:  # bound, and not listening: refused at once
        free.bind(("127.0.0.1", 0))
        url = f"postgresql://ada:geheim@127.0.0.1:{free.getsockname()[1]}/jobs"
        async with page_on(url) as page:
            answers = [await page.get(path) for path in PAGES]
    assert {answer.status_code for answer in answers} == {503}
    for answer in answers:
        assert "The store does not answer" in answer.text, answer.url
        assert "geheim" not in answer.text, answer.url


async def test_each_page_of_a_thing_is_headed_by_its_whole_name(store: Store) -> None:
    name = "shop." + "x" * (NAME_MAX - 6) + "z"
    await fill(store, [name])
    async with page_on(store.url) as page:
        (group,) = {one for one in links_of(await page.see("/dead"), "/dead") if "group=" in one}
        pages = [await page.see("/dead/group", group=group.partition("group=")[2])]
        pages.append(await page.see("/workers/1"))
        for path in ("/tasks/task", "/queues/queue", "/schedules/schedule", "/limits/limit"):
            pages += [await page.see(path, name=name)]
    for text in pages:
        heading = text.partition("<h1>")[2].partition("</h1>")[0]
        assert re.sub("<[^>]+>", "", heading).startswith(name), heading


async def test_hostile_names_stay_texts_on_each_page_and_on_all_that_they_lead_to(
    store: Store,
) -> None:
    await fill(store)
    seen: dict[str, str] = {}
    async with page_on(store.url) as page:
        for path in (*PAGES, "/", "/jobs", "/jobs/1"):
            seen[path] = await page.see(path)
            assert SCRIPT not in seen[path], path
            assert "onerror=alert(1)>" not in seen[path], path
            assert "x" * 600 not in re.sub(r'(href|value|title)="[^"]*"', "", seen[path]), path
        deeper = {
            link
            for path in PAGES
            for link in links_of(seen[path], path)
            if "passwd" in link or "script" in link
        } | {link for link in links_of(seen["/workers"], "/workers") if "/workers/" in link}
        deeper |= {link for link in links_of(seen["/dead"], "/dead") if "/dead/group" in link}
        assert len(deeper) > 15
        for link in deeper:
            answer = await page.get(link)
            assert answer.status_code == 200, (link, answer.text[:2_000])
            assert SCRIPT not in answer.text, link


async def test_every_link_of_every_page_leads_somewhere(store: Store) -> None:
    await fill(store, ["mail"])
    async with page_on(store.url) as page:
        links = {link for path in PAGES for link in links_of(await page.see(path), path)}
        for link in links:
            assert (await page.get(link)).status_code in {200, 303}, link


# -- queues and pauses


async def test_a_queue_shows_its_lanes_and_what_hinders_them(store: Store) -> None:
    await enqueued(store, job(queue="mail"), job(queue="mail", task="unknown"))
    hands = await Hands.on(store, "w1")
    await store.announce(hands.me, [TASK], {})
    async with page_on(store.url) as page:
        listed = await page.see("/queues")
        assert "mail" in listed
        assert "unservable" in listed
        text = await page.see("/queues/queue", name="mail")
        assert "nothing: in line" in text
        assert "unservable" in text
        assert "w1" in text
        assert (await page.get("/queues/queue", params={"name": "none"})).status_code == 404


async def test_queues_and_tasks_have_the_attempts_of_their_last_hour_as_drawings(
    store: Store,
) -> None:
    hands = await Hands.on(store)
    counted = Counted(kind="attempt", queue="mail", task=TASK, outcome="completed", jobs=5)
    await store.note_minute(hands.me.worker_id, 1, [counted])
    async with page_on(store.url) as page:
        assert "Attempts of queue mail: 5 ended" in await page.see("/queues")
        assert f"Attempts of task {TASK}: 5 ended" in await page.see("/tasks")
        for path, name in (("/queues/queue", "mail"), ("/tasks/task", TASK)):
            text = await page.see(path, name=name)  # also where nothing of it is left
            assert "Attempts of the last hour: 5 ended</figcaption>" in text


async def test_a_queue_is_paused_with_a_reason_and_resumed(store: Store) -> None:
    await enqueued(store, job(queue="mail"))
    async with page_on(store.url) as page:
        fields = {"kind": "queue", "name": "mail", "reason": "the provider is down"}
        done = await page.submit("/pause", **fields)
        assert done.headers["location"] == "./queues/queue?name=mail"
        (pause,) = await store.inspector.pauses()
        assert (pause.kind, pause.name, pause.paused_by) == (PauseKind.QUEUE, "mail", "ada")
        text = await page.see("/queues/queue", name="mail")
        assert "the provider is down" in text
        assert "Resume" in text
        await page.submit("/resume", kind="queue", name="mail")
        assert await store.inspector.pauses() == []


async def test_a_queue_without_jobs_is_a_page(store: Store) -> None:
    await Hands.on(store, queues=["served"])
    async with page_on(store.url) as page:
        await page.submit("/pause", kind="queue", name="held")
        for name in ("served", "held"):
            assert name in await page.see("/queues")
            assert "Nothing is due here." in await page.see("/queues/queue", name=name)


async def test_everything_is_paused_and_what_cannot_be_is_refused(store: Store) -> None:
    async with page_on(store.url) as page:
        for fields in ({"kind": "odd"}, {"kind": "queue"}, {"kind": "all", "name": "x"}, {}):
            assert (await page.submit("/pause", **fields)).status_code == 400, fields
        await page.submit("/pause", kind="all", stop="true")
        (pause,) = await store.inspector.pauses()
        assert (pause.kind, pause.stop) == (PauseKind.ALL, True)
        assert "Everything has been paused" in await page.see("/queues")


# -- workers


async def test_a_worker_shows_what_it_holds_and_is_asked_to_drain(store: Store) -> None:
    (number,) = await enqueued(store)
    hands = await Hands.on(store, "w1", tags=["gpu"])
    await store.announce(hands.me, [TASK, "other"], {"other": ["big memory"]})
    await hands.claim_one()
    async with page_on(store.url) as page:
        assert "w1" in await page.see("/workers")
        path = f"/workers/{hands.me.worker_id}"
        text = await page.see(path)
        assert f'id="job-{number}"' in text
        assert "big memory" in text
        assert "gpu" in text
        done = await page.submit(f"{path}/drain")
        assert done.headers["location"].endswith(f"workers/{hands.me.worker_id}?done=asked")
        assert (await store.heartbeat(hands.me)).drain
        assert "It was asked to drain" in await page.see(path, done="asked")
        assert (await page.get("/workers/999")).status_code == 404
        await store.set_status(hands.me, (await store.inspector.workers())[0].status.STOPPED)
        assert (await page.submit(f"{path}/drain")).status_code == 409


# -- schedules


async def test_a_schedule_is_paused_resumed_and_triggered(store: Store) -> None:
    await put_one(store, "nightly")
    async with page_on(store.url) as page:
        assert "nightly" in await page.see("/schedules")
        await page.submit("/schedules/pause", name="nightly")
        assert "until it is resumed" in await page.see("/schedules/schedule", name="nightly")
        await page.submit("/schedules/resume", name="nightly")
        assert "Next ticks" in await page.see("/schedules/schedule", name="nightly")
        made = await page.submit("/schedules/trigger", name="nightly")
        (row,) = await store.inspector.jobs(JobFilter())
        assert made.headers["location"] == f"../jobs/{row.id}"
        assert row.policy.schedule == "nightly"
        for verb in ("pause", "resume", "trigger"):
            assert (await page.submit(f"/schedules/{verb}", name="none")).status_code == 404


async def test_schedules_are_paged_by_name(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.web.schedules.ROWS", 2)
    for name in ("alpha", "bravo", "charlie"):
        await put_one(store, name)
    async with page_on(store.url) as page:
        text = await page.see("/schedules")
        assert "bravo" in text
        assert "charlie" not in text
        assert "after=bravo" in text
        assert "charlie" in await page.see("/schedules", after="bravo")


# -- tasks


async def test_a_task_shows_outcomes_durations_and_who_knows_it(store: Store) -> None:
    hands = await Hands.on(store, "w1", release="2026.1")
    await store.announce(hands.me, [TASK], {"heavy": ["gpu"]})
    counted = Counted(kind="attempt", task=TASK, outcome="completed", jobs=9, seconds=9.0)
    counted.durations = [0, 0, 8, 0, 0, 1, 0, 0, 0, 0, 0]
    failed = Counted(kind="attempt", task=TASK, outcome="error", jobs=3)
    await store.note_minute(hands.me.worker_id, 1, [counted, failed])
    await enqueued(store, job(queue="mail"), job(task="heavy"))
    async with page_on(store.url) as page:
        listed = await page.see("/tasks")
        assert "≤ 0.25 s" in listed
        assert "lacks tags" in listed
        text = await page.see("/tasks/task", name=TASK)
        assert "2026.1" in text
        assert "≤ 15 s" in text
        assert "nothing: in line" in text
        assert "error" in text
        heavy = await page.see("/tasks/task", name="heavy")
        assert "No live worker may run it." in heavy
        assert "lack a tag" in heavy
        assert (await page.get("/tasks/task", params={"name": "none"})).status_code == 404
        await page.submit("/pause", kind="task", name=TASK)
        assert "has been paused" in await page.see("/tasks/task", name=TASK)


# -- /actions


async def test_each_act_is_recorded_with_who_and_why(store: Store) -> None:
    hands = await Hands.on(store, "w1")
    await put_one(store, "nightly")
    await enqueued(store, job(queue="mail"))
    async with page_on(store.url) as page:
        await page.submit("/pause", kind="queue", name="mail", reason="no provider")
        await page.submit("/resume", kind="queue", name="mail")
        await page.submit(f"/workers/{hands.me.worker_id}/drain")
        await page.submit("/schedules/pause", name="nightly")
        await page.submit("/schedules/resume", name="nightly")
        await page.submit("/schedules/trigger", name="nightly")
        rows = await store.inspector.actions()
        assert [row.verb for row in rows][::-1] == [
            "pause", "resume", "drain", "pause schedule", "resume schedule", "trigger schedule",
        ]  # fmt: skip
        assert {row.actor for row in rows} == {"ada"}
        text = await page.see("/actions")
        assert "no provider" in text
        assert "schedule nightly" in text


# -- deaths, refusals, system


async def test_deaths_are_filtered_by_cause_and_shared_ones_name_their_suspects(
    store: Store,
) -> None:
    await fill(store, ["mail"])
    async with page_on(store.url) as page:
        text = await page.see("/deaths")
        assert "5 suspects left" in text
        only = await page.see("/deaths", cause="bystander")
        assert only.count('id="attempt-') == 5
        assert (await page.see("/deaths", cause="timeout")).count('id="attempt-') == 0


async def test_refused_writes_are_listed_by_verb(store: Store) -> None:
    await fill(store, ["mail"])
    async with page_on(store.url) as page:
        text = await page.see("/refusals")
        assert "1 refused write in the last hour" in text
        assert "No refused write matches." in await page.see("/refusals", verb="odd")


async def test_refused_writes_are_paged_by_key_with_their_filter(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outlast.web.refusals.ROWS", 2)
    await store.checkpoint([Save(1, token, 1, "1") for token in (10, 11, 12)])
    ids = [row.id for row in await store.inspector.refusals()]
    async with page_on(store.url) as page:
        first = await page.see("/refusals", verb="checkpoint")
        assert f'id="refusal-{ids[1]}"' in first
        assert f'id="refusal-{ids[2]}"' not in first
        assert f"before={ids[1]}&amp;verb=checkpoint" in first
        rest = await page.see("/refusals", verb="checkpoint", before=ids[1])
        assert f'id="refusal-{ids[2]}"' in rest
        assert "Older" not in rest
        monkeypatch.setattr("outlast.web.refusals.REFUSALS_MAX", 2)
        page.site.reader.forget_all()
        odd = await page.see("/refusals", verb="odd")
        assert f"Searched back to refusal {ids[1]}." in odd
        assert f'id="refusal-{ids[2]}"' in await page.see("/refusals", before=ids[1])
        listed = (await page.get("/api/v1/refusals", params={"limit": 2})).json()
        assert [one["id"] for one in listed["refusals"]] == ids[:2]
        assert listed["next_before"] == ids[1]


async def test_the_system_shows_store_schema_and_findings_and_no_secret(store: Store) -> None:
    async with page_on(store.url) as page:
        text = await page.see("/system")
    assert await store.store_id() in text
    assert "schema" in text
    assert "No worker is alive" in text
    assert "No known fault" not in text


# -- rights


async def test_a_user_of_one_tenant_sees_its_deaths_alone_and_nothing_of_the_store(
    store: Store,
) -> None:
    await fill(store, ["mail-of-acme"], tenant="acme")
    await fill(store, ["pay-of-other"], tenant="other")
    other = (await store.inspector.dead_groups(JobFilter(tenant="other"))).groups[0].fingerprint
    async with page_on(store.url, let_in(tenant="acme")) as page:
        for path in PAGES:
            answer = await page.get(path)
            assert answer.status_code == (200 if path in FOR_TENANTS else 403), path
            assert "pay-of-other" not in answer.text, path
        assert "mail-of-acme" in await page.see("/dead")
        assert "pay-of-other" not in await page.see("/dead", tenant="other")
        assert 'id="job-' not in await page.see("/dead/group", group=other)
        assert "pay-of-other" not in await page.see("/dead/group", group=other)
        assert "5 suspects left" in await page.see("/deaths")


async def test_who_may_only_read_gets_no_buttons_and_is_refused(store: Store) -> None:
    await fill(store, ["mail"])
    forms = {
        "/pause": {"kind": "all"},
        "/resume": {"kind": "task", "name": "mail"},
        "/workers/1/drain": {},
        "/schedules/pause": {"name": "mail"},
        "/schedules/trigger": {"name": "mail"},
    }
    pauses = await store.inspector.pauses()
    async with page_on(store.url, let_in(READING)) as page:
        for path in (*PAGES, "/jobs/1"):
            assert "<button" not in (await page.see(path)).replace("Filter</button>", "").replace(
                '<button type="submit">', ""
            ), path
            assert 'method="post"' not in await page.see(path), path
        for path, fields in forms.items():
            assert (await page.submit(path, **fields)).status_code == 403, path
    assert await store.inspector.pauses() == pauses
