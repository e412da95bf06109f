"""Limits over the whole fleet: how many jobs run at once, and how many start in a span of time.

A *limit* has a name, and a count of running jobs, a rate of starts, or both: one for all, or one
for each tenant or limit key. Each of these is counted by a *permit*. A job under limits, or of a
task that tenants share fairly, waits in a *stream*: all jobs of one task, queue and priority that
need the same permits at the same costs. Streams take turns.

A permit's count changes only in the transaction that starts or ends an attempt. So a crash neither
loses nor doubles a permit: an attempt holds its permits for exactly as long as its token is current
(docs/limits.md).

The rate is GCRA, the generic cell rate algorithm (ITU-T I.371): each start moves the permit's
theoretical time of the next one on by ``cost`` times ``spacing``, and is early if that time would
be more than ``burst`` times ``spacing`` ahead of now. In any span of w seconds the costs of starts
add up to at most ``burst + w / spacing``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from struct import pack

import msgspec

from outlast.errors import ConfigError

LIMITS_MAX = 8  # of one job
RUNNING_MAX = 1_000_000
COST_MIN, COST_MAX = 1e-6, 1_000_000.0
_ROUNDING = 1e-9  # seconds: sums of steps do not come out exactly
_SPACING_MIN, _SPACING_MAX = 1e-6, 1e8  # seconds
_UNITS = {
    1: "s sec second",
    60: "m min minute",
    3600: "h hr hour",
    86_400: "d day",
    604_800: "w week",
}
_SECONDS = {
    f"{unit}{plural}": float(seconds)
    for seconds, units in _UNITS.items()
    for unit in units.split()
    for plural in ("", "s")
    if len(unit) > 1 or not plural  # "ms" does not mean minutes
}
_RATE = r"(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)?\s*([a-z]+)"


class Per(StrEnum):
    """The kind of value that a limit counts separately: each tenant, or each limit key."""

    TENANT = "tenant"
    LIMIT_KEY = "limit_key"


class LimitSpec(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What a limit allows. Its JSON form is that of msgspec.

    Attributes:
        running: how many attempts may run at once; None: any number.
        spacing: seconds between two starts at the rate's full pace; None: no rate.
        burst: how many starts (or how much cost) may come at once under the rate.
        per: the kind of value; each value has a count and a rate of its own; None: one for all.
        ordered: the jobs of a task run one at a time, in the order of the line: the next one
            starts once the one before it has ended for good.
    """

    running: int | None = None
    spacing: float | None = None
    burst: float = 1.0
    per: Per | None = None
    ordered: bool = False


def spec_of(text: str | None) -> LimitSpec | None:
    """Return a limit's spec as it is stored; None if there is none or it cannot be read."""
    try:
        return None if text is None else msgspec.json.decode(text, type=LimitSpec)
    except (msgspec.DecodeError, UnicodeError):
        return None


class Need(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One permit that a job needs. Kept on its row, as JSON.

    Attributes:
        permit: the permit's id.
        name: the limit's name.
        key: the tenant or limit key whose permit it is; "" for a limit that is one for all.
        cost: what a start takes of the rate.
        ordered: whether the limit is ordered.
    """

    permit: int
    name: str
    key: str = ""
    cost: float = 1.0
    ordered: bool = False


_needs = msgspec.json.Decoder(list[Need]).decode


class Room(msgspec.Struct, frozen=True, gc=False):
    """What a permit has left: ``starts`` jobs may start now; ``opens_in``: in how many seconds one
    may, if none may now and only time is missing; else None."""

    starts: int
    opens_in: float | None = None


UNLIMITED = 1_000_000_000  # starts, where neither count nor rate holds them back


def seconds_ahead(*, tat: float, touched_at: float, now: float) -> float:
    """Return the next start's time, written at ``touched_at``, less now. It counts from
    ``touched_at`` if the clock was set back: else nothing would start until the clock is there."""
    return max(0.0, tat - max(now, touched_at))


class Budget(msgspec.Struct, gc=False):
    """What one permit allows. An unknown limit has a count of 0. ``ahead``: the next start's time
    less now (``seconds_ahead``). ``held_for``: the seconds for which the permit is still held."""

    running: int | None
    spacing: float | None
    burst: float
    used: int
    ahead: float
    held_for: float = 0.0

    def room(self, cost: float = 1.0) -> Room:
        """Return how many jobs of this cost may start."""
        if self.held_for > 0:
            return Room(0, self.held_for)
        free = UNLIMITED if self.running is None else max(0, self.running - self.used)
        if self.spacing is None or cost <= 0 or free == 0:
            return Room(free)
        window, step = self.burst * self.spacing, cost * self.spacing
        early = self.ahead + step - window
        if early > _ROUNDING:
            return Room(0, early if cost <= self.burst else None)
        return Room(min(free, 1 + math.floor((window - self.ahead - step) / step + _ROUNDING)))

    def take(self, count: int, cost: float) -> None:
        """Count jobs of this cost as started."""
        self.used += count
        self.ahead += count * cost * (self.spacing or 0.0)


def share_out(
    needs: Sequence[Sequence[Need]],
    budgets: Mapping[int, Budget],
    places: int,
) -> list[tuple[int, int | None]]:
    """Share places out among streams, in order. Return for each the jobs it may start or, if none,
    its first permit without room.

    Each stream is offered an equal share, one place at least; a later call shares out the rest.
    None passes a stream that waits only for a rate: else cheap jobs would starve expensive ones.
    """
    left = {permit: msgspec.structs.replace(budget) for permit, budget in budgets.items()}
    share = max(1, places // max(1, len(needs)))
    shared: list[tuple[int, int | None]] = []
    for each in needs:
        found = [(need.permit, left[need.permit].room(need.cost)) for need in each]
        full = next(((permit, room) for permit, room in found if room.starts <= 0), None)
        if full is not None:
            permit, room = full
            if room.opens_in is not None:
                left[permit].held_for = room.opens_in
            shared.append((0, permit))
            continue
        count = min([share, places, *(room.starts for _, room in found)])
        for need in each:
            left[need.permit].take(count, need.cost)
        places -= count
        shared.append((count, None))
    return shared


def permit_id(name: str, key: str) -> int:
    """Return the id of a limit's permit, which clients compute without asking the store: 63 bits of
    a hash, in which two of a billion permits meet once in nine."""
    return _hashed("permit", name, key)


def stream_id(
    task: str, queue: str, priority: int | None, needs: Iterable[Need], fair: str | None
) -> int:
    """Return the id of the stream in which such jobs wait. ``priority``: None if waiting raises it.
    ``fair``: the tenant, if tenants take turns, else None."""
    parts = [
        f"{need.permit}:{pack('>d', need.cost).hex()}{':ordered' * need.ordered}" for need in needs
    ]
    shared = "" if fair is None else f"t{fair}"
    return _hashed(
        "stream",
        task,
        queue,
        "" if priority is None else str(priority),
        ",".join(sorted(parts)),
        shared,
    )


def _hashed(*parts: str) -> int:
    """Return 63 bits of a hash that PostgreSQL can compute as well (outlast_hash_v1)."""
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(text).digest()[:8], "big") >> 1


def needs_text(needs: Sequence[Need]) -> str:
    """Return needs as a row keeps them; a fifth field marks an ordered limit (outlast_note_v1)."""
    in_turn = sorted(needs, key=lambda need: need.permit)
    fields = [msgspec.structs.astuple(need)[: 5 if need.ordered else 4] for need in in_turn]
    return msgspec.json.encode(fields).decode()


def needs_of(text: str | None) -> list[Need]:
    """Return the needs on a row; none if unreadable. A too low cost is raised to the least one, to
    keep the arithmetic of a claim in range."""
    try:
        needs = _needs(text or "[]")
    except (msgspec.DecodeError, UnicodeError):
        return []
    return [
        need
        if need.cost >= COST_MIN or need.cost == 0
        else msgspec.structs.replace(need, cost=COST_MIN)
        for need in needs
    ]


def limits_of(text: str | None) -> tuple[str, ...]:
    """Return the sorted names of the limits on a job's row."""
    return () if text is None else tuple(sorted({need.name for need in needs_of(text)}))


def parse_rate(rate: str) -> float:
    """Return the seconds between starts for ``"600/min"``, ``"5/s"`` or ``"100/15min"``;
    ConfigError for anything else."""
    found = re.fullmatch(_RATE, rate.strip()) if isinstance(rate, str) else None
    unit = _SECONDS.get(found[3]) if found else None
    count = float(found[1]) if found else 0.0
    span = float(found[2] or 1) * (unit or 0.0) if found else 0.0
    spacing = span / count if count > 0 else 0.0
    if not _SPACING_MIN <= spacing <= _SPACING_MAX:
        raise ConfigError(
            "rate must be such as '600/min', '5/s' or '100/15min', by the second, minute, hour, day"
            f" or week, not {rate!r}"
        )
    return spacing
