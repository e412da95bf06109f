"""Streams that a worker may not serve hold up none that it serves, however many wait before it."""

from __future__ import annotations

from typing import Any

import pytest

from outlast.store.protocol import Store
from outlast.store.sqlite import streams
from tests.conformance.kit import TASK, Hands, ended, enqueued, of_whole_rounds
from tests.conformance.limits_kit import declare, limited, need

TENANTS = 1_600  # more than one exchange puts into their streams, or than the looks read in order
LOOKS = 4
QUEUES = 300  # more than one look reads
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a paused queue": ({"queue": "bulk"}, {"not_queues": ("bulk",)}),
    "a queue of other workers": ({"queue": "bulk"}, {"queues": ("default",)}),
    "a task of other workers": ({"task": "app.other"}, {}),
    "a paused tenant": ({"tenant": "bulk", "fair": None}, {"not_tenants": ("bulk",)}),
    "a paused tenant in turn": ({"tenant": "bulk", "fair": "bulk"}, {"not_tenants": ("bulk",)}),
}


@of_whole_rounds
@pytest.mark.parametrize("whose", OTHERS)
async def test_streams_that_a_worker_may_not_serve_hold_up_no_other(
    store: Store, hands: Hands, whose: str
) -> None:
    fields, request = OTHERS[whose]
    await declare(store, "pool", running=2)
    await declare(store, "host", running=2, per="limit_key")
    jobs = [
        limited(need("pool"), need("host", name), **({"fair": name} | fields))
        for name in (f"t{number}" for number in range(TENANTS))
    ]
    await enqueued(store, *jobs)
    (own,) = await enqueued(store, limited(need("pool"), fair="vip"))
    tasks = [TASK, "app.other"]
    running = []
    while (reply := await hands.exchange(limit=100, tasks=tasks)).next_due == 0 or reply.claimed:
        running += reply.claimed  # until the full limit blocks all of them
    assert own not in [each.job_id for each in running]
    await hands.hand_in(*map(ended, running))
    for _ in range(LOOKS):
        reply = await hands.exchange(limit=10, **request)
        if own in [each.job_id for each in reply.claimed]:
            return
        assert reply.claimed or reply.next_due == 0.0, "the worker would wait"
    pytest.fail(f"{LOOKS} looks at the streams of others")


@pytest.mark.parametrize("state", ["open", "blocked"])
async def test_streams_of_many_paused_queues_hold_up_no_other(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(streams, "OPEN_MAX", 50)  # on SQLite
    await declare(store, "pool", running=2)
    paused = [f"bulk{number:03}" for number in range(QUEUES)]
    await enqueued(store, *[limited(need("pool"), queue=each) for each in paused])
    (own,) = await enqueued(store, limited(need("pool"), queue="default"))
    if state == "blocked":
        running = []
        while (reply := await hands.exchange(limit=100)).next_due == 0 or reply.claimed:
            running += reply.claimed  # until the full limit blocks all of them
        await hands.hand_in(*map(ended, running))
    while not (reply := await hands.exchange(limit=10, not_queues=paused)).claimed:
        assert reply.next_due == 0.0, "the worker would wait"
    assert [each.job_id for each in reply.claimed] == [own]
