"""Abandons sessions whose statements hang, once another server has taken over.

A host that freezes, or that a network cuts off, ends no session: each statement would wait until
its own timeout, although another server has become the primary. So once a statement has taken
``HUNG_SECONDS``, a new session is opened to any host of the URL, and its server is asked which of
the hanging sessions it has. If it accepts writes and does not have one of them, that session is
abandoned, as if its server had ended it. A standby takes over nothing: one address may lead to
several servers.

A server is identified by the time of its start, since several addresses may lead to it, and one
address to several. Process ids alone would not do: containers repeat them. A pooler gives no
process id, and may run each transaction on another server. So there a server has a session if any
transaction of this role has been open there for long enough; or if the session was opened there,
since it may be waiting for its turn in a pooler that was not asked.

A server that is slow, or whose commits wait, still has the session. Then the session is kept, and
the next look comes after twice the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from outlast.errors import OutlastError
from outlast.store.postgres.errors import TROUBLE
from outlast.store.postgres.statements import array_text
from outlast.store.statements import statements

_SQL = statements("postgres", "session")
HUNG_SECONDS = 2.0  # the default heartbeat
ANSWER_SECONDS = 2.0  # for the server that a look asks
LOOK_SECONDS = 0.5  # between two looks at the statements that run
WAITS_FOR_STANDBY = "commits wait for a synchronous standby"


class Lent:
    """The sessions of one event loop that are in use.

    Attributes:
        why_late: why the statements that take long do, as far as the server says.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        leave: Callable[[Iterable[Any]], None],
    ) -> None:
        """``connect``: asks all hosts; ``leave``: drops these sessions, and the idle ones."""
        self._connect = connect
        self._leave = leave
        self._since: dict[Any, float] = {}
        self._known: dict[Any, float] = {}  # those that the last look has found on their server
        self._look_at = 0.0
        self._watches = False  # no handle of the timer, which would keep the loop
        self._look: asyncio.Task[None] | None = None
        self.why_late = ""

    def add(self, session: Any) -> None:
        loop = asyncio.get_running_loop()
        self._since[session] = loop.time()
        if not self._watches:
            self._watches = True
            loop.call_later(LOOK_SECONDS, self._tick, loop)

    def remove(self, session: Any) -> None:
        self._since.pop(session, None)

    async def close(self) -> None:
        """End a look that is under way."""
        if (look := self._look) is not None:
            look.cancel()
            await asyncio.wait([look])

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._since:
            self._known, self.why_late, self._watches = {}, "", False
            return
        loop.call_later(LOOK_SECONDS, self._tick, loop)
        now = loop.time()
        hung = {each: at for each, at in self._since.items() if now - at >= HUNG_SECONDS}
        is_new = any(self._known.get(each) != at for each, at in hung.items())
        is_due = is_new or now >= self._look_at
        if hung and is_due and self._look is None:
            self._look = loop.create_task(self._look_for_another(hung), name="outlast-hangs")

    async def _look_for_another(self, hung: dict[Any, float]) -> None:
        try:
            fresh = await self._connect()
            try:
                await self._compare(hung, fresh)
                await fresh.close(timeout=ANSWER_SECONDS)
            finally:
                fresh.terminate()
        except (OutlastError, *TROUBLE):  # no server answers: the next look asks again
            pass
        finally:
            self._look = None

    async def _compare(self, hung: dict[Any, float], fresh: Any) -> None:
        now = asyncio.get_running_loop().time()
        pids = [each.get_server_pid() for each in hung if not each.is_closed()]
        rows = await fresh.fetch(_SQL["sessions"], array_text(pids), timeout=ANSWER_SECONDS)
        if (server := rows[0]["server"]) is None:
            self._known, self._look_at, self.why_late = hung, now + HUNG_SECONDS, ""
            return
        found = {
            each: [row for row in rows if _may_be(each, now - at, row)]
            for each, at in hung.items()
            if self._since.get(each) == at and each.server is not None and not each.is_closed()
        }
        lost = [each for each, its in found.items() if not its]
        if left := [each for each in lost if not (each.is_pooled and each.server == server)]:
            self._leave(left)
            return
        late = [row for row in rows if row["wait_event"] == "SyncRep"]  # ours may wait for its lock
        waits = any(row["seconds"] >= HUNG_SECONDS for row in late)
        self.why_late = WAITS_FOR_STANDBY if waits else ""
        self._known, self._look_at = hung, 2 * now - min(hung.values())


def _may_be(session: Any, seconds: float, row: Any) -> bool:
    """Whether this may be the server's process for a session that has been in use for so long. Its
    clock and ours differ a little, so half of the time will do."""
    if session.is_pooled:
        return bool(row["seconds"] >= seconds / 2)
    return bool((row["server"], row["pid"]) == (session.server, session.get_server_pid()))
