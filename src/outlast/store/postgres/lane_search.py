"""When a client searches the whole line for lanes that it does not know, and where else.

An exchange finds new lanes at once, by a search from each gap between known lanes to the next. It
walks over what is dead in lanes that are not known: nothing worth mentioning, but behind a
transaction that is held open all that thousands of queues have left. Such a search, if it has met
its end, is made less often, so that it takes a twentieth of the time at most, and at least every
30 s. Until then known lanes are read, and those queues that wake-ups have named.

What is dear is told by the entries that the database has read, and not by the time alone: a
busy machine makes no search dear. Each kind of request, identified by its tasks, has its own
search: what one has not found says nothing of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from outlast.clock import Clock
from outlast.store.postgres.claim_floors import FULL_SECONDS, FULL_SECONDS_MAX, FULL_SHARE
from outlast.store.turns import KINDS_MAX
from outlast.store.values import ClaimRequest

DEAR_ENTRIES = 10_000  # of the line's index, read by a search
NEWS_MAX = 100  # queues that were named; where there are more, all are searched

_Kind = tuple[str, ...]  # the tasks of a request


class Search(msgspec.Struct, frozen=True):
    """Which of the requests search everywhere; the others do so in these queues."""

    everywhere: list[bool]
    queues: list[str]


class _Pause(msgspec.Struct):
    seconds: float
    until: float


class LaneSearch:
    """The searches of one client."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[_Kind, _Pause] = {}  # of those kinds whose search was dear
        self._news: dict[str, float] = {}  # the names of queues, with the time of each

    def ask(self, requests: Sequence[ClaimRequest]) -> Search:
        """Return where these requests search: call ``note_end`` or ``note_failure`` afterwards."""
        self._take_news(requests)
        everywhere = [self._seconds_to(request) <= 0 for request in requests]
        return Search(everywhere, [] if all(everywhere) else [*self._news])

    def _take_news(self, requests: Sequence[ClaimRequest]) -> None:
        now = self._clock.boot()
        if self._news:
            fresh = (item for item in self._news.items() if now - item[1] < FULL_SECONDS_MAX)
            self._news = dict(fresh)  # of all else, each kind has searched everywhere since
        if self._pauses and requests and requests[0].news:
            self._news |= dict.fromkeys(requests[0].news, now)
            if len(self._news) > NEWS_MAX:
                self._pauses.clear()
                self._news.clear()

    def _seconds_to(self, request: ClaimRequest) -> float:
        pause = self._pauses.get(_kind_of(request))
        return 0.0 if pause is None else max(0.0, pause.until - self._clock.boot())

    def note_end(self, kinds: Iterable[ClaimRequest], walked: int, seconds: float) -> None:
        """Note that searches everywhere have met their end, over how many entries they have walked,
        and how many seconds the exchange has taken."""
        for request in kinds:
            self._pauses.pop(_kind_of(request), None)
            if walked >= DEAR_ENTRIES:
                self._put_off(request, max(FULL_SECONDS, seconds * FULL_SHARE))

    def note_failure(self, requests: Sequence[ClaimRequest], search: Search) -> None:
        """Note an exchange that was not answered: maybe since it has searched for too long."""
        for request, everywhere in zip(requests, search.everywhere, strict=True):
            if everywhere:
                before = self._pauses.get(_kind_of(request))
                self._put_off(request, 2 * before.seconds if before else FULL_SECONDS)

    def _put_off(self, request: ClaimRequest, seconds: float) -> None:
        if len(self._pauses) >= KINDS_MAX:
            self._pauses.clear()
        seconds = min(FULL_SECONDS_MAX, seconds)
        self._pauses[_kind_of(request)] = _Pause(seconds, self._clock.boot() + seconds)

    def seconds_to_next(self, requests: Iterable[ClaimRequest]) -> float | None:
        """Return in how many seconds the first of these requests searches everywhere again; None:
        there is none."""
        return min(map(self._seconds_to, requests), default=None)


def _kind_of(request: ClaimRequest) -> _Kind:
    return tuple(request.tasks)
