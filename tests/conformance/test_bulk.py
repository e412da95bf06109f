"""Acting on all that match: exactly those of the preview, in steps, by any process, once each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from outlast.errors import UsageError
from outlast.insight import bulk
from outlast.insight.acting import NAMED_MAX, By, Verb
from outlast.insight.bulk import BulkFilter, MoreThanExpected, begin, go_on, preview
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind
from outlast.payload.payloads import Encryption, Payloads
from outlast.store.actions import ActionRow, ActionState
from outlast.store.listing import DEAD_APART
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter
from outlast.store.values import Requeued, Save
from tests.conformance.kit import Hands, crashed, ended, enqueued, job, row_of
from tests.manual_clock import ManualClock

ADA = By("ada@desk", "the bug is mended")
ALL = BulkFilter()


async def deaths(store: Store, hands: Hands, count: int, **fields: object) -> list[int]:
    """Jobs that have died, by their ids."""
    ids = await enqueued(store, *[job(policy=Policy(retries=0), **fields)] * count)
    await hands.hand_in(*[crashed(each) for each in await hands.claim(count)])
    return ids


async def ordered(store: Store, verb: Verb = Verb.REQUEUE, which: BulkFilter = ALL) -> int:
    return await begin(store, await preview(store, verb, which), ADA)


async def done(store: Store, action_id: int) -> ActionRow:
    rows = [row async for row in go_on(store, action_id)]
    return rows[-1]


async def ids_in(store: Store, state: State) -> set[int]:
    return {row.id for row in await store.inspector.jobs(JobFilter(state=state, limit=10_000))}


@pytest.fixture
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of two jobs, searched for five at a time."""
    monkeypatch.setattr(bulk, "STEP", 2)
    monkeypatch.setattr(bulk, "SEARCH", 5)


async def test_a_preview_counts_and_shows_and_changes_nothing(store: Store, hands: Hands) -> None:
    ids = await deaths(store, hands, 7)
    await deaths(store, hands, 2, queue="other")
    seen = await preview(store, Verb.REQUEUE, BulkFilter(queue="default"))
    assert (seen.count, seen.at_least, seen.up_to_id) == (7, False, ids[-1])
    assert [row.id for row in seen.sample] == ids[:1:-1]
    nothing = await preview(store, Verb.REQUEUE, BulkFilter(task="unknown"))
    assert (nothing.count, nothing.up_to_id, nothing.sample) == (0, 0, [])
    assert await store.inspector.actions() == []


async def test_a_count_is_bounded(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "COUNT_MAX", 4)
    await deaths(store, hands, 4)
    seen = await preview(store, Verb.REQUEUE, ALL)
    assert (seen.count, seen.at_least) == (4, False)
    await deaths(store, hands, 1)
    seen = await preview(store, Verb.REQUEUE, ALL)
    assert (seen.count, seen.at_least) == (4, True)
    action_id = await begin(store, seen, ADA)
    assert (await done(store, action_id)).counts == {"requeued": 5}


@pytest.mark.parametrize("rest", ["rare", "none"])
async def test_an_act_reaches_what_its_preview_did_not_look_at(
    store: Store, hands: Hands, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    """A look reads four dead jobs here: of a task without an index it finds one, or none yet."""
    monkeypatch.setattr(bulk, "PREVIEW_ROWS", 4 * DEAD_APART)
    ids = await deaths(store, hands, 6, queue="q")
    newer = await deaths(store, hands, 3 if rest == "rare" else 4)
    seen = await preview(store, Verb.REQUEUE, BulkFilter(queue="q"))
    count = 1 if rest == "rare" else 0
    assert (seen.count, seen.at_least, seen.up_to_id) == (count, True, ids[-1])
    (later,) = await deaths(store, hands, 1, queue="q")
    row = await done(store, await begin(store, seen, ADA))
    assert (row.state, row.counts) == (ActionState.DONE, {"requeued": len(ids)})
    assert await ids_in(store, State.DEAD) == {*newer, later}


@pytest.mark.usefixtures("short_steps")
@pytest.mark.parametrize("verb", [Verb.REQUEUE, Verb.DISCARD])
async def test_exactly_those_of_the_preview_are_acted_on(
    store: Store, hands: Hands, verb: Verb
) -> None:
    """A job below the highest id that dies only later did not match, and is left alone."""
    first = await deaths(store, hands, 3)
    (late,) = await enqueued(store, job(policy=Policy(retries=0)))
    held = await hands.claim_one()
    others = await deaths(store, hands, 4)
    seen = await preview(store, verb, ALL)
    assert (seen.count, seen.up_to_id) == (7, others[-1])
    await hands.hand_in(crashed(held))
    newer = await deaths(store, hands, 2)
    row = await done(store, await begin(store, seen, ADA))
    word = "requeued" if verb is Verb.REQUEUE else "discarded"
    assert (row.state, row.counts) == (ActionState.DONE, {word: len(first) + len(others)})
    assert await ids_in(store, State.DEAD) == {late, *newer}


async def test_one_that_was_requeued_meanwhile_and_died_again_is_left_alone(
    store: Store, hands: Hands
) -> None:
    (job_id,) = await deaths(store, hands, 1)
    action_id = await ordered(store, Verb.DISCARD)
    await store.requeue([job_id])
    await hands.hand_in(crashed(await hands.claim_one()))
    assert (await done(store, action_id)).counts == {}
    assert await ids_in(store, State.DEAD) == {job_id}


async def test_those_whose_key_was_taken_meanwhile_stay_dead_and_hold_up_no_others(
    store: Store, hands: Hands
) -> None:
    """Of two dead jobs with the same key the first is revived."""
    (first,) = await deaths(store, hands, 1, key="twice")
    (taken,) = await deaths(store, hands, 1, key="taken")
    (second,) = await deaths(store, hands, 1, key="twice")
    (plain,) = await deaths(store, hands, 1)
    action_id = await ordered(store)
    (holder,) = await enqueued(store, job(key="taken"))
    unchanged: bulk.Unchanged = {}
    *_, row = [each async for each in go_on(store, action_id, unchanged=unchanged)]
    assert unchanged == {taken: Requeued.KEY_TAKEN, second: Requeued.KEY_TAKEN}
    assert (row.state, row.counts) == (ActionState.DONE, {"requeued": 2, "key_taken": 2})
    assert await ids_in(store, State.DEAD) == {second, taken}
    assert await ids_in(store, State.QUEUED) == {first, plain, holder}
    assert [one.job_id for one in await hands.claim()] == [holder, first, plain]


@pytest.mark.parametrize("from_scratch", [False, True])
async def test_jobs_are_requeued_with_their_checkpoints_or_from_scratch(
    store: Store, hands: Hands, from_scratch: bool
) -> None:
    await enqueued(store, *[job(policy=Policy(retries=0))] * 3)
    claimed = await hands.claim(3)
    await store.checkpoint([Save(one.job_id, one.token, 1, '"page 1"') for one in claimed])
    await hands.hand_in(*map(crashed, claimed))
    which = BulkFilter(from_scratch=from_scratch)
    row = await done(store, await ordered(store, which=which))
    assert row.counts == {"requeued": 3}
    again = await hands.claim(3)
    assert [one.checkpoint for one in again] == [None if from_scratch else '"page 1"'] * 3
    assert [(one.failures, one.losses) for one in again] == [(0, 0)] * 3


@pytest.mark.parametrize("verb", list(Verb))
async def test_a_filter_by_a_text_finds_nothing_in_what_is_encrypted(
    store: Store, hands: Hands, verb: Verb
) -> None:
    """Neither the text, which is not there, nor what the stored text has by chance; so nothing is
    done to jobs whose arguments no one has read."""
    cipher = Payloads([Encryption({"k": Encryption.make_key()})])
    secret = cipher.encode("args", '{"card":"4111"}')
    queued, dead = [job(args=secret)], [job(args=secret, policy=Policy(retries=0))]
    await enqueued(store, *(queued if verb is Verb.CANCEL else dead))
    if verb is not Verb.CANCEL:
        await hands.hand_in(crashed(await hands.claim_one()))
    for text in ("4111", "card", "outlast", "aes-256-gcm", "k", secret[-20:-4]):
        seen = await preview(store, verb, BulkFilter(args=text))
        assert (seen.count, seen.sample) == (0, []), text
        row = await done(store, await begin(store, seen, ADA))
        assert row.counts == {}
    assert (await preview(store, verb, ALL)).count == 1


async def test_more_than_expected_is_refused(store: Store, hands: Hands) -> None:
    await deaths(store, hands, 3)
    seen = await preview(store, Verb.DISCARD, ALL)
    fewer = msgspec.structs.replace(seen, count=2)
    with pytest.raises(MoreThanExpected, match="3 jobs match, but 2 were expected"):
        await begin(store, fewer, ADA)
    assert await store.inspector.actions() == []


async def test_the_record_says_who_did_what_to_which(store: Store, hands: Hands) -> None:
    await deaths(store, hands, 3, queue="q")
    row = await done(store, await ordered(store, which=BulkFilter(queue="q", from_scratch=True)))
    assert (row.actor, row.reason, row.verb) == ("ada@desk", "the bug is mended", "requeue")
    assert msgspec.json.decode(row.filter or "") == {"queue": "q", "from_scratch": True}
    assert (row.expected, row.counts) == (3, {"requeued": 3})


async def test_the_record_names_the_newest_jobs_and_belongs_to_the_only_one(
    store: Store, hands: Hands
) -> None:
    ids = await deaths(store, hands, NAMED_MAX + 1)
    row = await done(store, await ordered(store, Verb.DISCARD))
    named = ", ".join(map(str, ids[:0:-1]))
    assert (row.target, row.job_id) == (f"all that match (jobs {named} and older ones)", None)
    (only,) = await deaths(store, hands, 1)
    row = await done(store, await ordered(store))
    assert (row.target, row.job_id) == (f"all that match (job {only})", only)
    assert await store.inspector.actions(job_id=only) == [row]


async def test_filters_narrow_by_label_error_and_time(store: Store, hands: Hands) -> None:
    label = Policy(retries=0, labels=("import",))
    (labelled,) = await enqueued(store, job(policy=label))
    await hands.hand_in(crashed(await hands.claim_one()))
    await deaths(store, hands, 2)
    after = await store.inspector.now()

    async def count(**fields: object) -> int:
        which = msgspec.convert(fields, BulkFilter)
        return (await preview(store, Verb.REQUEUE, which)).count

    assert await count(label="import") == 1
    assert await count(error="IT BROKE") == 3
    assert await count(error="something else") == 0
    assert await count(args="{") == 3
    assert await count(args="nothing of it") == 0
    assert await count(since=after - 3_600) == 3
    assert await count(since=after + 3_600) == 0
    seen = await preview(store, Verb.REQUEUE, BulkFilter(label="import", error="broke"))
    assert seen.up_to_id == labelled


async def test_queued_or_running_jobs_are_cancelled(store: Store, hands: Hands) -> None:
    ids = await enqueued(store, *[job()] * 4)
    running = {each.job_id for each in await hands.claim(2)}
    row = await done(store, await ordered(store, Verb.CANCEL, BulkFilter(state=State.RUNNING)))
    assert row.counts == {"requested": 2}
    row = await done(store, await ordered(store, Verb.CANCEL))
    assert row.counts == {"cancelled": 2}
    assert await ids_in(store, State.CANCELLED) == set(ids) - running


async def test_a_cancel_spares_what_began_or_came_back_after_its_preview(
    store: Store, hands: Hands
) -> None:
    """One of those shown is gone by then, so that the number is no more than was expected."""
    later, running = await enqueued(store, *[job()] * 2)
    queued = BulkFilter(state=State.QUEUED)
    at_work = BulkFilter(state=State.RUNNING)
    (claimed, other) = await hands.claim(2)
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    seen = await preview(store, Verb.CANCEL, at_work)
    assert [row.id for row in seen.sample] == [running]
    await hands.hand_in(ended(other))
    (claimed,) = await hands.claim(1)
    row = await done(store, await begin(store, seen, ADA))
    assert row.counts == {}
    (third,) = await enqueued(store)
    seen = await preview(store, Verb.CANCEL, queued)
    assert [row.id for row in seen.sample] == [third]
    await store.cancel([third])
    await hands.hand_in(ended(claimed, OutcomeKind.RELEASED))
    row = await done(store, await begin(store, seen, ADA))
    assert row.counts == {}
    found = await row_of(store, later)
    assert not found.cancel_requested


async def test_a_cancel_spares_what_a_person_revived_after_its_preview(
    store: Store, hands: Hands
) -> None:
    """One of those shown is gone by then, so that the number is no more than was expected."""
    (dead,) = await deaths(store, hands, 1)
    (shown,) = await enqueued(store)
    seen = await preview(store, Verb.CANCEL, BulkFilter(state=State.QUEUED))
    assert [row.id for row in seen.sample] == [shown]
    await store.cancel([shown])
    await store.requeue([dead])
    row = await done(store, await begin(store, seen, ADA))
    assert row.counts == {}
    assert await ids_in(store, State.QUEUED) == {dead}
    revived = await row_of(store, dead)
    assert revived.requeued_at is not None
    assert revived.requeued_at > revived.enqueued_at


async def test_a_filter_that_is_too_long_to_record_is_refused(store: Store, hands: Hands) -> None:
    await deaths(store, hands, 1)
    with pytest.raises(UsageError, match="4,000 can be recorded"):
        await ordered(store, Verb.REQUEUE, BulkFilter(task="x" * 5_000))
    assert await store.inspector.actions() == []


@pytest.mark.parametrize("verb", list(Verb))
async def test_a_verb_is_for_jobs_of_some_states(store: Store, verb: Verb) -> None:
    with pytest.raises(UsageError, match="is for jobs that are"):
        await preview(store, verb, BulkFilter(state=State.COMPLETED))


@pytest.mark.usefixtures("short_steps")
async def test_another_process_goes_on_where_one_has_died(
    store: Store, other_store: Store, hands: Hands
) -> None:
    ids = await deaths(store, hands, 9)
    action_id = await ordered(store)
    steps = go_on(store, action_id)
    for _ in range(3):
        await anext(steps)
    await steps.aclose()
    (row,) = await other_store.inspector.running_actions()
    assert (row.id, row.counts) == (action_id, {"requeued": 4})
    assert (await done(other_store, action_id)).counts == {"requeued": 9}
    assert await ids_in(store, State.QUEUED) == set(ids)


@pytest.mark.usefixtures("short_steps")
async def test_two_processes_at_once_act_on_each_job_once(
    store: Store, other_store: Store, hands: Hands
) -> None:
    ids = await deaths(store, hands, 12)
    action_id = await ordered(store)
    rows = await asyncio.gather(done(store, action_id), done(other_store, action_id))
    assert rows[0] == rows[1]
    assert (rows[0].state, rows[0].counts) == (ActionState.DONE, {"requeued": 12})
    assert await ids_in(store, State.QUEUED) == set(ids)


@pytest.mark.usefixtures("short_steps")
async def test_who_is_overtaken_goes_on_once_the_other_takes_no_more_steps(
    store: Store, other_store: Store, hands: Hands
) -> None:
    await deaths(store, hands, 6)
    action_id = await ordered(store)
    clock = ManualClock()
    mine = go_on(store, action_id, clock)
    await anext(mine)
    steps = go_on(other_store, action_id)
    for _ in range(2):
        await anext(steps)
    await steps.aclose()  # it took one step and died
    rest = asyncio.ensure_future(_all(mine))
    async with asyncio.timeout(30):
        while not rest.done():
            if clock.sleepers:
                await clock.run_for(bulk.LOOK_SECONDS)
            await asyncio.sleep(0)
    assert rest.result()[-1].counts == {"requeued": 6}
    assert clock.boot() >= 1_000.0 + bulk.PATIENCE


async def _all(rows: AsyncIterator[ActionRow]) -> list[ActionRow]:
    return [row async for row in rows]


@pytest.mark.usefixtures("short_steps")
async def test_what_is_stopped_stays_as_far_as_it_came(store: Store, hands: Hands) -> None:
    await deaths(store, hands, 6)
    action_id = await ordered(store)
    steps = go_on(store, action_id)
    for _ in range(2):
        await anext(steps)
    await store.stop_action(action_id)
    last = [row async for row in steps][-1]
    assert (last.state, last.counts) == (ActionState.STOPPED, {"requeued": 2})
    assert len(await ids_in(store, State.DEAD)) == 4


async def test_a_filter_with_an_unknown_name_matches_nothing() -> None:
    with pytest.raises(UsageError, match="quue"):
        bulk.read_filter('{"quue":"mail"}')
