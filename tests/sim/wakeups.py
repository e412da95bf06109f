"""Wake-ups that are lost, doubled, late or out of order: hints, on which nothing may depend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outlast.store.wakeup import Health


class SimWakeup:
    """The ``Wakeup`` of one worker."""

    def __init__(self, owner: Any) -> None:
        self.health = Health("notify")
        self.owner = owner
        self._on_wake: Callable[[str], None] | None = None

    async def start(self, on_wake: Callable[[str], None]) -> None:
        """Listen."""
        self._on_wake = on_wake
        self.health.note_ready()
        self.owner.world.listeners.append(self)

    async def close(self) -> None:
        """Stop listening."""
        self._on_wake = None
        if self in self.owner.world.listeners:
            self.owner.world.listeners.remove(self)

    def send(self, payload: str) -> None:
        """Send it; it may be lost, doubled or late."""
        plan = self.owner.world.plan
        times = 1
        if plan.on:
            dice = plan.chance()
            times = 0 if dice < plan.wake_lost else 2 if dice < plan.wake_lost + 0.15 else 1
            if times != 1:
                plan.seen["wake-up doubled" if times else "wake-up lost"] += 1
        for _ in range(times):
            self._deliver_later(payload)

    def _deliver_later(self, payload: str) -> None:
        plan = self.owner.world.plan
        late = plan.on and plan.chance() < 0.2
        if late:
            plan.seen["wake-up late, out of order"] += 1
        delay = (3.0 if late else 0.02) * plan.chance()
        context = self.owner.context()
        self.owner.world.loop.call_later(delay, self._deliver, payload, context=context)

    def _deliver(self, payload: str) -> None:
        if self._on_wake is not None:
            self._on_wake(payload)
