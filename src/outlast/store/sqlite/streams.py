"""Claims jobs from streams on SQLite: jobs under limits, and of tasks whose tenants take turns.

Functions inside an exchange's transaction (sqlite/sql/limits.sql argues why that is right). An
exchange makes one ``Streams``, only if a stream is open or a permit may have room for one that it
blocks: unlimited jobs pay for nothing here.

Queues take turns as in the line (store/sqlite/lanes.py). Within a queue the highest priority comes
first, and within that, streams in the order of their turns, each with an equal share.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import ceil
from sqlite3 import Cursor

import msgspec

from outlast.model.limits import Need, needs_of, share_out
from outlast.store.limits import FOLD_MAX
from outlast.store.queue_turns import Turns
from outlast.store.sqlite.lanes import LONG, Lane, Row, decode_rows, draw, read_stretches
from outlast.store.sqlite.permits import Permits
from outlast.store.sqlite.statements import statements
from outlast.store.values import ClaimRequest

LOOK_MIN = 100  # streams that a round looks at, if that many are open
OPEN_MIN = 10  # blocked streams of a permit that are read at first
OPEN_MAX = 5_000  # and at last, if none before them is of a request's tasks and queues
OF_HOLDER = -2  # in place of a permit: an ordered stream waits for the end of a job that has begun
ROUNDS_MAX = 20  # of one exchange; the next one follows at once

_SQL = statements("limits")
_encode = msgspec.json.Encoder().encode


# claims the first of these rows, as many as there is room for; returns them
Take = Callable[[list[Row]], list[Row]]


class _Head(msgspec.Struct, gc=False):
    """A stream that a round looks at: up to ``count`` jobs of it may start. It waits for a turn
    since ``since``. ``holder``: the job of an ordered stream that has begun and not ended for good;
    ``waits``: whether it cannot start now."""

    stream: int
    turn: int
    needs: list[Need]
    since: float
    holder: int | None = None
    waits: int = 0
    count: int = 0

    @property
    def ordered(self) -> bool:
        return any(need.ordered for need in self.needs)


class Streams:
    """The streams in one exchange. ``seen``: those that it has looked at. ``more``: there may be
    others whose jobs may start. ``passes``: some jobs are suspects, for requests of their own."""

    def __init__(
        self,
        cursor: Cursor,
        now: float,
        requests: Sequence[ClaimRequest],
        permits: Permits,
        *,
        passes: bool = False,
    ) -> None:
        self.more = False
        self._cursor = cursor
        self._now = now
        self._permits = permits
        self._requests = requests
        self._passes = passes
        self.seen: set[int] = set()
        self._passed: set[int] = set()  # all their jobs are passed over
        self._rounds = ROUNDS_MAX
        self._cut = False  # whether the exchange has no room for more, or has met expired jobs
        if self._requests:
            self._open_marked()

    def claim(self, request: ClaimRequest, places: int, turns: Turns, take: Take) -> int:
        """Return how many jobs were started."""
        taken = 0
        self._passed.clear()
        while taken < places and self._rounds and not self._cut:
            looked = False
            first = turns.find_start(request, streams=True)
            for lanes in read_stretches(self._cursor, _SQL, request, places - taken, first):
                while taken < places and (looks := self._read_heads(request, lanes)):
                    taken += self._claim_round(request, looks, places - taken, turns, take)
                    looked = True
                    if self._cut or not self._rounds:
                        return taken
            if not looked:  # each look at blocked streams is a round, too: all may be passed over
                if not self._open(self._permits.list_roomy(), places - taken):
                    break
                self._note_round()
        return taken

    def _note_round(self) -> None:
        self._rounds -= 1
        self.more = self.more or not self._rounds

    def _claim_round(
        self,
        request: ClaimRequest,
        looks: Mapping[str, list[_Head]],
        places: int,
        turns: Turns,
        take: Take,
    ) -> int:
        self._note_round()
        self._share_out(looks, places)
        all_looks = [look for each in looks.values() for look in each]
        found = self._read_jobs(request, all_looks)[:places]
        rows = take(found)
        self._cut = len(rows) < len(found)
        self._permits.start(rows)
        if rows:
            turns.note_taken(request, rows[-1].queue, streams=True)
        for look in all_looks:
            if look.ordered:
                begun = (row.job_id for row in rows if row.stream == look.stream)
                look.holder = next(begun, look.holder)
        self._note(all_looks, Counter(row.stream for row in rows))
        return len(rows)

    def _read_heads(self, request: ClaimRequest, lanes: Sequence[Lane]) -> dict[str, list[_Head]]:
        """Return the first open streams of each queue's highest priority, in their order."""
        if not lanes:
            return {}
        values = {
            "lanes": _text(lanes),
            "most": ceil(LOOK_MIN / len(lanes)),
            "passed": _text(self._passed),
            "tenants": _text(request.not_tenants),
            "solo": request.solo if request.solo or self._passes else None,
        }
        order = {queue: place for place, queue in enumerate(dict.fromkeys(q for q, _ in lanes))}
        rows = self._cursor.execute(_SQL["first_streams"], values).fetchall()
        found: defaultdict[str, list[_Head]] = defaultdict(list)
        ranks: dict[str, int] = {}
        for row in sorted(rows, key=lambda r: (order[r[0]], *r[1:4])):
            queue, rank, turn, stream, needs, *rest = row
            if ranks.setdefault(queue, rank) == rank:
                found[queue].append(_Head(stream, turn, needs_of(needs), *rest))
        return found

    def _share_out(self, looks: Mapping[str, list[_Head]], places: int) -> None:
        """Set how many jobs of each stream may start: each queue has an equal share."""
        self._permits.read(n for each in looks.values() for look in each for n in look.needs)
        for look in [look for each in looks.values() for look in each if not look.waits]:
            self._permits.give_kept(look.stream, look.needs)
        budgets = self._permits.copy_budgets()
        for done, found in enumerate(looks.values()):
            streams = [look for look in found if not look.waits]
            share = ceil(places / (len(looks) - done))
            shared = share_out([look.needs for look in streams], budgets, share)
            for look, (most, _) in zip(streams, shared, strict=True):
                look.count = min(most, 1) if look.ordered else most
                places -= look.count
                for need in look.needs:
                    budgets[need.permit].take(look.count, need.cost)

    def _read_jobs(self, request: ClaimRequest, looks: Sequence[_Head]) -> list[Row]:
        by_count: defaultdict[int, list[tuple[int, int | None]]] = defaultdict(list)
        for look in looks:
            by_count[look.count].append((look.stream, look.holder))
        by_count.pop(0, None)
        rows: list[Row] = []
        for count, streams in by_count.items():
            values = {
                "streams": _text(streams),
                "most": count,
                "long": LONG,
                "tenants": _text(request.not_tenants),
                "solo": request.solo,
            }
            rows += decode_rows(
                self._cursor.execute(_SQL["first_of_streams"], values).fetchone()[0]
            )
        order = {look.stream: place for place, look in enumerate(looks)}
        return sorted(rows, key=lambda row: order[row.stream])  # in their order within a stream

    def _note(self, looks: Sequence[_Head], started: Mapping[int, int]) -> None:
        """Write the new state of the streams. Streams that started nothing are checked first, as
        they come first when a permit's rate allows a start."""
        waited = [look for look in looks if look.stream not in started]
        begun = [look for look in looks if look.stream in started]
        blocked: dict[int, int | None] = {}
        for look in waited + begun:
            if look.ordered and (look.waits or look.stream in started):
                blocked[look.stream] = OF_HOLDER
                continue
            blocked[look.stream] = self._permits.find_full(look.needs, look.stream)
            if look.stream not in started:
                self._permits.keep_rest(look.needs, look.stream, self._now - look.since)
        turns = draw(self._cursor, "turn", len(begun)) if begun else ()
        for look, turn in zip(begun, turns, strict=True):
            look.turn = turn
        rows = [(look.stream, look.turn, blocked[look.stream], look.holder) for look in looks]
        values = {"streams": _text(rows), "now": self._now}
        closed = {row[0] for row in self._cursor.execute(_SQL["note_looks"], values).fetchall()}
        self.seen.update(look.stream for look in looks)
        self._passed.update(
            look.stream for look in waited if look.count and look.stream not in closed
        )

    # ------------------------------------------------------- streams that a permit blocks

    def _open_marked(self) -> None:
        values = {"now": self._now, "most": FOLD_MAX}
        marked = self._cursor.execute(_SQL["marked"], values).fetchall()
        if marked:
            self._permits.read(Need(*row) for row in marked)
            permits = [row[0] for row in marked]
            self._permits.look_again(permits)
            self._open(permits, max((request.limit for request in self._requests), default=0))
        self.more = self.more or len(marked) >= FOLD_MAX

    def _open(self, permits: Iterable[int], places: int) -> bool:
        """Open streams that these permits block, in their order, until as many jobs may start for
        these requests as there are places; return whether any may. Streams of others in between are
        opened, too: they must keep no permit from these."""
        wanted = {each: self._permits.count_openings(each, places) for each in permits}
        roomy = [permit for permit, count in wanted.items() if count]
        if not roomy:
            return False
        most = max(*wanted.values(), OPEN_MIN)
        last = max(most, OPEN_MAX)  # a wide worker may have more places
        is_ours = False
        while not is_ours and most <= last:
            values = {"permits": _text(roomy), "seen": _text(self.seen), "most": most}
            values["tenants"] = _text(self._requests[0].not_tenants)  # all have the same
            if not (found := self._cursor.execute(_SQL["blocked_streams"], values).fetchall()):
                break
            opened: list[int] = []
            for permit, stream, task, queue, needs, is_wanted in found:
                if not self._permits.may_fit(permit, needs_of(needs)):
                    self.seen.add(stream)
                elif wanted[permit]:
                    opened.append(stream)
                    if is_wanted and self._is_ours(task, queue):
                        wanted[permit] -= 1
                        is_ours = True
            if opened:
                self._permits.look_again(roomy)
                self._cursor.execute(_SQL["open_streams"], {"streams": _text(opened)})
                most *= 2
        if most > last and not is_ours:
            self.more = True  # the next exchange goes on behind them
        return is_ours

    def _is_ours(self, task: str, queue: str) -> bool:
        return any(
            task in each.tasks
            and (not each.queues or queue in each.queues)
            and queue not in each.not_queues
            for each in self._requests
        )


def find_next_opening(cursor: Cursor, requests: Sequence[ClaimRequest]) -> float | None:
    tasks = {task for request in requests for task in request.tasks}
    found: float | None = cursor.execute(
        _SQL["next_opening"], {"tasks": _text(sorted(tasks))}
    ).fetchone()[0]
    return found


def _text(values: Collection[object]) -> str:
    return _encode(list(values)).decode()
