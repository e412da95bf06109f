"""What the checker reads, on both stores: whole jobs, page by page, as one snapshot shows them."""

from __future__ import annotations

from outlast.insight.verify import verify
from outlast.model.crash import CrashKind
from outlast.store.protocol import Store
from tests.conformance.kit import Hands, crashed, ended, enqueued, job


async def test_a_history_of_every_kind_of_end_is_without_findings(
    store: Store, hands: Hands
) -> None:
    ids = await enqueued(store, *(job() for _ in range(6)))
    for round_ in range(5):
        for claimed in await hands.claim(10):
            kind = [CrashKind.ERROR, CrashKind.BYSTANDER, CrashKind.TIMEOUT][round_ % 3]
            await hands.hand_in(
                crashed(claimed, kind, delay=0.0) if claimed.job_id % 2 else ended(claimed)
            )
    await store.cancel(ids)
    await store.requeue(ids)
    await hands.claim(10)
    verified = await verify(store.inspector)
    assert verified.findings == []
    assert verified.jobs == 6
    assert verified.attempts >= 6


async def test_pages_join_without_a_gap_and_without_a_repeat(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *(job() for _ in range(5)))
    for claimed in await hands.claim(5):
        await hands.hand_in(crashed(claimed, CrashKind.ERROR, delay=0.0))
    first = await store.inspector.history(0, 2)
    second = await store.inspector.history(first.next_after or 0, 2)
    third = await store.inspector.history(second.next_after or 0, 2)
    assert third.next_after is None
    pages = [*first.jobs, *second.jobs, *third.jobs]
    assert [past.id for past in pages] == ids
    assert [len(past.attempts) for past in pages] == [1] * 5
    assert first.strays + second.strays + third.strays == []
    assert first.token_last >= max(past.token or 0 for past in pages)
