"""Whose turn it is among the queues: remembered by a client from one exchange to the next."""

from __future__ import annotations

from outlast.store.values import ClaimRequest

KINDS_MAX = 100  # of rooms that are remembered; there are more only where tasks change all the time


class Turns:
    """For each kind of room, told by its tasks, the queue from which it goes on.

    Kinds do not share a turn: where all jobs that may share a runner wait in one queue, each of
    their claims would send the others back to the queue behind that one, and no further.
    """

    def __init__(self) -> None:
        self._first: dict[tuple[str, ...], str] = {}

    def first(self, room: ClaimRequest) -> str:
        """Return the name at which the turn of this room begins; "" comes before all names."""
        return self._first.get(tuple(room.tasks), "")

    def took(self, room: ClaimRequest, queue: str) -> None:
        """Note the last queue from which this room has taken something: the next one is next.
        Nothing is between a name and the same with chr(1) behind it, as no name holds a NUL."""
        if len(self._first) >= KINDS_MAX:
            self._first.clear()
        self._first[tuple(room.tasks)] = queue + chr(1)
