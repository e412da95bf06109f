"""Show the stack of a running job: its worker reads the runner's process without disturbing it.

The command line, the page and its API send the request through the same function, and show the
answer from the job's row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.text import line, span
from outlast.errors import JobNotFound
from outlast.insight.acting import By, NewerAttempt, Refused, note_on
from outlast.insight.availability import holds
from outlast.insight.queries import read_workers
from outlast.insight.sentences import describe_gone
from outlast.model.job import State
from outlast.store.rows import StoredJob, WorkerRow
from outlast.store.stacks import (
    REQUESTS_MAX,
    StackRequest,
    find_valid,
    format_requests,
    read_requests,
)

if TYPE_CHECKING:
    from outlast.store.protocol import Store

WAIT_SECONDS = 10.0  # for an answer, by default
LOOK_SECONDS = 0.1  # between two checks for the answer
TRIES = 3 * REQUESTS_MAX  # each request that others make of the worker meanwhile fails one try
VERB = "stack"  # in the record
BUSY = f"was asked for {REQUESTS_MAX} stacks in the last seconds: ask again in ten seconds"


class AskedStack(msgspec.Struct, frozen=True):
    """An open request: its attempt, its number, and the worker that has to answer. ``is_new``: it
    was made just now; else an earlier request was still open."""

    job_id: int
    ask: StackRequest
    worker: WorkerRow
    is_new: bool = True


async def ask_for_stack(
    store: Store, job_id: int, by: By, *, token: int | None = None
) -> AskedStack:
    """Ask for the stack of a running job; the answer arrives on its row. While a request is open,
    no second one is made.

    ``token``: the token of the attempt that the caller has seen; NewerAttempt if another runs.
    Refused if no worker runs it, or its worker is gone, or has too many open requests.
    """
    record = note_on(VERB, by, [job_id])
    for _ in range(TRIES):
        row = await _read(store, job_id)
        mine = await _find_worker(store, row, token)
        now = await store.inspector.now()
        if (waiting := find_waiting(row, mine, now)) is not None:
            return AskedStack(job_id, waiting, mine, is_new=False)
        requests = find_valid(read_requests(mine.stacks), now)
        if len(requests) >= REQUESTS_MAX:
            break
        ask = StackRequest(_next_number(row, mine, now), row.token or 0)
        seen, then = mine.stacks or "", format_requests([*requests, ask])
        if await store.ask_stack(row.id, ask.token, seen=seen, then=then, record=record):
            return AskedStack(job_id, ask, mine)
    raise Refused(f"job {job_id}: its worker {BUSY}")


def find_waiting(row: StoredJob, mine: WorkerRow, now: float) -> StackRequest | None:
    """Return the last unanswered request for the attempt, if it is still valid."""
    last = find_unanswered(row, mine)
    return last if last is not None and find_valid([last], now) else None


def find_unanswered(row: StoredJob, mine: WorkerRow) -> StackRequest | None:
    """Return the last unanswered request for the attempt, however old."""
    answered = 0 if row.stack is None else row.stack.asked
    requests = read_requests(mine.stacks)
    return max(
        (ask for ask in requests if ask.token == row.token and ask.number > answered), default=None
    )


def _next_number(row: StoredJob, mine: WorkerRow, now: float) -> int:
    """Return a number above all requests on the worker's row, and above the last answer."""
    known = [ask.number for ask in read_requests(mine.stacks)]
    known += [] if row.stack is None else [row.stack.asked]
    return max([int(now * 1000), *(number + 1 for number in known)])


async def _read(store: Store, job_id: int) -> StoredJob:
    row = await store.inspector.job(job_id, 0)
    if row is None:
        raise JobNotFound(f"there is no job {job_id}: the id is wrong, or the job was deleted")
    return row


async def _find_worker(store: Store, row: StoredJob, token: int | None) -> WorkerRow:
    """Return the live worker that runs a job; Refused if no worker can answer."""
    if row.state is not State.RUNNING:
        raise Refused(f"job {row.id} is {row.state}, not running: `outlast why {row.id}` explains")
    if token is not None and token != row.token:
        raise NewerAttempt(
            f"job {row.id}: a newer attempt (token {row.token}) has begun since token {token}:"
            " check it again before you ask"
        )
    found = [one for one in await read_workers(store) if one.id == row.worker_id]
    mine = found[0] if found else None
    if mine is None or not holds(mine) or mine.lock_free:
        raise Refused(f"job {row.id}: {describe_gone(mine, await store.inspector.now())}")
    return mine


async def wait_for_stack(
    store: Store, asked: AskedStack, wait: float = WAIT_SECONDS, clock: Clock = SYSTEM
) -> StoredJob:
    """Return the job's row once it has the answer; Refused, with the reason if known, if none
    arrives within that many seconds."""
    deadline = clock.boot() + wait
    while True:
        row = await _read(store, asked.job_id)
        if row.stack is not None and row.stack.asked >= asked.ask.number:
            return row
        if row.state is not State.RUNNING or row.token != asked.ask.token:
            raise Refused(f"job {row.id} is {row.state}: its attempt has ended")
        if clock.boot() >= deadline:
            raise Refused(await _why_none(store, asked, wait))
        await clock.sleep(LOOK_SECONDS)


async def _why_none(store: Store, asked: AskedStack, wait: float) -> str:
    found = [one for one in await read_workers(store) if one.id == asked.worker.id]
    now, number = await store.inspector.now(), asked.job_id
    if not found or not holds(found[0]) or found[0].lock_free:
        return f"job {number}: {describe_gone(found[0] if found else None, now)}"
    mine = found[0]
    heard = f"its last heartbeat, due every {span(mine.heartbeat)}, was {span(mine.unheard)} ago"
    if mine.unheard > 2 * mine.heartbeat + 1:
        cause = "it is stopped, cut off or dead"
    else:
        cause = "the row of the job may be locked by its own transaction"
    said = f"worker {line(mine.name)} on {line(mine.host)} has not answered within {wait:g} s"
    return f"job {number}: {said}: {heard}: {cause}"
