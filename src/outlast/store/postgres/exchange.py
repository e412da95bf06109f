"""Makes exchanges on PostgreSQL: hands in ends and claims what can run next, in one round trip.

This module builds the arguments of ``outlast_exchange_v1``, reads its reply, and remembers what the
reply shows of the queue for the next exchange.

It passes the lanes that it knows, each with its floor: the position from which to read it
(``outlast_claim_line_v1`` argues why). The reply names the lanes if they have changed. Each lane
costs a probe in each exchange that other lanes do not fill, so there should be about a thousand at
most.

A floor is the highest position that was claimed at least ``LAG_SECONDS`` ago: a transaction that
commits out of order by less than that is still seen at once. Jobs of later commits are found by the
next look below the floors: one a second, and less often when it is slow. A look that would exceed
the timeout of a statement is taken in parts, from the floors downwards, so that it completes
however many dead rows there are. If it fails, the floors stay, and claims go on.

Reading a lane without a job passes over all its dead rows each time. So where an exchange has read
many entries, each lane that it has read to its end gets a floor as well: the highest position that
was drawn by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from outlast.errors import StoreUnavailable
from outlast.model.job import Policy
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.columns import count_of, read_policy
from outlast.store.dependencies import RESULTS_BYTES, add_results
from outlast.store.postgres.pool import Connections, Verbs
from outlast.store.postgres.statements import Pair, array_text, ends_text, pair_of, storable
from outlast.store.protocol import CLAIMS_MAX, REFUSALS_KEPT
from outlast.store.queue_turns import Turns
from outlast.store.statements import statements
from outlast.store.values import TRIP_BYTES, Answer, Claimed, ClaimRequest, Exchanged, WorkerRef

_SQL = statements("postgres", "exchange")
_RESULTS = statements("postgres", "dependencies")["results"]
LAG_SECONDS = 0.2
FULL_SECONDS = 1.0  # between looks below the floors
FULL_SECONDS_MAX = 30.0
FULL_SHARE = 20  # looks take at most 1/FULL_SHARE of the time
PART = 100_000  # positions in the first part of a look that is taken in parts
QUICK_SECONDS, SLOW_SECONDS = 0.02, 0.25  # below: the next part doubles; above: look in parts
ALL = 2**62  # more positions than there are
ANOTHER = "the database was restarted or set back since this worker connected"
WALK_MAX = 1_000  # entries of the line that an exchange may read without remembering where it was

_Key = tuple[str, str, int]  # queue, task, rank (the negative of the priority)


class _Lane:
    """One lane: its floor, and the next one with the time of its claim."""

    __slots__ = ("floor", "next", "next_at")

    def __init__(self) -> None:
        self.floor = self.next = 0
        self.next_at = 0.0

    def note_claimed(self, position: int, now: float) -> None:
        """Note the last, and so the highest, position that one exchange has claimed. A job from
        below the floor does not lower it: the next look below the floors finds further ones."""
        self.rise(now)
        if self.next <= self.floor < position:
            self.next, self.next_at = position, now

    def rise(self, now: float) -> int:
        if now - self.next_at >= LAG_SECONDS:
            self.floor = max(self.floor, self.next)
        return self.floor


class LookBelow:
    """Decides which positions the next look below the floors covers, and when it is due.

    It covers all of them while that is quick, otherwise one part after another, downwards, each as
    large as can be read quickly: no part has more dead rows than positions.
    """

    def __init__(self) -> None:
        self.due_at = 0.0
        self._span = ALL
        self._top: int | None = None  # of the next part; None: the highest floor
        self._seconds = 0.0  # spent since the first part

    def part(self, floor: int) -> tuple[int, int]:
        """Return the first position to look at, and the one after the last."""
        top = floor if self._top is None else min(floor, self._top)
        return max(0, top - self._span), top

    def note_look(self, part: tuple[int, int], seconds: float, late: int, now: float) -> None:
        """``late``: how many jobs were claimed there; if there were any, there may be more."""
        if late:
            self._top, self.due_at = part[1], now
            return
        self.put_off(now, seconds)
        self._seconds += seconds
        if part[0] > 0:
            self._top = part[0]
            self._span *= 2 if seconds < QUICK_SECONDS else 1
            return
        self._top, self._span = None, ALL if self._seconds < SLOW_SECONDS else PART
        self._seconds = 0.0

    def note_failure(self, part: tuple[int, int], now: float) -> None:
        """The next parts are smaller."""
        self.put_off(now)
        self._top, self._span, self._seconds = part[1], PART, SLOW_SECONDS

    def put_off(self, now: float, seconds: float = 0.0) -> None:
        """Schedule the next look late enough after one that has taken ``seconds``."""
        self.due_at = now + min(FULL_SECONDS_MAX, max(FULL_SECONDS, seconds * FULL_SHARE))


class ClaimFloors:
    """The lanes and their floors, as one client knows them in one incarnation of the database.
    ``now`` is the time on the boot clock."""

    def __init__(self) -> None:
        self._incarnation: str | None = None
        self._forget()

    def _forget(self) -> None:
        self.known: dict[_Key, _Lane] = {}  # in the order of the index
        self._columns = _columns([], 0)
        self._below = LookBelow()

    def note_incarnation(self, incarnation: str | None) -> bool:
        """Note in which incarnation the worker registered, reconnected or claimed; return whether
        it is another one. Positions may have stepped back then, behind the floors, so all of them
        are forgotten."""
        before = self._incarnation
        if incarnation is None or incarnation == before:
            return False
        self._incarnation = incarnation
        if before is not None:
            self._forget()
        return before is not None

    def ask(self, now: float) -> tuple[dict[str, Any], tuple[int, int] | None]:
        """Return the lane fields of an AskedClaim, and the positions below the floors to look at,
        if that is due: call ``note_look`` or ``note_failure`` afterwards."""
        floors = [lane.rise(now) for lane in self.known.values()]
        top = max(floors, default=0)
        look = self._below.part(top) if top and now >= self._below.due_at else None
        return {**self._columns, "lane_floors": array_text(floors)}, look

    def is_part(self, look: tuple[int, int]) -> bool:
        """Whether this look below the floors leaves out positions below one of them."""
        return look[0] > 0 or look[1] < max(lane.floor for lane in self.known.values())

    def seconds_to_look(self, now: float) -> float | None:
        """Return in how many seconds the next look below the floors is due; None: there are no
        floors, so each claim looks at everything."""
        has_floors = any(lane.floor for lane in self.known.values())
        return max(0.0, self._below.due_at - now) if has_floors else None

    def look_now(self) -> None:
        self._below.due_at = 0.0

    def note_look(self, part: tuple[int, int], seconds: float, late: int, now: float) -> None:
        self._below.note_look(part, seconds, late, now)

    def note_failure(self, part: tuple[int, int], now: float) -> None:
        self._below.note_failure(part, now)

    def note_lanes(self, seen: int, keys: Iterable[_Key], now: float) -> None:
        """Note the lanes, in the order of the index; ``seen`` identifies this list."""
        if not self.known:
            self._below.put_off(now)  # without floors, all is looked at
        self.known = {key: self.known.get(key) or _Lane() for key in keys}
        self._columns = _columns(self.known, seen)

    def note_claimed(self, claimed: Iterable[tuple[_Key, int]], now: float) -> None:
        """``claimed``: lanes and positions, in the order of claiming."""
        for key, position in dict(claimed).items():
            if key in self.known:
                self.known[key].note_claimed(position, now)


def _note_read(
    lanes: Mapping[_Key, _Lane],
    drawn: int,
    request: ClaimRequest,
    start: str,
    end: str | None,
    now: float,
) -> None:
    """Note that an exchange has read lanes of a request to their ends, and the highest position
    drawn by then: of the queues from ``start`` to before ``end``, around the end; None: all."""
    for (queue, task, _), lane in lanes.items():
        is_read = end is None or (queue < start, queue) < (end < start, end)
        is_asked = task in request.tasks and (not request.queues or queue in request.queues)
        if is_read and is_asked and queue not in request.not_queues:
            lane.note_claimed(drawn, now)


def _columns(keys: Collection[_Key], seen: int) -> dict[str, Any]:
    queues, tasks, ranks = zip(*keys, strict=True) if keys else ((), (), ())
    return {
        "mixed": len(set(zip(queues, ranks, strict=True))) < len(queues),
        "lanes_seen": seen,
        "lane_queues": texts_array_text(queues),
        "lane_tasks": texts_array_text(tasks),
        "lane_ranks": array_text(ranks),
    }


def texts_array_text(values: Iterable[str | None]) -> str:
    return f"{{{','.join(map(_quoted, values))}}}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


_NO_LANES = {**_columns([], 0), "lane_floors": array_text([])}


class AskedClaim(NamedTuple):
    """An outlast_claim_request_v1, field by field. Arrays are texts."""

    limits: str
    solos: str
    tasks: str
    queues: str
    lane_queues: str
    lane_tasks: str
    lane_ranks: str
    lane_floors: str
    look_from: int | None
    look_to: int | None
    notify: bool
    claims_max: int
    bytes_max: int
    firsts: str
    wakes: str | None
    kind: str | None
    not_queues: str
    not_tenants: str
    streams_from: str
    lanes_seen: int
    mixed: bool


class _Head(msgspec.Struct):
    """The last row of an exchange's reply.

    Attributes:
        valid: whether the worker's row stands at its epoch.
        others: ends that were not accepted, with their answers.
        cancels: attempts that were asked to stop.
        drawn: the highest position ever drawn.
        incarnation: of the database; None where it has none.
        claim: what there is to say of the claim, if one was made.
    """

    valid: bool
    others: list[tuple[int, int, str]]
    cancels: list[tuple[int, int]]
    drawn: int
    incarnation: str | None
    claim: _ClaimHead | None


class _ClaimHead(msgspec.Struct):
    """The part of the last row about a claim.

    Attributes:
        order: the ids of the claimed jobs in the order of the line, and of expired ones.
        places: their positions in it; None for suspects and jobs of streams.
        counts: how many of them each claim request brought, one after the other.
        late: how many were below the floors, if this exchange looked there.
        streams_from: the queue behind which the next look at streams begins.
        walked: entries of the line that were read, dead ones too.
        read: the requests, counted from 1, that have read all their lanes to the end.
        lanes: what identifies the list of lanes, and the list, as (queue, task, rank); None: the
            client has it already.
        next_look: in how many seconds the next exchange looks where this one has not.
    """

    order: list[int] = []
    places: list[int | None] = []
    counts: list[int] = []
    next_due: float | None = None
    contended: bool = False
    cut: bool = False
    expired: int = 0
    late: int | None = None
    streams_from: str = ""
    walked: int = 0
    read: list[int] = []
    lanes: tuple[int, list[_Key]] | None = None
    next_look: float | None = None


_Placed = tuple[Claimed, int | None]  # a claimed job, and its position in the line

_NO_ENDS = ("{}", "{}", "{}", None)
_NO_REQUEST = ClaimRequest([], 0)
_head_of = msgspec.json.Decoder(_Head).decode
_tokens_of = msgspec.json.Decoder(set[int]).decode


class PostgresExchange(Verbs):
    """The exchange of a ``PostgresStore``, which remembers the line.

    A claim counts as lost if it was made in another incarnation of the database than the worker's
    epoch: one that was set back may have this epoch, and pauses that the worker does not know.
    """

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections)
        self._clock = connections.options.clock
        self._lanes = ClaimFloors()
        self._turns = Turns()
        self._streams_from = ""

    async def exchange(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> Exchanged:
        """If the same (job, token) is handed in twice, the second is judged in a separate trip,
        after the first has been committed."""
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
        asked = ended if requests else await self._complete(ended)
        if ended and not asked:
            return Exchanged(valid=True, answers=[Answer.ACCEPTED] * len(ended))
        head, claim, placed = await self._ask(me, asked, requests)
        others = {(job_id, token): Answer(answer) for job_id, token, answer in head.others}
        claimed = [job for job, _ in placed]
        late: list[Transition] = []
        if needy := [each.job_id for each in claimed if each.policy.inputs]:
            most = min(each.bytes_max for each in requests)
            rows = await self._fetch(_RESULTS, array_text(needy), RESULTS_BYTES, most, own=True)
            claimed, late = add_results(claimed, rows)
            if late:
                await self._trip(me, late, [])
        return Exchanged(
            valid=head.valid,
            answers=_all_but(others, ended),
            claimed=claimed,
            cancels=head.cancels,
            next_due=claim.next_due,
            contended=claim.contended,
            next_look=claim.next_look,
            cut=claim.cut or bool(late),
            expired=claim.expired,
        )

    async def _complete(self, ended: Sequence[Transition]) -> Sequence[Transition]:
        """Complete attempts without an exchange; return the ends that need one."""
        *columns, others = _end_columns(ended)
        if not ended or others is not None:
            return ended
        (row,) = await self._fetch(_SQL["complete"], *columns, own=True, keeps_plans=True)
        done = _tokens_of(row[0] or "[]")
        return [end for end in ended if end.token not in done]

    async def _read_apart(self, found: list[Any]) -> list[Any]:
        """Return the rows, read apart where the reply has no texts; without jobs that were closed
        since."""
        apart = [row for row in found if row["args"] is None]
        if not apart:
            return found
        values = (array_text(row[name] for row in apart) for name in ("job_id", "token"))
        rows = await self._fetch(_SQL["apart"], *values, own=True)
        return [*(row for row in found if row["args"] is not None), *rows]

    async def _ask(
        self, me: WorkerRef, ended: Sequence[Transition], requests: Sequence[ClaimRequest]
    ) -> tuple[_Head, _ClaimHead, list[_Placed]]:
        began_at = self._clock.boot()
        if requests and requests[0].whole:
            self._lanes.look_now()
        lanes, look = self._lanes.ask(began_at) if requests else (_NO_LANES, None)
        known = self._lanes.known  # another exchange of this store may hear of more meanwhile
        starts = [self._turns.find_start(request) for request in requests]
        first = requests[0] if requests else _NO_REQUEST
        followed = first.followed
        is_part = look is not None and self._lanes.is_part(look)  # similar ones must go on looking
        asked = AskedClaim(
            **request_columns(requests, self._connections.codec),
            **lanes,
            look_from=look and look[0],
            look_to=look and look[1],
            notify=True,
            claims_max=CLAIMS_MAX,
            bytes_max=min([each.bytes_max for each in requests], default=TRIP_BYTES),
            firsts=texts_array_text(starts),
            wakes=None if followed is None else array_text(followed.positions),
            kind=None if followed is None or is_part else followed.kind,
            not_queues=texts_array_text(first.not_queues),
            not_tenants=texts_array_text(first.not_tenants),
            streams_from=self._streams_from,
        )
        worker = (me.worker_id, me.epoch, me.registration)
        ends = (*_end_columns(ended), REFUSALS_KEPT)

        def values(notify: bool) -> tuple[Any, ...]:  # noqa: FBT001  # a callback
            asks = asked if notify else asked._replace(notify=False, wakes=None, kind=None)
            return (*worker, *ends, *asks)

        try:
            *found, last = await self._send(values)
            found = await self._read_apart(found)
        except BaseException:
            now = self._clock.boot()
            if look is not None:
                self._lanes.note_failure(look, now)
            raise
        now = self._clock.boot()
        head = _head_of(last["head"])
        if requests and self._lanes.note_incarnation(head.incarnation):
            raise StoreUnavailable(ANOTHER)
        if claim := head.claim:
            self._streams_from = claim.streams_from
        claim = claim or _ClaimHead()
        placed = _place_claimed(found, claim) if found else []
        if look is not None and claim.late is not None:
            self._lanes.note_look(look, now - began_at, claim.late, now)
        if not claim.cut:
            self._note_end(requests, claim, look, now)
        if claim.lanes is not None:
            self._lanes.note_lanes(*claim.lanes, now)
            known = self._lanes.known
        self._note_claimed(placed, head.drawn, now)
        walked = look is None and claim.walked > WALK_MAX + len(placed)
        read = (known, head.drawn) if walked else None
        self._note_turns(requests, starts, placed, claim, read, now)
        return head, claim, placed

    async def _send(self, values: Callable[[bool], tuple[Any, ...]]) -> list[Any]:
        """``values`` returns the arguments, given whether the exchange notifies."""
        return await self._connections.run_notifying(
            lambda it, notify: it.fetch(_SQL["exchange"], *values(notify)),
            keeps_plans=True,
            own=True,
        )

    def _note_end(
        self,
        requests: Sequence[ClaimRequest],
        claim: _ClaimHead,
        look: tuple[int, int] | None,
        now: float,
    ) -> None:
        """Note which requests had places left. There may be more jobs for them where this exchange
        has not looked: its head says when the next one does."""
        asked = zip(requests, claim.counts, strict=False)
        if not any(not each.solo and count < each.limit for each, count in asked):
            return
        if look is None or look[0] > 0:  # a look at a part leaves those below it
            claim.next_look = self._lanes.seconds_to_look(now)

    def _note_claimed(self, placed: Sequence[_Placed], drawn: int, now: float) -> None:
        """Note what was claimed from the line. A position that was never drawn, which a role that
        may enqueue can write, makes no floor: all other jobs would be below it."""
        places = [
            ((job.queue, job.task, -job.priority), place)
            for job, place in placed
            if place and place <= drawn
        ]
        self._lanes.note_claimed(places, now)

    def _note_turns(
        self,
        requests: Sequence[ClaimRequest],
        starts: Sequence[str],
        placed: Sequence[_Placed],
        claim: _ClaimHead,
        read: tuple[Mapping[_Key, _Lane], int] | None,
        now: float,
    ) -> None:
        """Note for each request the last queue that gave it jobs in turn, and give floors to the
        lanes that it has read to their ends (``read``: lanes, and the highest position drawn)."""
        claimed = iter(placed)
        asked = zip(requests, starts, claim.counts, strict=False)
        for number, (request, start, count) in enumerate(asked, start=1):
            queues = [job.queue for job, place in islice(claimed, count) if place]
            if queues:
                self._turns.note_taken(request, queues[-1])
            if read is not None and (queues or number in claim.read):
                end = None if number in claim.read else queues[-1]
                _note_read(*read, request, start, end, now)


# -- arguments


def _without_repeats(ended: Sequence[Transition]) -> tuple[list[Transition], list[int]]:
    """Return the first end of each attempt, and the indexes of the repeats."""
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


def _end_columns(ended: Sequence[Transition]) -> Sequence[str | None]:
    """Return the ends that completed as columns, and the others as one text."""
    if not ended:
        return _NO_ENDS
    completed = OutcomeKind.COMPLETED.value
    done = [end for end in ended if end.outcome == completed]
    other = [end for end in ended if end.outcome != completed] if len(done) < len(ended) else []
    return [
        array_text([end.job_id for end in done]),
        array_text([end.token for end in done]),
        texts_array_text([end.result for end in done]),
        ends_text(other) if other else None,
    ]


def request_columns(requests: Sequence[ClaimRequest], codec: str = "utf-8") -> dict[str, Any]:
    """Return the fields of an AskedClaim that state the requests."""
    kinds = tuple((each.solo, tuple(each.tasks)) for each in requests)
    queues = tuple(requests[0].queues) if requests else ()
    return {
        "limits": array_text([request.limit for request in requests]),
        **_kind_columns(kinds, queues, codec),
    }


@lru_cache
def _kind_columns(
    kinds: tuple[tuple[int, tuple[str, ...]], ...], queues: tuple[str, ...], codec: str
) -> dict[str, str]:
    """Return the fields that stay the same from one exchange of a worker to the next."""
    solos, tasks = zip(*kinds, strict=True) if kinds else ((), ())
    lists = (texts_array_text(storable(name, codec) for name in names) for names in tasks)
    return {
        "solos": array_text(solos),
        "tasks": texts_array_text(lists),
        "queues": texts_array_text(queues),
    }


# -- reply


def _all_but(others: Mapping[Pair, Answer], ended: Sequence[Transition]) -> list[Answer]:
    if not others:
        return [Answer.ACCEPTED] * len(ended)
    return [others.get(pair_of(end), Answer.ACCEPTED) for end in ended]


def _place_claimed(rows: Sequence[Any], claim: _ClaimHead) -> list[_Placed]:
    """Return the claimed jobs, with their positions, in the order of the line."""
    policies = {text: read_policy(text) for text in {row["policy"] for row in rows}}  # often shared
    by_id = {row["job_id"]: row for row in rows}
    return [
        (_make_claimed(by_id[job_id], policies), place)
        for job_id, place in zip(claim.order, claim.places, strict=True)
        if job_id in by_id
    ]


def _make_claimed(row: Any, policies: Mapping[str, tuple[Policy, str | None]]) -> Claimed:
    policy, malformed = policies[row["policy"]]
    failures, losses = row["failures"], row["losses"]
    return Claimed(
        job_id=row["job_id"],
        token=row["token"],
        task=row["task"],
        queue=row["queue"],
        args=row["args"],
        number=row["number"],
        failures=count_of(failures) if failures else 0,  # mostly 0: saves calls
        losses=count_of(losses) if losses else 0,
        policy=policy,
        tenant=row["tenant"],
        checkpoint=row["checkpoint"],
        priority=row["priority"],
        solo=row["solo"],
        incident=row["incident"],
        malformed=malformed,
        waited=row["waited"],
        expires_in=row["expires_in"],
        awaited=row["awaited"],
    )
