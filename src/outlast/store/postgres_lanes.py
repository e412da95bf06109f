"""What a client remembers of the line on PostgreSQL, so that a claim does not walk over dead rows.

A lane is the part of the line with one queue, task and priority. Rows that have left it stay in
its index until a vacuum may take them: behind a transaction that somebody holds open, that is all
of them. So the client tells the exchange from which position on it reads each lane, and which
lanes it knows (sql/postgres/migration_0003_exchange.sql says why that is right).

A floor is the highest position that was claimed at least ``LAG_SECONDS`` ago: transactions that
commit that late in disorder are still seen at once. What commits later is found by the next look
without floors: one a second, and more seldom where that is dear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from outlast.clock import Clock
from outlast.store.postgres_sql import array_text, texts_array_text

LAG_SECONDS = 0.2
FULL_SECONDS = 1.0  # between looks without floors
FULL_SECONDS_MAX = 30.0
FULL_SHARE = 20  # of the time may go into them: one part in so many
LANES_MAX = 500  # known at a time; above it, all are forgotten and found again

_Key = tuple[str, str, int]  # queue, task, rank (the negative of the priority): as in the index


class _Lane:
    """One lane: its floor, and the next one with the time of its claim."""

    __slots__ = ("floor", "next", "next_at")

    def __init__(self) -> None:
        self.floor = self.next = 0
        self.next_at = 0.0

    def claimed(self, position: int, now: float) -> None:
        """Note the highest position that one exchange has claimed. One below the floor shows that
        more may stand there: a large transaction that was long open."""
        self.rise(now)
        if position < self.floor:
            self.floor = self.next = position
        elif self.next <= self.floor:
            self.next, self.next_at = position, now

    def rise(self, now: float) -> int:
        if now - self.next_at >= LAG_SECONDS:
            self.floor = max(self.floor, self.next)
        return self.floor


class Lanes:
    """The lanes that one client knows."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Know nothing: after a broken connection it may be another server, behind the last."""
        self._lanes: dict[_Key, _Lane] = {}
        self._columns = _columns([])
        self._full_at = float("-inf")

    def ask(self) -> tuple[list[str], bool]:
        """Return what the exchange takes, and whether it is a look without floors, which trusts
        nothing that is known here."""
        now = self._clock.boot()
        if now >= self._full_at:
            return [*_columns([]), "{}"], True
        floors = array_text([lane.rise(now) for lane in self._lanes.values()])
        return [*self._columns, floors], False

    def looked(self, seconds: float) -> None:
        """Note that a look without floors has taken so long."""
        pause = min(FULL_SECONDS_MAX, max(FULL_SECONDS, seconds * FULL_SHARE))
        self._full_at = self._clock.boot() + pause

    def found(self, keys: Iterable[_Key]) -> None:
        """Take in new lanes."""
        known = len(self._lanes)
        for key in keys:
            self._lanes.setdefault(key, _Lane())
        if len(self._lanes) > LANES_MAX:
            self._lanes, self._columns = {}, _columns([])
        elif len(self._lanes) != known:
            self._lanes = dict(sorted(self._lanes.items()))
            self._columns = _columns(self._lanes)

    def claimed(self, highest: dict[_Key, int]) -> None:
        """Note the highest position that was claimed in each lane."""
        now = self._clock.boot()
        for key, position in highest.items():
            lane = self._lanes.get(key)
            if lane is not None:
                lane.claimed(position, now)


def _columns(keys: Collection[_Key]) -> list[str]:
    queues, tasks, ranks = zip(*keys, strict=True) if keys else ((), (), ())
    return [texts_array_text(queues), texts_array_text(tasks), array_text(ranks)]
