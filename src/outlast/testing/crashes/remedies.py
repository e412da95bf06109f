"""Name what removes an effect which a crash repeats or loses."""

from __future__ import annotations

from collections.abc import Collection

from outlast.testing.crashes.cases import Fate
from outlast.testing.crashes.end_state import Difference

_LOST = (
    "attempt.save comes before the work that it stands for: save after it, or keep both together by"
    " attempt.step_in"
)
_IN_STORE = (
    "attempt.complete_in(connection) commits the rows with the end of the job, attempt.step_in with"
    " a step of it"
)
_ELSEWHERE = (
    "INSERT … ON CONFLICT DO NOTHING with a key made of attempt.job_id; or tables in the store's"
    " own database, with attempt.complete_in or attempt.step_in"
)
_STALE = (
    "begin the transaction with the statement of outlast.fences.guard_sql: the database then"
    " refuses an attempt that has lost its lease"
)
_FIXED = {
    "file": "write the whole file under another name, and rename it by os.replace once it is"
    " closed, since the next attempt appends again; work on files that the task moves or removes"
    " goes into attempt.step",
    "request": "hand the service a key that makes repeats harmless, such as the Idempotency-Key of"
    " outlast.fences.make_headers(); attempt.step leaves a gap between the work and its save",
    "enqueue": "using(connection=…) within attempt.step_in or before attempt.complete_in;"
    " using(key=…) made of attempt.job_id helps as long as the first job is unfinished",
    "job": "let the next attempt accept what an earlier one has left: begin at attempt.checkpoint,"
    " put each part into attempt.step or attempt.step_in, and make files and tables only if they"
    " are missing",
    "lease": "do not catch LostLease: the job belongs to another attempt",
    "checkpoint": "begin at attempt.checkpoint, or do not save",
}


def find_remedy(
    difference: Difference, fates: Collection[Fate], *, saves: bool, in_store: bool
) -> str:
    """Return what removes a difference that these fates make. ``saves``: the task saves;
    ``in_store``: the rows are in the database of the store."""
    kind = difference.kind
    if saves and not difference.is_more and kind in {"commit", "request", "enqueue"}:
        return _LOST
    if kind == "commit" and not in_store:
        return _STALE if {*fates} == {Fate.LEASE_LOST} else _ELSEWHERE
    return _IN_STORE if kind == "commit" else _FIXED[kind]
