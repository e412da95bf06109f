"""What a client remembers of the line on PostgreSQL, so that a claim does not walk over dead rows.

A lane is the part of the line with one queue, task and priority. Rows that have left it stay in
its index until a vacuum may take them: behind a transaction that is held open, that is all
of them. So the client tells the exchange from which position on it reads each lane, and which
lanes it knows (postgres/sql/functions/outlast_claim_v1.sql says why that is right).

There may be a hundred thousand lanes, where each customer has a queue, and each one that is told
costs a probe in each exchange. So only those are known out of which most was claimed, since they
have the dead rows. The exchange finds others, from the queue on whose turn it is.

A floor is the highest position that was claimed at least ``LAG_SECONDS`` ago: transactions that
commit that late in disorder are still seen at once. What commits later is found by the next look
below the floors: one a second, and more seldom where that is dear.

A look that takes longer than a statement may is taken in parts, from the floors downwards, so that
it gets through however many dead rows there are. When it fails, the floors stay, and claims go on.

A client that knows nothing yet learns the lanes and floors that others have kept on their workers'
rows. Lanes in which nothing is alive cannot be seen, and would be walked over by each claim.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from heapq import nlargest

import msgspec

from outlast.clock import Clock
from outlast.store.postgres.statements import array_text, texts_array_text

LAG_SECONDS = 0.2
FULL_SECONDS = 1.0  # between looks below the floors
FULL_SECONDS_MAX = 30.0
FULL_SHARE = 20  # at most one part in this many of the time goes into them
PART = 100_000  # positions in the first part of a look that is taken in parts
QUICK_SECONDS, DEAR_SECONDS = 0.02, 0.25  # the next part is twice as large; to look in parts at all
ALL = 2**62  # more positions than there are
KEEP_SECONDS = 10.0  # between two notes for clients that come later
LANES_MAX = 200  # known at a time; above it, the half is forgotten out of which least was claimed
WORTH_CLAIMS = 50  # out of a lane, that make its dead rows worth a probe in each exchange
CROWDED_SECONDS = 10.0  # after too many lanes were met, in which only those are added

_Key = tuple[str, str, int]  # queue, task, rank (the negative of the priority)


class _Kept(msgspec.Struct):
    """What one client leaves to others: lanes as (queue, task, rank, floor)."""

    incarnation: str | None
    lanes: list[tuple[str, str, int, int]]


_encode = msgspec.json.Encoder().encode
_kept_of = msgspec.json.Decoder(_Kept).decode


class _Lane:
    """One lane: its floor, the next one with the time of its claim, and how many were claimed."""

    __slots__ = ("count", "floor", "next", "next_at")

    def __init__(self) -> None:
        self.floor = self.next = self.count = 0
        self.next_at = 0.0

    def note_claimed(self, position: int, now: float) -> None:
        """Note the highest position that one exchange has claimed. What stood below the floor does
        not lower it: more of that is found in the same way."""
        self.rise(now)
        if self.next <= self.floor < position:
            self.next, self.next_at = position, now

    def rise(self, now: float) -> int:
        if now - self.next_at >= LAG_SECONDS:
            self.floor = max(self.floor, self.next)
        return self.floor


class Below:
    """Which positions the next look below the floors covers, and when it is due.

    All of them, while that is quick. Else a part of them, then the part below that, and so on down
    to the first, each as large as is quick: no part has more dead rows than positions.
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
        there: where there were any, there may be more."""
        if late:
            self._top, self.due_at = part[1], self._clock.boot()
            return
        self.put_off(seconds)
        self._seconds += seconds
        if part[0] > 0:
            self._top = part[0]
            self._span *= 2 if seconds < QUICK_SECONDS else 1
            return
        self._top, self._span = None, ALL if self._seconds < DEAR_SECONDS else PART
        self._seconds = 0.0

    def note_failure(self, part: tuple[int, int]) -> None:
        """Note that a look at this part was not answered: smaller ones of it come next."""
        self.put_off()
        self._top, self._span, self._seconds = part[1], PART, DEAR_SECONDS

    def begin_in_parts(self) -> None:
        """Take the first look in parts: nothing is known of what it may meet."""
        self._span, self._seconds = PART, DEAR_SECONDS
        self.put_off()

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
        self._lanes: dict[_Key, _Lane] = {}
        self._columns = _columns([])
        self._below = Below(self._clock)
        self._keep_at = self._clock.boot() + KEEP_SECONDS
        self._kept = b""
        self._crowded_until = self._clock.boot()
        self.is_new = True  # it has not learnt yet what others know

    def learn(self, incarnation: str | None, texts: Iterable[str]) -> None:
        """Take in what others have kept in this incarnation: the highest floor of each lane."""
        self.note_incarnation(incarnation)
        self.is_new = False
        for text in texts:
            with suppress(msgspec.DecodeError):  # of another release
                kept = _kept_of(text)
                if kept.incarnation == incarnation:
                    self._learn_one(kept)
        if self._lanes:
            self._sort()
            self._below.begin_in_parts()

    def _learn_one(self, kept: _Kept) -> None:
        for queue, task, rank, floor in kept.lanes:
            lane = self._lanes.setdefault((queue, task, rank), _Lane())
            lane.floor = lane.next = max(lane.floor, floor)

    def choose_queue(self) -> str:
        """Return the queue of any known lane; "" where there is none."""
        lanes = [*self._lanes]
        return lanes[int(self._clock.random() * len(lanes))][0] if lanes else ""

    def take_due_note(self) -> str | None:
        """Return what is to be kept for others now, if that is due and new."""
        if not self._lanes or self._clock.boot() < self._keep_at:
            return None
        now = self._clock.boot()
        self._keep_at = now + KEEP_SECONDS
        lanes = [(*key, lane.rise(now)) for key, lane in self._lanes.items()]
        before, self._kept = self._kept, _encode(_Kept(self._incarnation, lanes))
        return None if self._kept == before else self._kept.decode()

    def note_incarnation(self, incarnation: str | None) -> None:
        """Note in which incarnation the database is. In another one positions may have stepped
        back, behind the floors: nothing is known of it."""
        if incarnation is not None and incarnation != self._incarnation:
            if self._incarnation is not None:
                self._forget()
            self._incarnation = incarnation

    def ask(self) -> tuple[list[str], tuple[int, int] | None]:
        """Return what the exchange takes, and the positions below the floors to be looked at, too,
        if that is due: call ``note_look`` or ``note_failure`` afterwards."""
        now = self._clock.boot()
        floors = [lane.rise(now) for lane in self._lanes.values()]
        look = self._below.part(max(floors)) if floors and now >= self._below.due_at else None
        return [*self._columns, array_text(floors)], look

    def is_part(self, look: tuple[int, int]) -> bool:
        """Whether this look below the floors leaves out positions below one of them."""
        return look[0] > 0 or look[1] < max(lane.floor for lane in self._lanes.values())

    def seconds_to_look(self) -> float | None:
        """Return in how many seconds the next look below the floors is due; None: where no lane is
        known, all is looked at. What a claim from the floors did not find may be there."""
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
        """Note new lanes, as (queue, task, rank, first position), and what was claimed, as lane and
        position, in that order."""
        now, known = self._clock.boot(), len(self._lanes)
        first = {(queue, task, rank): position for queue, task, rank, position in new}
        counts = Counter(key for key, _ in claimed)
        for key in first:
            if now >= self._crowded_until or counts[key] >= WORTH_CLAIMS:
                self._lanes.setdefault(key, _Lane())
        for key, position in {**first, **dict(claimed)}.items():
            if (lane := self._lanes.get(key)) is not None:
                lane.note_claimed(position, now)
                lane.count += counts[key]
        if len(self._lanes) != known:
            self._sort()
            if not known:
                self._below.put_off()  # where lanes are found, all is looked at

    def _sort(self) -> None:
        lanes = list(self._lanes.items())
        if len(lanes) > LANES_MAX:
            self._crowded_until = self._clock.boot() + CROWDED_SECONDS
            worth = [item for item in lanes if item[1].count >= WORTH_CLAIMS]
            lanes = nlargest(LANES_MAX // 2, worth, key=lambda item: item[1].count)
            for _, lane in lanes:
                lane.count //= 2  # of late counts for more
        self._lanes = dict(sorted(lanes, key=_place))
        self._columns = _columns(self._lanes)


def _place(item: tuple[_Key, _Lane]) -> tuple[str, str, int]:
    """Return what lanes are sorted by, in the order of the index."""
    queue, task, rank = item[0]
    return task, queue, rank


def _columns(keys: Collection[_Key]) -> list[str]:
    queues, tasks, ranks = zip(*keys, strict=True) if keys else ((), (), ())
    return [texts_array_text(queues), texts_array_text(tasks), array_text(ranks)]


NO_LANES = [*_columns([]), array_text([])]
