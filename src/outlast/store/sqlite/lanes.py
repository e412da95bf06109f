"""The line on SQLite: which jobs a claim request takes next, and what falls due. Functions of a
cursor, inside the exchange's own write transaction (sqlite/sql/exchange.sql).

The line is indexed by task, then by queue, and a worker asks for its own tasks: what it does not
know is never read, in however many queues it waits. Queues take turns. A claim goes on behind the
queue at which the last one has stopped, reads as many queues as it has places, and shares the
places out among them; it does not matter how many more there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from math import ceil
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.store.sqlite.statements import statements
from outlast.store.values import ClaimRequest

DUE_MAX = 1_000  # scheduled jobs that one exchange puts into the line
LONG = 10_000  # bytes of arguments and checkpoint; longer ones are read job by job

_SQL = statements("exchange")
_DRAW = statements("sequences")["draw"]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode

Row = tuple[Any, ...]  # as "lanes" makes it; those of suspects go on with solo, incident, cohort
Lane = tuple[str, str]  # queue and task


def draw(cursor: Cursor, name: str, count: int) -> range:
    """Return the next ``count`` numbers of a sequence; they are never drawn again."""
    last = int(cursor.execute(_DRAW, (count, name)).fetchone()[0])
    return range(last - count + 1, last + 1)


# ---------------------------------------------------------------------------- what is next


def find_next(cursor: Cursor, request: ClaimRequest, limit: int, first: str) -> list[Row]:
    """Return the rows of what this request takes, each queue's in the order of its line, from the
    queue of this name on."""
    found: list[Row] = []
    for lanes in _read_stretches(cursor, request, limit, first):
        found += _share_out(cursor, lanes, limit - len(found))
        if len(found) >= limit:
            break
    return found


def _read_stretches(
    cursor: Cursor, request: ClaimRequest, limit: int, first: str
) -> Iterator[list[Lane]]:
    """Yield lanes that are not empty, in the order of their queues' turns: in each stretch as many
    as fill ``limit`` places, or all up to the end."""
    if request.queues:
        values = {"tasks": _encode_names(request.tasks), "queues": _encode_names(request.queues)}
        lanes = _decode(cursor.execute(_SQL["lanes_of_queues"], values).fetchone()[0])
        yield sorted(map(tuple, lanes), key=lambda lane: (lane[0] < first, lane[0]))
        return
    yield _read_lanes(cursor, request.tasks, first, limit)
    if first:
        yield [lane for lane in _read_lanes(cursor, request.tasks, "", limit) if lane[0] < first]


def _read_lanes(cursor: Cursor, tasks: Collection[str], first: str, most: int) -> list[Lane]:
    """Return the lanes of the queues from this name on; where a task has more than ``most``, only
    up to the queue to which the lanes of all tasks are known."""
    values = {"tasks": _encode_names(tasks), "first": first, "most": most}
    lanes = [tuple(lane) for lane in _decode(cursor.execute(_SQL["lanes"], values).fetchone()[0])]
    counts = Counter(task for _, task in lanes)
    last = {task: queue for queue, task in lanes if counts[task] >= most}  # of each that goes on
    known = min(last.values(), default=None)
    return sorted(lane for lane in lanes if known is None or lane[0] <= known)


def _share_out(cursor: Cursor, lanes: Sequence[Lane], limit: int) -> list[Row]:
    """Return at most ``limit`` rows of these lanes: of each queue as many as of the others, and
    what the others do not use up."""
    found: list[Row] = []
    waiting = dict.fromkeys(queue for queue, _ in lanes)
    share = 0
    while waiting and len(found) < limit:
        taken, share = share, share + ceil((limit - len(found)) / len(waiting))
        rows = _read_heads(cursor, [lane for lane in lanes if lane[0] in waiting], share)
        for queue in waiting:
            found += rows[queue][taken:share]
        waiting = dict.fromkeys(queue for queue in waiting if len(rows[queue]) >= share)
    return found[:limit]


def _read_heads(cursor: Cursor, lanes: Sequence[Lane], most: int) -> defaultdict[str, list[Row]]:
    """Return the first ``most`` rows of each lane and maybe more of its queue, by queue, in the
    order of the line; they begin with what they are ordered by."""
    values = {"lanes": _encode_text(lanes), "most": most, "long": LONG}
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    for row in sorted(_decode(cursor.execute(_SQL["first_of_lanes"], values).fetchone()[0])):
        rows[row[4]].append(row)
    return rows


def _encode_names(names: Collection[str]) -> str:
    """Return each name once: a lane that is read twice would bring its jobs twice."""
    return _encode_text(sorted({*names}))


def _encode_text(values: Collection[object]) -> str:
    return _encode(values).decode()


# ------------------------------------------------------------------------ what falls due


def line_up_due(cursor: Cursor, now: float, requests: Sequence[ClaimRequest]) -> None:
    """Give scheduled jobs of these requests' queues that are due their place in the line, those
    first that are due for longest; at most DUE_MAX."""
    queues = _list_queues(requests)
    if queues is None:
        due = cursor.execute(_SQL["due"], (now, DUE_MAX)).fetchall()
    else:
        looks = (
            cursor.execute(_SQL["due_of_queue"], (queue, now, DUE_MAX)).fetchall()
            for queue in queues
        )
        due = sorted(row for rows in looks for row in rows)[:DUE_MAX]
    if due:
        positions = draw(cursor, "position", len(due))
        rows = [(position, row[1]) for position, row in zip(positions, due, strict=True)]
        cursor.executemany(_SQL["line_up"], rows)


def find_next_due(cursor: Cursor, requests: Sequence[ClaimRequest]) -> float | None:
    """Return when the next scheduled job of these requests' queues falls due."""
    queues = _list_queues(requests)
    if queues is None:
        looks = [cursor.execute(_SQL["next_due"]).fetchone()[0]]
    else:
        looks = [
            cursor.execute(_SQL["next_due_of_queue"], (each,)).fetchone()[0] for each in queues
        ]
    return min((time for time in looks if time is not None), default=None)


def _list_queues(requests: Sequence[ClaimRequest]) -> set[str] | None:
    """Return the queues of which ordinary jobs are wanted; None: of all."""
    ordinary = [request for request in requests if not request.solo]
    if not all(request.queues for request in ordinary):
        return None
    return {queue for request in ordinary for queue in request.queues}
