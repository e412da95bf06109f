"""Limits in the test kit: they hold while jobs are drained, and time travels for rates."""

from __future__ import annotations

import outlast
from outlast.testing import isolate


def test_limits_hold_in_a_drain_and_time_travels_for_rates() -> None:
    app = outlast.App("sqlite:////nowhere/production.db")
    slow = app.limit("slow", rate="1/h")
    done: list[int] = []

    @app.task(limits=[slow])
    async def mail(n: int) -> None:
        done.append(n)

    @app.task
    async def free(n: int) -> None:
        done.append(n)

    with isolate(app) as under_test:
        app.enqueue_many_sync([mail.call(1), mail.call(2), mail.call(3), free.call(9)])
        assert under_test.drain_sync() == 2
        assert sorted(done) == [1, 9]
        under_test.travel(3_600)
        assert under_test.drain_sync() == 1
        under_test.travel(3_600 * 3)
        under_test.drain_sync()
        assert sorted(done) == [1, 2, 3, 9]
