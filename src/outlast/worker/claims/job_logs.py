"""Writes the output of running attempts to the store, for tasks or workers that ask for it.

``logs=True`` of a task asks for it, or ``--logs`` for all attempts of a worker. The last lines of
each attempt replace the earlier ones now and then, and a last time before the end of the attempt is
handed in, since the store refuses them afterwards. For other attempts no output is kept and no
statement is sent.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

from outlast.base.clock import SYSTEM, Clock
from outlast.errors import BadData, text_of
from outlast.events import emit
from outlast.model.crash import REDACTED, clean
from outlast.runner.tail import last_state
from outlast.store.batches import split
from outlast.store.logs import JobLog, LogLine
from outlast.store.protocol import Store
from outlast.store.values import TRIP_BYTES, Claimed
from outlast.worker.claims.in_flight import InFlight
from outlast.worker.service import Nudge

WRITE_SECONDS = 0.5  # between two writes
LINES_MAX = 200  # the last lines of an attempt
CHARACTERS_MAX = 65_536  # of an attempt
LINE_MAX = 8_000  # bytes of a line; a longer line is split
_CUT_STEP = 5  # bytes between two places where a line may be split
BAR_SECONDS = 30.0  # between two kept states of one progress bar


class _Kept:
    """The last lines of one attempt."""

    def __init__(self, claimed: Claimed) -> None:
        self.job_id, self.number = claimed.job_id, claimed.number
        self.lines: deque[LogLine] = deque()
        self.dropped = 0
        self._characters = 0
        self._partial = b""
        self._bar_at = -math.inf

    def add(self, data: bytes, now: float, hide: Callable[[str], str]) -> Iterator[str]:
        """Take a chunk; yield the lines that are now complete. A progress bar may be one line for
        hours, so its state is yielded now and then. ``now``: in seconds of any clock. Lines still
        contain the text that ``hide`` removes, but never split in two."""
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
    """Return the first piece of a long line, and the rest. The cut splits no match of ``hide``, and
    is far from the end, where a match may still be incomplete."""

    def hidden(part: bytes) -> str:
        return hide(part.decode(errors="replace"))

    whole = hidden(line)
    for at in range(LINE_MAX // 2, 0, -_CUT_STEP):
        if hidden(line[:at]) + hidden(line[at:]) == whole:
            return line[:at], line[at:]
    return REDACTED.encode(), b""


class JobLogs:
    """The duty that writes the kept output of attempts. It is a separate duty, so that no
    checkpoint waits for lines that cannot be written."""

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
        self._rests = False  # whether idle until an attempt prints something

    def keep_all(self) -> None:
        """Keep the output of every attempt, not only if its task asks for it."""
        self._everything = True

    def add(self, token: int, data: bytes) -> None:
        """Take a chunk of an attempt's output."""
        running = self._in_flight.running.get(token)
        if running is None or not (self._everything or running.claimed.policy.logs):
            return
        kept = self.kept.setdefault(token, _Kept(running.claimed))
        if self._rests:
            self._rests = False
            self.nudge.give()
        now = self._clock.wall()
        for text in kept.add(data, self._clock.boot(), self._in_flight.hide):
            kept.put(LogLine(round(now, 3), clean(self._in_flight.hide(text), LINE_MAX)))
            self._changed.add(token)

    async def run_once(self) -> float | None:
        """Write the new output of running attempts; forget attempts that ended."""
        if not self.kept:
            self._rests = True
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
                    kept = await self._store.keep_logs(logs)
                except BadData as error:
                    emit("progress_rejected", error=text_of(error))
                except BaseException:
                    self._changed |= told
                    raise
                else:
                    self._changed |= told - kept  # locked for a moment, or no longer current

    def _log_of(self, token: int) -> JobLog:
        kept = self.kept[token]
        return JobLog(kept.job_id, token, kept.number, list(kept.lines), kept.dropped)


def _weigh(log: JobLog) -> tuple[int, int]:
    return 1, sum(len(line.text) for line in log.lines)
