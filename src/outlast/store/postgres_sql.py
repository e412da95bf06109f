"""The SQL files of PostgreSQL, read once, and how rows become the values of ``store.values``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

from outlast.errors import BadData
from outlast.model.job import JobFacts, Policy
from outlast.model.lifecycle import Transition
from outlast.store.columns import cause_of, policy_of, progress_of
from outlast.store.values import Claimed, NewJob, Orphan, Room

_encode = msgspec.json.Encoder().encode


@cache
def sql(verb: str) -> str:
    """Return the text of ``sql/postgres/VERB.sql``."""
    return resources.files("outlast.store").joinpath("sql", "postgres", f"{verb}.sql").read_text()


def to_json(value: Any) -> str:
    """Return JSON text. Raises BadData for a lone surrogate."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError as error:
        raise BadData(f"not a text that can be stored: {error}") from error


@lru_cache(maxsize=256)
def policy_text(policy: Policy) -> str:
    """Return a policy as it is stored."""
    return to_json(policy)


def job_columns(jobs: Sequence[NewJob]) -> list[list[Any]]:
    """Return jobs as the columns of enqueue.sql, without the keys."""
    return [
        [job.task for job in jobs],
        [job.queue for job in jobs],
        [job.args for job in jobs],
        [job.priority for job in jobs],
        [max(0.0, job.delay) for job in jobs],
        [job.run_at for job in jobs],
        [job.tenant for job in jobs],
        [policy_text(job.policy) for job in jobs],
        [job.policy.timeout for job in jobs],
    ]


def ends_text(transitions: Iterable[Transition]) -> str:
    """Return transitions as the JSON that ``outlast_end_v1`` takes."""
    return to_json([_end(transition) for transition in transitions])


def _end(transition: Transition) -> dict[str, Any]:
    end = msgspec.structs.asdict(transition)
    if transition.crash is not None:
        end["crash"] = to_json(transition.crash)
    return end


def array_text(values: Iterable[int]) -> str:
    """Return numbers as PostgreSQL writes an array: the driver looks at each element of a list for
    a nested one, which costs more than all else that it does with it."""
    return f"{{{','.join(map(str, values))}}}"


def texts_array_text(values: Iterable[str | None]) -> str:
    """Return texts, or NULL, in the same way."""
    return f"{{{','.join(map(_quoted, values))}}}"


def _quoted(value: str | None) -> str:
    if value is None:
        return "NULL"
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'


def room_columns(rooms: Sequence[Room]) -> list[str]:
    """Return rooms as the columns of exchange.sql; a list in a room is an array within the text."""
    return [
        array_text([room.limit for room in rooms]),
        array_text([room.solo for room in rooms]),
        texts_array_text([texts_array_text(room.tasks) for room in rooms]),
        texts_array_text([texts_array_text(room.queues) for room in rooms]),
        texts_array_text([array_text(room.named) for room in rooms]),
    ]


class Head(msgspec.Struct):
    """The head row of an exchange's reply. ``others``: ends that were not accepted. ``order``: the
    ids of claimed jobs in the order of the line, and ``places``: their positions in it, None for
    those that were named and for suspects. ``lanes``: that the client did not know, as (queue,
    task, rank)."""

    valid: bool
    order: list[int]
    places: list[int | None]
    others: list[tuple[int, int, str]]
    cancels: list[tuple[int, int]]
    next_due: float | None
    solo_waiting: int = 0
    lanes: list[tuple[str, str, int]] = []


head_of = msgspec.json.Decoder(Head).decode


def claimed_of(row: Any) -> Claimed:
    """Return a claimed job from a row of an exchange's reply."""
    return Claimed(
        job_id=row[1],
        token=row[2],
        task=row[3],
        queue=row[4],
        args=row[5],
        number=row[6],
        failures=row[7],
        losses=row[8],
        policy=policy_of(row[9]),
        tenant=row[10],
        checkpoint=row[11],
        priority=row[12],
        solo=row[13],
        incident=row[14],
        cohort=row[15],
    )


def orphan_of(row: Any) -> Orphan:
    """Return an orphan from a row of orphans.sql."""
    facts = JobFacts(
        job_id=row["job_id"],
        token=row["token"],
        failures=row["failures"],
        losses=row["losses"],
        policy=policy_of(row["policy"]),
        cancel_requested=row["cancel_requested"],
        solo=row["solo"],
        incident=row["incident"],
        cohort=row["cohort"],
    )
    return Orphan(
        facts=facts,
        worker_id=row["worker_id"],
        worker=row["worker"],
        host=row["host"],
        progress=progress_of(row["progress"]),
        checkpoint_age=row["checkpoint_age"],
        cause=cause_of(row["cause"]),
    )
