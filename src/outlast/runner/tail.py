"""The last lines of an output, kept in bounded memory however much is written."""

from __future__ import annotations

from collections import deque

from outlast.model.crash import OUTPUT_LINES_MAX

LINE_BYTES_MAX = 8_000  # of a longer line the end is kept


def last_state(line: bytes) -> bytes:
    """Return what a terminal shows of a line in the end: of a progress bar, which writes over
    itself after a carriage return, how far it came."""
    if b"\r" not in line:
        return line
    states = line.split(b"\r")
    return next((state for state in reversed(states) if state.strip()), b"")


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
            self._lines.append(last_state(line[-LINE_BYTES_MAX:]).decode(errors="replace"))

    def lines(self) -> list[str]:
        """Return the last lines, an unfinished one among them."""
        rest = [last_state(self.partial).decode(errors="replace")] if self.partial else []
        return [*self._lines, *rest][-OUTPUT_LINES_MAX:]
