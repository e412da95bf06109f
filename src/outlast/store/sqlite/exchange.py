"""Makes exchanges: hands in ends and claims what can run next. Plain functions of a cursor.

They run inside one write transaction (sqlite/sql/exchange.sql argues why that is right). The common
case, a batch of completions that are all current, is one statement. If the count of changed rows
shows that some were not current, the batch is undone to a savepoint and judged one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from sqlite3 import Cursor
from typing import Any

import msgspec

from outlast.errors import BadData
from outlast.model.crash import Charge, CrashKind
from outlast.model.job import Policy, State
from outlast.model.lifecycle import OutcomeKind, Transition
from outlast.store.columns import count_of, read_policy
from outlast.store.protocol import ATTEMPTS_KEPT_FIRST, ATTEMPTS_KEPT_LAST, CLAIMS_MAX, EXPIRE_MAX
from outlast.store.queue_turns import Turns
from outlast.store.sqlite import lanes
from outlast.store.sqlite.dependencies import resolve, with_results
from outlast.store.sqlite.events import note_waits
from outlast.store.sqlite.lanes import Row, draw, draw_tokens
from outlast.store.sqlite.limits import throttle
from outlast.store.sqlite.permits import Permits
from outlast.store.sqlite.pruning import forget, forget_unkept
from outlast.store.sqlite.refusals import judge
from outlast.store.sqlite.statements import statements
from outlast.store.sqlite.streams import Streams, find_next_opening
from outlast.store.values import Answer, Claimed, ClaimRequest, Exchanged, WorkerRef

NUL = "\\u0000"  # NUL in JSON; two other texts also contain this

_SQL = statements("exchange")
_MARK = statements("session")
_WAITING = (State.QUEUED, State.BLOCKED)
_COMPLETED = {OutcomeKind.COMPLETED.value, CrashKind.COMPLETION_NOT_COMMITTED.value}
_encode = msgspec.json.Encoder().encode


def exchange(
    cursor: Cursor,
    now: float,
    me: WorkerRef,
    ended: Sequence[Transition],
    requests: Sequence[ClaimRequest],
    *,
    turns: Turns | None = None,
) -> Exchanged:
    """``turns``: which queue's turn it is, kept from one exchange to the next."""
    status = worker_status(cursor, me)
    answers = hand_in(cursor, now, ended)
    basket = Basket(cursor, now, me, requests)
    next_due, expired = None, 0
    if status == "active" and requests:
        look = waiting(cursor, now)
        if look.expires is not None and look.expires <= now:
            expired = expire(cursor, now, EXPIRE_MAX)
        unresolved = look.notices and resolve(cursor, now)
        look.streams |= look.notices
        if look.soonest is not None and look.soonest <= now:
            look.streams |= lanes.line_up_due(cursor, now)
        fit = [request for request in requests if not request.solo or look.suspects]
        basket.some_expired = expired >= EXPIRE_MAX
        streams = (
            Streams(cursor, now, fit, basket.permits, passes=look.suspects)
            if look.streams
            else None
        )
        claim(cursor, fit, turns or Turns(), basket, streams)
        more = basket.some_expired or unresolved or (streams is not None and streams.more)
        next_due = 0.0 if more else seconds_to_next(cursor, now, requests, basket, look)
    most = min([each.bytes_max for each in requests], default=0)
    claimed, late = with_results(cursor, basket.claimed, most)
    hand_in(cursor, now, late)
    return Exchanged(
        valid=status in {"active", "draining"},
        answers=answers,
        claimed=claimed,
        cancels=cancels_of(cursor, me.worker_id),
        next_due=next_due,
        cut=basket.cut or bool(late),
        expired=expired,
    )


def worker_status(cursor: Cursor, me: WorkerRef) -> str | None:
    """Return the status of the worker's row; None if its epoch or registration is another."""
    row = cursor.execute(_SQL["worker"], (me.worker_id, me.epoch, me.registration)).fetchone()
    return None if row is None else str(row[0])


def cancels_of(cursor: Cursor, worker_id: int) -> list[tuple[int, int]]:
    return cursor.execute(_SQL["cancels"], (worker_id,)).fetchall()


# ---------------------------------------------------------------------------- what ended


def hand_in(cursor: Cursor, now: float, ended: Sequence[Transition]) -> list[Answer]:
    if not ended:
        return []
    if len({end.job_id for end in ended}) == len(ended):
        cursor.execute(_MARK["mark"])
        if apply(cursor, now, ended) == len(ended):
            cursor.execute(_MARK["forget_mark"])
            return [Answer.ACCEPTED] * len(ended)
        cursor.execute(_MARK["undo_to_mark"])
        cursor.execute(_MARK["forget_mark"])
    return [_hand_in_one(cursor, now, end) for end in ended]


def apply(cursor: Cursor, now: float, ended: Sequence[Transition]) -> int:
    """Write ends of different jobs; return how many were current."""
    completed = State.COMPLETED  # looked up once: Python 3.11 takes 0.3 us for it
    plain = [end for end in ended if end.state is completed]
    count, other = 0, []
    if len(plain) < len(ended):
        other = [_unless_forgiven(cursor, end) for end in ended if end.state is not completed]
    if plain:
        values = {"now": now, "results": _results(plain)}
        done = cursor.execute(_SQL["complete"], values).rowcount
        count += done if done == len(plain) else done + _complete_away(cursor, values)
    if other:
        evidence = [_evidence(end, now) for end in other]
        cursor.executemany(_SQL["keep_evidence"], evidence)
        cursor.executemany(_SQL["drop_evidence"], evidence)
        if unbegun := [each for each, end in zip(evidence, other, strict=True) if not end.began]:
            cursor.executemany(_SQL["give_back_rate"], unbegun)
        count += cursor.executemany(_SQL["end"], _moves(cursor, now, other)).rowcount
        forget_unkept(cursor, [end.job_id for end in other])
    incidents = {end.clears for end in other if end.clears is not None}
    if incidents and count == len(ended):  # otherwise the batch is undone, or some end was refused
        clear(cursor, incidents)
    throttled = [end for end in other if end.throttles is not None]
    if throttled and count == len(ended):
        throttle(cursor, now, throttled)
    waits = [end for end in other if end.event is not None]
    if waits and count == len(ended):
        note_waits(cursor, waits)
    return count


def _complete_away(cursor: Cursor, values: dict[str, Any]) -> int:
    """Return how many jobs were completed and deleted."""
    found = cursor.execute(_SQL["complete_away"], values).fetchall()
    return forget(cursor, [job_id for (job_id,) in found])


def _unless_forgiven(cursor: Cursor, end: Transition) -> Transition:
    """Send the job back to the queue if a checkpoint that its worker does not know of has forgiven
    the losses for which it would end."""
    if end.state is not State.DEAD or end.charge is not Charge.LOSS:
        return end
    row = cursor.execute(_SQL["losses"], (end.job_id, end.token)).fetchone()
    spent = row is None or row[0] + 1 >= end.losses
    return end if spent else msgspec.structs.replace(end, state=State.QUEUED)


def _results(ended: Sequence[Transition]) -> str:
    text = _encode({f"{end.job_id}:{end.token}": end.result for end in ended}).decode()
    if NUL in text and any("\0" in (end.result or "") for end in ended):
        raise BadData("a result holds a NUL character")  # SQLite's JSON ends at it
    return text


def clear(cursor: Cursor, incidents: Iterable[int]) -> None:
    cursor.executemany(_SQL["clear"], [(each,) for each in incidents])


def _hand_in_one(cursor: Cursor, now: float, end: Transition) -> Answer:
    if apply(cursor, now, [end]):
        return Answer.ACCEPTED
    return judge(cursor, now, end.job_id, end.token, end.outcome, may_be_completed=_COMPLETED)


def _evidence(end: Transition, now: float) -> dict[str, Any]:
    return {
        "pid": end.pid,
        "outcome": end.outcome,
        "charge": end.charge.value,
        "message": end.message,
        "crash": None if end.crash is None else _encode(end.crash).decode(),
        "now": now,
        "job_id": end.job_id,
        "token": end.token,
        "kept_first": ATTEMPTS_KEPT_FIRST,
        "kept_last": ATTEMPTS_KEPT_LAST,
    }


def _moves(cursor: Cursor, now: float, ended: Sequence[Transition]) -> list[dict[str, Any]]:
    back = {end.token for end in ended if end.state in _WAITING and end.delay <= 0}
    positions = iter(draw(cursor, "position", len(back)) if back else ())
    return [
        {
            "state": end.state.value,
            "position": next(positions) if end.token in back else None,
            "delay": max(0.0, end.delay),
            "doubles_to": end.doubles_to,
            "now": now,
            "failures": end.failures,
            "loss": int(end.charge is Charge.LOSS),
            "began": end.began,
            "solo": end.solo,
            "incident": end.incident,
            "fingerprint": end.fingerprint,
            "job_id": end.job_id,
            "token": end.token,
        }
        for end in ended
    ]


# ------------------------------------------------------------------------ what runs next


class Probes(msgspec.Struct, gc=False):
    """What waits, seen at one look.

    Attributes:
        suspects: whether there are any.
        soonest: when the first scheduled job falls due; None: there is none.
        expires: when the first queued job expires; None: none does.
        opens: when the first permit opens that lacks only time; None: none does.
        streams: whether any stream is open, or a permit may have room for one that it blocks.
        notices: whether there is a notice that a job has ended for which others wait.
    """

    suspects: bool
    soonest: float | None
    expires: float | None
    opens: float | None
    streams: bool
    notices: bool


def waiting(cursor: Cursor, now: float) -> Probes:
    row = cursor.execute(_SQL["waiting"], {"now": now}).fetchone()
    suspects, soonest, expires, opens, marked, notices = row
    is_open = bool(marked) or (opens is not None and opens <= now)
    return Probes(bool(suspects), soonest, expires, opens, is_open, bool(notices))


def expire(cursor: Cursor, now: float, limit: int = EXPIRE_MAX) -> int:
    ended = cursor.execute(_SQL["expire"], {"now": now, "limit": limit}).fetchall()
    forget(cursor, [job_id for (job_id,) in ended if job_id is not None])
    return len(ended)


class Basket:
    """What one exchange claims: at most CLAIMS_MAX jobs, and as many bytes as a reply may bring.

    ``cut``: the bytes have cut it short. ``some_expired``: maybe not all expired jobs were ended,
    so those that are met are passed over.
    """

    def __init__(
        self, cursor: Cursor, now: float, me: WorkerRef, requests: Sequence[ClaimRequest]
    ) -> None:
        self.claimed: list[Claimed] = []
        self.cut = False
        self.some_expired = False
        self.permits = Permits(cursor, now)
        self._cursor = cursor
        self._now = now
        self._me = me
        self._left = min([each.bytes_max for each in requests], default=0)

    def take(self, found: list[Row]) -> list[Row]:
        """Claim as many of these rows as there is room for; return them."""
        if self.some_expired:
            found = self._keep_unexpired(found)
        count, self._left = _within(found, self._left, least=0 if self.claimed else 1)
        taken = found[:count]
        self.claimed += _claim_rows(self._cursor, self._now, self._me, taken)
        self.cut = count < len(found)
        return taken

    def _keep_unexpired(self, found: Sequence[Row]) -> list[Row]:
        ids = _encode([row.job_id for row in found]).decode()
        values = {"ids": ids, "now": self._now}
        good = {job_id for (job_id,) in self._cursor.execute(_SQL["begins_in_time"], values)}
        return [row for row in found if row.job_id in good]


def claim(
    cursor: Cursor,
    requests: Sequence[ClaimRequest],
    turns: Turns,
    basket: Basket,
    streams: Streams | None,
) -> None:
    """``streams``: None if there is nothing to look at."""
    for request in requests:
        limit = min(request.limit, CLAIMS_MAX - len(basket.claimed))
        if limit <= 0 or basket.cut:
            continue
        before = len(basket.claimed)
        if streams is None:
            _take_from_line(cursor, request, limit, turns, basket)
        else:
            limit -= _take_from_line(cursor, request, turns.halve(limit), turns, basket)
            if not basket.cut:
                limit -= streams.claim(request, limit, turns, basket.take)
            _take_from_line(cursor, request, limit, turns, basket)
        if request.solo and len(basket.claimed) > before and request is not requests[-1]:
            basket.cut = True
    basket.permits.write([] if streams is None else streams.seen)


def _take_from_line(
    cursor: Cursor, request: ClaimRequest, limit: int, turns: Turns, basket: Basket
) -> int:
    if limit <= 0 or basket.cut:
        return 0
    if request.solo:
        return len(basket.take(lanes.find_suspects(cursor, request, limit)))
    taken = basket.take(lanes.find_next(cursor, request, limit, turns.find_start(request)))
    if taken:
        turns.note_taken(request, taken[-1].queue)
    return len(taken)


def _within(found: Sequence[Row], left: int, *, least: int) -> tuple[int, int]:
    """Return how many of these rows fit into the remaining bytes, and the rest of these."""
    size = sum([row.size for row in found])
    if size <= left:
        return len(found), left - size
    for count, row in enumerate(found):
        if row.size > left and count >= least:
            return count, left
        left -= row.size
    return len(found), left


def _claim_rows(cursor: Cursor, now: float, me: WorkerRef, found: Sequence[Row]) -> list[Claimed]:
    if not found:
        return []
    tokens = draw_tokens(cursor, now, len(found))
    values = {
        "worker_id": me.worker_id,
        "token": tokens[0],
        "now": now,
        "ids": _encode([row.job_id for row in found]).decode(),
    }
    cursor.execute(_SQL["claim"], values)
    texts = {row.policy for row in found}  # jobs share them
    policies = {text: read_policy(text) for text in texts}
    return [
        _make_claimed(cursor, now, row, token, *policies[row.policy])
        for token, row in zip(tokens, found, strict=True)
    ]


def _make_claimed(
    cursor: Cursor, now: float, row: Row, token: int, policy: Policy, malformed: str | None
) -> Claimed:
    args, checkpoint = row.args, row.checkpoint
    if args is None:
        args, checkpoint = cursor.execute(_SQL["payloads"], (row.job_id,)).fetchone()
    return Claimed(
        job_id=row.job_id,
        token=token,
        task=row.task,
        queue=row.queue,
        args=args,
        number=(count_of(row.attempt_count) if row.attempt_count else 0) + 1,  # 0 saves calls
        failures=count_of(row.failures) if row.failures else 0,
        losses=count_of(row.losses) if row.losses else 0,
        policy=policy,
        tenant=row.tenant,
        checkpoint=checkpoint,
        priority=-row.rank,
        solo=row.solo,
        incident=row.incident,
        malformed=malformed,
        waited=now - row.run_at,
        expires_in=None if row.expires_at is None else row.expires_at - now,
        awaited=bool(row.awaited),
    )


def seconds_to_next(
    cursor: Cursor, now: float, requests: Sequence[ClaimRequest], basket: Basket, look: Probes
) -> float | None:
    """Return in how many seconds a job falls due, or a permit opens, that a request waits for."""
    ordinary = [request for request in requests if not request.solo]
    count = sum(not each.solo for each in basket.claimed)
    full = count >= sum(request.limit for request in ordinary)
    times = [] if full else [lanes.find_next_due(cursor, requests[0].queues)]
    if not full and (look.streams or look.opens is not None):
        times.append(find_next_opening(cursor, ordinary))
    soonest = min([time for time in times if time is not None], default=inf) - now
    return None if soonest == inf else max(0.0, soonest)
