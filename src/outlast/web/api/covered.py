"""What a visitor may see of payloads: nothing without the right, and never what is to be hidden.

What is to be hidden is looked for in the texts as they are stored, before they become documents: an
expression may span a name and its value.
"""

from __future__ import annotations

from typing import Any

import msgspec

from outlast.insight.documents import Document
from outlast.model.crash import Crash, Progress
from outlast.store.rows import AttemptRow, StoredJob
from outlast.store.stacks import Stack
from outlast.web.access import Right
from outlast.web.visit import Visit

PAYLOADS = ("args", "checkpoint", "result")


def cover_job(visit: Visit, row: StoredJob) -> StoredJob:
    """Return a job as this visitor may see it."""
    shown = visit.may(Right.PAYLOAD)
    args = visit.site.cover(row.args) if shown else "null"
    others = {
        name: cover_text(visit, getattr(row, name)) if shown else None for name in PAYLOADS[1:]
    }
    meta = cover_text(visit, row.policy.meta) if shown else None
    return msgspec.structs.replace(
        row,
        args=args,
        progress=_progress(visit, row.progress),
        stack=_stack(visit, row.stack) if shown else None,
        policy=msgspec.structs.replace(row.policy, meta=meta),
        **others,
    )


def cover_attempt(visit: Visit, row: AttemptRow) -> AttemptRow:
    """Return an attempt as this visitor may see it."""
    return msgspec.structs.replace(
        row,
        message=visit.site.cover(row.message),
        progress=_progress(visit, row.progress),
        crash=None if row.crash is None else _crash(visit, row.crash),
    )


def _crash(visit: Visit, crash: Crash) -> Crash:
    told = {name: getattr(crash, name) for name in Crash.__struct_fields__}
    changed: dict[str, Any] = {
        name: visit.site.cover(one) for name, one in told.items() if type(one) is str
    }
    lines = visit.site.cover("\n".join(crash.output)).split("\n") if crash.output else []
    changed["output"] = lines if visit.may(Right.PAYLOAD) else []
    changed["progress"] = _progress(visit, crash.progress)
    return msgspec.structs.replace(crash, **changed)


def _progress(visit: Visit, progress: Progress | None) -> Progress | None:
    if progress is None or not progress.message:
        return progress
    return msgspec.structs.replace(progress, message=visit.site.cover(progress.message))


def _stack(visit: Visit, stack: Stack | None) -> Stack | None:
    if stack is None:
        return None
    line = cover_text(visit, stack.line)
    return msgspec.structs.replace(stack, text=visit.site.cover(stack.text), line=line)


def cover_text(visit: Visit, text: str | None) -> str | None:
    """Return a text as it may be shown."""
    return None if text is None else visit.site.cover(text)


def cover_texts(visit: Visit, texts: list[str]) -> list[str]:
    """Return sentences as this visitor may see them."""
    return [visit.site.cover(text) for text in texts]


def mark_hidden(visit: Visit, document: Document) -> Document:
    """Say in a document about a job which of its payloads this visitor may not see."""
    return document | {"hidden": [] if visit.may(Right.PAYLOAD) else [*PAYLOADS, "stack"]}
