"""Splits what runners write by line and by attempt, and keeps the last lines.

Bytes with a head (``runner/printing.py``) belong to the attempt that it names. Bytes without one,
from C code and child processes, belong to the attempt that is alone in the runner, if one is.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator

from outlast.base.clock import Clock
from outlast.model.crash import OUTPUT_LINES_MAX
from outlast.runner.printing import PIECE_MAX
from outlast.runner.tail import LINE_BYTES_MAX, Tail, last_state

JobName = tuple[int, str]  # id and task
OnLine = Callable[[int, str, JobName | None], None]
OnOutput = Callable[[int, bytes, int | None], None]  # pid, a chunk, its writer if known
PASSED_BYTES_MAX = 8_192  # a longer line comes in pieces
_HEAD = re.compile(rb"\x1eoutlast (\d{1,19}) (\d{1,5})\x1f")
_HEAD_START, _HEAD_MAX = b"\x1e", 40  # bytes
OWN_LEAST = OUTPUT_LINES_MAX // 2  # its own lines that a report keeps beside those of others
NOT_KNOWN = "outlast: it is not known which of the attempts in this runner wrote what follows:"


class Lines:
    """Splits runners' output into lines of each attempt, for ``on_line(pid, text, job)``.
    ``job_of`` returns the job of a token."""

    def __init__(self, on_line: OnLine, job_of: Callable[[int], JobName | None]) -> None:
        self._on_line = on_line
        self._job_of = job_of
        self._partial: dict[tuple[int, int | None], bytes] = {}

    def write(self, pid: int, data: bytes, token: int | None = None) -> None:
        """Take a chunk of a runner's output; the last line waits until it has ended."""
        whose = (pid, token)
        *lines, rest = (self._partial.pop(whose, b"") + data).split(b"\n")
        if len(rest) > PASSED_BYTES_MAX:
            lines, rest = [*lines, rest], b""
        if rest:
            self._partial[whose] = rest
        job = None if token is None or not lines else self._job_of(token)
        for line in lines:
            text = last_state(line).decode(errors="replace")
            for at in range(0, len(text) or 1, PASSED_BYTES_MAX):
                self._on_line(pid, text[at : at + PASSED_BYTES_MAX], job)


class Printed:
    """The output of one runner. ``tokens``: the attempts that are in it now."""

    def __init__(self, tokens: Callable[[], Collection[int]], clock: Clock) -> None:
        self._tokens = tokens
        self._clock = clock
        self._unread = b""  # bytes that may be the start of a head
        self._piece: tuple[int, int] | None = None  # token, and missing bytes of its piece
        self._own: dict[int, Tail] = {}
        self._shared: deque[tuple[float, bytes]] = deque(maxlen=OUTPUT_LINES_MAX)  # at, line
        self._is_open = False  # whether the last of them is unfinished
        self.all = Tail()

    def take(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Take a chunk; yield its parts without their heads, each with its token, if known."""
        for named, text in self._parts(self._unread + data):
            token = self._find_writer(named)
            self.all.add(text)
            if token is not None:
                self._own.setdefault(token, Tail()).add(text)
            elif named is None:
                self._add_shared(text)
            yield token, text

    def _add_shared(self, text: bytes) -> None:
        """Keep lines; join a line that came in two chunks: a secret may cross their border."""
        now = self._clock.boot()
        first, *others = text.split(b"\n")
        if self._is_open and self._shared:
            _, begun = self._shared.pop()
            first = (begun + first)[-LINE_BYTES_MAX:]
        self._shared.extend((now, line[-LINE_BYTES_MAX:]) for line in [first, *others] if line)
        self._is_open = bool((others or [first])[-1])

    def _find_writer(self, named: int | None) -> int | None:
        tokens = self._tokens()
        if named is not None:
            return named if named in tokens else None  # perhaps a thread of an ended attempt
        return next(iter(tokens)) if len(tokens) == 1 else None

    def _parts(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        self._unread = b""
        at = 0
        while at < len(data):
            if self._piece is not None:
                token, left = self._piece
                text = data[at : at + left]
                self._piece = (token, left - len(text)) if len(text) < left else None
                at += len(text)
                yield token, text
                continue
            start = data.find(_HEAD_START, at)
            if start < 0:
                yield None, data[at:]
                return
            if start > at:
                yield None, data[at:start]
            head = _HEAD.match(data, start)
            if head is not None and int(head[2]) <= PIECE_MAX:
                self._piece, at = (int(head[1]), int(head[2])) if int(head[2]) else None, head.end()
            elif len(data) - start < _HEAD_MAX and b"\x1f" not in data[start:]:
                self._unread = data[start:]
                return
            else:
                yield None, data[start : start + 1]
                at = start + 1

    def lines_of(self, token: int, since: float) -> list[str]:
        """Return the last lines of an attempt that began at ``since``: its own, then lines of
        unknown writers that may be its own."""
        tail = self._own.get(token)
        own = [] if tail is None else tail.lines()
        shared = [line.decode(errors="replace") for at, line in self._shared if at >= since]
        if not shared:
            return own
        kept = shared[-(OUTPUT_LINES_MAX - 1 - min(len(own), OWN_LEAST)) :]
        return [*own[-(OUTPUT_LINES_MAX - 1 - len(kept)) :], NOT_KNOWN, *kept]

    def forget(self, tokens: Collection[int]) -> list[int]:
        """Forget the output of ended attempts; return those whose last line is unfinished."""
        if not self._own:
            return []
        gone = [(token, self._own.pop(token, None)) for token in tokens]
        return [token for token, tail in gone if tail is not None and tail.partial]

    def unfinished(self) -> list[int | None]:
        """Return the writers whose last line is unfinished."""
        own = [token for token, tail in self._own.items() if tail.partial]
        return [*own, None] if self.all.partial and not own else [*own]
