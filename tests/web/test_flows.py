"""Flows on the page and in the API: drawn, bounded, retried and cancelled, each act recorded."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from outlast.base.clock import SYSTEM
from outlast.insight import flows as insight
from outlast.insight.flows import read_flow
from outlast.insight.queries import read_details
from outlast.web import flows
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job, row_of
from tests.conformance.test_dependencies import DIES, after, drain, states
from tests.conformance.test_events import waits
from tests.web.kit import let_in, page_on
from tests.web.test_api import read, send

if TYPE_CHECKING:
    from outlast.store.protocol import Store

HOSTILE = "<script>alert(1)</script>"


async def test_a_flow_is_drawn_retried_and_cancelled(store: Store) -> None:
    hands = await Hands.on(store)
    first, second, last = await enqueued(
        store, job(policy=DIES), after(-1), after(-2, task=HOSTILE)
    )
    (alone,) = await enqueued(store, job())
    async with page_on(store.url) as page:
        assert f'href="../flows/{second}"' in await page.see(f"/jobs/{second}")
        assert "flows/" not in re.sub(r"<nav.*?</nav>", "", await page.see(f"/jobs/{alone}"))
        text = await page.see(f"/flows/{last}")
        assert text.count("<rect") == 3
        assert text.count('<path d="M') == 2
        assert HOSTILE not in text
        await drain(hands, dead=[first])
        listed = await page.see("/flows")
        assert f'href="./flows/{first}"' in listed
        assert f">{TASK}</span>, <span>{TASK}<" not in listed  # two layers of one task
        assert "A retry runs 1 job again" in await page.see(f"/flows/{second}")
        done = await page.submit(f"/flows/{second}/retry")
        assert done.headers["location"].endswith(f"/flows/{second}?done=requeue")
        assert await states(store, [first]) == ["queued"]
        await hands.exchange()
        assert "Cancel the flow" in await page.see(f"/flows/{last}", ask="cancel")
        answer = await send(page, f"/flows/{last}/cancel", reason="old")
        assert answer.json()["jobs"] == {"cancelled": 3}

        listed = (await read(page, "/flows"))["flows"]
        assert [one["id"] for one in listed] == [first]
        told = await read(page, f"/flows/{first}", limit=2)
        assert (told["states"], told["members_left_out"]) == ({"cancelled": 3}, 1)
    assert [row.verb for row in await store.inspector.actions()] == ["cancel", "requeue"]


async def test_a_retry_names_a_job_whose_key_another_one_has(store: Store) -> None:
    keyed = job(policy=DIES, key="k")
    stuck, free, _ = await enqueued(store, keyed, job(policy=DIES), after(-1, -2))
    await drain(await Hands.on(store), dead=[stuck, free])
    await enqueued(store, keyed)
    async with page_on(store.url) as page:
        answer = await send(page, f"/flows/{free}/retry")
        assert answer.status_code == 409
        told = f"job {stuck} cannot be requeued: an unfinished job has its key; 1 job requeued"
        assert told in answer.text
        assert told.replace("1 job", "0 jobs") in (await page.submit(f"/flows/{free}/retry")).text
    assert await states(store, [stuck, free]) == ["dead", "queued"]


async def test_a_job_of_a_flow_is_skipped_once_that_is_confirmed(store: Store) -> None:
    first, _, alone = await enqueued(store, job(policy=DIES), after(-1), job(policy=DIES))
    await drain(await Hands.on(store), dead=[first, alone])
    async with page_on(store.url) as page:
        assert "Skip…" not in await page.see(f"/jobs/{alone}")
        assert "Skip…" in await page.see(f"/jobs/{first}")
        assert "with None in place of its result" in await page.see(f"/jobs/{first}/skip")
        token = (await row_of(store, first)).token
        done = await page.submit(f"/jobs/{first}/skip", token=str(token))
        assert done.headers["location"].endswith(f"/jobs/{first}?done=skipped")
        assert "jobs that wait for it continue" in await page.see(f"/jobs/{first}", done="skipped")
        again = await send(page, f"/jobs/{first}/skip")
        assert again.status_code == 409
        assert "only dead and blocked jobs can be skipped" in again.text
    assert [(row.verb, row.job_id) for row in await store.inspector.actions()] == [("skip", first)]


async def test_the_page_of_a_job_sends_the_event_for_which_it_waits(store: Store) -> None:
    hands = await Hands.on(store)
    (job_id,) = await enqueued(store, job())
    await hands.hand_in(waits(await hands.claim_one(), HOSTILE))
    async with page_on(store.url) as page:
        text = await page.see(f"/jobs/{job_id}")
        assert "Send the event" in text
        assert HOSTILE not in text
    async with page_on(store.url, hide="script") as page:
        assert "Send the event" not in await page.see(f"/jobs/{job_id}"), "its name is not known"
    async with page_on(store.url) as page:
        odd = await page.submit(f"/events/send?job={job_id}", name=HOSTILE, value="{by: ada}")
        assert odd.status_code == 400
        assert "value must be JSON" in odd.text
        for said, value in (("sent", '{"by": "ada"}'), ("kept", "2")):
            done = await page.submit(f"/events/send?job={job_id}", name=HOSTILE, value=value)
            assert done.headers["location"].endswith(f"/jobs/{job_id}?done={said}")
        assert await store.find_event(HOSTILE) == '[{"by":"ada"}]'
        assert "Send the event" not in await page.see(f"/jobs/{job_id}"), "it was sent"
        assert (await hands.claim_one()).job_id == job_id
        assert "Send the event" not in await page.see(f"/jobs/{job_id}")


async def test_a_large_flow_is_drawn_by_layers_and_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await enqueued(store, *[job()] * 300, after(*range(-300, 0)))
    async with page_on(store.url) as page:
        text = await page.see(f"/flows/{ids[0]}")
        assert text.count("<rect") == 2
        assert "300 jobs queued" in text
        assert "And 201 more jobs" in text
        monkeypatch.setattr(flows, "LOOK_MAX", 100)
        page.site.reader.forget_all()
        assert "100 jobs or more" in await page.see(f"/flows/{ids[1]}")


async def test_a_part_of_a_flow_is_called_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await enqueued(store, *[job()] * 10, after(*range(-10, 0)))
    hands = await Hands.on(store)
    await hands.hand_in(*[ended(one) for one in await hands.claim(4)])
    monkeypatch.setattr(flows, "LOOK_MAX", 4)
    monkeypatch.setattr(insight, "LIST_MAX", 4)
    async with page_on(store.url) as page:
        text = await page.see(f"/flows/{ids[0]}")
        assert "of 4 looked at: " in text
        assert 'class="why good"' not in text
        assert "Cancel…" in text
        assert "of 4 looked at: " in await page.see("/flows")


async def test_a_flow_has_the_phases_of_its_jobs(store: Store) -> None:
    hands = await Hands.on(store)
    ids = await enqueued(store, *[job()] * 3, job(delay=60), after(-1, -2, -3, -4))
    first, second, third, later, last = ids
    for end in (waits, crashed, None):
        claimed = await hands.claim_one()
        if end is not None:
            await hands.hand_in(end(claimed))
    shown = {first: "waiting", second: "retrying", third: "running", later: "scheduled"}
    for job_id, phase in shown.items():
        details = await read_details(store, job_id, SYSTEM.wall())
        assert details is not None
        assert details.phase == phase
    shown[last] = "blocked"
    async with page_on(store.url) as page:
        text = await page.see(f"/flows/{last}")
        for job_id, phase in shown.items():
            row = re.search(rf'<tr id="job-{job_id}">.*?</tr>', text, re.DOTALL)
            assert row is not None
            assert f">{phase}<" in row[0]
        assert "1 waiting, 1 retrying, 1 scheduled, 1 blocked, 1 running" in text
        (told,) = (await read(page, "/flows"))["flows"]
        assert told["states"] == {"blocked": 1, "queued": 3, "running": 1}
    flow = await read_flow(store, last)
    assert flow is not None
    assert {each.id: each.phase for each in flow.jobs} == shown


async def test_a_user_of_one_tenant_sees_and_cancels_its_own_jobs_alone(store: Store) -> None:
    own, other, last = await enqueued(
        store, job(tenant="acme"), after(-1, tenant="other"), after(-2, tenant="acme")
    )
    async with page_on(store.url, let_in(tenant="acme")) as page:
        text = await page.see(f"/flows/{last}")
        assert f"/jobs/{other}" not in text
        assert (await page.get(f"/flows/{other}")).status_code == 404
        assert (await page.submit(f"/flows/{other}/cancel")).status_code == 404
        await page.submit(f"/flows/{own}/cancel")
    assert await states(store, [own, other, last]) == ["cancelled", "blocked", "cancelled"]
