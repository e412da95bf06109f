"""Limits the bytes of one trip to the store to what the link can carry in time, found by trial.

A trip is one exchange: a request to the store and its answer. If only a count bounded a batch, a
batch of large jobs would never arrive over a slow link: the trip breaks off, and so does each
repetition of it. So ends and claims are bounded in bytes, too. The bound is halved after a trip
that broke off, and doubled after a trip that was at least half full and took at most a quarter of
the patience.

A single job or end is sent regardless of its size. If a result that is sent alone repeatedly fails
to arrive, while trips in between are answered, it is given up, since it would block all other ends
of its worker.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlast.model.lifecycle import Transition
from outlast.store.values import TRIP_BYTES, Claimed

TRIP_BYTES_MIN = 64 * 1024
TRIP_BYTES_MAX = 16 * 1024 * 1024
ALONE_TRIES = 3  # attempts to send an end that is larger than the bound


class TripBytes:
    """The bound of one worker; ``patience``: seconds after which a trip breaks off.

    Attributes:
        limit: bytes that a trip may carry now.
        doubts: an end that was sent alone did not arrive, and no trip was answered since. The next
            trip then carries no ends, and so shows whether there is a link at all.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._alone = (0, 0)  # the token of an end sent alone, and how often it did not arrive
        self.limit = TRIP_BYTES
        self.doubts = False

    def note_answer(self, carried: int, seconds: float) -> None:
        """Note an answered trip: how many bytes it carried both ways, how long it took."""
        self.doubts = False
        if 2 * carried >= self.limit and 4 * seconds <= self._patience:
            self.limit = min(TRIP_BYTES_MAX, 2 * self.limit)

    def note_break(self) -> None:
        """Note a trip that broke off."""
        self.limit = max(TRIP_BYTES_MIN, self.limit // 2)

    def is_alone(self, ended: Sequence[Transition]) -> bool:
        """Whether this is a single end above the bound: it is sent without claim requests."""
        return len(ended) == 1 and size_of(ended[0]) > self.limit

    def note_timeout(self, ended: Sequence[Transition]) -> bool:
        """Note that a trip with these ends was not answered in time; return whether to give up the
        end that was sent alone."""
        if not self.is_alone(ended):
            return False
        token, tries = self._alone
        tries = tries + 1 if token == ended[0].token else 1
        self._alone = ended[0].token, tries
        self.doubts = True
        return tries >= ALONE_TRIES


def size_of(end: Transition) -> int:
    """Return the approximate size of an end in bytes, counting only parts that can be large."""
    size = len(end.result) if end.result else 0
    if end.crash is not None:
        texts = (end.crash.traceback, end.crash.stacks, *end.crash.output)
        size += sum(len(text) for text in texts if text)
    return size


def size_of_all(ends: Sequence[Transition]) -> int:
    """Return the approximate size of these ends in bytes; most have a short result and no crash."""
    size = 0
    for end in ends:
        if end.crash is not None:
            size += size_of(end)
        elif end.result:
            size += len(end.result)
    return size


def size_of_claimed(claimed: Sequence[Claimed]) -> int:
    """Return the size of the arguments and checkpoints of these jobs, in characters."""
    size = 0
    for one in claimed:
        size += len(one.args)
        if one.checkpoint:
            size += len(one.checkpoint)
    return size
