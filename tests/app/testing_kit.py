"""An application as users write one, with tasks that survive a crash and tasks that do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import outlast
from outlast.testing import AppUnderTest, isolate


class Shop:
    """``app`` and its tasks. ``effects``: what they have done outside the database."""

    def __init__(self) -> None:
        self.app = outlast.App("sqlite:////nowhere/production.db")
        self.effects: list[Any] = []
        self.tokens: list[int] = []
        task = self.app.task
        self.mail, self.order = task(self._mail), task(self._order)
        self.resumes, self.restarts = task(self._resumes), task(self._restarts)
        self.resumes_plainly = task(self._resumes_plainly)
        self.goes_on = task(self._goes_on)
        self.fails_once = task(retries=3)(self._fails_once)

    async def _mail(self, to: str, plan: str = "free") -> str:
        self.effects.append(to)
        return to

    async def _order(self, number: int) -> None:
        await self.mail.enqueue(f"customer {number}")

    async def _resumes(self, pages: int) -> int:
        attempt = outlast.current()
        self.tokens.append(attempt.token)
        for page in range(attempt.checkpoint or 0, pages):
            self.effects.append(page)
            await attempt.save(page + 1)
        return pages

    def _resumes_plainly(self, pages: int) -> int:
        attempt = outlast.current()
        for page in range(attempt.checkpoint or 0, pages):
            self.effects.append(page)
            attempt.save_sync(page + 1)
        return pages

    async def _restarts(self, pages: int) -> None:
        for page in range(pages):
            await outlast.current().save(page + 1)

    async def _goes_on(self, pages: int) -> None:
        attempt = outlast.current()
        for page in range(attempt.checkpoint or 0, pages):
            try:
                await attempt.save(page + 1)
            except outlast.LostLease:
                self.effects.append("swallowed")

    async def _fails_once(self) -> None:
        self.effects.append("tried")
        if len(self.effects) == 1:
            raise ValueError("no card")


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def jobs(shop: Shop) -> Iterator[AppUnderTest]:
    with isolate(shop.app) as under_test:
        yield under_test
