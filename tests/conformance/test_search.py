"""A search by what is written in jobs: what it finds, and how much it reads."""

from __future__ import annotations

import msgspec
import pytest

from outlast.insight import queries
from outlast.insight.queries import list_jobs
from outlast.model.job import State
from outlast.model.lifecycle import OutcomeKind
from outlast.store.protocol import Store
from outlast.store.rows import JobFilter, Searched, Texts
from tests.conformance.kit import TASK, Hands, crashed, ended, enqueued, job

NOW = 1.0  # phases do not matter here


async def found(store: Store, texts: Texts, **which: object) -> list[int]:
    listed = await list_jobs(
        store, msgspec.structs.replace(JobFilter(), **which), None, texts=texts
    )
    return [row.id for row in listed.rows]


async def found_to_the_end(store: Store, which: JobFilter) -> tuple[list[int], int]:
    """Search list after list; return what was found, and how many lists it took."""
    ids: list[int] = []
    lists = 0
    while True:
        listed = await list_jobs(store, which, None, texts=Texts(args="rare"))
        ids += [row.id for row in listed.rows]
        lists += 1
        if listed.before is None:
            return ids, lists
        assert listed.back_to is not None
        which = msgspec.structs.replace(which, before_id=listed.before)


async def test_a_text_is_found_in_the_arguments(store: Store) -> None:
    texts = ('{"to":"Ada@Example.org"}', '{"to":"bob"}', '{"n":7,"to":"Ödön"}', "{}")
    ada, bob, odon, nothing = await enqueued(store, *[job(args=args) for args in texts])
    assert await found(store, Texts(args="ada@example.ORG")) == [ada]
    assert await found(store, Texts(args='"to":')) == [odon, bob, ada]
    assert await found(store, Texts(args="Ödö")) == [odon]
    assert await found(store, Texts(args="ödö")) == []  # of other letters upper and lower differ
    assert await found(store, Texts(args="%")) == []  # no pattern
    assert await found(store, Texts()) == [nothing, odon, bob, ada]


async def test_a_text_is_found_in_what_went_wrong_last(store: Store, hands: Hands) -> None:
    first, second, third = await enqueued(store, job(), job(), job())
    claims = await hands.claim(3)
    words = ("ValueError: no page 7", "OSError: no disk", None)
    ends = [
        ended(one, OutcomeKind.COMPLETED)
        if text is None
        else msgspec.structs.replace(crashed(one), message=text, state=State.DEAD)
        for one, text in zip(claims, words, strict=True)
    ]
    await hands.hand_in(*ends)
    assert await found(store, Texts(error="NO PAGE")) == [first]
    assert await found(store, Texts(error="no ")) == [second, first]
    assert await found(store, Texts(error="error: OSERROR: no")) == [second]  # its outcome, too
    assert await found(store, Texts(error="no ", args="none")) == []
    assert await found(store, Texts(error="no "), state=State.COMPLETED) == []
    assert await found(store, Texts(), state=State.COMPLETED) == [third]


async def test_the_last_error_counts_alone(store: Store, hands: Hands) -> None:
    (one,) = await enqueued(store, job())
    for words in ("first words", "later words"):
        (claimed,) = await hands.claim(1)
        failed = msgspec.structs.replace(crashed(claimed), message=words, delay=0.0)
        await hands.hand_in(failed)
    assert await found(store, Texts(error="later")) == [one]
    assert await found(store, Texts(error="first")) == []


async def test_only_what_happened_lately_is_found(store: Store, hands: Hands) -> None:
    (one,) = await enqueued(store, job())
    assert await found(store, Texts(within=3_600.0)) == [one]
    assert await found(store, Texts(within=-3_600.0)) == []  # an hour from now
    await hands.hand_in(ended((await hands.claim(1))[0], OutcomeKind.COMPLETED))
    assert await found(store, Texts(within=3_600.0)) == [one]


async def test_a_search_reads_a_bounded_number_of_jobs_and_goes_on_from_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "SEARCHED_MAX", 4)
    monkeypatch.setattr(queries, "PAGE", 2)
    others = [job(task="else") for _ in range(8)]
    wanted = (await enqueued(store, job(args='{"rare":1}'), *others))[0]
    assert await found_to_the_end(store, JobFilter(task=TASK)) == ([wanted], 3)


async def test_a_full_page_goes_on_behind_its_last_job(store: Store) -> None:
    ids = await enqueued(store, *[job(args='{"a":1}') for _ in range(3)])
    listed = await list_jobs(store, JobFilter(limit=2), None, texts=Texts(args='"a"'))
    assert ([row.id for row in listed.rows], listed.before) == (ids[:0:-1], ids[1])
    assert listed.back_to is None


async def test_phases_and_texts_go_together(store: Store) -> None:
    later, _, _ = await enqueued(
        store, job(args='{"a":1}', delay=99.0), job(args='{"a":1}'), job(delay=99.0)
    )
    listed = await list_jobs(
        store, JobFilter(state=State.QUEUED), "scheduled", texts=Texts(args='"a"')
    )
    assert [row.id for row in listed.rows] == [later]


LARGE = '"' + "x" * 998 + '"'


async def test_a_look_at_large_arguments_stops_and_says_where(store: Store) -> None:
    ids = await enqueued(store, *[job(args=LARGE) for _ in range(3)], job(args='"rare"'))
    found = await store.inspector.search(ids, Texts(args="xx"), 2_100)
    assert found == Searched(ids=[ids[2], ids[1]], before=ids[1], size=2_006)
    found = await store.inspector.search(ids[:3], Texts(args="none"), 10)
    assert found == Searched(before=ids[2], size=1_000)  # one, however large
    found = await store.inspector.search(ids, Texts(error="none"), 10)
    assert found == Searched()  # arguments that are not searched are not read
    assert await store.inspector.search([], Texts(args="x")) == Searched()


async def test_a_search_of_large_arguments_ends_and_goes_on_from_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "LOOK_BYTES", 1_500)
    monkeypatch.setattr(queries, "SEARCHED_BYTES", 2_500)
    wanted = (await enqueued(store, job(args='"rare"'), *[job(args=LARGE) for _ in range(7)]))[0]
    assert await found_to_the_end(store, JobFilter()) == ([wanted], 3)
