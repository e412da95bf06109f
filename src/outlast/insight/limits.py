"""Describe limits for people and programs: what holds a job back, and what is in use. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.base.text import at_least, count_of, line, shell_word, span
from outlast.insight.resource import SCHEMA, Document
from outlast.insight.sentences import NAME_MAX, quote
from outlast.model.limits import Budget, LimitSpec, Room
from outlast.store.limits import LimitRow, PermitRow, StreamPlace

LIMITED, THROTTLED = "limited", "throttled"
_UNITS = ((1.0, "s"), (60.0, "min"), (3_600.0, "h"), (86_400.0, "d"))


def rate_text(spacing: float) -> str:
    """Return a rate as people write it, such as ``600/min``, in the unit that makes it whole."""
    for seconds, unit in _UNITS:
        count = seconds / spacing
        if count >= 1 and abs(count - round(count)) < 1e-6 * count:
            return f"{round(count):,}/{unit}".replace(",", "")
    return f"{60.0 / spacing:.4g}/min"


def spec_text(spec: LimitSpec | LimitRow) -> str:
    """Return what a limit allows, in words. Values that are not set are left out."""
    told = []
    if spec.running is not None:
        told.append(f"{spec.running} at once")
    if spec.spacing is not None:
        told.append(rate_text(spec.spacing) + (f" (burst {spec.burst:g})" if spec.burst else ""))
    per = f", for each {line(str(spec.per), NAME_MAX).replace('_', ' ')}" if spec.per else ""
    return (" and ".join(told) or f"burst {spec.burst:g}") + per


def next_start(permit: PermitRow, limit: LimitRow, now: float) -> str:
    """Return when the next job under a permit may start: ``now``, ``in 14 s``, ``when one ends`` or
    ``held for 3 min``. An amount spent of a rate beyond it is part of that."""
    held = max(permit.held_until or 0.0, limit.held_until or 0.0) - now
    if held > 0:
        return f"held for {span(held)}"
    room = _room(permit, limit, now)
    if room.opens_in is not None:
        return f"in {span(room.opens_in)}"
    return "now" if room.starts else "when one ends"


def _room(permit: PermitRow, limit: LimitRow, now: float, cost: float = 1.0) -> Room:
    used, ahead = permit.used - permit.noted, max(0.0, permit.tat - now)
    return Budget(permit.running, limit.spacing, limit.burst, used, ahead).room(cost)


def counted(row: LimitRow, name: str) -> str:
    """Return one of a limit's numbers (``permits``, ``used``, ``waiting``): ``1,000+`` if there may
    be more."""
    return at_least(getattr(row, name), name in row.at_least)


def explain(
    place: StreamPlace, now: float, *, tells: bool
) -> tuple[str, list[str], list[str]] | None:
    """Return why a due job in a stream waits: position, sentences, moves; None if nothing but its
    turn holds it back. ``tells``: whether other jobs may be named and counted."""
    first = _explain(place, now, tells=tells)
    if first is None:
        return None
    position, sentences, moves = first
    for other in place.others:
        also = _explain(_opening(other, now), now, tells=tells)
        if also is not None:
            sentences = [*sentences, also[1][0].replace("It waits", "It also waits", 1)]
            moves = list(dict.fromkeys([*moves, *also[2]]))
    return position, sentences, moves


def _opening(place: StreamPlace, now: float) -> StreamPlace:
    """Let a place's permit say when it opens for this job; the row says when for another one."""
    permit, limit = place.blocked_by, place.limit
    if permit is None or limit is None:
        return place
    opens_in = _room(permit, limit, now, place.cost).opens_in
    opens_at = None if opens_in is None else now + opens_in
    return msgspec.structs.replace(
        place, blocked_by=msgspec.structs.replace(permit, opens_at=opens_at)
    )


def _explain(
    place: StreamPlace, now: float, *, tells: bool
) -> tuple[str, list[str], list[str]] | None:
    permit = place.blocked_by
    if place.holder is not None:
        job = f"job {place.holder}" if tells else "another job"
        said = f"It waits for {job}, which precedes it in its order and has not ended."
        moves = [f"`outlast why {place.holder}` says what that job waits for."] if tells else []
        return LIMITED, [said, *_ahead(place, tells=tells)], moves
    if permit is None:
        return None
    name, to_key = _name(permit), f" --key {shell_word(permit.key)}" if permit.key else ""
    command = f"outlast limits set {shell_word(permit.name)}"
    if place.limit is None:
        said = f"It waits for the limit {name}, which no worker's code declares."
        return LIMITED, [said], ["Start a worker whose code declares it."]
    holds = [("", place.limit.held_until or 0.0), (to_key, permit.held_until or 0.0)]
    if (held := max(until for _, until in holds)) > now:
        said = f"It waits for {name}: nothing under it starts for {span(held - now)}"
        if place.throttled_by is not None:
            job = f"job {place.throttled_by}" if tells else "another job"
            said += f", because {job} found it exhausted (Throttled)"
        release = f"outlast limits hold {shell_word(permit.name)}"
        ends = [f"`{release}{key} 0`" for key, until in holds if until > now]
        move = f"{' and '.join(ends)} {'end' if ends[1:] else 'ends'} that."
        return THROTTLED, [f"{said}."], [move]
    if permit.running == 0:
        said = f"It waits for {name}, which lets no job run: its count is 0."
        return LIMITED, [said], [f"`{command}{to_key} --running N` lets it run."]
    used = permit.used - permit.noted
    full = permit.running is not None and used >= permit.running
    if not full and permit.opens_at is not None:
        rate = "" if place.limit.spacing is None else f", {rate_text(place.limit.spacing)}"
        said = f"It waits for the rate of {name}{rate}."
        soon = f"The next starts in {span(max(0.0, permit.opens_at - now))}."
        return THROTTLED, [said, *_ahead(place, tells=tells)], [soon]
    if not full and place.limit.spacing is not None and place.cost > place.limit.burst:
        said = f"It waits for {name}: its cost, {place.cost:g}, is above the burst"
        said += f", {place.limit.burst:g}, so it never starts."
        moves = [f"`{command} --burst {place.cost:g}` allows it to start."]
        return LIMITED, [said], moves
    if not full:
        return None
    runs = f"{used} of {permit.running} {'is' if used == 1 else 'are'} running"
    runs = runs if tells else "it is full"
    said = f"It waits for {name}: {runs}"
    if tells and place.holders:
        job_id, worker, seconds = place.holders[0]
        said += f"; the oldest is job {job_id} on {line(worker, NAME_MAX)}, for {span(seconds)}"
    moves = ["It starts once one of them has ended and its turn has come."]
    moves.append(f"`{command}{to_key} --running N` allows more to run.")
    return LIMITED, [f"{said}.", *_ahead(place, tells=tells)], moves


def _ahead(place: StreamPlace, *, tells: bool) -> list[str]:
    if not place.ahead or not tells:
        return []
    verb = "is" if place.ahead == 1 else "are"
    return [f"{count_of(place.ahead, 'job')} of its kind {verb} before it."]


def _name(permit: PermitRow) -> str:
    of = f" of {quote(permit.key)}" if permit.key else ""
    return f"{quote(permit.name)}{of}"


LIMIT = {"limit": LimitRow, "permits": list[PermitRow]}
"""The types in the document of one limit."""


def limits_document(rows: Sequence[LimitRow]) -> Document:
    """Return all limits as one JSON document."""
    return {"schema": SCHEMA, "limits": [_fields(row) for row in rows]}


def limit_document(row: LimitRow, permits: Sequence[PermitRow]) -> Document:
    """Return one limit and its permits as one JSON document."""
    return {
        "schema": SCHEMA,
        "limit": _fields(row),
        "permits": [msgspec.to_builtins(permit) for permit in permits],
    }


def _fields(row: LimitRow) -> Document:
    fields: Document = msgspec.to_builtins(row)
    if row.own is not None and not row.own.burst:  # it is not set
        del fields["own"]["burst"]
    return fields
