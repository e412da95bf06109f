"""The last lines of an output, kept in bounded memory however much is written."""

from __future__ import annotations

from collections import deque

from outlast.model.crash import CUT_BYTES, OUTPUT_LINES_MAX

LINE_BYTES_MAX = 8_000  # of a longer line the end is kept


def last_state(line: bytes) -> bytes:
    """Return what a terminal shows of a line in the end: of a progress bar, which writes over
    itself after a carriage return, how far it came."""
    if b"\r" not in line:
        return line
    states = line.split(b"\r")
    return next((state for state in reversed(states) if state.strip()), b"")


def _read(line: bytes) -> str:
    """Return the end of a line as text. The first state of a line that was cut is left out if it is
    too short for ``redact`` to see that it was."""
    line = line[-LINE_BYTES_MAX:]
    first, returned, later = line.partition(b"\r")
    if returned and len(line) == LINE_BYTES_MAX and len(first) < CUT_BYTES:
        line = later
    return last_state(line).decode(errors="replace")


class Tail:
    """Takes chunks of bytes; gives the last lines as text, odd bytes replaced."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=OUTPUT_LINES_MAX)
        self.partial = b""

    def add(self, data: bytes) -> None:
        """Take a chunk. Lines that cannot be among the last are not even cut out of it."""
        *lines, rest = (self.partial + data).rsplit(b"\n", OUTPUT_LINES_MAX + 1)
        self.partial = rest[-LINE_BYTES_MAX:]
        for line in lines[-OUTPUT_LINES_MAX:]:
            self._lines.append(_read(line))

    def lines(self) -> list[str]:
        """Return the last lines, an unfinished one among them."""
        rest = [_read(self.partial)] if self.partial else []
        return [*self._lines, *rest][-OUTPUT_LINES_MAX:]
