"""Which attempts go on while their worker cannot renew its lease: only work that may be done twice.

Another worker may take over what this one holds once its lease has ended, so attempts are stopped
before. Those with ``keep_running_when_isolated`` go on, at their author's wish; whether they are
still the current ones is known when a beat is answered again.
"""

from __future__ import annotations

import asyncio

from outlast.worker.claims.ledger import Ledger


class Isolation:
    """One span without trust in the lease. ``keep``: whether any attempt may go on at all."""

    def __init__(self, ledger: Ledger, *, keep: bool) -> None:
        self._ledger = ledger
        self._keep = keep
        self._since = float("inf")
        self._answered = asyncio.Event()
        self._asked_at: float | None = None

    def kept(self) -> set[int]:
        """Return the tokens that go on."""
        return {
            running.token
            for running in self._ledger.running.values()
            if self._keep and running.claimed.policy.keep_running_when_isolated
        }

    def keep_none(self) -> None:
        """Let no attempt go on: the lease is lost."""
        self._keep = False

    def others(self) -> set[int]:
        """Return the tokens that are to end."""
        return self._ledger.running.keys() - self.kept()

    def take_beat(self, asked_at: float, *, renewed: bool) -> None:
        """Take the answer to a beat. One that was asked before the others had ended is too old."""
        if asked_at >= self._since and not self._answered.is_set():
            self._asked_at = asked_at if renewed else None
            self._answered.set()

    async def wait_for_beat(self, since: float) -> float | None:
        """Wait for the answer to a beat that was asked since then; return when it was asked, on
        the boot clock, or None: the lease is lost."""
        self._since = since
        await self._answered.wait()
        return self._asked_at
