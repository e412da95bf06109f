"""How many bytes one exchange may carry: as many as its link can carry in time, found by trial.

A batch that is bounded by a count alone never arrives where its jobs are large and the link is
slow: the trip breaks off, and so does each repetition of it. So ends and claims are bounded in
bytes, too: by half as many after a trip that broke off, by twice as many after one that was full
and quick, so that twice as many would have taken no more than half of the patience.

One job or end goes regardless of its size. A result that does not arrive alone, again and again,
while trips between were answered, is given up: it would keep its worker from all others.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlast.model.lifecycle import Transition
from outlast.store.values import TRIP_BYTES, Claimed

TRIP_BYTES_MIN = 64 * 1024
TRIP_BYTES_MAX = 16 * 1024 * 1024
ALONE_TRIES = 3  # of an end that is larger than a trip should be


class TripBytes:
    """The bound of one worker; ``patience``: seconds after which a trip breaks off.

    ``doubts``: an end that went alone did not arrive, and nothing has been answered since: the next
    trip goes without ends, so that it is known whether the link is there at all.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._alone: tuple[int, int] = (
            0,
            0,
        )  # the token of an end, and how often it did not arrive
        self.most = TRIP_BYTES
        self.doubts = False

    def note_answer(self, carried: int, seconds: float) -> None:
        """Note a trip that was answered, with so many bytes in it, in either direction."""
        self.doubts = False
        if 2 * carried >= self.most and 4 * seconds <= self._patience:
            self.most = min(TRIP_BYTES_MAX, 2 * self.most)

    def note_break(self) -> None:
        """Note a trip that broke off."""
        self.most = max(TRIP_BYTES_MIN, self.most // 2)

    def is_alone(self, ended: Sequence[Transition]) -> bool:
        """Whether this is one end that is too large by itself: it goes alone, and without claim
        requests."""
        return len(ended) == 1 and size_of(ended[0]) > self.most

    def note_timeout(self, ended: Sequence[Transition]) -> bool:
        """Note that a trip with these ends was not answered in time; return whether the one that
        went alone is to be given up."""
        if not self.is_alone(ended):
            return False
        token, tries = self._alone
        tries = tries + 1 if token == ended[0].token else 1
        self._alone = ended[0].token, tries
        self.doubts = True
        return tries >= ALONE_TRIES


def size_of(end: Transition) -> int:
    """Return about how many bytes an end has: what can be large in it."""
    size = len(end.result) if end.result else 0
    if end.crash is not None:
        texts = (end.crash.traceback, end.crash.stacks, *end.crash.output)
        size += sum(len(text) for text in texts if text)
    return size


def size_of_all(ends: Sequence[Transition]) -> int:
    """Return about how many bytes these ends have; most have a short result and no crash."""
    crashed = [size_of(end) for end in ends if end.crash is not None]
    return sum(crashed) + sum([len(end.result or "") for end in ends if end.crash is None])


def size_of_claimed(claimed: Sequence[Claimed]) -> int:
    """Return how many characters of payload came with these jobs."""
    checkpoints = [len(one.checkpoint) for one in claimed if one.checkpoint]
    return sum([len(one.args) for one in claimed]) + sum(checkpoints)
