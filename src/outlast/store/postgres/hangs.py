"""Leaves the sessions whose statements hang, once another server answers in their place.

A host that freezes, or that a network cuts off, ends no session. Each statement would wait for it
for as long as a statement may take, while another server has become the primary. So once a
statement has taken ``HUNG_SECONDS``, a new session asks all hosts of the URL. It may lead to
another host, or to a server that does not know the old session, since another one has taken over
its address. If that one takes writes, the old session is left, as if the server had ended it. A
standby takes over nothing: one address may lead to several.

A server that is slow, or whose commits wait, still has the session. Then it is kept, and the next
look comes twice as late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from outlast.errors import OutlastError
from outlast.store.postgres.errors import TROUBLE
from outlast.store.statements import statements

_SQL = statements("postgres", "session")
HUNG_SECONDS = 2.0  # the default heartbeat
LOOK_SECONDS = 0.5  # between two looks at the statements that run
WAITS_FOR_STANDBY = "its commit waits for a synchronous standby"


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
                await fresh.close(timeout=HUNG_SECONDS)
            finally:
                fresh.terminate()
        except (OutlastError, *TROUBLE):  # no server answers: the next look asks again
            pass
        finally:
            self._look = None

    async def _compare(self, hung: dict[Any, float], fresh: Any) -> None:
        now = asyncio.get_running_loop().time()
        if getattr(fresh.get_settings(), "in_hot_standby", "off") == "on":
            self._known, self._look_at, self.why_late = hung, now + HUNG_SECONDS, ""
            return
        pids = [each.get_server_pid() for each in hung]
        there = dict(await fresh.fetch(_SQL["sessions"], pids, timeout=HUNG_SECONDS))
        here = [each for each, at in hung.items() if self._since.get(each) == at]
        left = [each for each in here if not _is_there(each, fresh, there)]
        if left:
            self._leave(left)
            return
        waits = any(there.get(each.get_server_pid()) == "SyncRep" for each in here)
        self.why_late = WAITS_FOR_STANDBY if waits else ""
        self._known, self._look_at = hung, 2 * now - min(hung.values())


def _is_there(session: Any, fresh: Any, there: dict[int, str | None]) -> bool:
    """Whether the server of ``fresh`` has this session. A pooler has its own number for it."""
    is_same = session._addr == fresh._addr  # noqa: SLF001  # asyncpg shows no address
    return is_same and (session.is_pooled or session.get_server_pid() in there)
