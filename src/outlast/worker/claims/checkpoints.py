"""Writes checkpoints, steps, progress and kept output to the store, many in one trip.

A checkpoint or a step is answered once the store has it. Only the latest progress counts: it is
written at most a few times a second, and a last time before the end of its attempt is handed in,
since the store refuses it afterwards. No end waits long for that: lost progress costs nothing.

Output is kept for tasks with ``logs=True``, or with ``--logs`` for all attempts of a worker; the
last lines of each replace the earlier ones, at the same moments.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import accumulate
from typing import TypeVar

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.base.text import escape
from outlast.errors import BadData, text_of
from outlast.events import emit
from outlast.model.crash import REDACTED, clean, rewrite
from outlast.runner.protocol import Reported
from outlast.runner.tail import last_state
from outlast.store.batches import bisecting, split
from outlast.store.logs import JobLog, LogLine
from outlast.store.protocol import Store
from outlast.store.values import TRIP_BYTES, Answer, Claimed, NamedStep, Report, Save
from outlast.worker.base import Running
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.service import Nudge

SAVES_MAX = 200
FLUSH_SECONDS = 0.5  # between two writes of progress
LAST_SECONDS = 1.0  # the longest wait of an end for the write of its attempt's last progress
BUSY_PAUSE_SECONDS = 0.05
REJECTED = "rejected"  # the answer if the store cannot take a checkpoint

K = TypeVar("K", Save, NamedStep)
Answered = tuple[str, str | None]  # the answer, and the value that a look has found
Reply = Callable[[str, str | None], None]
WRITE_SECONDS = 0.5  # between two writes
LINES_MAX = 200  # the last lines of an attempt
CHARACTERS_MAX = 65_536  # of the output of an attempt
LINE_MAX = 8_000  # bytes of a line; a longer line is split
_CUT_STEP = 5  # bytes between two places where a line may be split
BAR_SECONDS = 30.0  # between two kept states of one progress bar


class CheckpointWriter:
    """The duty that writes checkpoints at once and progress now and then."""

    name = "checkpoints"

    def __init__(self, store: Store, in_flight: InFlight) -> None:
        self._store = store
        self._in_flight = in_flight
        self.nudge = Nudge()
        self._saves: list[tuple[Save | NamedStep, Reply]] = []
        self._reports: dict[int, Report] = {}
        self._writing = asyncio.Lock()  # held while reports are under way
        self.rests = False  # whether nothing is to be written until the next save or report
        self._closed = False
        self.logs = JobLogs(store, in_flight)

    def report(self, running: Running, frame: Reported) -> None:
        """Note progress, to be written soon."""
        self._in_flight.note_progress(frame.token, frame.progress)
        self.tell(running)

    def tell(self, running: Running) -> None:
        """Write soon what is known of an attempt."""
        report = Report(running.claimed.job_id, running.token, running.progress, running.still)
        self._reports[running.token] = report
        if self.rests:
            self.rests = False
            self.nudge.give()

    def add(self, one: Save | NamedStep, reply: Reply) -> None:
        """Save a checkpoint, keep a step or look for it; ``reply`` gets the answer, and a found
        step's value."""
        if self._closed:
            reply(str(Answer.REFUSED), None)
            return
        self._in_flight.note_saving(one.token, _mark_of(one))
        self._saves.append((one, reply))
        self.nudge.give()

    def close(self) -> None:
        """Refuse pending and later saves, for which attempts in process would wait forever."""
        self._closed = True
        saves, self._saves = self._saves, []
        for _, reply in saves:
            reply(str(Answer.REFUSED), None)

    async def run_once(self) -> float | None:
        """Write all pending saves, those whose row is locked last, then the latest progress."""
        waiting = len(self._saves)
        while waiting > 0:
            sizes = accumulate(
                len(save.value or "") for save, _ in self._saves[: min(waiting, SAVES_MAX)]
            )
            batch = self._saves[: max(1, sum(size <= TRIP_BYTES for size in sizes))]
            waiting -= len(batch)
            busy = await self._save(batch)
            self._saves = [*self._saves[len(batch) :], *busy]
        if self._saves or self._reports or self._writing.locked():  # these may come back
            held = self._in_flight.held()  # the last progress of others comes with their ends
            self._reports = {token: one for token, one in self._reports.items() if token in held}
            await self._report(self._in_flight.running.keys())
            return BUSY_PAUSE_SECONDS if self._saves else FLUSH_SECONDS
        self.rests = True
        return None

    async def _save(
        self, batch: list[tuple[Save | NamedStep, Reply]]
    ) -> list[tuple[Save | NamedStep, Reply]]:
        wanted = [one for one, _ in batch if one.token in self._in_flight.running]
        answers = await self._write(wanted)
        busy = []
        for one, reply in batch:  # an attempt without an answer has ended meanwhile
            answer, value = answers.get(one, (str(Answer.REFUSED), None))
            self._in_flight.note_answer(one.token, _mark_of(one))
            if answer == Answer.BUSY:
                busy.append((one, reply))
                continue
            if answer == Answer.REFUSED and one in answers:
                self._in_flight.counters.note_refusal(
                    "checkpoint" if isinstance(one, Save) else "step"
                )
            if answer in (Answer.ACCEPTED, Answer.ALREADY):
                self._note_kept(one)
            reply(str(answer), value)
        return busy

    async def _write(
        self, wanted: list[Save | NamedStep]
    ) -> dict[Save | NamedStep, tuple[str, str | None]]:
        saves = [one for one in wanted if isinstance(one, Save)]
        steps = [one for one in wanted if isinstance(one, NamedStep)]
        kept = [step for step in steps if step.value is not None]
        looks = [step for step in steps if step.value is None]
        found: dict[Save | NamedStep, Answered] = {}
        if saves:
            answers = await bisecting(self._store.checkpoint, saves, _refuse, _plain_value)
            found |= {save: (answer, None) for save, answer in zip(saves, answers, strict=True)}
        if kept:
            answers = await bisecting(self._store.keep_steps, kept, _refuse, _plain_value)
            found |= {step: (answer, None) for step, answer in zip(kept, answers, strict=True)}
        if looks:
            answered = await bisecting(self._store.find_steps, looks, lambda *_: (REJECTED, None))
            found |= dict(zip(looks, answered, strict=True))
        return found

    def _note_kept(self, one: Save | NamedStep) -> None:
        if isinstance(one, Save):
            self._in_flight.note_save(one)
        elif one.value is not None:
            self._in_flight.note_step(one.token)

    async def report_last(self, tokens: Iterable[int]) -> None:
        """Write the last progress and lines of these attempts, before their ends are handed in."""
        ended = set(tokens)
        with suppress(Exception):  # any error: the end matters more, and meets the same error
            async with asyncio.timeout(LAST_SECONDS):
                await self._report(ended)
                await self.logs.write_last(ended)

    async def _report(self, tokens: AbstractSet[int]) -> None:
        """Write these attempts' reports. One whose row is locked is written again later."""
        async with self._writing:
            reports = {token: self._reports.pop(token) for token in tokens & self._reports.keys()}
            if not reports:
                return
            try:
                answers = await bisecting(
                    self._store.progress, list(reports.values()), _reject, _plain
                )
                answered = zip(reports, answers, strict=True)
                for token in [token for token, answer in answered if answer != Answer.BUSY]:
                    del reports[token]
            finally:  # what is left could not be written
                self._reports = {**reports, **self._reports}


def _refuse(*_: object) -> str:
    return REJECTED


def _reject(_: object, error: BadData) -> str:
    emit("progress_rejected", error=text_of(error))
    return REJECTED


def _plain_value(one: K) -> K:
    return msgspec.structs.replace(one, value=escape(one.value or ""))


def _plain(one: Report) -> Report:
    return msgspec.structs.replace(one, progress=one.progress and rewrite(one.progress, escape))


def _plain_lines(log: JobLog) -> JobLog:
    return msgspec.structs.replace(
        log, lines=[LogLine(line.at, escape(line.text)) for line in log.lines]
    )


def _mark_of(one: Save | NamedStep) -> int | str:
    return one.number if isinstance(one, Save) else one.name


class _Kept:
    def __init__(self, claimed: Claimed) -> None:
        self.job_id, self.number = claimed.job_id, claimed.number
        self.lines: deque[LogLine] = deque()
        self.dropped = 0
        self._characters = 0
        self._partial = b""
        self._bar_at = -math.inf

    def add(self, data: bytes, now: float, hide: Callable[[str], str]) -> Iterator[str]:
        """Take a chunk at ``now`` seconds of any clock; yield the lines that are now complete, and
        now and then the state of an unfinished one, such as a progress bar. Lines still contain the
        text that ``hide`` removes, but never split in two."""
        *whole, rest = (self._partial + data).split(b"\n")
        if len(rest) > LINE_MAX and b"\r" in rest:
            rest = b"\r" + last_state(rest) + (b"\r" if rest.endswith(b"\r") else b"")
        if len(rest) > LINE_MAX:
            piece, rest = _cut_off(rest, hide)
            whole = [*whole, piece]
        self._partial = rest
        if not whole and b"\r" in rest and now - self._bar_at >= BAR_SECONDS:
            whole = [rest]
        if whole and b"\r" in whole[-1]:
            self._bar_at = now
        for line in whole:
            yield last_state(line).decode(errors="replace")

    def put(self, line: LogLine) -> None:
        """Keep a line; if there are too many, drop the first ones."""
        self.lines.append(line)
        self._characters += len(line.text)
        while len(self.lines) > LINES_MAX or self._characters > CHARACTERS_MAX:
            self._characters -= len(self.lines.popleft().text)
            self.dropped += 1


def _cut_off(line: bytes, hide: Callable[[str], str]) -> tuple[bytes, bytes]:
    """Cut a long line where no match of ``hide`` is split, and far from the end, where one may
    still be incomplete."""

    def hidden(part: bytes) -> str:
        return hide(part.decode(errors="replace"))

    whole = hidden(line)
    for at in range(LINE_MAX // 2, 0, -_CUT_STEP):
        if hidden(line[:at]) + hidden(line[at:]) == whole:
            return line[:at], line[at:]
    return REDACTED.encode(), b""


class JobLogs:
    """The duty that writes kept output, separately, so that no checkpoint waits for lines that
    cannot be written."""

    name = "logs"

    def __init__(self, store: Store, in_flight: InFlight, clock: Clock = SYSTEM) -> None:
        self._store = store
        self._in_flight = in_flight
        self._clock = clock
        self._everything = False
        self.kept: dict[int, _Kept] = {}  # by token, until the end of the attempt is handed in
        self._changed: set[int] = set()
        self._writing = asyncio.Lock()
        self.nudge = Nudge()
        self.rests = False  # whether nothing is to be written until an attempt prints something

    def keep_all(self) -> None:
        """Keep the output of every attempt, not only if its task asks for it."""
        self._everything = True

    def add(self, token: int, data: bytes) -> None:
        """Take a chunk of an attempt's output."""
        running = self._in_flight.running.get(token)
        if running is None or not (self._everything or running.claimed.policy.logs):
            return
        kept = self.kept.setdefault(token, _Kept(running.claimed))
        if self.rests:
            self.rests = False
            self.nudge.give()
        now = self._clock.wall()
        for text in kept.add(data, self._clock.boot(), self._in_flight.hide):
            kept.put(LogLine(round(now, 3), clean(self._in_flight.hide(text), LINE_MAX)))
            self._changed.add(token)

    async def run_once(self) -> float | None:
        """Write the new output of running attempts; forget attempts that ended."""
        if not self.kept:
            self.rests = True
            return None
        held = self._in_flight.held()
        self.kept = {token: kept for token, kept in self.kept.items() if token in held}
        self._changed &= self.kept.keys()
        await self._write(self._in_flight.running.keys())
        return WRITE_SECONDS

    async def write_last(self, tokens: AbstractSet[int]) -> None:
        """Write the last lines of attempts whose ends are about to be handed in."""
        if tokens & self.kept.keys():
            await self._write(tokens)
            for token in tokens & self.kept.keys():
                del self.kept[token]

    async def _write(self, tokens: AbstractSet[int]) -> None:
        async with self._writing:
            wanted = sorted(self._changed & tokens & self.kept.keys())
            for logs in split(map(self._log_of, wanted), _weigh, TRIP_BYTES):
                told = {log.token for log in logs}
                self._changed -= told
                try:
                    kept = await bisecting(self._keep, logs, _reject, _plain_lines)
                except BaseException:
                    self._changed |= told
                    raise
                # locked for a moment, or no longer current
                self._changed |= {
                    log.token for log, is_kept in zip(logs, kept, strict=True) if not is_kept
                }

    async def _keep(self, logs: Sequence[JobLog]) -> list[object]:
        kept = await self._store.keep_logs(logs)
        return [log.token in kept for log in logs]

    def _log_of(self, token: int) -> JobLog:
        kept = self.kept[token]
        return JobLog(kept.job_id, token, kept.number, list(kept.lines), kept.dropped)


def _weigh(log: JobLog) -> tuple[int, int]:
    return 1, sum(len(line.text) for line in log.lines)
