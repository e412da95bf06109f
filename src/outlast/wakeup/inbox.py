"""Passes names of jobs from a messenger to the exchange, and the number of free slots back.

A message is taken from the messenger only while there is a slot for its job, and handed to one
exchange, which claims the first job in the line. Once the store has answered, the message is
settled even if nothing was claimed; if there was no slot after all, or the exchange broke off, it
goes back for another worker. Jobs that were named and not claimed are remembered for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from outlast.store.protocol import CLAIMS_MAX
from outlast.store.values import Claimed, ClaimRequest

PASSED_MAX = 100  # passed-over names that are remembered; further ones are forgotten


class Inbox:
    """The names of jobs that wait for an exchange. All calls are from the worker's own loop."""

    def __init__(self) -> None:
        self.healthy = False  # while true, polls without a hint may be rare
        self._free_slots = 0
        self._has_free_slots = asyncio.Event()
        self._waiting: list[tuple[list[int], asyncio.Future[bool]]] = []
        self._asked: list[asyncio.Future[bool]] = []
        self._names: list[int] = []  # in the exchange under way
        self._passed: set[int] = set()

    # -- the exchange's side

    def hand_over(self, requests: Sequence[ClaimRequest]) -> list[int]:
        """Hand the waiting names over to an exchange; return them. They go back to the messenger if
        no request is for ordinary jobs."""
        if not any(each.limit and not each.solo for each in requests):
            self.refuse()
        self._names = sorted({name for names, _ in self._waiting for name in names})
        self._asked += [answer for _, answer in self._waiting]
        self._waiting.clear()
        return self._names

    def settle(self, *, answered: bool, claimed: Sequence[Claimed] = ()) -> None:
        """Settle the requested names: ``answered`` says whether the store answered the exchange,
        ``claimed`` which jobs it claimed."""
        if not self._asked:
            return
        _resolve(self._asked, answered=answered)
        self._asked.clear()
        if answered and len(self._passed) < PASSED_MAX:
            got = {each.job_id for each in claimed}
            self._passed.update(name for name in self._names if name not in got)

    def refuse(self) -> None:
        """Give back waiting names: there are no free slots."""
        _resolve([answer for _, answer in self._waiting], answered=False)
        self._waiting.clear()

    def offer(self, free_slots: int) -> None:
        """Set the number of free slots."""
        self._free_slots = min(free_slots, CLAIMS_MAX)
        if self._free_slots > 0:
            self._has_free_slots.set()
        else:
            self._has_free_slots.clear()

    # -- for the report of passed-over names

    def take_passed_over(self) -> list[int]:
        """Return a few of the names that were requested since the last call and not claimed."""
        passed, self._passed = self._passed, set()
        return sorted(passed)[:PASSED_MAX]

    # -- the messenger's side

    def has_free_slots(self) -> bool:
        """Return whether there are free slots."""
        return self._has_free_slots.is_set()

    async def wait_for_slots(self) -> int:
        """Wait for free slots; return their number."""
        await self._has_free_slots.wait()
        return self._free_slots

    def put(self, names: list[int]) -> asyncio.Future[bool]:
        """Hand over names of jobs. The future's result is whether an exchange was answered."""
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((names, answer))
        return answer


def _resolve(answers: Sequence[asyncio.Future[bool]], *, answered: bool) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_result(answered)
