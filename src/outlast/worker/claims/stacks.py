"""Shows where attempts are, when a person asks.

Requests come with a beat, the few of the last seconds (``store.stacks``); each is answered once,
under the requested token. An answer that cannot be written is dropped: the person may ask again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outlast.base.clock import Clock
from outlast.model.crash import TEXT_MAX, clean
from outlast.runner.stacks import line_of
from outlast.store.protocol import Store
from outlast.store.stacks import Stack, StackRequest
from outlast.store.values import Claimed
from outlast.worker.base import Pool
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.service import Nudge

TRIES, TRY_SECONDS = 20, 0.05  # to write an answer whose row is locked, perhaps by the task itself


class StackShower:
    """The duty that answers requests."""

    name = "stacks"

    def __init__(self, store: Store, in_flight: InFlight, pool: Pool, clock: Clock) -> None:
        self._store = store
        self._in_flight = in_flight
        self._control = pool.control
        self.nudge = Nudge()
        self._clock = clock
        self._taken: frozenset[StackRequest] = frozenset()  # those on the row
        self._asked: dict[int, int] = {}  # token -> the number of the last request

    def take(self, requests: Sequence[StackRequest]) -> None:
        """Take the requests that a beat has brought: all on the row, answered or not."""
        if not (requests or self._taken):
            return
        new = [ask for ask in requests if ask not in self._taken]
        self._taken = frozenset(requests)
        self._asked |= {ask.token: ask.number for ask in new}
        if new:
            self.nudge.give()

    async def run_once(self) -> None:
        """Answer the requests since the last time: read all stacks at once, write one by one."""
        asked, self._asked = self._asked, {}
        running = {token: each for token, each in self._in_flight.running.items() if token in asked}
        found = await asyncio.gather(*map(self._control.find_stack, running))
        for each, shown in zip(running.values(), found, strict=True):
            if shown:
                text = clean(self._in_flight.hide(shown), TEXT_MAX)
                line = line_of(text, each.token)
                line = None if line is None else clean(line)
                stack = Stack(token=each.token, asked=asked[each.token], text=text, line=line)
                await self._keep(each.claimed, stack)

    async def _keep(self, claimed: Claimed, stack: Stack) -> None:
        for _ in range(TRIES):
            if claimed.token not in self._in_flight.running:
                return
            if await self._store.keep_stack(claimed.job_id, stack):
                return
            await self._clock.sleep(TRY_SECONDS)
