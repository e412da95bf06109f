"""``app.on_commit``: store jobs when a session of SQLAlchemy commits, in that commit.

A call waits in memory, which costs no round trip, until the session is about to commit; then all
waiting calls are stored, on the session's own connection. Each call is bound to the transaction (or
savepoint) in which it was handed over: if that is rolled back, the call is dropped. A call that was
handed over outside a savepoint, and stored inside it, waits again if the savepoint is rolled back.

One set of listeners serves all sessions. After the first ``before_commit`` of a transaction, or the
first call within a flush, each flush also stores the waiting calls: a commit flushes, and hooks of
the ORM may hand in calls meanwhile.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from outlast.base.sync import drive, loop_is_running, run_in_background
from outlast.client.stores import StoreProvider
from outlast.client.task import Call
from outlast.errors import UsageError
from outlast.store.foreign import is_of, open_driver
from outlast.store.values import Enqueued, NewJob


class _Waiting(msgspec.Struct, eq=False):
    """One call, and the transactions (or savepoints) in which it was handed over and stored."""

    job: NewJob
    stores: StoreProvider
    home: Any
    stored_in: Any = None


class _Pending:
    """The calls of one session's open transaction."""

    def __init__(self) -> None:
        self.calls: list[_Waiting] = []
        self.is_committing = False
        self.committed: list[Any] = []  # transactions, until they end

    def unstored(self) -> list[_Waiting]:
        """Return the waiting calls, in their order."""
        return [each for each in self.calls if each.stored_in is None]

    def roll_back(self, transaction: Any) -> None:
        """Forget the calls of a transaction; calls that it only stored wait again."""
        self.calls = [each for each in self.calls if not _is_within(each.home, transaction)]
        for each in self.calls:
            if _is_within(each.stored_in, transaction):
                each.stored_in = None


_pending: weakref.WeakKeyDictionary[Any, _Pending] = weakref.WeakKeyDictionary()
_listens = False


def on_commit(stores: StoreProvider, session: object, call: Call[Any]) -> None:
    """Store a call in the next commit of a session. UsageError unless it is a session of SQLAlchemy
    and the call can be part of its transaction; ConnectionMismatch for an unknown driver."""
    if not isinstance(call, Call):
        raise UsageError("on_commit takes a call, such as ship.call(7)")
    if call.task.stores is not stores:
        raise UsageError(f"{call.job.task} is a task of another application")
    if call.connection is not None:
        raise UsageError("on_commit stores the call in the session: leave out connection=…")
    found = _session_of(session)
    open_driver(_owner_of(found))  # refuse here, not in the commit, a driver that cannot store
    transaction = _transaction_of(found)
    _listen()
    pending = _pending.get(found)
    if pending is None:
        pending = _pending[found] = _Pending()
    pending.is_committing |= found._flushing  # noqa: SLF001  (perhaps the flush of a commit)
    pending.calls.append(_Waiting(call._alone("on_commit"), stores, transaction))  # noqa: SLF001


def _session_of(given: Any) -> Any:
    """Return the session behind a proxy, such as a scoped session; a session is its own."""
    if is_of(given, "sqlalchemy.orm", "scoped_session") or is_of(
        given, "sqlalchemy.ext.asyncio", "async_scoped_session"
    ):
        given = given()
    if is_of(given, "sqlalchemy.ext.asyncio", "AsyncSession"):
        given = given.sync_session
    if not is_of(given, "sqlalchemy.orm", "Session"):
        raise UsageError(
            "on_commit takes a Session or AsyncSession of SQLAlchemy, not a"
            f" {type(given).__qualname__}; using(connection=…) takes connections of other kinds"
        )
    return given


def _owner_of(session: Any) -> Any:
    """Return the AsyncSession that wraps this session, else the session."""
    asynchronous = sys.modules.get("sqlalchemy.ext.asyncio")
    return (asynchronous and asynchronous.async_session(session)) or session


def _transaction_of(session: Any) -> Any:
    """Return the innermost transaction; begin one if there is none, as ``session.add`` does."""
    if not session.in_transaction():
        if not session.autobegin:
            raise UsageError("the session has no transaction (autobegin=False): begin one first")
        session.begin()
    found = session.get_nested_transaction() or session.get_transaction()
    if not found.is_active:
        raise UsageError("on_commit: this transaction has ended or failed; roll it back first")
    return found


def _is_within(transaction: Any, outer: Any) -> bool:
    while transaction is not None and transaction is not outer:
        transaction = transaction.parent
    return transaction is not None


# ------------------------------------------------------------------ the session's events


def _listen() -> None:
    """Listen to the events of all sessions, once."""
    global _listens
    if _listens:
        return
    of_all = sys.modules["sqlalchemy.orm"].Session
    for name, listener in (
        ("before_commit", _before_commit),
        ("after_flush_postexec", _after_flush),
        ("after_commit", _after_commit),
        ("after_transaction_end", _after_end),
    ):
        sys.modules["sqlalchemy"].event.listen(of_all, name, listener)
    _listens = True


def _before_commit(session: Any) -> None:
    """Store the waiting calls also at the release of a savepoint: this event does not tell them
    apart."""
    if (pending := _pending.get(session)) is not None:
        pending.is_committing = True
        _store(session, pending)


def _after_flush(session: Any, _: object) -> None:
    pending = _pending.get(session)
    if pending is not None and pending.is_committing:
        _store(session, pending)


def _after_commit(session: Any) -> None:
    pending = _pending.get(session)
    if pending is None:
        return
    nested = session.get_nested_transaction()
    pending.committed.append(nested or session.get_transaction())
    if nested is None and (late := pending.unstored()):
        raise UsageError(
            f"on_commit was called after the commit had begun: {len(late)} jobs were not stored,"
            " but the rest is committed. In a before_commit hook use using(connection=session)"
        )


def _after_end(session: Any, transaction: Any) -> None:
    pending = _pending.get(session)
    if pending is None:
        return
    if transaction.parent is None:
        del _pending[session]
    elif transaction in pending.committed:
        pending.committed.remove(transaction)
    elif transaction.nested:
        pending.roll_back(transaction)


# ---------------------------------------------------------------------------- storing


def _store(session: Any, pending: _Pending) -> None:
    """Store the waiting calls in the innermost transaction. After an error the rest still waits, so
    the transaction cannot be committed."""
    inner = session.get_nested_transaction() or session.get_transaction()
    waiting = pending.unstored()
    for stores in dict.fromkeys(each.stores for each in waiting):
        own = [each for each in waiting if each.stores is stores]
        _store_here(stores, own, _owner_of(session), inner)


def _store_here(stores: StoreProvider, waiting: Sequence[_Waiting], owner: Any, inner: Any) -> None:
    left: Iterator[_Waiting] = iter(waiting)

    def take(stored: list[Enqueued]) -> None:
        for _, each in zip(stored, left, strict=False):
            each.stored_in = inner

    jobs = [each.job for each in waiting]
    if hasattr(owner, "run_sync"):  # this is a greenlet of an event loop's task
        sys.modules["sqlalchemy"].util.await_only(stores.enqueue_many(jobs, take, owner))
        return
    if loop_is_running():  # this session blocks the loop in any case
        run_in_background(stores.store_id)
    drive(stores.enqueue_many(jobs, take, owner))
