"""Step one worker until nothing is due: the parts of ``app.worker()``, by hand.

Its heartbeat and its wake-ups do not run: a test waits for nothing, and the lease is longer than
any pause in a debugger. The exchange, checkpoints, limits, schedules and the reaper, which detects
the death of a killed worker, run.
"""

from __future__ import annotations

import functools
from typing import Any

from outlast.base.config import worker_settings
from outlast.client.app import App
from outlast.store.schedules import DUE_MAX, FIRST_PAGE
from outlast.testing.faults import FaultWatch, WatchedAttempt
from outlast.worker.in_process import LocalHooks, LocalPool, open_worker
from outlast.worker.maintenance.reaper import Reaper
from outlast.worker.worker import Worker

LEASE_SECONDS = 1e6
UNWIND_SECONDS = 0.05  # between checks whether an attempt has ended


async def drain(
    app: App, watch: FaultWatch, concurrency: int, kind: type[WatchedAttempt] = WatchedAttempt
) -> None:
    """Run due jobs, and jobs that these make due: by one worker, or by two if the first is killed.
    ``kind``: the class of the attempts."""
    settings = worker_settings(
        concurrency=1 if watch.fault else concurrency,
        lease=LEASE_SECONDS,
        presence=False,
        **gather_needs(app),
    )
    store = await app.stores.store()
    hooks = LocalHooks(functools.partial(kind, watch), 0.0, store)  # nothing waits for a slot
    died = True
    while died:
        async with open_worker(app, settings, hooks) as worker:
            watch.begin(worker, store)
            died = await _Steps(worker, app, watch).run()


def gather_needs(app: App) -> dict[str, Any]:
    """Return the settings of a worker that serves all tasks, with each tag, and enough units."""
    tags = sorted({tag for task in app.tasks.values() for tag in task.requires})
    has: dict[str, int] = {}
    for unit, count in (each for task in app.tasks.values() for each in task.uses.items()):
        has[unit] = max(count, has.get(unit, 0))
    return {"tags": tags, "has": has}


class _Steps:
    def __init__(self, worker: Worker, app: App, watch: FaultWatch) -> None:
        self._worker = worker
        self._clock = app.stores.clock
        self._watch = watch
        self._services = [worker.services[name] for name in ("checkpoints", "watchdog")]

    async def run(self) -> bool:
        """Register, work and leave. Return whether the worker died instead."""
        await self._worker.registration.register()
        for service in self._services:
            service.start()
        try:
            await self._look_around()
            await self._work()
        finally:
            await self._leave()
        return self._watch.is_cut_off

    async def _look_around(self) -> None:
        """Read the pauses, declare schedules, reclaim a dead worker's jobs, fire due schedules."""
        worker, services = self._worker, self._worker.services
        await services["pauses"].duty.run_once()
        await services["scheduler"].duty.run_once()  # it fires only schedules that it has declared
        own = worker.registration
        await Reaper(worker, self._watch.store, clock=self._clock, own=own).run_once()
        await self._fire_all_due()

    async def _fire_all_due(self) -> None:
        """Fire until no due schedule can be advanced, a few hundred ticks of a cron line each."""
        before, due = None, await self._find_due()
        while due and due != before:
            await self._worker.services["scheduler"].duty.run_once()
            before, due = due, await self._find_due()

    async def _find_due(self) -> list[tuple[str, float]]:
        page = await self._watch.store.due_schedules(DUE_MAX, FIRST_PAGE)
        return [(each.name, each.next_tick) for each in page.schedules]

    async def _work(self) -> None:
        """Exchange until a trip that hands in nothing also brings nothing."""
        worker, in_flight, nudge = (
            self._worker,
            self._worker.in_flight,
            self._worker.plan.nudge,
        )
        while not self._watch.is_cut_off:
            was_empty = in_flight.is_empty()
            worker.look_for_work()
            nudge.take()
            pause = await worker.services["exchange"].duty.run_once() or 0.0
            if was_empty and in_flight.is_empty() and pause > 0:
                return
            if pause > 0 and isinstance(worker.pool, LocalPool):
                worker.pool.begin_batches()  # nothing more is due: they would wait for nothing
            if not in_flight.is_empty():
                await nudge.wait(pause)
            for end in in_flight.ended:
                self._watch.note_end(end)
        await self._cut_off()

    async def _cut_off(self) -> None:
        """Wait until the attempt that was hit has ended. With a lost lease its end is handed in,
        and refused; with a killed worker it is not."""
        hit, nudge = self._watch.hit, self._worker.plan.nudge
        self._watch.let_end()
        while hit is not None and self._worker.pool.control.has(hit.token):
            nudge.take()
            await nudge.wait(UNWIND_SECONDS)
        if self._watch.lost_lease:
            await self._worker.services["exchange"].duty.run_once()
        self._worker.registration.stop_reviving()

    async def _leave(self) -> None:
        worker = self._worker
        if self._watch.is_cut_off:  # its row and its jobs stay unchanged
            worker.checkpoints.close()
            for service in self._services:
                await service.stop()
            await worker.pool.close()
            return
        if not worker.in_flight.is_empty():  # the test was interrupted
            worker.services["exchange"].start()
        await worker.leave()
