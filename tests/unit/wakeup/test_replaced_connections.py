"""A messenger whose connection is replaced while a notice is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outlast.store.wakeup import BACKOFF_MAX_SECONDS
from outlast.wakeup import messenger
from outlast.wakeup.messenger import Messenger
from outlast.wakeup.notice import Notice
from tests.manual_clock import ManualClock
from tests.unit.wakeup.test_messenger import Line, turns

NOTICES = [Notice(job_id=1, queue="q", task="t")]


class Slow(Line):
    """Answers, or fails, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.lost, self.opens, self.answers = (asyncio.Event() for _ in range(3))
        self.opens.set()
        self.answers.set()
        self.works = True

    async def open(self) -> None:
        await self.opens.wait()
        await super().open()

    async def publish(self, notices: Sequence[Notice]) -> None:
        await self.answers.wait()
        if not self.works:
            raise ConnectionError("it is gone")

    async def wait_until_lost(self) -> None:
        await self.lost.wait()


async def open_one_after_the_other(clock: ManualClock, *lines: Slow) -> Messenger:
    line = iter(lines)
    opened = Messenger(lambda: next(line), "amqp", inbox=None, clock=clock)
    await opened.start()
    return opened


async def test_a_publish_that_fails_on_an_old_connection_leaves_the_new_one() -> None:
    clock, old, new = ManualClock(), Slow(), Slow()
    old.answers.clear()
    old.works = False
    opened = await open_one_after_the_other(clock, old, new)
    late = asyncio.create_task(opened.announce(NOTICES))
    await turns()
    old.lost.set()
    await turns()
    clock.advance(BACKOFF_MAX_SECONDS)
    await turns()
    assert (old.closed, new.opened) == (1, 1)
    old.answers.set()
    assert not await late
    await turns()
    assert opened.health.good
    assert await opened.announce(NOTICES)
    assert new.closed == 0
    await opened.close()


async def test_a_publish_that_waits_in_vain_for_a_connection_leaves_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    slow.opens.clear()
    opened = await open_one_after_the_other(ManualClock(), slow)
    with monkeypatch.context() as hurried:
        hurried.setattr(messenger, "PUBLISH_SECONDS", 0.01)
        assert not await opened.announce(NOTICES)
    slow.opens.set()
    await turns()
    assert await opened.announce(NOTICES)
    assert slow.closed == 0
    await opened.close()
