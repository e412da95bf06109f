"""Makes exchanges on PostgreSQL: hands in ends and claims what can run next, in one round trip.

The statement is one call of a function (postgres/sql/functions/outlast_exchange_v1.sql argues why
it is right). This module builds its arguments, reads its reply, and remembers what the reply shows
of the queue for the next exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from outlast.base.clock import Clock
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.columns import count_of, read_policy
from outlast.store.dependencies import RESULTS_BYTES, add_results, find_needy
from outlast.store.postgres.claim_floors import NO_LANES, ClaimFloors, LaneSearch, Search
from outlast.store.postgres.pool import Connections
from outlast.store.postgres.statements import Pair, array_text, ends_text, pair_of, texts_array_text
from outlast.store.protocol import CLAIMS_MAX, REFUSALS_KEPT
from outlast.store.statements import statements
from outlast.store.turns import Turns
from outlast.store.values import Answer, Claimed, ClaimRequest, Exchanged, WorkerRef, bytes_max

_SQL = statements("postgres", "exchange")
_RESULTS = statements("postgres", "dependencies")["results"]


class _Head(msgspec.Struct):
    """The last row of an exchange's reply.

    Attributes:
        valid: whether the worker's row stands at its epoch.
        others: ends that were not accepted, with their answers.
        cancels: attempts that were asked to stop.
        drawn: the highest position ever drawn.
        incarnation: of the database; None where it has none.
    """

    valid: bool
    others: list[tuple[int, int, str]]
    cancels: list[tuple[int, int]]
    drawn: int
    incarnation: str | None = None


class _ClaimHead(msgspec.Struct):
    """The row of a reply that follows the claimed jobs, if any were asked for.

    Attributes:
        order: the ids of the claimed jobs in the order of the line, and of those that had expired.
        places: their positions in it, None for jobs that were named and for suspects.
        counts: how many of them each claim request brought, one after the other.
        late: how many were below the floors, if this exchange looked there.
        walked: entries of the line that the search for unknown lanes has read.
        lanes: unknown to the client, as (queue, task, rank, first position).
        next_look: in how many seconds the next exchange looks where this one has not.
    """

    order: list[int] = []
    places: list[int | None] = []
    counts: list[int] = []
    next_due: float | None = None
    solo_waiting: int = 0
    cut: bool = False
    expired: int = 0
    late: int | None = None
    walked: int = 0
    lanes: list[tuple[str, str, int, int]] = []
    next_look: float | None = None


_Placed = tuple[Any, int | None]  # a row of a claimed job, and its position in the line

_NONE = ("{}", "{}")
_NOT_FOLLOWED = (None, None)
_head_of = msgspec.json.Decoder(_Head).decode
_claim_head_of = msgspec.json.Decoder(_ClaimHead).decode


class PostgresExchange:
    """The exchanges of one client, which remembers the line; ``notify``: listeners are woken."""

    def __init__(self, connections: Connections, clock: Clock, *, notify: bool) -> None:
        self._connections = connections
        self._clock = clock
        self._notify = notify
        self._lanes = ClaimFloors(clock)
        self._search = LaneSearch(clock)
        self._turns = Turns()

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        """As ``Store.exchange``. If the same (job, token) is handed in twice, the second is judged
        in a separate trip, after the first has been committed."""
        unique, again = _without_repeats(ended)
        reply = await self._trip(me, unique, [] if again else requests)
        if not again:
            return reply
        answers = dict(zip(map(pair_of, unique), reply.answers, strict=True))
        last = await self.exchange(me, [ended[index] for index in again], requests)
        late = dict(zip(again, last.answers, strict=True))
        merged = [
            late[index] if index in late else answers[pair_of(end)]
            for index, end in enumerate(ended)
        ]
        return msgspec.structs.replace(last, answers=merged)

    async def _trip(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        head, claim, rows = await self._ask(me, ended, requests)
        others = {(job_id, token): Answer(answer) for job_id, token, answer in head.others}
        claimed = _make_all_claimed([row for row, _ in rows])
        if needy := find_needy(claimed):
            claimed = add_results(claimed, await self._find_results(needy))
        return Exchanged(
            valid=head.valid,
            answers=_all_but(others, ended),
            claimed=claimed,
            cancels=head.cancels,
            next_due=claim.next_due,
            solo_waiting=claim.solo_waiting,
            next_look=claim.next_look,
            cut=claim.cut,
            expired=claim.expired,
        )

    async def _find_results(self, job_ids: list[int]) -> list[tuple[int, str | None, int]]:
        found = await self._connections.run(lambda it: it.fetch(_RESULTS, job_ids, RESULTS_BYTES))
        return [(row["job_id"], row["result"], row["count"]) for row in found]

    async def _ask(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> tuple[_Head, _ClaimHead, list[_Placed]]:
        lanes, look = self._lanes.ask() if requests else (NO_LANES, None)
        search = self._search.ask(requests)
        began_at = self._clock.boot()
        asked = (
            me.worker_id,
            me.epoch,
            *_end_columns(ended),
            *request_columns(requests),
            *lanes,
            *(look or (None, None)),
        )
        limits = (
            CLAIMS_MAX,
            bytes_max(requests),
            REFUSALS_KEPT,
            me.registration,
            texts_array_text([self._turns.find_start(request) for request in requests]),
        )
        followed = _followed_columns(requests, is_part=self._is_part(look))
        searched = (
            *_passed_over(requests),
            array_text([self._turns.find_lanes(request) for request in requests]),
            array_text(map(int, search.everywhere)),
            texts_array_text(search.queues),
        )

        def values(may_notify: bool) -> tuple[Any, ...]:  # noqa: FBT001  # a callback
            follow = followed if may_notify else _NOT_FOLLOWED
            return (*asked, self._notify and may_notify, *limits, *follow, *searched)

        try:
            *found, last = await self._send(values)
        except BaseException:
            if look is not None:
                self._lanes.note_failure(look)
            for request, everywhere in zip(requests, search.everywhere, strict=True):
                if everywhere:
                    self._search.note_failure(request, self._clock.boot() - began_at)
            raise
        head = _head_of(last["head"])
        claim = _claim_head_of(found.pop()["head"]) if found else _ClaimHead()
        rows = _in_line(found, claim)
        took = self._clock.boot() - began_at
        if look is not None and claim.late is not None:
            self._lanes.note_look(look, took, claim.late)
        if not claim.cut:
            self._note_end(requests, claim, look, search, took)
        if self._lanes.note_incarnation(head.incarnation):
            self._search = LaneSearch(self._clock)
            claim.next_look = 0.0  # this one has looked from the floors of another
        self._remember(rows, claim, head.drawn)
        self._note_turns(requests, rows, claim)
        return head, claim, rows

    async def _send(self, values: Callable[[bool], tuple[Any, ...]]) -> list[Any]:
        """Make the exchange; ``values`` returns its arguments, given whether it may notify."""
        return await self._connections.run_notifying(
            lambda it, may_notify: it.fetch(_SQL["exchange"], *values(may_notify)),
            keeps_plans=True,
            own=True,
        )

    def _note_end(
        self,
        requests: Sequence[ClaimRequest],
        claim: _ClaimHead,
        look: tuple[int, int] | None,
        search: Search,
        seconds: float,
    ) -> None:
        """Note which requests had places left in the end. There may be more jobs for these where
        this exchange has not looked: note in its head when the next one does."""
        asked = zip(requests, claim.counts, search.everywhere, strict=False)
        ended = [
            (each, all_) for each, count, all_ in asked if not each.solo and count < each.limit
        ]
        if not ended:
            return
        for request, everywhere in ended:
            if everywhere:
                self._search.note_end(request, claim.walked, seconds)
        later = self._search.seconds_to_next(each for each, everywhere in ended if not everywhere)
        is_due = look is None or look[0] > 0  # a look at a part leaves those below it
        below = self._lanes.seconds_to_look() if is_due else None
        claim.next_look = min((each for each in (later, below) if each is not None), default=None)

    def _is_part(self, look: tuple[int, int] | None) -> bool:
        return look is not None and self._lanes.is_part(look)

    def _remember(self, rows: Sequence[_Placed], claim: _ClaimHead, drawn: int) -> None:
        """Note what an exchange has shown of the line. A role that may enqueue can write a position
        beyond those that were drawn: no floor follows such a position, since all other jobs would
        be below it."""
        claimed = [
            ((row[4], row[3], -row[12]), place) for row, place in rows if place and place <= drawn
        ]
        if claimed:
            lanes = {(queue, rank) for (queue, _, rank), _ in claimed}
            self._turns.note_lanes(len(lanes), len(claimed))
        new = [
            (queue, task, rank, place if place <= drawn else 0)
            for queue, task, rank, place in claim.lanes
        ]
        self._lanes.remember(new, claimed)

    def _note_turns(
        self, requests: Sequence[ClaimRequest], rows: Sequence[_Placed], claim: _ClaimHead
    ) -> None:
        """Note for each request the last queue from which it was given jobs by turns."""
        claimed = iter(rows)
        for request, count in zip(requests, claim.counts, strict=False):
            queues = [row[4] for row, place in islice(claimed, count) if place]
            if queues:
                self._turns.note_taken(request, queues[-1])


# -- arguments


def _without_repeats(ended: Sequence[Transition]) -> tuple[list[Transition], list[int]]:
    """Return the first end of each attempt, and the indexes of the others."""
    if len({end.token for end in ended}) == len(ended):
        return list(ended), []
    seen: set[Pair] = set()
    unique: list[Transition] = []
    again: list[int] = []
    for index, end in enumerate(ended):
        if pair_of(end) in seen:
            again.append(index)
        else:
            seen.add(pair_of(end))
            unique.append(end)
    return sorted(unique, key=pair_of) if again else unique, again


def _end_columns(ended: Sequence[Transition]) -> list[str | None]:
    """Return ends as arguments of the call: those that completed, and the text of others."""
    completed = OutcomeKind.COMPLETED.value
    done = [end for end in ended if end.outcome == completed]
    other = [end for end in ended if end.outcome != completed] if len(done) < len(ended) else []
    return [
        array_text([end.job_id for end in done]),
        array_text([end.token for end in done]),
        texts_array_text([end.result for end in done]),
        ends_text(other) if other else None,
    ]


def request_columns(requests: Sequence[ClaimRequest]) -> list[str]:
    """Return claim requests as arguments of the call; a list in one is an array within the
    text."""
    return [
        array_text([request.limit for request in requests]),
        array_text([request.solo for request in requests]),
        texts_array_text([texts_array_text(request.tasks) for request in requests]),
        texts_array_text([texts_array_text(request.queues) for request in requests]),
        texts_array_text([array_text(request.named) for request in requests]),
    ]


def _followed_columns(
    requests: Sequence[ClaimRequest], *, is_part: bool
) -> tuple[str | None, str | None]:
    """Return what the exchange reports to listeners that were woken, too; None: nothing. A partial
    scan must not stop similar workers from scanning: it leaves jobs to them."""
    followed = requests[0].followed if requests else None
    if followed is None:
        return _NOT_FOLLOWED
    return array_text(followed.positions), None if is_part else followed.kind


def _passed_over(requests: Sequence[ClaimRequest]) -> tuple[str, str]:
    """Return the queues and tenants whose jobs are passed over, as arguments of the call."""
    if not requests or not (requests[0].not_queues or requests[0].not_tenants):
        return _NONE
    return texts_array_text(requests[0].not_queues), texts_array_text(requests[0].not_tenants)


# -- reply


def _all_but(others: Mapping[Pair, Answer], ended: Sequence[Transition]) -> list[Answer]:
    """Return the answers to these ends: accepted, except for a few."""
    if not others:
        return [Answer.ACCEPTED] * len(ended)
    return [others.get(pair_of(end), Answer.ACCEPTED) for end in ended]


def _in_line(rows: Sequence[Any], claim: _ClaimHead) -> list[_Placed]:
    """Return rows of claimed jobs in the order of the line, with their positions."""
    by_id = {row[1]: row for row in rows}
    order = zip(claim.order, claim.places, strict=True)
    return [(by_id[job_id], place) for job_id, place in order if job_id in by_id]


def _make_all_claimed(rows: Sequence[Any]) -> list[Claimed]:
    policies = {text: read_policy(text) for text in {row[9] for row in rows}}  # jobs share them
    return [_make_claimed(row, *policies[row[9]]) for row in rows]


def _make_claimed(row: Any, policy: Policy, malformed: str | None) -> Claimed:
    return Claimed(
        job_id=row[1],
        token=row[2],
        task=row[3],
        queue=row[4],
        args=row[5],
        number=row[6],
        failures=count_of(row[7]) if row[7] else 0,  # mostly 0: saves calls
        losses=count_of(row[8]) if row[8] else 0,
        policy=policy,
        tenant=row[10],
        checkpoint=row[11],
        priority=row[12],
        solo=row[13],
        incident=row[14],
        cohort=row[15],
        malformed=malformed,
        waited=row[16],
        expires_in=row[17],
    )
