"""Counts permits in an exchange on SQLite: read once, written once, under the write lock.

Only what starts is counted here. The triggers on a job's row give a permit back, in the transaction
of the end (sqlite/sql/migration_0001_schema.sql).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.model.limits import Budget, Need, Room, needs_of, seconds_ahead
from outlast.store.sqlite.lanes import Row
from outlast.store.sqlite.statements import statements

_SQL = statements("limits")
KEPT_SHARE = 0.5  # of the time for which a stream has waited
_FAR = 1e15  # seconds: what a hostile row says stays within the column's range
_encode = msgspec.json.Encoder().encode


class _Known(msgspec.Struct, gc=False):
    """A permit, from its row and the row of its limit. ``kept``: 1 while a place of it is kept for
    the stream ``kept_for``; the budget counts that as used."""

    need: Need  # its cost means nothing
    budget: Budget
    tat: float
    touched_at: float
    held_until: float
    kept: int
    kept_for: int | None
    kept_until: float


class Permits:
    """The permits that one exchange looks at. ``budgets`` holds what each of them still allows."""

    def __init__(self, cursor: Cursor, now: float) -> None:
        self.budgets: dict[int, Budget] = {}
        self._cursor = cursor
        self._now = now
        self._known: dict[int, _Known] = {}
        self._changed: set[int] = set()

    def read(self, needs: Iterable[Need]) -> None:
        new = {need.permit: need for need in needs if need.permit not in self._known}
        if not new:
            return
        values = {"permits": _encode([(need.permit, need.name) for need in new.values()]).decode()}
        for row in self._cursor.execute(_SQL["budgets"], values).fetchall():
            self._note(new[row[0]], *row[1:])

    def _note(
        self,
        need: Need,
        is_known: int,
        running: int | None,
        spacing: float | None,
        burst: float,
        used: int,
        tat: float,
        touched_at: float,
        held_until: float,
        all_held_until: float,
        opens_at: float,
        kept_for: int | None,
        kept_until: float,
    ) -> None:
        now = self._now
        kept = seconds_ahead(tat=kept_until, touched_at=touched_at, now=now) if kept_for else 0.0
        held = [seconds_ahead(tat=held_until, touched_at=touched_at, now=now), all_held_until - now]
        if touched_at > now:  # the clock was set back
            kept_until = now + kept
            self._changed.add(need.permit)
        if touched_at <= now + 1 and opens_at != kept_until:
            held.append(opens_at - now)
        budget = Budget(
            running=running if is_known else 0,
            spacing=spacing,
            burst=burst,
            used=used + (kept > 0),
            ahead=seconds_ahead(tat=tat, touched_at=touched_at, now=now),
            held_for=max(0.0, *held),
        )
        self.budgets[need.permit] = budget
        self._known[need.permit] = _Known(
            need, budget, tat, touched_at, held_until, int(kept > 0), kept_for, kept_until
        )

    def copy_budgets(self) -> dict[int, Budget]:
        return {permit: msgspec.structs.replace(each) for permit, each in self.budgets.items()}

    def list_roomy(self) -> list[int]:
        return [permit for permit in self.budgets if self.has_room(permit)]

    def has_room(self, permit: int) -> bool:
        return self.budgets[permit].room(0.0).starts > 0

    def count_openings(self, permit: int, places: int) -> int:
        """Return how many streams of a permit to open: as many as jobs may start, but at least one,
        whose cost may be lower."""
        if not self.has_room(permit):
            return 0
        return max(1, min(places, self.budgets[permit].room(1.0).starts))

    def may_fit(self, permit: int, needs: Sequence[Need]) -> bool:
        """A cost above the burst never fits."""
        budget = self.budgets[permit]
        return budget.spacing is None or all(
            need.cost <= budget.burst for need in needs if need.permit == permit
        )

    def find_full(self, needs: Sequence[Need], stream: int) -> int | None:
        """Return the first permit without room for a stream. If only time is missing, nothing else
        starts under it until then."""
        for need in needs:
            budget = self.budgets[need.permit]
            room = self._find_room(need, stream)
            if room.starts <= 0:
                budget.held_for = max(budget.held_for, room.opens_in or 0.0)
                self._changed.add(need.permit)
                return need.permit
        return None

    def _find_room(self, need: Need, stream: int) -> Room:
        """Count the place that is kept for the stream as room."""
        budget, known = self.budgets[need.permit], self._known[need.permit]
        if known.kept and known.kept_for == stream:
            budget = msgspec.structs.replace(budget, used=budget.used - known.kept)
        return budget.room(need.cost)

    def keep_rest(self, needs: Sequence[Need], stream: int, waited: float) -> None:
        """Keep a place of each permit that has room, if the others may have room in time: they are
        full with running attempts, or open by then."""
        seconds = min(waited * KEPT_SHARE, _FAR)
        roomy = []
        for need in needs:
            budget, known = self.budgets[need.permit], self._known[need.permit]
            room = self._find_room(need, stream)
            if room.starts > 0:
                roomy.append(known)
            elif room.opens_in is not None:
                if room.opens_in > seconds:
                    return
            elif not 0 < (budget.running or 0) <= budget.used - known.kept:
                return
        for known in roomy if len(roomy) < len(needs) else ():
            if known.budget.running is None or known.kept:
                continue
            if self._now - known.kept_until >= seconds > 0:
                known.kept, known.kept_for = 1, stream
                known.kept_until = self._now + seconds
                known.budget.used += 1
                self._changed.add(known.need.permit)

    def give_kept(self, stream: int, needs: Sequence[Need]) -> None:
        kept = [self._known[need.permit] for need in needs]
        kept = [each for each in kept if each.kept and each.kept_for == stream]
        if kept and all(self._find_room(need, stream).starts > 0 for need in needs):
            for each in kept:
                each.kept, each.kept_until = 0, self._now
                each.budget.used -= 1
                self._changed.add(each.need.permit)

    def start(self, rows: Iterable[Row]) -> None:
        needs = [need for row in rows for need in needs_of(row.needs)]
        self.read(needs)
        for need in needs:
            self.budgets[need.permit].take(1, need.cost)
            self._changed.add(need.permit)

    def look_again(self, permits: Iterable[int]) -> None:
        """Write these permits, which are marked, in any case."""
        self._changed.update(permits)

    def write(self, seen: Collection[int]) -> None:
        """``seen``: the streams that this exchange has looked at."""
        if not self._changed:
            return
        rows = [self._row(self._known[permit]) for permit in self._changed]
        values = {
            "permits": _encode(rows).decode(),
            "seen": _encode(list(seen)).decode(),
            "now": self._now,
        }
        self._cursor.execute(_SQL["write_permits"], values)
        self._changed.clear()

    def _row(self, known: _Known) -> tuple[Any, ...]:
        need, budget, now = known.need, known.budget, self._now
        held_until = known.held_until
        if known.touched_at > now:
            held_until = now + max(0.0, held_until - known.touched_at)
        kept_until = known.kept_until if known.kept else None
        return (
            need.permit,
            need.name,
            need.key,
            budget.used - known.kept,
            now + min(budget.ahead, _FAR),
            held_until if held_until > now else None,
            now + min(budget.held_for, _FAR) if budget.held_for > 0 else kept_until,
            self.has_room(need.permit),
            known.kept_for if known.kept else None,
            known.kept_until,
        )
