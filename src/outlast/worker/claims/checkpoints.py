"""Writes checkpoints and progress to the store, many in one trip.

A checkpoint is answered only when the store has it. Only the latest progress counts: it is written
at most a few times a second, and a last time just before the end of its attempt is handed in, since
the store refuses it afterwards. No end waits long for that: lost progress costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import accumulate

from outlast.errors import BadData, text_of
from outlast.events import emit
from outlast.runner.protocol import Reported
from outlast.store.bisect import bisecting
from outlast.store.protocol import Store
from outlast.store.values import TRIP_BYTES, Answer, Report, Save
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.claims.job_logs import JobLogs
from outlast.worker.running import Running
from outlast.worker.service import Nudge

SAVES_MAX = 200
FLUSH_SECONDS = 0.5  # between two writes of progress
LAST_SECONDS = 1.0  # for which an end waits for the write of its attempt's last progress
BUSY_PAUSE_SECONDS = 0.05
REJECTED = "rejected"  # the answer if the store cannot take a checkpoint

Reply = Callable[[str], None]


class CheckpointWriter:
    """The duty that writes checkpoints at once and progress now and then."""

    name = "checkpoints"

    def __init__(self, store: Store, in_flight: InFlight, nudge: Nudge) -> None:
        self._store = store
        self._in_flight = in_flight
        self._nudge = nudge
        self._saves: list[tuple[Save, Reply]] = []
        self._reports: dict[int, Report] = {}
        self._writing = asyncio.Lock()  # held while reports are under way
        self._rests = False  # whether idle until the next save or report
        self._closed = False
        self.logs = JobLogs(store, in_flight)

    def report(self, running: Running, frame: Reported) -> None:
        """Note progress, to be written soon."""
        kept = self._in_flight.note_progress(frame.token, frame.progress)
        report = Report(running.claimed.job_id, frame.token, kept)
        self._reports[frame.token] = report
        if self._rests:
            self._rests = False
            self._nudge.give()

    def add(self, save: Save, reply: Reply) -> None:
        """Save a checkpoint; ``reply`` is called with the answer."""
        if self._closed:
            reply(str(Answer.REFUSED))
            return
        self._in_flight.note_saving(save.token, save.number)
        self._saves.append((save, reply))
        self._nudge.give()

    def close(self) -> None:
        """Refuse pending and later saves: they are not written any more. In process, attempts that
        cannot be killed would wait for an answer forever."""
        self._closed = True
        saves, self._saves = self._saves, []
        for _, reply in saves:
            reply(str(Answer.REFUSED))

    async def run_once(self) -> float | None:
        """Write all pending saves, then the latest progress.

        A save whose row is locked goes behind the others, and delays none of them.
        """
        waiting = len(self._saves)
        while waiting > 0:
            sizes = accumulate(
                len(save.value) for save, _ in self._saves[: min(waiting, SAVES_MAX)]
            )
            batch = self._saves[: max(1, sum(size <= TRIP_BYTES for size in sizes))]
            waiting -= len(batch)
            busy = await self._save(batch)
            self._saves = [*self._saves[len(batch) :], *busy]
        if self._saves or self._reports:
            held = (
                self._in_flight.held()
            )  # the last progress of ended attempts comes with their ends
            self._reports = {token: one for token, one in self._reports.items() if token in held}
            await self._report(self._in_flight.running.keys())
            return BUSY_PAUSE_SECONDS if self._saves else FLUSH_SECONDS
        self._rests = True
        return None

    async def _save(self, batch: list[tuple[Save, Reply]]) -> list[tuple[Save, Reply]]:
        wanted = [save for save, _ in batch if save.token in self._in_flight.running]
        answered = await bisecting(self._store.checkpoint, wanted, lambda save, error: REJECTED)
        answers = dict(zip(wanted, answered, strict=True))
        busy = []
        for save, reply in batch:
            answer = answers.get(save, Answer.REFUSED)  # its attempt has ended meanwhile
            self._in_flight.note_answer(save.token, save.number)
            if answer is Answer.BUSY:
                busy.append((save, reply))
                continue
            if answer is Answer.REFUSED and save in answers:
                self._in_flight.counters.note_refusal("checkpoint")
            if answer in (Answer.ACCEPTED, Answer.ALREADY):
                self._in_flight.note_save(save)
            reply(str(answer))
        return busy

    async def report_last(self, tokens: Iterable[int]) -> None:
        """Write the last progress and lines of these attempts, before their ends are handed in."""
        if not (self._reports or self._writing.locked() or self.logs.kept):
            return
        ended = set(tokens)
        with suppress(Exception):  # any error: the end matters more, and meets the same error
            async with asyncio.timeout(LAST_SECONDS):
                await self._report(ended)
                await self.logs.write_last(ended)

    async def _report(self, tokens: AbstractSet[int]) -> None:
        """Write the reports of these attempts."""
        async with self._writing:
            reports = {token: self._reports.pop(token) for token in tokens & self._reports.keys()}
            try:
                if reports:
                    await self._store.progress(list(reports.values()))
            except BadData as error:
                emit("progress_rejected", error=text_of(error))
            except BaseException:
                self._reports = {**reports, **self._reports}
                raise
