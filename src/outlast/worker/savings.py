"""Checkpoints and progress on their way to the store, many in one trip.

A checkpoint is answered only when the store has it. Progress is only the latest word: it is
written a few times a second at most, and losing it costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlast.errors import BadData, StoreError
from outlast.events import emit
from outlast.runner.protocol import Reported, Saved, Saving
from outlast.store.base import Answer, Report, Save, Store
from outlast.worker.ledger import Ledger, Running
from outlast.worker.runner_process import RunnerProcess

SAVES_MAX = 200
FLUSH_SECONDS = 0.5  # between two writes of progress
BUSY_PAUSE_SECONDS = 0.05
REJECTED = "rejected"  # said to a runner whose checkpoint the store cannot take

Reply = Callable[[str], None]


class Savings:
    """The duty that writes checkpoints at once and progress now and then."""

    name = "savings"

    def __init__(self, store: Store, ledger: Ledger, *, on_pending: Callable[[], None]) -> None:
        self._store = store
        self._ledger = ledger
        self._on_pending = on_pending
        self._saves: list[tuple[Save, Reply]] = []
        self._reports: dict[int, Report] = {}

    def save(self, runner: RunnerProcess, running: Running, frame: Saving) -> None:
        """Save a runner's checkpoint; the runner is answered with the frame's number."""
        save = Save(running.claimed.job_id, frame.token, frame.number, frame.value)
        self.add(save, lambda answer: runner.send(Saved(frame.seq, answer)))

    def report(self, running: Running, frame: Reported) -> None:
        """Note progress, to be written soon."""
        self._ledger.noted_progress(frame.token, frame.progress)
        report = Report(running.claimed.job_id, frame.token, frame.progress)
        self._reports[frame.token] = report

    def add(self, save: Save, reply: Reply) -> None:
        """Save a checkpoint; ``reply`` hears the answer's word."""
        self._saves.append((save, reply))
        self._on_pending()

    async def run_once(self) -> float:
        """Write what is pending: all saves, then the latest progress."""
        while self._saves:
            await self._save(self._saves[:SAVES_MAX])
        await self._report()
        return FLUSH_SECONDS

    async def _save(self, batch: list[tuple[Save, Reply]]) -> None:
        try:
            answers: list[Answer | str] = list(
                await self._store.checkpoint([save for save, _ in batch])
            )
        except BadData:
            answers = await self._one_by_one(batch)
        busy = []
        for (save, reply), answer in zip(batch, answers, strict=True):
            if answer is Answer.BUSY:
                busy.append((save, reply))
                continue
            if answer is Answer.ACCEPTED:
                self._ledger.noted_save(save.token, save.value)
            reply(str(answer))
        self._saves[: len(batch)] = busy
        if busy:
            await asyncio.sleep(BUSY_PAUSE_SECONDS)

    async def _one_by_one(self, batch: list[tuple[Save, Reply]]) -> list[Answer | str]:
        answers: list[Answer | str] = []
        for save, _ in batch:
            try:
                answers += await self._store.checkpoint([save])
            except BadData:
                answers.append(REJECTED)
        return answers

    async def _report(self) -> None:
        reports, self._reports = self._reports, {}
        current = [each for each in reports.values() if each.token in self._ledger.running]
        try:
            if current:
                await self._store.progress(current)
        except BadData as error:
            emit("progress_rejected", error=str(error))
        except StoreError:
            self._reports = {**reports, **self._reports}
            raise
