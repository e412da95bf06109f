"""Values that a store may refuse: BadData and the batch untouched, or stored as they are."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from outlast.errors import BadData
from outlast.model.crash import Crash, CrashKind, Progress
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import Answer, Report, Save
from tests.conformance.kit import Hands, ended, enqueued, job, row_of

NASTY = ['"a\x00b"', '"a\ud800b"', '"\udcff"']
nasty = pytest.mark.parametrize("text", NASTY, ids=["nul", "lone-surrogate", "escaped-byte"])


async def refused(call: Awaitable[object]) -> bool:
    """Whether the store refuses the call as BadData; anything else is raised."""
    try:
        await call
    except BadData:
        return True
    return False


@nasty
async def test_arguments_are_stored_unchanged_or_refused(
    store: Store, hands: Hands, text: str
) -> None:
    if await refused(store.enqueue([job(), job(args=text), job()])):
        assert await store.inspector.jobs(JobFilter()) == []
    else:
        assert [one.args for one in await hands.claim()] == ["{}", text, "{}"]


@nasty
async def test_a_result_is_stored_unchanged_or_its_batch_is_refused(
    store: Store, hands: Hands, text: str
) -> None:
    ids = await enqueued(store, job(), job(), job())
    one, two, three = await hands.claim()
    ends = [ended(one, result="1"), ended(two, result=text), ended(three, OutcomeKind.RELEASED)]
    if await refused(hands.hand_in(*ends)):
        counts = await store.inspector.counts()
        assert counts == {("default", State.RUNNING): 3}
        assert await store.inspector.attempts(three.job_id) == []
        assert await hands.hand_in(ends[0], ends[2]) == [Answer.ACCEPTED] * 2
    else:
        row = await row_of(store, ids[1])
        assert row.result == text


@nasty
async def test_a_crash_report_never_stops_its_batch(store: Store, hands: Hands, text: str) -> None:
    await enqueued(store, job(), job())
    one, two = await hands.claim()
    crash = Crash(kind=CrashKind.ERROR, message=text, output=[text])
    bad = ended(two, OutcomeKind.CRASHED, crash=crash)
    if await refused(hands.hand_in(ended(one), bad)):
        assert await store.inspector.counts() == {("default", State.RUNNING): 2}
        assert await hands.hand_in(ended(one)) == [Answer.ACCEPTED]
    else:
        (attempt,) = await store.inspector.attempts(two.job_id)
        assert attempt.crash == crash


@nasty
async def test_checkpoints_and_progress_are_stored_unchanged_or_refused(
    store: Store, hands: Hands, text: str
) -> None:
    (job_id,) = await enqueued(store)
    claimed = await hands.claim_one()
    token = claimed.token
    await store.checkpoint([Save(job_id, token, 1, "1")])
    saved = not await refused(store.checkpoint([Save(job_id, token, 2, text)]))
    noted = not await refused(store.progress([Report(job_id, token, Progress(message=text))]))
    row = await row_of(store, job_id)
    assert row.checkpoint == (text if saved else "1")
    assert row.progress == (Progress(message=text) if noted else None)
    assert await hands.hand_in(ended(claimed)) == [Answer.ACCEPTED]


@pytest.mark.parametrize("fields", [{"priority": 101}, {"priority": 10**30}])
async def test_numbers_out_of_range_are_refused(store: Store, fields: dict[str, int]) -> None:
    with pytest.raises(BadData):
        await store.enqueue([job(**fields)])
    assert await store.inspector.jobs(JobFilter()) == []


async def test_escaped_nuls_in_json_are_ordinary_text(store: Store, hands: Hands) -> None:
    (job_id,) = await enqueued(store, job(args='{"a":"\\u0000\\ud800"}'))
    claimed = await hands.claim_one()
    assert claimed.args == '{"a":"\\u0000\\ud800"}'
    assert await hands.hand_in(ended(claimed, result='"\\u0000"')) == [Answer.ACCEPTED]
    row = await row_of(store, job_id)
    assert row.result == '"\\u0000"'


async def test_a_store_works_after_a_refusal(store: Store) -> None:
    with pytest.raises(BadData):
        await store.enqueue([job(priority=999)])
    assert len(await enqueued(store)) == 1
