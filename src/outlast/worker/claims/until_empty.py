"""Stops a worker once there is nothing left for it to claim: for cron, CI, jobs of a cluster, and
databases that suspend while nothing asks them.

A worker that has nothing in flight, and to which the store has offered nothing, drains and leaves;
so does one that has claimed the maximum of attempts. Paused jobs and those due later are left to
other workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from outlast.base.clock import SYSTEM, Clock
from outlast.store.values import ClaimRequest, Exchanged
from outlast.worker.claims.prefetch import BACK_SECONDS

# the worker waits for a job that is due within this time, such as one that it has given back
SOON_SECONDS = BACK_SECONDS + 0.1


class UntilEmpty:
    """Narrows the requests of an exchange, and asks the worker to stop.

    Args:
        stop: called, perhaps several times, once there is nothing left; None: the owner
            asks ``is_over``.
        most: how many attempts may be claimed; None: any number.
        seconds: how long the store has to offer nothing before the stop.
        at_once: the first stop, before any claim, does not wait for these seconds.
        knows: whether the worker has declared its limits and fired what is due: before that, jobs
            that nothing offers may be due.

    ``due_at``: when the next job is due, on the boot clock, by the last reply, if known.
    """

    def __init__(
        self,
        stop: Callable[[], None] | None = None,
        most: int | None = None,
        *,
        seconds: float = 0.0,
        at_once: bool = False,
        knows: Callable[[], bool] = lambda: True,
        clock: Clock = SYSTEM,
    ) -> None:
        self._stop = stop
        self._left = most
        self._knows, self._knew = knows, True  # now, and when the last request was made
        self._clock = clock
        self._seconds_then, self._seconds = seconds, 0.0 if at_once else seconds
        self._empty_since = math.inf
        self._looks_everywhere = False  # in the next exchange
        self.due_at: float | None = None

    def stop(self) -> None:
        """Note that there is nothing to claim, and ask for the stop after long enough."""
        if not self._knew and self._left != 0:
            return
        self._empty_since = min(self._empty_since, self._clock.boot())
        if self._stop is not None and self.is_over():
            self._stop()

    def is_over(self) -> bool:
        """Whether there has been nothing to claim for long enough, as of the last reply."""
        return self._clock.boot() - self._empty_since >= self._seconds

    def narrow(self, requests: list[ClaimRequest]) -> list[ClaimRequest]:
        """Bound the requests by ``most``; they look everywhere if ``take_reply`` has said so."""
        self._knew = self._knows()
        if self._looks_everywhere and requests:
            requests = [msgspec.structs.replace(requests[0], whole=True), *requests[1:]]
        if self._left is None:
            return requests
        narrowed, left = [], self._left
        for request in requests:
            if count := min(left, request.limit):
                narrowed.append(msgspec.structs.replace(request, limit=count))
                left -= 0 if request.solo else count
        return narrowed

    def take_reply(self, requests: list[ClaimRequest], reply: Exchanged, *, is_idle: bool) -> bool:
        """Note the reply. ``is_idle``: nothing is in flight after it. Return whether the next
        exchange has to look everywhere, at once, before the stop: a job that snoozes again and
        again may be due later."""
        if self._left is not None:
            self._left -= len(reply.claimed)
        looks_again = reply.cut or reply.next_look is not None
        is_due_soon = reply.next_due is not None and reply.next_due < SOON_SECONDS
        is_over = requests and not (reply.claimed or looks_again or is_due_soon)
        if requests:
            self.due_at = None if reply.next_due is None else self._clock.boot() + reply.next_due
        if reply.claimed or not is_idle:
            self._empty_since = math.inf
        if reply.claimed:
            self._seconds = self._seconds_then
        if is_idle and (is_over or self._left == 0):
            self.stop()
        needs_look = is_idle and requests and reply.next_look is not None and not reply.claimed
        was_everywhere = self._looks_everywhere
        self._looks_everywhere = bool(self._stop and needs_look and not was_everywhere)
        return self._looks_everywhere
