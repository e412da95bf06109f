"""A store that fails as real ones do, from the seed: around every call of a real store.

Lost before it was done, done but not told, done later than the caller believes, slow. After the
faults are switched off it only takes its time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from outlast.errors import StoreUnavailable
from outlast.store.base import Store
from tests.sim.loop import OUTSIDE, PROCESS

VERBS = frozenset(
    {
        "announce", "cancel", "checkpoint", "discard", "enqueue", "exchange", "heartbeat",
        "observe", "overdue", "progress", "prune", "raise_tokens", "reap", "reclaim", "reconcile",
        "reconnect", "register", "request_drain", "requeue", "set_status", "superseded",
    }
)  # fmt: skip


class Plan:
    """How likely each fault is, per call. ``on`` False: none at all."""

    def __init__(self, chance: Callable[[], float]) -> None:
        self.chance = chance
        self.on = True
        self.outage_until = 0.0
        self.rates = {
            "request lost": 0.25 * chance() ** 3,
            "reply lost": 0.25 * chance() ** 3,
            "done late": 0.10 * chance() ** 3,
            "slow": 0.30 * chance() ** 2,
            "reply slow": 0.30 * chance() ** 2,
        }
        self.seen: Counter[str] = Counter()

    def drawn(self) -> str | None:
        """Return the fault of one call, or None."""
        if not self.on:
            return None
        dice = self.chance()
        for fault, rate in self.rates.items():
            if dice < rate:
                self.seen[fault] += 1
                return fault
            dice -= rate
        return None


class FaultyStore:
    """Looks like the store that it wraps; ``witness`` sees each verb that is really done."""

    def __init__(self, store: Store, plan: Plan, witness: Any) -> None:
        self._store = store
        self._plan = plan
        self._witness = witness

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name not in VERBS:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await self._call(name, real, args, kwargs)

        return call

    async def _call(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        plan, chance = self._plan, self._plan.chance
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.002 * chance())
        if plan.on and loop.time() < plan.outage_until:
            plan.seen["outage"] += 1
            raise StoreUnavailable("simulated: the store is away")
        fault = plan.drawn()
        if fault == "slow":
            await asyncio.sleep(8.0 * chance() ** 3)
        if fault == "request lost":
            await asyncio.sleep(2.0 * chance() ** 3)
            raise StoreUnavailable("simulated: the request was lost")
        if fault == "done late":
            self._do_later(15.0 * chance() ** 3, name, real, args, kwargs)
            raise StoreUnavailable("simulated: broke off, and is done later")
        reply = await self._done(name, real, args, kwargs)
        if fault == "reply lost":
            raise StoreUnavailable("simulated: the reply was lost")
        if fault == "reply slow":
            await asyncio.sleep(12.0 * chance() ** 2)
        await asyncio.sleep(0.002 * chance())
        return reply

    async def _done(self, name: str, real: Any, args: Any, kwargs: Any) -> Any:
        return await self._witness.watch(name, real, args, kwargs)

    def _do_later(self, delay: float, name: str, real: Any, args: Any, kwargs: Any) -> None:
        async def late() -> None:
            await asyncio.sleep(delay)
            try:
                await self._done(name, real, args, kwargs)
            except StoreUnavailable:
                return

        _outside(late())


_late: list[asyncio.Future[None]] = []  # kept: nobody else waits for them


def _outside(coroutine: Awaitable[None]) -> None:
    """Run it as the server would: whatever becomes of the caller."""
    token = PROCESS.set(OUTSIDE)
    try:
        _late.append(asyncio.ensure_future(coroutine))
    finally:
        PROCESS.reset(token)
