"""Keeps the last lines of an output in bounded memory, however much is written."""

from __future__ import annotations

from collections import deque

from outlast.model.crash import CUT_BYTES, OUTPUT_LINES_MAX

LINE_BYTES_MAX = 8_000  # a longer line keeps its end


def last_state(line: bytes) -> bytes:
    """Return a line as a terminal finally shows it: the last state of a progress bar."""
    if b"\r" not in line:
        return line
    states = line.split(b"\r")
    return next((state for state in reversed(states) if state.strip()), b"")


def _read(line: bytes) -> str:
    """Return the end of a line. A cut line loses its first state where that is too short for
    ``redact`` to notice the cut."""
    line = line[-LINE_BYTES_MAX:]
    first, returned, later = line.partition(b"\r")
    if returned and len(line) == LINE_BYTES_MAX and len(first) < CUT_BYTES:
        line = later
    return last_state(line).decode(errors="replace")


class Tail:
    """Takes chunks of bytes; returns the last lines as text, undecodable bytes replaced."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=OUTPUT_LINES_MAX)
        self.partial = b""

    def add(self, data: bytes) -> None:
        """Take a chunk. Lines that cannot be among the last ones are skipped unsplit."""
        *lines, rest = (self.partial + data).rsplit(b"\n", OUTPUT_LINES_MAX + 1)
        self.partial = rest[-LINE_BYTES_MAX:]
        for line in lines[-OUTPUT_LINES_MAX:]:
            self._lines.append(_read(line))

    def lines(self) -> list[str]:
        """Return the last lines, including an unfinished one."""
        rest = [_read(self.partial)] if self.partial else []
        return [*self._lines, *rest][-OUTPUT_LINES_MAX:]
