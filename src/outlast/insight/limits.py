"""Describe limits for people and programs: what holds a job back, and what is in use. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from outlast.base.text import at_least, count_of, line, shell_word, span
from outlast.insight.resource import SCHEMA, Document
from outlast.insight.sentences import NAME_MAX, quote
from outlast.model.limits import Budget, LimitSpec, Room
from outlast.store.limits import LIMITS_SHOWN, LimitRow, PermitRow, StreamPlace

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
    found = [_explain(each, now, tells=tells) for each in (place, *place.others)]
    told = [each for each in found if each is not None]
    if not told:
        return None
    position, sentences, moves = told[0]
    for _, also, then in told[1:]:
        sentences = [*sentences, also[0].replace("It waits", "It also waits", 1)]
        moves = list(dict.fromkeys([*moves, *then]))
    return position, sentences, moves


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
    opens_in = _room(permit, place.limit, now, place.cost).opens_in
    if opens_in is not None:
        said = f"It waits for the rate of {name}, {rate_text(place.limit.spacing or 0.0)}."
        soon = f"The next starts in {span(opens_in)}."
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
LIMITS = {"limits": list[LimitRow], "more": bool}
"""The types in the document of all limits; ``more``: there are more."""


def limits_document(rows: Sequence[LimitRow]) -> Document:
    """Return all limits as one JSON document."""
    return {"schema": SCHEMA, "limits": [_fields(row) for row in rows], "more": are_cut(rows)}


def are_cut(rows: Sequence[LimitRow]) -> bool:
    """Whether there may be more limits than the store has returned."""
    return len(rows) >= LIMITS_SHOWN


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
