"""Counts what runs and waits under limits, for people: bounded, however many keys a limit has.

Running attempts are counted from the running jobs, and waiting jobs from the streams that permits
block. Nothing walks the permits of a limit: of a million keys few may be in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from outlast.model.limits import permit_id, spec_of
from outlast.store.columns import struct_of
from outlast.store.limits import (
    BLOCKING_LOOKED_AT,
    LIMITS_SHOWN,
    PERMITS_SHOWN,
    RUNNING_LOOKED_AT,
    LimitRow,
)
from outlast.store.statements import Row, Rows

K = TypeVar("K")
SHARE = 100  # rows that are counted for each key at first
PROBE = 2  # rows cost as much as finding where a key's rows begin


class Shares(Generic[K]):
    """Shares a budget of ``most`` rows among many keys: each is counted up to ``rows``, and keys
    that have reached it share ``most`` once more (``go_on``), if that leads twice as far. So no
    number of keys makes the counts read more than 2 x ``most`` rows.
    """

    def __init__(self, most: int, keys: Iterable[K]) -> None:
        self._most = most
        self._is_first = True
        self.keys = list(keys)
        self.rows = self._even_share(SHARE)

    def go_on(self, full: Sequence[K]) -> None:
        """Count the keys that have reached ``rows`` further, if that is worth it."""
        before, self.keys = self.rows, list(full) if self._is_first else []
        self._is_first = False
        self.rows = self._even_share(self._most)
        if self.rows < 2 * before:
            self.keys = []

    def _even_share(self, at_most: int) -> int:
        return max(1, min(at_most, self._most // max(1, len(self.keys)) - PROBE))


async def count_limits(rows: Rows, most: int, name: str | None = None) -> list[LimitRow]:
    """Return limits by name, or one, in one snapshot, also unknown ones for which jobs wait."""
    found = await read_limits(rows, name)
    wholes = {permit_id(row["name"], ""): row["name"] for row in found if row["per"] is None}
    holds = await rows("limits", "holds", ids=list(wholes))
    held = {wholes[row["id"]]: row["held_until"] for row in holds}
    running, is_cut = await _count_running(rows)
    waiting, full = await _count_waiting(rows, most, wholes)
    known = {row["name"] for row in found}
    unknown = sorted(waiting.keys() - known)
    found += [{"name": each, "running": 0} for each in unknown if name in {None, each}]
    limits = []
    for row in found:
        its_name = str(row["name"])
        marks = {
            "permits": row.get("permits", 0) >= PERMITS_SHOWN,
            "used": is_cut,
            "waiting": its_name in full or (None in full and row.get("per") is not None),
        }
        values = {
            "held_until": max(row.get("held_until") or 0.0, held.get(its_name) or 0.0) or None,
            "used": running.get(its_name, 0),
            "waiting": waiting.get(its_name, 0),
            "at_least": [each for each, more in marks.items() if more],
        }
        limits.append(limit_of(row, **values))
    return limits


async def read_limits(rows: Rows, name: str | None = None) -> list[Row]:
    """Return the rows of limits, or of one, by name."""
    return await rows("limits", "limits", name=name, most=LIMITS_SHOWN, keys=PERMITS_SHOWN)


def limit_of(row: Row, **read: Any) -> LimitRow:
    """Return a limit from its row, with the values ``read`` elsewhere."""
    declared, own = (spec_of(row.get(text)) for text in ("declared", "own"))
    return struct_of(LimitRow, row, declared=declared, own=own, **read)


async def find_blocking(rows: Rows) -> tuple[dict[str, list[int]], bool]:
    """Return the permits that block streams, by limit, and whether there may be more."""
    found = await rows("limits", "blocking", most=BLOCKING_LOOKED_AT)
    permits: dict[str, list[int]] = {}
    for row in found:
        if row["name"] is not None:
            permits.setdefault(row["name"], []).append(row["id"])
    return permits, len(found) >= BLOCKING_LOOKED_AT


async def _count_running(rows: Rows) -> tuple[Counter[str], bool]:
    found = await rows("limits", "count_running", rows=RUNNING_LOOKED_AT)
    numbers = Counter({row["name"]: row["number"] for row in found})
    return numbers, bool(found) and found[0]["looked_at"] >= RUNNING_LOOKED_AT


async def _count_waiting(
    rows: Rows, most: int, wholes: dict[int, str]
) -> tuple[Counter[str], set[str | None]]:
    """Return the due jobs that wait for each limit, and the limits that may have more (None: any
    limit with keys). ``wholes``: permits of limits without keys, which are counted first."""
    blocking, is_cut = await find_blocking(rows)
    if is_cut:
        blocking |= {name: [permit] for permit, name in wholes.items()}
    numbers: Counter[str] = Counter()
    full: set[str | None] = set()
    shares = Shares(most, blocking)
    while shares.keys:
        for name in shares.keys:
            values = {"permits": blocking[name], "most": shares.rows}
            (counted,) = await rows("limits", "count_blocked", **values)
            numbers[name] = counted["number"]
            full.discard(name)
            if counted["looked_at"] >= shares.rows:
                full.add(name)
        shares.go_on([name for name in shares.keys if name in full])
    for row in await rows("limits", "count_in_order", most=most):
        if isinstance(row["name"], str):
            numbers[row["name"]] += row["number"]
            full |= {row["name"]} if row["looked_at"] >= most else set()
    return +numbers, full | ({None} if is_cut else set())
