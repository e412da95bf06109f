"""Tracks which queue's turn it is: a client remembers it from one exchange to the next."""

from __future__ import annotations

from outlast.store.values import ClaimRequest

KINDS_MAX = 100  # of requests that are remembered; there are more only if tasks keep changing


class Turns:
    """For each kind of request, identified by its tasks, the queue at which its next claim starts.
    With a shared turn, kinds whose jobs all wait in one queue would send the others back to the
    queue after that one. The queues of streams have turns of their own.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[bool, tuple[str, ...]], str] = {}
        self._odd = 0

    def find_start(self, request: ClaimRequest, *, streams: bool = False) -> str:
        """Return where the turn of this request begins; "" comes before all names."""
        return self._first.get((streams, tuple(request.tasks)), "")

    def note_taken(self, request: ClaimRequest, queue: str, *, streams: bool = False) -> None:
        """Note the last queue that gave this request jobs: the one after it is next. No name lies
        between NAME and NAME + chr(1), as no name holds a NUL."""
        if len(self._first) >= KINDS_MAX:
            self._first.clear()
        self._first[streams, tuple(request.tasks)] = queue + chr(1)

    def halve(self, places: int) -> int:
        """Return half of the places, for the line; the streams take the others. An odd place goes
        to either side in turn, so that a worker with one free place serves both."""
        self._odd = 1 - self._odd if places % 2 else self._odd
        return (places + (self._odd if places % 2 else 0)) // 2
