"""Stores what blocked jobs wait for, and resolves it: plain functions of a cursor, under the write
lock (sqlite/sql/dependencies.sql)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import msgspec

from outlast.model.job import State
from outlast.model.lifecycle import Transition
from outlast.store.dependencies import (
    FAILED,
    MET,
    RESOLVE_MAX,
    RESULTS_BYTES,
    WATCHED,
    add_results,
    check_dependent,
    check_upstream,
    find_dependencies,
    find_named,
)
from outlast.store.sqlite.lanes import draw
from outlast.store.sqlite.pruning import forget
from outlast.store.sqlite.statements import statements
from outlast.store.values import Claimed, Enqueued, NewJob, Wants

_SQL = statements("dependencies")
_EVENTS = statements("events")
_encode = msgspec.json.Encoder().encode
_WANTED = {Wants.COMPLETED: State.COMPLETED.value, Wants.DEAD: State.DEAD.value}


def check(cursor: Any, jobs: Sequence[NewJob]) -> None:
    check_dependent(jobs)
    named = find_named(jobs)
    if named:
        check_upstream(named, dict(cursor.execute(_SQL["upstream"], _ids(named)).fetchall()))


def depend(cursor: Any, jobs: Sequence[NewJob], stored: Sequence[Enqueued]) -> None:
    """Block jobs that wait for others, and note what they wait for."""
    found = find_dependencies(jobs, stored)
    upstream = _ids({each.upstream_id for each in found})
    cursor.execute(_SQL["block"], _ids({each.job_id for each in found}))
    cursor.execute(_SQL["await"], upstream)
    rows = [(each.job_id, each.upstream_id, int(each.wants), each.place) for each in found]
    cursor.executemany(_SQL["depend"], rows)
    cursor.execute(_SQL["note_ended"], upstream)


def note_ended(cursor: Any, job_ids: Iterable[int]) -> None:
    cursor.execute(_SQL["note_ended"], _ids(job_ids))


def with_results(
    cursor: Any, claimed: list[Claimed], most: int
) -> tuple[list[Claimed], list[Transition]]:
    """Return claimed jobs with the results that they get, up to ``most`` bytes, and ends that give
    the others back."""
    needy = [each.job_id for each in claimed if each.policy.inputs]
    if not needy:
        return claimed, []
    values = _ids(needy) | {"bytes": RESULTS_BYTES, "most": most}
    return add_results(claimed, cursor.execute(_SQL["results"], values).fetchall())


def resolve(cursor: Any, now: float) -> bool:
    """Do what notices say; return whether there may be more of them."""
    for _ in range(3):
        notices = cursor.execute(_SQL["notices"], {"most": RESOLVE_MAX}).fetchall()
        if not notices:
            return False
        names = {name for _, _, name in notices if name is not None}
        woken = _wake(cursor, now, names) if names else 0
        values = _ids({job_id for _, job_id, name in notices if name is None})
        pairs = cursor.execute(_SQL["pairs"], values | {"most": RESOLVE_MAX}).fetchall()
        changed, revived = _change_children(cursor, values | {"now": now, "most": RESOLVE_MAX})
        _change(cursor, now, pairs, revived)
        if max(len(pairs), woken, changed) < RESOLVE_MAX:  # otherwise these notices are not done
            cursor.execute(_SQL["done"], (notices[-1][0],))
    return True


def _wake(cursor: Any, now: float, names: Collection[str]) -> int:
    """Return how many jobs were looked at, at most RESOLVE_MAX."""
    values = {"names": _encode(sorted(names)).decode(), "most": RESOLVE_MAX}
    ids = [job_id for (job_id,) in cursor.execute(_EVENTS["waiting"], values).fetchall()]
    if ids:
        of_ids = _ids(ids)
        position = draw(cursor, "position", len(ids))[0]
        cursor.execute(_EVENTS["wake"], of_ids | {"now": now, "position": position})
        cursor.execute(_EVENTS["woken"], of_ids)
    return len(ids)


def _change_children(cursor: Any, values: dict[str, Any]) -> tuple[int, list[int]]:
    """End the children of failed parents, and revive the children of requeued ones, at most
    RESOLVE_MAX of each; return the larger number, and the revived ones."""
    ended = cursor.execute(_SQL["end_children"], values).rowcount
    revived = [job_id for (job_id,) in cursor.execute(_SQL["revive_children"], values).fetchall()]
    return max(ended, len(revived)), revived


def _change(
    cursor: Any, now: float, pairs: Sequence[tuple[Any, ...]], revived: Sequence[int]
) -> None:
    """Change dependencies; then open or end the jobs that they hold, and those revived."""
    if not (pairs or revived):
        return
    states, again = [], set()
    for place, job_id, wants, ended, is_over, waits, has_failed in pairs:
        met = not waits or wants == Wants.ENDED or ended == _WANTED.get(wants)
        states.append((WATCHED if not is_over else MET if met else FAILED, job_id, place))
        if has_failed:
            again.add(job_id)
    cursor.executemany(_SQL["change"], states)
    left = cursor.execute(_SQL["left"], _ids({pair[1] for pair in pairs}.union(revived))).fetchall()
    failed = [job_id for job_id, has_failed, _ in left if has_failed]
    if failed:
        ended = cursor.execute(_SQL["fail"], _ids(failed) | {"now": now}).fetchall()
        forget(cursor, [job_id for (job_id,) in ended if job_id is not None])
    if again:
        cursor.execute(_SQL["wait_again"], _ids(again - set(failed)) | {"now": now})
    free = [job_id for job_id, has_failed, waits in left if not (has_failed or waits)]
    if free:
        position = draw(cursor, "position", len(free))[0]
        cursor.execute(_SQL["open"], _ids(free) | {"now": now, "position": position})


def _ids(ids: Iterable[int]) -> dict[str, Any]:
    return {"ids": _encode(sorted(ids)).decode()}
