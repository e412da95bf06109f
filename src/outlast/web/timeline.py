"""Draw the attempts of a job: one bar each, on one time axis, and refused late writes.

Numbers only: the template writes them as SVG, whose shapes are allowed where style attributes are
not. Gaps that are much longer than the attempts would leave bars without width, so a gap that is
longer than all attempts together is drawn shorter, as a break.
"""

from __future__ import annotations

import msgspec

from outlast.insight.explanation import JobDetails
from outlast.model.crash import Charge
from outlast.model.job import State
from outlast.store.rows import AttemptRow, RefusalRow, StoredJob

WIDTH = 1_000.0
BAR_LEAST = 4.0
BARS_MAX = 40
TICKS_MAX = 40


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: from ``x`` over ``width``; ``saved``: the position of its last checkpoint."""

    x: float
    width: float
    number: int
    token: int
    outcome: str
    charge: str
    started_at: float
    seconds: float
    host: str
    saved: float | None = None
    refused: list[float] = []


class JobTimeline(msgspec.Struct, frozen=True):
    """All bars, from ``began`` to ``ended``; ``breaks``: where time is left out."""

    bars: list[Bar]
    breaks: list[float]
    began: float
    ended: float


def draw_timeline(details: JobDetails) -> JobTimeline | None:
    """Return the drawing; None if the job has no attempts."""
    shown = [
        msgspec.structs.replace(one, ended_at=max(one.started_at, one.ended_at))
        for one in list_attempts(details)[-BARS_MAX:]
    ]
    if not shown:
        return None
    late = [one for one in details.refusals if one.late_by is not None][:TICKS_MAX]
    tokens = {one.token for one in shown}
    ends = [shown[-1].ended_at, *(one.at for one in late if one.token in tokens)]
    axis = _Axis(shown, max(ends))
    bars = [_bar(axis, one, late) for one in shown]
    return JobTimeline(bars, axis.breaks, shown[0].started_at, axis.ended)


def list_attempts(details: JobDetails) -> list[AttemptRow]:
    """Return the closed attempts, and the running (as if it ended now) or completed one."""
    row, closed = details.row, details.attempts
    is_open = row.state in {State.RUNNING, State.COMPLETED} and row.token is not None
    if not is_open or row.started_at is None or any(one.token == row.token for one in closed):
        return list(closed)
    last = AttemptRow(
        job_id=row.id,
        token=row.token or 0,
        number=row.attempt_count,
        outcome=row.state.value,
        charge=Charge.NONE,
        started_at=row.started_at,
        ended_at=row.ended_at if row.ended_at is not None else details.now,
        worker=row.worker,
        host=row.host,
        checkpoint_age=_age(row, details.now),
    )
    return [*closed, last]


def _age(row: StoredJob, now: float) -> float | None:
    """Return the age of the last checkpoint, if the running or completed attempt made it."""
    saved, began = row.checkpoint_at, row.started_at
    if saved is None or began is None or saved < began:
        return None
    return (now if row.ended_at is None else row.ended_at) - saved


class _Axis:
    """The time axis, with shortened gaps. ``ended``: refused writes may come after the last end."""

    def __init__(self, shown: list[AttemptRow], ended: float) -> None:
        self.ended = ended
        busy = sum(one.ended_at - one.started_at for one in shown) or 1.0
        most = busy / len(shown)  # the longest that a gap is drawn
        self._pieces: list[tuple[float, float, float]] = []  # began, ended, drawn as
        cursor, self._drawn = shown[0].started_at, 0.0
        cuts: list[float] = []
        for one in shown:
            if one.started_at > cursor:
                gap = one.started_at - cursor
                if gap > busy:
                    cuts.append(self._drawn + most / 2)
                self._add(cursor, one.started_at, most if gap > busy else gap)
            cursor = max(cursor, one.started_at)
            if one.ended_at > cursor:
                self._add(cursor, one.ended_at, one.ended_at - cursor)
                cursor = one.ended_at
        self._add(cursor, max(cursor, ended), max(0.0, min(ended - cursor, most)))
        self._drawn = self._drawn or 1.0
        self.breaks = [cut / self._drawn * WIDTH for cut in cuts]

    def _add(self, began: float, ended: float, drawn: float) -> None:
        self._pieces.append((began, ended, drawn))
        self._drawn += drawn

    def at(self, moment: float) -> float:
        """Return the position of a moment, from 0 to WIDTH."""
        drawn = 0.0
        for began, ended, length in self._pieces:
            if moment >= ended:
                drawn += length
                continue
            if moment > began:
                drawn += length * (moment - began) / (ended - began)
            break
        return round(min(WIDTH, drawn / self._drawn * WIDTH), 1)


def _bar(axis: _Axis, one: AttemptRow, late: list[RefusalRow]) -> Bar:
    x = min(axis.at(one.started_at), WIDTH - BAR_LEAST)
    saved = None if one.checkpoint_age is None else one.ended_at - one.checkpoint_age
    has_saved = saved is not None and one.started_at <= saved <= one.ended_at
    return Bar(
        x=x,
        width=max(BAR_LEAST, round(axis.at(one.ended_at) - x, 1)),
        number=one.number,
        token=one.token,
        outcome=one.outcome,
        charge=one.charge,
        started_at=one.started_at,
        seconds=one.ended_at - one.started_at,
        host=one.host or "",
        saved=axis.at(saved) if saved is not None and has_saved else None,
        refused=[axis.at(each.at) for each in late if each.token == one.token],
    )
