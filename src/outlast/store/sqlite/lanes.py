"""Finds the jobs of the line that a claim request takes next on SQLite, and those that fall due.

These functions run inside an exchange's transaction (sqlite/sql/exchange.sql).

The line is indexed by task, then by queue, so jobs of unknown tasks are never read. Queues take
turns: a claim starts after the queue at which the last one stopped, reads as many queues as it has
places, and shares the places out among them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import ceil
from sqlite3 import Cursor

import msgspec

from outlast.store.sqlite.statements import statements
from outlast.store.values import ClaimRequest

DUE_MAX = 1_000  # scheduled jobs that one exchange puts into the line
LONG = 10_000  # bytes of arguments and checkpoint; longer ones are read job by job

_SQL = statements("exchange")
_DRAW, _DRAW_TOKENS = (statements("jobs")[name] for name in ("draw", "draw_tokens"))
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Lane = tuple[str, str]  # queue and task


class Row(msgspec.Struct, array_like=True, order=True, gc=False):
    """A job that may run next, as "first_of_lanes" returns it; rows compare by their places in the
    line. Those of streams and suspects have more fields. ``args`` and ``checkpoint`` of more than
    LONG bytes are not read with it. ``size``: the bytes of both."""

    rank: int
    position: int | None
    job_id: int
    task: str
    queue: str
    args: str | None
    attempt_count: int
    failures: int
    losses: int
    policy: str
    tenant: str | None
    checkpoint: str | None
    size: int
    run_at: float
    expires_at: float | None
    awaited: int
    solo: int = 0
    incident: int | None = None
    needs: str | None = None
    stream: int = 0


decode_rows = msgspec.json.Decoder(list[Row]).decode


def draw(cursor: Cursor, name: str, count: int) -> range:
    last = int(cursor.execute(_DRAW, (count, name)).fetchone()[0])
    return range(last - count + 1, last + 1)


def draw_tokens(cursor: Cursor, now: float, count: int) -> range:
    last = int(cursor.execute(_DRAW_TOKENS, {"now": now, "count": count}).fetchone()[0])
    return range(last - count + 1, last + 1)


# ---------------------------------------------------------------------------- the next jobs


def find_next(cursor: Cursor, request: ClaimRequest, limit: int, first: str) -> list[Row]:
    """Return the rows that this request takes, from the queue ``first`` on, by queue and in the
    order of the line."""
    found: list[Row] = []
    for lanes in read_stretches(cursor, _SQL, request, limit, first):
        found += _share_out(cursor, lanes, limit - len(found), request.not_tenants)
        if len(found) >= limit:
            break
    return found


def find_suspects(cursor: Cursor, request: ClaimRequest, limit: int) -> list[Row]:
    values = {
        "solo": request.solo,
        "tasks": _encode_names(request.tasks),
        "queues": _encode_names(request.queues),
        "not_queues": _encode_names(request.not_queues),
        "tenants": _encode_names(request.not_tenants),
        "most": limit,
    }
    return [Row(*row) for row in cursor.execute(_SQL["suspects"], values)]


def read_stretches(
    cursor: Cursor, sql: Mapping[str, str], request: ClaimRequest, limit: int, first: str
) -> Iterator[list[Lane]]:
    """Yield lanes that are not empty, by their queues' turns, in stretches that fill ``limit``
    places. ``sql``: lists lanes, of the line or of streams."""
    if request.queues:
        values = {"tasks": _encode_names(request.tasks), "queues": _encode_names(request.queues)}
        lanes = _decode(cursor.execute(sql["lanes_of_queues"], values).fetchone()[0])
        fit = [(queue, task) for queue, task in lanes if queue not in request.not_queues]
        yield sorted(fit, key=lambda lane: (lane[0] < first, lane[0]))
        return
    yield from _read_on(cursor, sql["lanes"], request, limit, first)
    if first:
        yield from _read_on(cursor, sql["lanes"], request, limit, "", before=first)


def _read_on(
    cursor: Cursor,
    listing: str,
    request: ClaimRequest,
    limit: int,
    first: str,
    before: str | None = None,
) -> Iterator[list[Lane]]:
    """Yield the lanes of queues that are not paused, from one queue to before another, in
    stretches. A lane may hold only jobs that are passed over."""
    most = limit + len(request.not_queues)  # each of these has at most one lane of a task
    while lanes := _read_lanes(cursor, listing, request.tasks, first, most):
        within = [lane for lane in lanes if before is None or lane[0] < before]
        yield [lane for lane in within if lane[0] not in request.not_queues]
        if len(within) < len(lanes) or len(lanes) < most:
            return  # these were the last ones
        first = lanes[-1][0] + "\x01"  # no name lies between: no name has a NUL


def _read_lanes(
    cursor: Cursor, listing: str, tasks: Collection[str], first: str, most: int
) -> list[Lane]:
    """Return lanes from this queue on. If a task has more than ``most``, stop at the last queue of
    which the lanes of all tasks have been read."""
    values = {"tasks": _encode_names(tasks), "first": first, "most": most}
    lanes = [tuple(lane) for lane in _decode(cursor.execute(listing, values).fetchone()[0])]
    counts = Counter(task for _, task in lanes)
    last = {task: queue for queue, task in lanes if counts[task] >= most}  # of each task with more
    known = min(last.values(), default=None)
    return sorted(lane for lane in lanes if known is None or lane[0] <= known)


def _share_out(
    cursor: Cursor, lanes: Sequence[Lane], limit: int, not_tenants: Collection[str]
) -> list[Row]:
    """Give each queue an equal share of ``limit`` rows, then the rest of other shares."""
    found: list[Row] = []
    waiting = dict.fromkeys(queue for queue, _ in lanes)
    share = 0
    while waiting and len(found) < limit:
        taken, share = share, share + ceil((limit - len(found)) / len(waiting))
        left = [lane for lane in lanes if lane[0] in waiting]
        rows = _read_heads(cursor, left, share, not_tenants)
        for queue in waiting:
            found += rows[queue][taken:share]
        waiting = dict.fromkeys(queue for queue in waiting if len(rows[queue]) >= share)
    return found[:limit]


def _read_heads(
    cursor: Cursor, lanes: Sequence[Lane], most: int, not_tenants: Collection[str]
) -> defaultdict[str, list[Row]]:
    """Return the first ``most`` rows of each lane, or more, by queue in the order of the line."""
    values = {"lanes": _encode_text(lanes), "most": most, "long": LONG}
    values["tenants"] = _encode_text(not_tenants)
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(decode_rows(cursor.execute(_SQL["first_of_lanes"], values).fetchone()[0])):
        rows[row.queue].append(row)
    return rows


def _encode_names(names: Collection[str]) -> str:
    """Return each name once: a lane that is read twice would bring its jobs twice."""
    return _encode_text(sorted({*names}))


def _encode_text(values: Collection[object]) -> str:
    return _encode(values).decode()


# ------------------------------------------------------------------------ what falls due


def line_up_due(cursor: Cursor, now: float) -> bool:
    """Give due jobs, those longest due first, places in the line, at most DUE_MAX; return whether
    any waits in a stream. A job that no worker serves moves, too, or each exchange would find it.
    """
    due = cursor.execute(_SQL["due"], (now, DUE_MAX)).fetchall()
    if due:
        positions = draw(cursor, "position", len(due))
        rows = [(place, job_id) for place, (_, job_id, _) in zip(positions, due, strict=True)]
        cursor.executemany(_SQL["line_up"], rows)
    return any(in_stream for *_, in_stream in due)


def find_next_due(cursor: Cursor, queues: Sequence[str]) -> float | None:
    """No queues given: all of them."""
    if queues:
        looks = [
            cursor.execute(_SQL["next_due_of_queue"], (each,)).fetchone()[0] for each in queues
        ]
    else:
        looks = [cursor.execute(_SQL["next_due"]).fetchone()[0]]
    return min((time for time in looks if time is not None), default=None)
