"""Grants the privileges of a role on PostgreSQL, and checks them before a worker starts.

The lists are minimal. A test runs every statement of a worker, of clients and of the command line
as a role that has been granted these privileges and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from outlast.errors import ConfigError, NotPermitted
from outlast.store.new_rows import STORED
from outlast.store.postgres.schema import NAMED_MAX
from outlast.store.statements import statements
from outlast.store.values import MAY, Purpose

_SQL = statements("postgres", "environment")

_ALL = "SELECT INSERT UPDATE DELETE"
# All columns of a schedule but its name. By columns, because a role that may update or delete in a
# whole table may also lock it (LOCK TABLE), and every worker reads this one at every peek.
_SCHEDULED = (
    "call,spec,overlap,catch_up,grace,origin,version,versions,revision,paused,declared,declared_at,"
    "since,next_tick,owed,last_tick,last_job,fired,skipped,missed,last_skip,last_skip_job"
)

_OF_A_WORKER = {
    "outlast_jobs": _ALL,
    "outlast_attempts": "SELECT INSERT DELETE",
    "outlast_labels": "SELECT INSERT DELETE",
    "outlast_logs": _ALL,
    "outlast_steps": "SELECT INSERT DELETE",
    "outlast_workers": _ALL,
    "outlast_schedules": _ALL,
    "outlast_refusals": _ALL,  # its rows are locked before they are deleted
    "outlast_pauses": _ALL,
    "outlast_minutes": _ALL,
    "outlast_actions": _ALL,
    "outlast_limits": _ALL,
    "outlast_permits": _ALL,
    "outlast_streams": _ALL,
    "outlast_notices": _ALL,
    "outlast_dependencies": _ALL,
    "outlast_upstream_notices": _ALL,
    "outlast_windows": _ALL,
    "outlast_lanes": _ALL,  # its rows are locked before they are deleted
    "outlast_events": _ALL,  # its rows are locked before they are deleted
    "outlast_waits": _ALL,
    "outlast_tasks": "SELECT INSERT UPDATE",
    "outlast_schema": "SELECT",
    "outlast_incarnation": "SELECT INSERT UPDATE",
    "outlast_history": "SELECT",
    "outlast_jobs_for_people": "SELECT",
    "outlast_actions_id_seq": "SELECT UPDATE",
    "outlast_jobs_id_seq": "SELECT UPDATE",
    "outlast_notices_id_seq": "SELECT UPDATE",
    "outlast_pauses_id_seq": "USAGE SELECT UPDATE",
    "outlast_refusals_id_seq": "SELECT UPDATE",
    "outlast_upstream_notices_id_seq": "SELECT UPDATE",
    "outlast_workers_id_seq": "SELECT UPDATE",
    "outlast_position_seq": "USAGE SELECT UPDATE",
    "outlast_token_seq": "USAGE SELECT UPDATE",
    "outlast_turn_seq": "USAGE SELECT UPDATE",
    "outlast_watch_1_seq": "USAGE UPDATE",
    "outlast_watch_2_seq": "USAGE UPDATE",
    "outlast_watch_3_seq": "USAGE UPDATE",
}
_UNREAD = "outlast_watch_"  # sequences that no page shows, and the doctor does not compare

_NEEDED: dict[Purpose, Mapping[str, str]] = {
    Purpose.WORKER: _OF_A_WORKER,
    Purpose.ENQUEUE: {
        # no id, token or worker, by which jobs are drawn or found; and of the states, without
        # these, a CHECK allows queued and blocked only
        "outlast_jobs": f"SELECT INSERT({','.join(STORED)})",
        "outlast_attempts": "SELECT",
        "outlast_labels": "SELECT",
        "outlast_limits": "SELECT",
        "outlast_permits": "SELECT",
        "outlast_streams": "SELECT",
        "outlast_notices": "SELECT INSERT(stream,arrived,task,queue,place)",  # to look at a stream
        "outlast_dependencies": "SELECT",
        "outlast_upstream_notices": "SELECT",
        "outlast_windows": "SELECT",
        "outlast_waits": "SELECT",
        "outlast_workers": "SELECT",
        "outlast_schedules": f"SELECT INSERT UPDATE({_SCHEDULED})",
        "outlast_pauses": "SELECT",
        "outlast_schema": "SELECT",
        "outlast_position_seq": "USAGE",
    },
    Purpose.PRODUCE: {},
    Purpose.VIEW: {name: "SELECT" for name in _OF_A_WORKER if not name.startswith(_UNREAD)},
}

_OF_NEW_JOBS = [
    "outlast_add_lanes_v1",
    "outlast_depend_v1",
    "outlast_label_v1",
    "outlast_take_window_v1",
    "outlast_fill_window_v1",
    "outlast_free_keys_v1",
    "outlast_replace_v1",
]
_AS_OWNER = {
    Purpose.WORKER: _OF_NEW_JOBS,
    Purpose.ENQUEUE: _OF_NEW_JOBS,
    Purpose.PRODUCE: ["outlast_enqueue_v1"],
}
"""The functions that run as their owner, by the purpose whose roles may call them."""
_OF_EVENTS = {
    Purpose.WORKER: ["outlast_keep_event_v1", "outlast_send_event_v1"],
    Purpose.ENQUEUE: ["outlast_keep_event_v1", "outlast_send_event_v1"],
    Purpose.PRODUCE: ["outlast_send_event_v1"],  # no program of ours, which may encode a value
}
"""The functions that send events: for workers, and for other roles if that is granted."""


class Privilege(msgspec.Struct, frozen=True):
    """One privilege that a role needs: ``what`` names it, ``statement`` grants it."""

    what: str
    statement: str
    held: bool


async def privileges(
    connection: Any, role: str | None, purpose: Purpose, *, events: bool = False
) -> list[Privilege]:
    """Return what a role (None: that of the connection) needs. Empty: there is no such role."""
    names, wanted, columns = _in_columns(_NEEDED[purpose])
    as_owner = _AS_OWNER.get(purpose, [])
    if purpose is Purpose.WORKER or events:
        as_owner = as_owner + _OF_EVENTS.get(purpose, [])
    rows = await connection.fetch(_SQL["privileges"], role, names, wanted, as_owner, columns)
    return [Privilege(*row) for row in rows]


def _in_columns(listed: Mapping[str, str]) -> list[list[str]]:
    """Return objects, privileges and columns; "" for the columns is all of the object."""
    each = [(name, *_split(one)) for name, several in listed.items() for one in several.split()]
    return [[row[place] for row in each] for place in range(3)]


def _split(privilege: str) -> tuple[str, str]:
    word, _, columns = privilege.rstrip(")").partition("(")
    return word, columns


async def grant(connection: Any, role: str, purpose: Purpose, *, events: bool = False) -> list[str]:
    """Grant what the role lacks, in the transaction of the connection; as ``Store.grant``, and
    NotPermitted if this role may not grant it."""
    needed = await privileges(connection, role, purpose, events=events)
    if not needed:
        raise ConfigError(f"there is no role {role!r} on this server: CREATE ROLE makes one")
    lacking = [each for each in needed if not each.held]
    for each in lacking:
        await connection.execute(each.statement)
    # PostgreSQL only warns if this role has no right to grant
    left = [p for p in await privileges(connection, role, purpose, events=events) if not p.held]
    if left:
        raise NotPermitted(f"this role may not grant {format_names(left)}: use the tables' owner")
    return [each.what for each in lacking]


async def limited_to(connection: Any) -> str | None:
    """Return the other purposes than a worker's that the role of the connection can serve."""
    held = [
        MAY[purpose]
        for purpose in (Purpose.ENQUEUE, Purpose.VIEW, Purpose.PRODUCE)
        if all(each.held for each in await privileges(connection, None, purpose))
    ]
    return ", and ".join(held) or None


async def check_may_serve(connection: Any) -> None:
    """Raise NotPermitted if the role of the connection lacks what a worker needs."""
    lacking = [p for p in await privileges(connection, None, Purpose.WORKER) if not p.held]
    if lacking:
        raise NotPermitted(
            f"PostgreSQL: this role lacks privileges that a worker needs: {format_names(lacking)}."
            " The owner of the tables grants them: `outlast migrate --grant ROLE`"
        )


def format_names(lacking: list[Privilege]) -> str:
    told = ", ".join(each.what for each in lacking[:NAMED_MAX])
    more = len(lacking) - NAMED_MAX
    return f"{told} and {more} more" if more > 0 else told
