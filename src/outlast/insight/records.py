"""Turn records of people's actions from rows into JSON documents, for programs and screens."""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.insight.bulk import Preview
from outlast.insight.documents import SCHEMA, Document, iso, listed_document
from outlast.store.actions import ActionRow
from outlast.store.protocol import Store

ACTIONS_SHOWN = 50


class ActionList(msgspec.Struct, frozen=True):
    """Actions, newest first; ``before``: further actions have smaller ids; None: no more."""

    rows: list[ActionRow]
    before: int | None


async def list_actions(
    store: Store,
    limit: int = ACTIONS_SHOWN,
    before: int | None = None,
    job_id: int | None = None,
) -> ActionList:
    """Return the actions of people, on one job or all."""
    older = {} if before is None else {"before_id": before}
    rows = await store.inspector.actions(limit, job_id=job_id, **older)
    return ActionList(rows, rows[-1].id if len(rows) == limit else None)


def actions_document(found: ActionList) -> Document:
    """Return a list of actions as one JSON document."""
    shown = [action_document(row) for row in found.rows]
    return {"schema": SCHEMA, "actions": shown, "next_before": found.before}


def action_document(row: ActionRow) -> Document:
    """Return one action."""
    return {
        "id": row.id,
        "at": iso(row.at),
        "user": row.actor,
        "verb": row.verb,
        "target": row.target,
        "job": row.job_id,
        "filter": _filter(row.filter),
        "reason": row.reason,
        "counts": row.counts,
        "state": row.state.value,
        "expected": row.expected,
        "moved_at": iso(row.moved_at),
    }


def _filter(text: str | None) -> Any:
    try:
        return None if text is None else msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def preview_document(seen: Preview) -> Document:
    """Return the jobs that a bulk action would change."""
    return {
        "schema": SCHEMA,
        "verb": seen.verb.value,
        "filter": msgspec.to_builtins(seen.filter),
        "count": seen.count,
        "at_least": seen.at_least,
        "up_to_id": seen.up_to_id,
        "as_of": seen.as_of,
        "sample": [listed_document(row) for row in seen.sample],
    }
