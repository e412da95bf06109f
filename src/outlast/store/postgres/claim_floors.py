"""Remembers the line on PostgreSQL for a client, so that a claim does not walk over dead rows.

A lane is the part of the line with one queue, task and priority. Rows that have left it stay in its
index until vacuum removes them; behind a transaction that is held open, that is all of them. So the
client passes to the exchange the lanes that it knows and the position from which to read each
(postgres/sql/functions/outlast_claim_v1.sql argues why that is right).

There may be a hundred thousand lanes, if each customer has a queue, and each one that is passed
costs a probe in each exchange. So the client knows only those from which most jobs were claimed,
since they have the dead rows. The exchange finds others by a search, from each gap between known
lanes to the next, beginning at the queue whose turn it is.

A floor is the highest position that was claimed at least ``LAG_SECONDS`` ago: a transaction that
commits out of order by less than that is still seen at once. Jobs of later commits are found by the
next look below the floors: one a second, and less often when it is slow. A look that takes longer
than a statement may is taken in parts, from the floors downwards, so that it gets through however
many dead rows there are. When it fails, the floors stay, and claims go on.

A search walks over dead rows in lanes that are not known. If these are many, as behind a held
transaction with thousands of queues, it is made less often; until then a claim reads the known
lanes, and the queues that wake-ups have named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from outlast.base.clock import Clock
from outlast.store.postgres.statements import array_text, texts_array_text
from outlast.store.turns import KINDS_MAX
from outlast.store.values import ClaimRequest

LAG_SECONDS = 0.2
FULL_SECONDS = 1.0  # between looks below the floors
FULL_SECONDS_MAX = 30.0
FULL_SHARE = 20  # looks and slow searches take at most 1/FULL_SHARE of the time
PART = 100_000  # positions in the first part of a look that is taken in parts
QUICK_SECONDS, SLOW_SECONDS = 0.02, 0.25  # below: the next part doubles; above: look in parts
ALL = 2**62  # more positions than there are
LANES_MAX = 200  # lanes of which claims are counted
LANES_FEW = 20  # with more lanes, only those with WORTH_CLAIMS claims are known
WORTH_CLAIMS = 50  # from a lane, for which skipping its dead rows is worth a probe in each exchange
SLOW_ENTRIES = 10_000  # index entries that make a search slow, independent of the machine's load
NEWS_MAX = 100  # queues named by wake-ups; if there are more, all are searched

_Key = tuple[str, str, int]  # queue, task, rank (the negative of the priority)


class _Lane:
    """One lane: its floor, the next one with the time of its claim, and how many were claimed."""

    __slots__ = ("count", "floor", "next", "next_at")

    def __init__(self) -> None:
        self.floor = self.next = self.count = 0
        self.next_at = 0.0

    def note_claimed(self, position: int, now: float) -> None:
        """Note the last position that one exchange has claimed in the lane: the highest one, since
        claims take a lane in the order of its positions. What lies below is not looked at until the
        next look below the floors. A job from there does not lower the floor: further ones are
        found in the same way."""
        self.rise(now)
        if self.next <= self.floor < position:
            self.next, self.next_at = position, now

    def rise(self, now: float) -> int:
        if now - self.next_at >= LAG_SECONDS:
            self.floor = max(self.floor, self.next)
        return self.floor


class Below:
    """Decides which positions the next look below the floors covers, and when it is due.

    It covers all of them, while that is quick. Otherwise it covers a part of them, then the part
    below that, and so on down to the first, each as large as can be read quickly: no part has more
    dead rows than positions.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.due_at = clock.boot()
        self._span = ALL
        self._top: int | None = None  # of the next part; None: the highest floor
        self._seconds = 0.0  # spent since the first part

    def part(self, floor: int) -> tuple[int, int]:
        """Return the positions to look at, from the first to before the second."""
        top = floor if self._top is None else min(floor, self._top)
        return max(0, top - self._span), top

    def note_look(self, part: tuple[int, int], seconds: float, late: int) -> None:
        """Note that this part was looked at, how long that took, and how many jobs were claimed
        there: if there were any, there may be more."""
        if late:
            self._top, self.due_at = part[1], self._clock.boot()
            return
        self.put_off(seconds)
        self._seconds += seconds
        if part[0] > 0:
            self._top = part[0]
            self._span *= 2 if seconds < QUICK_SECONDS else 1
            return
        self._top, self._span = None, ALL if self._seconds < SLOW_SECONDS else PART
        self._seconds = 0.0

    def note_failure(self, part: tuple[int, int]) -> None:
        """Note that a look at this part was not answered: the next parts are smaller."""
        self.put_off()
        self._top, self._span, self._seconds = part[1], PART, SLOW_SECONDS

    def put_off(self, seconds: float = 0.0) -> None:
        """Schedule the next look late enough after one that has taken ``seconds``."""
        pause = min(FULL_SECONDS_MAX, max(FULL_SECONDS, seconds * FULL_SHARE))
        self.due_at = self._clock.boot() + pause


class ClaimFloors:
    """The lanes that one client knows, in one incarnation of the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._incarnation: str | None = None
        self._forget()

    def _forget(self) -> None:
        self._counted: dict[_Key, _Lane] = {}
        self._lanes: dict[_Key, _Lane] = {}  # the known ones, in the order of the index
        self._columns = _columns([])
        self._below = Below(self._clock)

    def note_incarnation(self, incarnation: str | None) -> bool:
        """Note in which incarnation the database is, and return whether it was another one before.
        Positions may have stepped back then, behind the floors: nothing is known of it."""
        before = self._incarnation
        if incarnation is None or incarnation == before:
            return False
        self._incarnation = incarnation
        if before is not None:
            self._forget()
        return before is not None

    def ask(self) -> tuple[list[str], tuple[int, int] | None]:
        """Return the lane arguments of the exchange, and the positions below the floors to look at
        as well, if that is due: call ``note_look`` or ``note_failure`` afterwards."""
        now = self._clock.boot()
        floors = [lane.rise(now) for lane in self._lanes.values()]
        look = self._below.part(max(floors)) if floors and now >= self._below.due_at else None
        return [*self._columns, array_text(floors)], look

    def is_part(self, look: tuple[int, int]) -> bool:
        """Whether this look below the floors leaves out positions below one of them."""
        return look[0] > 0 or look[1] < max(lane.floor for lane in self._lanes.values())

    def seconds_to_look(self) -> float | None:
        """Return in how many seconds the next look below the floors is due: jobs may be there that
        a claim from the floors did not find. None: no lane is known, so everything is looked at."""
        return max(0.0, self._below.due_at - self._clock.boot()) if self._lanes else None

    def note_look(self, part: tuple[int, int], seconds: float, late: int) -> None:
        """Note how many seconds a look below the floors has taken, and how many jobs it found."""
        self._below.note_look(part, seconds, late)

    def note_failure(self, part: tuple[int, int]) -> None:
        """Note that a look below the floors was not answered."""
        self._below.note_failure(part)

    def remember(
        self, new: Iterable[tuple[str, str, int, int]], claimed: Sequence[tuple[_Key, int]]
    ) -> None:
        """Note new lanes, as (queue, task, rank, first position), and claimed jobs, as lane and
        position, in the order of claiming."""
        now = self._clock.boot()
        counts = Counter(key for key, _ in claimed)
        first = {(queue, task, rank): position for queue, task, rank, position in new}
        for key, position in {**first, **dict(claimed)}.items():
            if key in self._counted or self._makes_place(counts[key]):
                lane = self._counted.setdefault(key, _Lane())
                lane.note_claimed(position, now)
                lane.count += counts[key]
        least = 0 if len(self._counted) <= LANES_FEW else WORTH_CLAIMS
        known = {key: lane for key, lane in self._counted.items() if lane.count >= least}
        if known != self._lanes:
            if not self._lanes:
                self._below.put_off()  # a search that finds lanes looks at everything
            self._lanes = dict(sorted(known.items(), key=_place))
            self._columns = _columns(self._lanes)

    def _makes_place(self, count: int) -> bool:
        """Whether another lane can be counted, from which that many jobs were claimed. If there are
        too many, all lanes lose as much, and those with nothing left are dropped (Misra and Gries):
        so each lane is counted that has its share of the claims, one in ``LANES_MAX``."""
        if len(self._counted) < LANES_MAX:
            return True
        for lane in self._counted.values():
            lane.count -= count
        self._counted = {key: lane for key, lane in self._counted.items() if lane.count > 0}
        return len(self._counted) < LANES_MAX


class Search(NamedTuple):
    """Which of the requests search everywhere; the others search in these queues."""

    everywhere: list[bool]
    queues: list[str]


class LaneSearch:
    """Decides when a client searches the whole line for lanes that it does not know, and where
    else.

    Each kind of request, identified by its tasks, has its own search: a search for one kind shows
    nothing about the lanes of others.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._again_at: dict[tuple[str, ...], float] = {}  # the kinds whose search was slow
        self._news: dict[str, None] = {}  # the queues that wake-ups named since

    def ask(self, requests: Sequence[ClaimRequest]) -> Search:
        """Return where these requests search: call ``note_end`` or ``put_off`` afterwards."""
        now = self._clock.boot()
        self._again_at = {kind: at for kind, at in self._again_at.items() if at > now}
        if requests and self._again_at:
            self._news |= dict.fromkeys(requests[0].news)
        if len(self._news) > NEWS_MAX:
            self._again_at.clear()
        if not self._again_at:
            self._news.clear()
        return Search([self._seconds_to(each) <= 0 for each in requests], [*self._news])

    def _seconds_to(self, request: ClaimRequest) -> float:
        return max(0.0, self._again_at.get(tuple(request.tasks), 0.0) - self._clock.boot())

    def note_end(self, request: ClaimRequest, walked: int, seconds: float) -> None:
        """Note that a search everywhere has come to its end, how many entries it has walked over,
        and how many seconds the exchange has taken."""
        if walked >= SLOW_ENTRIES:
            self.put_off(request, max(FULL_SECONDS, seconds * FULL_SHARE))

    def note_failure(self, request: ClaimRequest, seconds: float) -> None:
        """Note that the exchange of a search was not answered within this time: the search may have
        taken that long, or it was not made at all. The next search looks in the same named
        queues."""
        self._news |= dict.fromkeys(request.news)
        self.put_off(request, max(FULL_SECONDS, seconds * FULL_SHARE))

    def put_off(self, request: ClaimRequest, seconds: float) -> None:
        """Search for this kind of request that much later."""
        if len(self._again_at) >= KINDS_MAX:
            self._again_at.clear()
        self._again_at[tuple(request.tasks)] = self._clock.boot() + min(FULL_SECONDS_MAX, seconds)

    def seconds_to_next(self, requests: Iterable[ClaimRequest]) -> float | None:
        """Return in how many seconds the first of these requests searches everywhere again; None:
        there is none."""
        return min(map(self._seconds_to, requests), default=None)


def _place(item: tuple[_Key, _Lane]) -> tuple[str, str, int]:
    """Return the key by which lanes are sorted, in the order of the index."""
    queue, task, rank = item[0]
    return task, queue, rank


def _columns(keys: Collection[_Key]) -> list[str]:
    queues, tasks, ranks = zip(*keys, strict=True) if keys else ((), (), ())
    return [texts_array_text(queues), texts_array_text(tasks), array_text(ranks)]


NO_LANES = [*_columns([]), array_text([])]
