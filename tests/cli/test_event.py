"""``outlast event``: a person approves, and is recorded; the job that waits says so."""

from __future__ import annotations

import asyncio

from tests.cli.conftest import Outlast
from tests.cli.rows import opened
from tests.conformance.kit import Hands, enqueued, job
from tests.conformance.test_events import NAME, waits


def test_a_person_approves(outlast: Outlast, store_url: str) -> None:
    async def wait() -> int:
        async with opened(store_url) as store:
            hands = await Hands.on(store)
            (job_id, _) = await enqueued(store, job(), job(delay=60))
            await hands.hand_in(waits(await hands.claim_one()))
            return job_id

    job_id = asyncio.run(wait())
    (listed,) = outlast("jobs", "--state", "waiting", "--json", "--url", store_url).json()["jobs"]
    assert (listed["id"], listed["phase"], listed["event"]) == (job_id, "waiting", NAME)
    assert f"waits for {NAME}" in outlast("jobs", "--url", store_url).out
    said = outlast("why", job_id, "--url", store_url).out
    assert f"It waits for the event '{NAME}'" in said
    outlast("event", NAME, "nope", "--url", store_url).refused(
        2, "'nope' is not JSON", "a text needs JSON quotes as well: '\"nope\"'"
    )
    wrong = outlast("event", NAME, '{"by": ada}', "--url", store_url)
    assert (wrong.code, "a text needs" in wrong.err) == (2, False)  # no text was meant
    sent = outlast("event", NAME, '{"by": "ada"}', "--reason", "fine", "--url", store_url)
    assert (sent.code, sent.out) == (0, f"{NAME} is sent\n")
    outlast("event", NAME, "--url", store_url).refused(1, f"{NAME} was sent before")
    (act,) = outlast("actions", "--json", "--url", store_url).json()["actions"]
    told = (act["verb"], act["target"], act["reason"], act["counts"])
    assert told == ("send event", NAME, "fine", {"sent": 1})
