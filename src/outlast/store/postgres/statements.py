"""Turns values into arguments of statements on PostgreSQL, and rows into values."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec

from outlast.errors import BadData, text_of
from outlast.model.job import Policy
from outlast.model.lifecycle import Transition
from outlast.store.statements import statements
from outlast.store.values import NamedStep, NewJob, Report, Save

_encode = msgspec.json.Encoder().encode

_NAMED = re.compile(r"(?<![:\w]):([a-z_]+)")


@cache
def numbered(topic: str, name: str) -> tuple[str, list[str]]:
    """Return a statement whose named parameters are replaced by numbered ones, which the server
    requires, and the names in the order of these numbers."""
    text = statements("postgres", topic)[name]
    names = list(dict.fromkeys(_NAMED.findall(text)))
    return _NAMED.sub(lambda found: f"${names.index(found[1]) + 1}", text), names


Pair = tuple[int, int]  # a job's id and the token of an attempt, which guard each write about it


def pair_of(item: Transition | Save | Report | NamedStep) -> Pair:
    """Return the id and token that guard a write."""
    return item.job_id, item.token


def to_json(value: Any) -> str:
    """Return JSON text. Raises BadData for a lone surrogate."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError as error:
        raise BadData(f"not a text that can be stored: {text_of(error)}") from error


@lru_cache(maxsize=256)
def policy_text(policy: Policy) -> str:
    """Return a policy as it is stored."""
    return to_json(policy)


def job_columns(jobs: Sequence[NewJob], awaited: Container[int] = ()) -> list[list[Any]]:
    """Return jobs as the columns that enqueue.sql takes, without the keys. ``awaited``: the places
    of those that others wait for."""
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
        [job.expires for job in jobs],
        [job.expires_at for job in jobs],
        [job.policy.keep for job in jobs],
        [job.stream for job in jobs],
        [job.needs for job in jobs],
        [job.aged_by for job in jobs],
        [bool(job.after) for job in jobs],
        [place in awaited for place in range(len(jobs))],
    ]


def ends_text(transitions: Iterable[Transition]) -> str:
    """Return transitions as the JSON that ``outlast_end_v1`` takes."""
    return to_json([_end(transition) for transition in transitions])


def _end(transition: Transition) -> dict[str, Any]:
    end = msgspec.structs.asdict(transition)
    if transition.crash is not None:
        end["crash"] = to_json(transition.crash)
    return end
